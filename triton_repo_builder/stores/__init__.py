"""Push a repository to a bucket or a registry, and pull it back."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

from triton_repo_builder import check, releases, repository
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores.bucket import BucketStore
from triton_repo_builder.stores.location import Bucket, Location, parse
from triton_repo_builder.stores.registry import RegistryStore
from triton_repo_builder.stores.revision import gather
from triton_repo_builder.stores.store import (
    Progress,
    Pulled,
    Pushed,
    Store,
)
from triton_repo_builder.write import staging

__all__ = ["Location", "Pulled", "Pushed", "parse", "pull", "push", "store"]


def store(location: Location) -> Store:
    """What talks to this place; nothing is connected yet."""
    return BucketStore(location) if isinstance(location, Bucket) else RegistryStore(location)


def push(
    root: Path, location: Location, progress: Progress, *, force: bool = False, dry_run: bool = False
) -> Pushed:
    """Send a repository. Raises FAILED_CHECKS where the server would refuse it, unless ``force``."""
    if location.revision:
        raise TrbError(
            Code.BAD_LOCATION,
            "names a revision: what is pushed decides that itself",
            where=str(location),
            remedy="leave @sha256:… out",
        )
    read = repository.read(root)
    if not read.models:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "holds no model",
            where=str(root),
            remedy="name a folder of model directories",
        )
    errors = [found for found in check.check(read, releases.default()) if found.severity == "error"]
    if errors and not force:
        listed = "\n".join(f"  {found.where}: {found.message}" for found in errors[:5])
        raise TrbError(
            Code.FAILED_CHECKS,
            f"{len(errors)} of trb's checks fail, nothing was sent\n{listed}",
            where=str(root),
            remedy="see all of them with 'trb check', or push it as it is with --force",
        )
    return store(location).push(gather(root), progress, dry_run=dry_run)


def pull(location: Location, target: Path, progress: Progress, *, force: bool = False) -> Pulled:
    """Bring a revision into a folder: whole, verified, or not at all.

    A folder with anything else in it is replaced only with ``force``; one that already holds this revision
    stays untouched.
    """
    _put_back(target)
    with staging.staging(target, how="as FOLDER") as stage:
        full = target.exists() and (not target.is_dir() or any(target.iterdir()))
        new = stage / "new"
        new.mkdir()
        pulled = replace(store(location).pull(new, progress), target=str(target))
        if full and target.is_dir() and gather(target).index == gather(new).index:
            return replace(pulled, changed=False)
        if full and not force:
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                "holds something else; nothing was touched",
                where=str(target),
                remedy="name an empty or a new folder, or replace what is there with --force",
            )
        if target.exists():
            target.rename(stage / staging.REPLACED)
        try:
            new.rename(target)
        except BaseException:
            with contextlib.suppress(OSError):
                (stage / staging.REPLACED).rename(target)
            raise
        with contextlib.suppress(OSError):
            (stage / staging.REPLACED).rename(stage / "done")
    return pulled


def _put_back(target: Path) -> None:
    """What a pull that was killed had moved away to put the new revision in its place."""
    with contextlib.suppress(OSError):
        for stage in staging.leftovers(target):
            if not (stage / staging.REPLACED).exists():
                continue
            with staging.locked(stage) as mine:
                if mine and not target.exists():
                    (stage / staging.REPLACED).rename(target)
                if mine:
                    shutil.rmtree(stage, ignore_errors=True)

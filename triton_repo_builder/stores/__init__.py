"""Push a repository to a bucket or a registry, and pull it back."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from triton_repo_builder import check, files, repository
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores.az import AzureStore
from triton_repo_builder.stores.gs import GoogleStore
from triton_repo_builder.stores.location import invalid
from triton_repo_builder.stores.registry import RegistryStore
from triton_repo_builder.stores.revision import DIGEST, collect
from triton_repo_builder.stores.s3 import S3Store
from triton_repo_builder.stores.store import Location, Progress, Pulled, Pushed, Store
from triton_repo_builder.write import recovery, staging

__all__ = ["STORES", "Location", "Pulled", "Pushed", "parse", "pull", "push", "store"]

STORES: dict[str, type[Store]] = {
    "s3": S3Store,
    "gs": GoogleStore,
    "az": AzureStore,
    "oci": RegistryStore,
}
"""Stores by URL scheme. A store is one module and its entry here."""


def parse(text: str) -> Location:
    """Read the URL of a pushed repository. Raises BAD_LOCATION."""
    forms = ", ".join(kind.FORMS for kind in STORES.values())
    remedy = f"use one of {forms}; with @sha256:… for one revision"
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in STORES:
        raise invalid(text, f"trb cannot push to '{scheme}://'" if separator else "not a URL", remedy)
    rest, at, digest = rest.partition("@")
    match = DIGEST.fullmatch(digest)
    if at and not match:
        raise invalid(text, f"invalid digest '@{digest}': use @sha256: and 64 hex digits", remedy)
    try:
        return STORES[scheme].parse(text, rest, match[1] if match else "")
    except TrbError as error:
        raise invalid(text, error.message, remedy) from None


def store(location: Location) -> Store:
    """The store at this location; nothing is connected yet."""
    return STORES[location.scheme](location)


def push(
    root: Path, location: Location, progress: Progress, *, force: bool = False, dry_run: bool = False
) -> Pushed:
    """Send a repository. Raises FAILED_CHECKS if the server would refuse it, unless ``force``."""
    if location.revision:
        raise TrbError(
            Code.BAD_LOCATION,
            "names a revision, but the pushed files determine it",
            where=str(location),
            remedy="leave @sha256:… out",
        )
    repo = repository.read(root)
    if not repo.models:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "has no models",
            where=str(root),
            remedy="name a folder of model directories",
        )
    accepted = check.refuse_errors(repo, "nothing was sent", "push it as it is", force=force)
    return replace(store(location).push(collect(root), progress, dry_run=dry_run), accepted=accepted)


def pull(location: Location, target: Path, progress: Progress, *, force: bool = False) -> Pulled:
    """Bring a revision into a folder: whole, verified, or not at all.

    A folder with anything else in it is replaced only with ``force``; one that already holds this revision
    stays untouched.
    """
    recovery.recover(target)
    with staging.staging(target, how="as FOLDER") as stage:
        full = target.exists() and (not target.is_dir() or any(target.iterdir()))
        new = stage / "new"
        new.mkdir()
        pulled = replace(store(location).pull(new, progress), target=str(target))
        if full and target.is_dir() and collect(target).index == collect(new).index:
            return replace(pulled, changed=False)
        if full and not force:
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                "contains something else; nothing was touched",
                where=str(target),
                remedy="name an empty or a new folder, or replace what is there with --force",
            )
        files.sync_all(new)
        with staging.exclusive(target) if target.exists() else contextlib.nullcontext():
            _replace(target, new, stage / staging.REPLACED)
    return pulled


def _replace(target: Path, new: Path, old: Path) -> None:
    """Put ``new`` in the place of ``target``, and that to ``old``, which says that this has not ended."""
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
        files.sync(target.resolve().parent)
    except BaseException:
        with contextlib.suppress(OSError):
            old.rename(target)
        raise
    with contextlib.suppress(OSError):
        old.rename(old.with_name("done"))

"""A pushed repository, for as long as it is served."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder import repository, stores
from triton_repo_builder.serve.engine import Opened
from triton_repo_builder.stores.bucket import BucketStore
from triton_repo_builder.stores.location import Location
from triton_repo_builder.stores.revision import Entry
from triton_repo_builder.stores.store import Progress

STATED = ("config.pbtxt", repository.MANIFEST, "smoke.json")
"""Files that say what a repository is; the others a server that reads the bucket needs, but we do not."""


@contextlib.contextmanager
def opened(location: Path | Location, progress: Progress, *, direct: bool) -> Iterator[Opened]:
    """A repository for as long as it is served.

    With ``direct`` a server reads an S3 bucket itself: here arrive only the files that say what there is,
    and empty ones in place of the rest. From everywhere else the whole revision is pulled, verified.
    """
    if isinstance(location, Path):
        yield Opened(path=location)
        return
    with tempfile.TemporaryDirectory(prefix="trb-pulled-") as folder:
        target = Path(folder) / location.name
        target.mkdir()
        found = stores.store(location)
        if direct and isinstance(found, BucketStore) and found.location.scheme == "s3":
            digest, index = found.index()
            found.fetch(digest, tuple(entry for entry in index.entries if _states(entry)), target, progress)
            for entry in index.entries:
                if not _states(entry):
                    (target / entry.path).parent.mkdir(parents=True, exist_ok=True)
                    (target / entry.path).touch()
            yield Opened(path=target, models_url=found.models_url(digest))
        else:
            found.pull(target, progress)
            yield Opened(path=target)


def _states(entry: Entry) -> bool:
    return entry.path.rsplit("/", 1)[-1] in STATED

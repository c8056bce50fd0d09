"""A folder that a command writes: put together beside its place, then renamed to it as a whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triton_repo_builder.base import files


@contextmanager
def staging(output: Path, *, kept: str = "nothing was written") -> Iterator[Path]:
    """A private folder beside ``output`` that is gone afterwards, whatever happens.

    Raises ``TrbError`` for an ``OSError`` in it; ``kept`` says what that leaves.
    """
    folder: Path | None = None
    place = output.absolute()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
        yield folder
    except OSError as error:
        raise files.explain(error, output, how="with --output", kept=kept) from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

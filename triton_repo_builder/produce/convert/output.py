"""The folder that a conversion writes: put together beside its place, and renamed as a whole."""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import conversion

KEPT = "nothing was converted"


def check(output: Path, *, force: bool) -> None:
    """``TrbError`` OUTPUT_FOREIGN if something is there, but an earlier conversion with ``force``."""
    try:
        if output.is_dir() and not output.is_symlink():
            if not any(output.iterdir()) or (force and (output / conversion.FILE).is_file()):
                return
        elif not output.exists() and not output.is_symlink():
            return
    except OSError as error:
        raise files.explain(error, output, how="with --output", kept=KEPT) from None
    ours = (output / conversion.FILE).is_file()
    raise TrbError(
        Code.OUTPUT_FOREIGN,
        "this exists already" + (": an earlier conversion" if ours else ", and trb convert did not write it"),
        where=str(output),
        remedy="--force replaces it" if ours else "name another folder with -o, or delete it",
    )


def place(whole: Path, output: Path, *, force: bool) -> None:
    """Move a finished folder to ``output``. An earlier one is back if that fails."""
    files.sync_all(whole)
    check(output, force=force)
    before = whole.with_name("before")
    if output.exists():
        output.rename(before)
    try:
        whole.rename(output)
    except BaseException:
        if before.exists() and not output.exists():
            before.rename(output)
        raise

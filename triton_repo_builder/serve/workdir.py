"""The folder of one server, which a guard makes and removes: so nothing stays of it however ``trb`` ends.

Both guards (guard.py, container/guard.py) make the folder themselves and print its path. If ``trb`` made it
and was killed before its guard ran, nobody would know of it.
"""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder import process
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.process import Process

PATIENCE = 20.0


def folder(guard: Process) -> Path:
    """Wait until the guard is ready; the folder it made. Raises ``TrbError`` with its last words."""
    last = ""
    while said := process.line(guard, PATIENCE):
        if said.startswith("/"):
            return Path(said)
        last = said
    raise TrbError(
        Code.SERVER_DIED,
        f"the process that would clean up after trb does not start: {last or 'it says nothing'}",
        remedy="can files be made in the folder for temporary files (TMPDIR names another)? "
        "Else report this as a bug of trb",
    )

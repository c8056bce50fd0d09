"""The temporary folder of one server, made and removed by its supervisor, also if ``trb`` is killed.

Both supervisors (embedded/supervisor.py, docker/supervisor.py) make the folder themselves and print its path.
If ``trb`` made it and was killed before its supervisor ran, the folder would stay.
"""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.process import Process

PATIENCE = 20.0


def folder(supervisor: Process) -> Path:
    """Wait until the supervisor is ready; the folder it made. Raises ``TrbError`` with its last output."""
    last = ""
    while line := process.line(supervisor, PATIENCE):
        if line.startswith("/"):
            return Path(line)
        last = line
    raise TrbError(
        Code.SERVER_DIED,
        f"could not start the cleanup process: {last or 'no output'}",
        remedy="can files be made in the folder for temporary files (TMPDIR names another)? "
        "Else report this as a bug of trb",
    )

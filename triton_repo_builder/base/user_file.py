"""A file that the user names for a result: a report, a client."""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder.base import files

DEVICES = Path("/dev")


def write(file: Path, content: bytes) -> None:
    """Write it, whole or not at all; raises OSError. Its folder must exist.

    A link of that name, which a clone may bring, is replaced and not followed. Devices, such as /dev/stdout,
    are written to.
    """
    if DEVICES in file.absolute().parents:
        file.write_bytes(content)
        return
    try:
        files.write_whole(file, content)
    except OSError as error:
        error.filename = str(file)
        raise

"""A file that the user names: texts to read, a report or a client to write."""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError

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


def lines(file: Path) -> tuple[str, ...]:
    """Texts of a file, one a line without the blanks around it; empty lines are left out.

    Raises ``TrbError`` if there is none.
    """
    texts = tuple(line.strip() for line in content(file).splitlines() if line.strip())
    if not texts:
        raise TrbError(Code.USAGE, "holds no text", where=str(file), remedy="write one text per line")
    return texts


def content(file: Path) -> str:
    """A text file's content. Raises ``TrbError``."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise TrbError(
            Code.NOT_FOUND, f"cannot be read: {error.strerror}", where=str(file), remedy="name a text file"
        ) from None
    except UnicodeDecodeError:
        raise TrbError(
            Code.USAGE, "is not UTF-8 text", where=str(file), remedy="convert it: iconv -t UTF-8"
        ) from None

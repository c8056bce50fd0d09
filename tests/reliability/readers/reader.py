"""One reader of files from outside: real seeds, how they are damaged, and how the reader is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.reliability import mutate

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT / "tests" / "data" / "models"
REPOSITORY = ROOT / "model_repository"
TARGET = "target"
"""Folder of a case in which a reader may write."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One reader. An input is one file's bytes; where the name matters, ``NAME\\nCONTENT``."""

    name: str
    about: str
    seeds: Callable[[], list[bytes]]
    damage: mutate.Mutate
    read: Callable[[Path], None]
    """Reads what is laid out in a case's folder."""
    lay: Callable[[bytes, Path], None]
    """Puts an input into a case's folder."""
    base: Callable[[Path], None] = lambda case: None
    """Lays out what stays the same."""
    fresh: bool = False
    """A new folder for every execution, since the reader writes."""
    writes: tuple[str, ...] = ()
    """Names in the folder in which it may."""
    allowed: tuple[type[Exception], ...] = ()
    """Exceptions that it states, besides ``TrbError``; its callers turn them into one."""
    share: float = 1.0
    """Of the executions, against other readers'."""


def write(name: str) -> Callable[[bytes, Path], None]:
    def lay(data: bytes, case: Path) -> None:
        (case / name).write_bytes(data)

    return lay


def write_named(folder: str) -> Callable[[bytes, Path], None]:
    """``NAME\\nCONTENT``; the file of the case before is put back."""
    before: dict[Path, bytes | None] = {}

    def lay(data: bytes, case: Path) -> None:
        for file, content in before.items():
            if content is None:
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(content)
        before.clear()
        name, _, content = data.partition(b"\n")
        file = case / folder / name.decode()
        before[file] = file.read_bytes() if file.exists() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return lay


def contents(*patterns: str, root: Path = MODELS, most: int = 60_000) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        found = {
            file.read_bytes()
            for pattern in patterns
            for file in sorted(root.rglob(pattern))
            if file.is_file() and file.stat().st_size < most
        }
        return sorted(found, key=lambda data: (len(data), data))

    return seeds

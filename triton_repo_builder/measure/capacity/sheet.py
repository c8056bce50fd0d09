"""CSV files as people and spreadsheets write them: read whole, or refused with the row."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from triton_repo_builder.base import files

Row = dict[str, str]


def text(path: Path) -> str:
    """The text of a file, without the mark that Excel writes before it.

    Raises ``TrbError`` NOT_FOUND, and ``ValueError`` for other encodings.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise files.unreadable(path, error) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def rows(content: str, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Each row by its head, with its name for messages; the head has at least one of ``columns``.

    Raises ``ValueError`` with the fault and its place.
    """
    # Not splitlines(): a cell in quotes may hold line breaks.
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    try:
        head = [_clean(name).lower() for name in next(reader, [])]
        if not any(head):
            raise ValueError("is empty")
        if not set(columns) & set(head):
            raise ValueError(
                f"has none of the columns {', '.join(columns)} in its first line{_separator(head)}"
            )
        twice = sorted({name for name in head if name and head.count(name) > 1})
        if twice:
            raise ValueError(f"has the column '{twice[0]}' more than once")
        filled = False
        for cells in reader:
            cells = [_clean(cell) for cell in cells]
            if not any(cells):
                continue
            where = f"line {reader.line_num}"
            if len(cells) > len(head) and any(cells[len(head) :]):
                raise ValueError(
                    f"{where} has {len(cells)} cells, its first line {len(head)}: "
                    "put a cell with a comma in quotes"
                )
            filled = True
            yield where, {name: cell for name, cell in zip(head, cells, strict=False) if name}
        if not filled:
            raise ValueError("has no rows below its first line")
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None


def _clean(cell: str) -> str:
    return _printable(cell).strip()


def _printable(cell: str) -> str:
    """Refuse a text that would break the printed table, or a terminal."""
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\r\n" for char in cell):
        raise ValueError(f"has a cell with control characters: {cell!r:.40}")
    return " ".join(cell.split())


def _separator(head: Sequence[str]) -> str:
    other = next((each for each in ";\t|" if len(head) == 1 and each in head[0]), "")
    return f": cells are separated by commas, not by {other!r}" if other else ""

"""Output for a person: progress on stderr if that is a terminal, tables, notes and errors."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import click

from triton_repo_builder.base.text import visible

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import ProgressColumn
    from rich.text import Text

    from triton_repo_builder.base.errors import TrbError

Unit = Literal["stages", "items", "bytes"]
Advance = Callable[[str, int, int], None]
"""Receives the current step, the amount done and the total."""
GAP = 3
"""Columns between two cells of a table."""
READABLE = 24
"""Columns that a text in a table needs, if it has so many: narrower, its lines break too often."""
PIPE_WIDTH = 160
"""Columns of piped output, so that no table breaks its lines for a program."""


class Styled(str):
    """A text with our own ANSI codes and no others."""

    __slots__ = ()


def style(text: str, **how: Any) -> Styled:
    """A text in a colour or bold (click.style), for ``echo``."""
    return Styled(click.style(visible(text), **how))


def echo(*parts: str, nl: bool = True, err: bool = False) -> None:
    """Print on stdout or stderr, with terminal control codes (as in foreign names) escaped."""
    texts = (part if isinstance(part, Styled) else visible(part) for part in parts)
    click.echo("".join(texts), nl=nl, err=err)


def patch(content: bytes) -> None:
    """Print bytes unchanged, for another program."""
    click.echo(content, nl=False)


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Show a spinner whose text the yielded function sets; nothing unless stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda message: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting") as spinner:
        yield lambda message: spinner.update(Text(visible(message)))


@contextmanager
def progress(unit: Unit = "stages") -> Iterator[Advance]:
    """Show a bar that the yielded function moves; nothing unless stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda description, done, total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(*_columns(unit), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("connecting" if unit != "items" else "", total=None)

        def advance(description: str, done: int, total: int) -> None:
            bar.update(task, description=escape(visible(description[-40:])), completed=done, total=total)

        yield advance


def _columns(unit: Unit) -> tuple[ProgressColumn, ...]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    description = TextColumn("{task.description}")
    if unit == "bytes":
        return description, BarColumn(), DownloadColumn(), TransferSpeedColumn()
    if unit == "items":
        return BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), description
    return description, BarColumn(), TimeElapsedColumn()


def output() -> Console:
    """A rich console on stdout."""
    from rich.console import Console

    class Piped(Console):
        """rich would exit 1 after the reader of a pipe went away; that is not a failure of ours."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Piped(highlight=False, width=None if has_width else PIPE_WIDTH)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    natural: bool = False,
) -> None:
    """Print a table on stdout: ``right`` columns hold numbers, ``whole`` ones never break their lines.

    Where the terminal is too narrow for that, each row is a paragraph of its own. A ``natural`` table is as
    wide as its texts, whatever the width of the output.
    """
    from rich import box
    from rich.table import Table

    listed = [[cell(value) if isinstance(value, str) else value for value in row] for row in rows]
    longest = [max((row[place].cell_len for row in listed), default=0) for place in range(len(columns))]
    fixed = {*right, *whole}
    headers = [max(map(len, name.split("\n"))) for name in columns]
    narrow = [
        max(map(len, name.split()), default=0) if name in right else size
        for name, size in zip(columns, headers, strict=True)
    ]
    least = [
        max(needed, cells if name in fixed else min(cells, READABLE))
        for name, needed, cells in zip(columns, narrow, longest, strict=True)
    ]
    to, widest = output(), list(map(max, longest, headers))
    if natural:
        to.width = sum(widest) + GAP * len(columns)
    if sum(least) + GAP * len(columns) > to.width:
        for row in listed:
            echo(row[0].plain)
            words = [
                f"{name} {each.plain}".strip() for name, each in zip(columns, row, strict=True) if each.plain
            ]
            echo(textwrap.fill(", ".join(words[1:]), to.width, initial_indent="  ", subsequent_indent="  "))
        return
    room, sizes = to.width - GAP * len(columns) - sum(least), list(least)
    for place in sorted(range(len(columns)), key=lambda place: widest[place] - least[place]):
        grown = min(room, widest[place] - least[place])
        sizes[place], room = sizes[place] + grown, room - grown
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, size in zip(columns, sizes, strict=True):
        justify: Literal["left", "right"] = "right" if name in right else "left"
        lines = [textwrap.fill(line, size) if name in right else line for line in name.split("\n")]
        shown.add_column("\n".join(lines), justify=justify, no_wrap=name in fixed, overflow="fold")
    for row in listed:
        shown.add_row(*row)
    to.print(shown)


def line(text: str, *, err: bool = True) -> None:
    """Print a step of the work. If the reader is gone, nothing is printed and the work goes on.

    Ctrl-C in ``trb apply 2>&1 | tee log`` ends tee first: a message must not end the roll-back.
    """
    with suppress(OSError):
        echo(text, err=err)


def cell(text: str, style: str = "") -> Text:
    """A text for rich, as ``echo`` prints it."""
    from rich.text import Text

    return Text(visible(text), style=style)


def note(text: str) -> None:
    """Print a remark on stderr."""
    echo(style("note: ", fg="yellow"), visible(text, lines=False), err=True)


def print_error(error: TrbError, label: str = "error", subject: str = "") -> None:
    """Print an error on stderr: its subject, place, message, kind and remedy."""
    places = "".join(f"{visible(place, lines=False)}: " for place in (subject, error.where) if place)
    first, *details = error.message.split("\n", 1)
    kind = style(f" [{error.code.kind}]", dim=True)
    rest = "".join(f"\n{line}" for line in details)
    echo(style(f"{label}: ", fg="red", bold=True), places + first, kind, rest, err=True)
    if error.remedy:
        echo(style("  fix: ", fg="green"), error.remedy, err=True)


def error_as_json(error: TrbError) -> dict[str, str | int]:
    """The error for a program: ``code`` is the kind's stable name."""
    return {
        "code": error.code.kind,
        "exit_code": int(error.code.exit),
        "error": error.message,
        "where": error.where,
        "remedy": error.remedy,
    }


def print_json_error(error: TrbError) -> None:
    """Print an error on stdout as one JSON object, instead of a command's result."""
    import json

    echo(json.dumps(error_as_json(error), ensure_ascii=False))


def recovered(repository: Path, *, write: bool = True, whole: bool = False) -> None:
    """Undo what a killed trb left half done in a repository, and tell the user; refuse it with ``write`` off.

    With ``whole``, also refuse a repository that an apply left between two states.
    """
    from triton_repo_builder.repository.journal import between, recovery

    if whole:
        between.refuse(repository)
    for text in (*recovery.not_followed(repository), *recovery.recover(repository, write=write)):
        note(text)

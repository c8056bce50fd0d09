"""What commands share in talking to a person: a spinner on a terminal, silence elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """A spinner on stderr whose text the yielded function sets; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda message: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as spinner:
        yield spinner.update


def recovered(output: Path, *, write: bool = True) -> None:
    """Undo what a killed build left half done in a repository, and say so."""
    import click

    from triton_repo_builder.write import swap

    for note in swap.recover(output, write=write):
        click.echo(click.style("note: ", fg="yellow") + note, err=True)


@contextlib.contextmanager
def transfer() -> Iterator[Callable[[str, int, int], None]]:
    """A bar of bytes on stderr (what is sent, done, total); nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("connecting", total=None)

        def update(what: str, done: int, total: int) -> None:
            bar.update(task, description=what[-40:].replace("[", "\\["), completed=done, total=total)

        yield update


def console() -> Console:
    """A rich console on stdout; piped output is wide, so that no table breaks its lines for nobody."""
    from rich.console import Console

    class Piped(Console):
        """rich would exit 1 where the reader of a pipe went away; that is no failure of ours."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Piped(highlight=False, width=None if known else 160)

"""``trb build --all``: progress, the report, the exit code."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.cli import build as one
from triton_repo_builder.cli.console import recovered
from triton_repo_builder.errors import Code

if TYPE_CHECKING:
    from triton_repo_builder.build.build_all import Many

FLAGS_OF_ONE = ("name", "model")


def run(
    folder: Path,
    config: Path | None,
    flags: Mapping[str, Any],
    *,
    force: bool,
    fail_fast: bool,
    write: bool,
    show: str,
) -> int:
    """Build every model below ``folder``; 0, or SOME_FAILED where any model was left out."""
    from triton_repo_builder.build import build_all
    from triton_repo_builder.read import options
    from triton_repo_builder.write import publish

    for field in FLAGS_OF_ONE:
        if flags.get(field) is not None:
            raise options.usage(
                field, "names one model, and --all builds many", "set it in that model's trb.toml"
            )
    common = build_all.common_options(config)
    output = flags.get("output") or common.get("output") or options.BuildOptions.output
    found = build_all.discover(folder)
    recovered(output, write=write)
    with _progress() as step:
        made = build_all.build_all(found, common, flags, output, force=force, fail_fast=fail_fast, step=step)
        if write and made.builds:
            publish.publish(made.publication)
    written = write and bool(made.builds)
    if show == "json":
        click.echo(_json(made, written=written))
    elif show == "diff":
        click.echo(publish.diff(made.publication) or "no change", nl=not made.publication.changes)
    else:
        _report(made, written=write)
    _failures(made)
    return int(Code.SOME_FAILED.exit) if made.failed else 0


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr where that is a terminal; silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda name, done, total: bar.update(task, completed=done, total=total, description=name)


def _report(made: Many, *, written: bool) -> None:
    publication = made.publication
    for build in made.builds:
        for note in build.notes:
            click.echo(f"{click.style('note: ', fg='yellow')}{build.name}: {note}", err=True)
    for note in publication.changes.notes:
        click.echo(click.style("note: ", fg="yellow") + note, err=True)
    for build in made.builds:
        click.echo(f"  {build.name:<40} {build.entry['task']}")
    if not written:
        one.would(publication.changes)
        return
    shared = {name for build in made.builds for name in build.plan.shared}
    tokenizers = f", {_count(len(shared), 'tokenizer')}" if shared else ""
    changes = one.counted(publication.changes) if publication.changes else "unchanged"
    click.echo(f"{publication.output}: {_count(len(made.builds), 'endpoint')}{tokenizers}; {changes}")
    if made.builds:
        where = shlex.quote(str(publication.output))
        name = made.builds[0].name
        click.echo(f"next: trb serve {where} --load {name}, then trb load NAME for others")


def _failures(made: Many) -> None:
    """Every model that was left out, with its reason, at the end where it is read."""
    for failure in made.failed:
        where = f"{failure.error.where}: " if failure.error.where else ""
        click.echo(
            click.style("failed: ", fg="red", bold=True) + f"{failure.name}: {where}{failure.error.message}",
            err=True,
        )
        if failure.error.remedy:
            click.echo(click.style("  fix: ", fg="green") + failure.error.remedy, err=True)
    if made.failed:
        total = len(made.failed) + len(made.builds)
        click.echo(f"{len(made.failed)} of {total} models were not built", err=True)


def _json(made: Many, *, written: bool) -> str:
    failed = [
        {
            "endpoint": failure.name,
            "model": str(failure.model),
            "code": failure.error.code.kind,
            "exit_code": int(failure.error.code.exit),
            "error": failure.error.message,
            "where": failure.error.where,
            "remedy": failure.error.remedy,
        }
        for failure in made.failed
    ]
    document = {
        **one.summary(made.publication, written=written),
        "endpoints": [one.about(build) for build in made.builds],
        "failed": failed,
        "notes": made.publication.changes.notes,
    }
    return json.dumps(document, indent=1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

"""``trb build --all``: progress, the report, the exit code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.cli import build_report, console
from triton_repo_builder.errors import Code
from triton_repo_builder.text import counted

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
    console.recovered(output, write=write)
    with console.progress("items") as step:
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


def _report(made: Many, *, written: bool) -> None:
    publication = made.publication
    for build in made.builds:
        for note in build.notes:
            console.note(f"{build.name}: {note}")
    for note in publication.changes.notes:
        console.note(note)
    for build in made.builds:
        click.echo(f"  {build.name:<40} {build.entry.served.task}")
    if not written:
        build_report.print_dry_run(publication.changes)
        return
    shared = {name for build in made.builds for name in build.plan.shared}
    tokenizers = f", {counted(len(shared), 'tokenizer')}" if shared else ""
    changes = build_report.changed(publication.changes) if publication.changes else "unchanged"
    click.echo(f"{publication.output}: {counted(len(made.builds), 'endpoint')}{tokenizers}; {changes}")
    if made.builds:
        where = shlex.quote(str(publication.output))
        name = made.builds[0].name
        click.echo(f"next: trb serve {where} --load {name}, then trb load NAME for others")


def _failures(made: Many) -> None:
    """Every model that was left out, with its reason, at the end where it is read."""
    for failure in made.failed:
        console.print_error(failure.error, "failed", failure.name)
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
        **build_report.summary(made.publication, written=written),
        "endpoints": [build_report.about(build) for build in made.builds],
        "failed": failed,
        "notes": made.publication.changes.notes,
    }
    return json.dumps(document, indent=1)

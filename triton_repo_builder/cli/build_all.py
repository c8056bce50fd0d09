"""``trb build --all``: progress, the report, the exit code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_repo_builder.base.errors import Code
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import build_report, console

if TYPE_CHECKING:
    from triton_repo_builder.cli.build_options import RunOptions
    from triton_repo_builder.produce.build_all import BuildAllResult


def run(folder: Path, flags: Mapping[str, Any], run: RunOptions) -> int:
    """Build every model below ``folder``. Returns 0, or SOME_FAILED if any model failed."""
    from triton_repo_builder.cli import release
    from triton_repo_builder.model.read import options
    from triton_repo_builder.produce import build_all
    from triton_repo_builder.produce.write import publish
    from triton_repo_builder.repository.journal import turn

    for field in build_all.ONE_MODEL:
        if flags.get(field) is not None:
            raise options.usage(
                field, "applies to one model, not to --all", "set it in that model's trb.toml"
            )
    common = build_all.common_options(run.config)
    output = flags.get("output") or common.get("output") or options.BuildOptions.output
    models, write = build_all.discover(folder), run.writes
    console.recovered(output, write=write, whole=True)
    with console.progress("items") as step, ExitStack() as stack:

        def take_turn() -> None:
            if write:
                stack.enter_context(turn.at_output(output, console.line, how=publish.HOW))
                console.recovered(output, whole=True)

        result = build_all.build_all(
            models,
            common,
            flags,
            output,
            force=run.overwrites,
            drop_edits=run.force,
            fail_fast=run.fail_fast,
            step=step,
            resolve=release.resolved,
            built_all=take_turn,
        )
        if write and result.builds:
            publish.publish(result.publication)
    written = write and bool(result.builds)
    if run.as_json:
        console.echo(_json(result, written=written))
    elif run.diff:
        shown = publish.diff(result.publication)
        console.echo(shown or "no change", nl=not shown)
    else:
        _report(result, written=write)
    _failures(result)
    return int(Code.SOME_FAILED.exit) if result.failed else 0


def _report(result: BuildAllResult, *, written: bool) -> None:
    publication = result.publication
    for build in result.builds:
        for note in build.notes:
            console.note(f"{build.name}: {note}")
    for note in publication.changes.notes:
        console.note(note)
    for build in result.builds:
        console.echo(f"  {build.name:<40} {build.entry.served.task}")
    if not written:
        build_report.print_dry_run(publication.changes)
        return
    shared = {name for build in result.builds for name in build.plan.shared}
    tokenizers = f", {counted(len(shared), 'tokenizer')}" if shared else ""
    changes = build_report.changed(publication.changes)
    console.echo(f"{publication.output}: {counted(len(result.builds), 'endpoint')}{tokenizers}; {changes}")
    if result.builds:
        where = shlex.quote(str(publication.output))
        name = result.builds[0].name
        console.echo(f"next: trb serve {where} --load {name}, then trb load NAME for others")


def _failures(result: BuildAllResult) -> None:
    """Print every model that failed, with the reason, at the end of the output."""
    for failure in result.failed:
        console.print_error(failure.error, "failed", failure.name)
    if result.failed:
        total = len(result.failed) + len(result.builds)
        console.echo(f"{len(result.failed)} of {total} models were not built", err=True)


def _json(result: BuildAllResult, *, written: bool) -> str:
    failed = [
        {
            "endpoint": failure.name,
            "model": str(failure.model),
            **console.error_as_json(failure.error),
        }
        for failure in result.failed
    ]
    document = {
        **build_report.summary(result.publication, written=written),
        "endpoints": [build_report.about(build) for build in result.builds],
        "failed": failed,
        "notes": result.publication.changes.notes,
    }
    return json.dumps(document, indent=1)

"""``trb smoke``: start a server if none is named, check it, print the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base import user_file
from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import FilePath, Switch
from triton_repo_builder.cli import console, declared, engines
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Address, Repo
from triton_repo_builder.run.options import SmokeOptions

if TYPE_CHECKING:
    from rich.console import Console

    from triton_repo_builder.repository import Repository
    from triton_repo_builder.run.smoke import Check, ReportLine, SmokeReport
    from triton_repo_builder.ship.stores import Location

COLOURS = {"passed": "green", "failed": "bold red", "unverified": "yellow", "skipped": "dim"}
EXAMPLES = 3
"""Failures of one check on one endpoint that are printed."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Destination of the report."""

    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the report as JSON.", flag="--json")
    junit: Path | None = option(
        None, FilePath(), Topic.OUTPUT, "Also write the report as JUnit XML.", metavar="FILE"
    )
    quiet: bool = option(False, Switch(), Topic.OUTPUT, "Leave out the table.", also=("-q",))


@click.command("smoke", cls=declared.TopicCommand)
@click.argument("repo", required=False, type=Repo())
@declared.options(address=Address, engine=engines.EngineOptions, options=SmokeOptions, output=ReportOptions)
def command(
    repo: Path | Location | None,
    address: Address,
    engine: engines.EngineOptions,
    options: SmokeOptions,
    output: ReportOptions,
) -> int:
    """Prove, through the server, that answers equal the original model's.

    REPO is the model repository (default: model_repository). Exit code 0 only if every check holds; golden
    cases that are missing count as failed, unless --no-cases leaves them out.

    \b
    Examples:
      trb smoke                                      start a server on ./model_repository and check it
      trb smoke --url http://localhost:8000          check a server that runs, against ./model_repository
      trb smoke --url http://gpu-7:8000 --no-cases   consistency only, with no repository at hand
      trb smoke s3://models/minilm                   the server reads what was pushed there
      trb smoke --engine docker                      the same in a container
      trb smoke --json --junit smoke.xml             for scripts and CI
    """
    from triton_repo_builder.run import smoke

    address.send_key()
    with (
        _repository(repo, address, engine) as (repository, models_url),
        engines.reached(repository, address, engine, models_url) as (urls, _),
        console.progress() as progress,
    ):
        report = smoke.run(urls, repository, options, progress)
    if output.junit:
        _write(output.junit, smoke.junit(report))
    if output.as_json:
        import json

        console.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        print_report(report, quiet=output.quiet)
    if not report.ok and repository is not None:
        _note_changed_files(repository)
    return 0 if report.ok else int(Code.FAILED_CHECKS.exit)


@contextmanager
def _repository(
    repo: Path | Location | None, address: Address, engine: engines.EngineOptions
) -> Iterator[tuple[Repository | None, str]]:
    """The repository, if any, and the URL from which the server reads it if not from this folder."""
    from triton_repo_builder import repository

    if repo is None and address.url is not None and not DEFAULT_REPOSITORY.is_dir():
        yield None, ""
        return
    # With a server that runs elsewhere, the description of the repository suffices.
    engine = engine if address.url is None else replace(engine, name="embedded")
    with engines.opened(repo or DEFAULT_REPOSITORY, engine) as opened:
        yield repository.read(opened.path), opened.models_url


def _note_changed_files(repository: Repository) -> None:
    """A note on files that are not as trb wrote them: the likely reason of another answer."""
    from triton_repo_builder.base.text import some
    from triton_repo_builder.repository import integrity

    recorded = repository.manifest.files if repository.manifest else {}
    altered = integrity.altered(repository.path, recorded)
    if altered:
        listed = some([str(each) for each in altered])
        remedy = f"trb check {repository.path} says what to do, trb build … --diff what changed"
        console.note(f"not as trb wrote it: {listed} ({remedy})")


def _write(path: Path, text: str) -> None:
    try:
        user_file.write(path, text.encode())
    except OSError as error:
        raise TrbError(
            Code.OUTPUT_NOT_WRITABLE,
            f"cannot be written: {error.strerror}",
            where=str(path),
            remedy="name a file in a folder that exists and is writable with --junit",
        ) from None


def print_report(report: SmokeReport, *, quiet: bool = False) -> None:
    """Print the table, the failures, and the totals; ``quiet`` omits the table."""
    if not quiet:
        _table(report)
    output = console.output()
    _failures(report, output)
    _sum(report, output)


def _table(report: SmokeReport) -> None:
    rows = [
        (
            line.checks[0].endpoint or "-",
            line.checks[0].group,
            line.checks[0].protocol or "-",
            console.cell(_result(line), COLOURS[line.status.value]),
            line.detail,
            f"{line.milliseconds:.0f}",
        )
        for line in report.lines()
    ]
    columns = ("endpoint", "check", "protocol", "result", "detail", "ms")
    console.table(columns, rows, right={"ms"}, whole={*columns} - {"detail"})


def _result(line: ReportLine) -> str:
    done = [check for check in line.checks if check.status.value in ("passed", "failed")]
    bad = sum(check.status.value == "failed" for check in line.checks)
    if line.status.value == "failed":
        return f"FAILED {bad} of {len(done)}"
    if line.status.value == "passed":
        return f"ok {len(done)}" if len(done) > 1 else "ok"
    return "NOT CHECKED" if line.status.value == "unverified" else "skipped"


def _failures(report: SmokeReport, output: Console) -> None:
    """Each kind of failure with its first examples: one wrong model fails in dozens of checks alike."""
    kinds: dict[tuple[str, str, str], list[Check]] = {}
    for check in report.not_passed:
        kinds.setdefault((check.status.value, check.endpoint, check.group), []).append(check)
    for (status, endpoint, group), checks in kinds.items():
        word = console.cell("FAILED" if status == "failed" else "NOT CHECKED", COLOURS[status])
        for check in checks[:EXAMPLES]:
            where = " · ".join(part for part in (endpoint, group, check.name, check.protocol) if part)
            output.print(word, console.cell(where))
            output.print(console.cell(f"    {check.detail}"))
        if (rest := len(checks) - EXAMPLES) > 0:
            where = " · ".join(part for part in (endpoint, group) if part)
            output.print(word, console.cell(f"{where} · and {rest} more; --json and --junit have all"))


def _sum(report: SmokeReport, output: Console) -> None:
    from triton_repo_builder.run.smoke import Status

    counts = ", ".join(f"{report.count(status)} {status.value}" for status in Status if report.count(status))
    parity = "" if report.proven else "; parity with the original model is unproven"
    style = "green" if report.ok else "bold red"
    output.print(
        console.cell("OK" if report.ok else "FAILED", style),
        console.cell(f"{counts}{parity}: tritonserver {report.server_version or '(gone)'} at {report.url}"),
    )

"""``trb check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place
from triton_repo_builder.text import counted

if TYPE_CHECKING:
    from triton_repo_builder.check.finding import Finding


@click.command(name="check", short_help="Lint any Triton model repository.")
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@click.option(
    "--triton-release", metavar="YY.MM", help="Check for this release instead of the embedded server's."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list.")
@click.option("--strict", is_flag=True, help="Exit 1 on warnings as well.")
def command(repo: Path, triton_release: str | None, as_json: bool, strict: bool) -> int:
    """Lint a Triton model repository, made by trb or by hand; needs no server.

    Reads every config.pbtxt, the graphs, the Python sources and the manifest, and reports everything that
    the server would refuse, with its own message and a fix. Exits 1 on errors. All findings: docs/checks.md.

    \b
    Examples:
      trb check
      trb check /srv/models --triton-release 25.03 --strict
      trb check --json | jq '.[] | select(.severity == "error")'
    """
    from triton_repo_builder import check, releases, repository

    release = releases.get(triton_release) if triton_release else releases.default()
    console.recovered(repo, whole=True)
    read = repository.read(repo)
    findings = check.check(read, release)
    if as_json:
        _json(findings)
    elif findings:
        _print(findings, len(read.models))
    else:
        click.echo(f"{counted(len(read.models), 'model')} checked, no findings")
    return int(any(strict or finding.severity == "error" for finding in findings))


def _json(findings: list[Finding]) -> None:
    import json
    from dataclasses import asdict

    click.echo(json.dumps([asdict(finding) for finding in findings], indent=1, ensure_ascii=False))


def _print(findings: list[Finding], models: int) -> None:
    """Print a block per finding, file:line first for editors and grep."""
    colours = {"error": "red", "warning": "yellow"}
    for finding in findings:
        severity = click.style(finding.severity, fg=colours[finding.severity], bold=True)
        code = click.style(f"[{finding.code}]", dim=True)
        click.echo(f"{click.style(finding.where, bold=True)}: {severity}: {finding.message} {code}")
        click.echo(f"  {click.style('fix:', fg='green')} {finding.remedy}")
    errors = sum(finding.severity == "error" for finding in findings)
    totals = f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
    click.echo(f"{counted(models, 'model')} checked: {totals}")

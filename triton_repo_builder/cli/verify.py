"""``trb verify``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Names, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import FILLED, Server

if TYPE_CHECKING:
    from triton_repo_builder.ship.deploy.verify import Verdict

COLOURS = {"same": "green", "differs": "red", "not served": "red", "cannot be known": "yellow"}


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Endpoints and strictness of the comparison."""

    names: tuple[str, ...] = option(
        (), Names(), Topic.CHECKS, "Only this endpoint; repeatable.", flag="--endpoint", metavar="NAME"
    )
    strict: bool = option(
        False,
        Switch(),
        Topic.CHECKS,
        "Nothing is the same unless the files that the server reads were compared.",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@click.command("verify", cls=declared.TopicCommand)
@click.argument("revision", type=FILLED)
@declared.options(address=Server, options=VerifyOptions)
def command(revision: str, address: Server, options: VerifyOptions) -> int:
    """Prove, per endpoint, that a running server runs what REVISION says.

    REVISION is a folder, the URL of a pushed repository (URL@sha256:… for one revision), or a revision of git
    (COMMIT or COMMIT:PATH; by default model_repository, or the only folder that trb built).

    Compared are the loaded versions, the content digest that the server repeats, every configuration as it
    was loaded, and the bytes of the files that the server reads, if they are on this machine. Each endpoint
    is the same, differs, is not served, or cannot be known. Exits 0 only if all are the same, else 1.

    \b
    Examples:
      trb verify HEAD --url http://localhost:8000
      trb verify v1.4:services/model_repository --url http://localhost:8000 --endpoint sentiment
      trb verify s3://models/minilm@sha256:… --url http://localhost:8000 --json
    """
    import json

    from triton_repo_builder.ship.deploy import verify

    if Path(revision).is_dir():
        console.recovered(Path(revision), write=False)
    server = address.reached()
    with console.progress("bytes") as progress:
        target, verdicts = verify.run(
            revision, server, options.names, strict=options.strict, progress=progress
        )
    same = all(verdict.result is verify.Result.SAME for verdict in verdicts)
    if options.as_json:
        document = {
            "revision": target.name,
            "commit": target.commit or None,
            "digest": target.digest or None,
            "server": server,
            "same": same,
            "endpoints": [verdict.to_json() for verdict in verdicts],
        }
        console.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        console.echo(f"{target.name} and {server}")
        for verdict in verdicts:
            _print(verdict)
    return int(not same)


def _print(verdict: Verdict) -> None:
    versions = ", ".join(map(str, verdict.versions))
    result = console.style(verdict.result.value, fg=COLOURS[verdict.result.value])
    console.echo("  ", console.style(verdict.endpoint, bold=True), f" version {versions}: ", result)
    for reason in verdict.reasons:
        console.echo(f"    {reason}")

"""``trb provenance``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Switch, Text
from triton_repo_builder.base.text import some
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place, Server

if TYPE_CHECKING:
    from triton_repo_builder.repository.provenance import Facts
    from triton_repo_builder.ship.vcs.lineage import Link


@dataclass(frozen=True, kw_only=True)
class ComparedServer(Server):
    """A running server, with the models to query."""

    url: str | None = option(
        None, Text(), Topic.RUNNING, "Ask this running server; with REPO compare the two."
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Content and format of the output."""

    sbom: bool = option(
        False,
        Switch(),
        Topic.OUTPUT,
        "Print a bill of materials, vendored libraries included, as CycloneDX.",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the chain as JSON.", flag="--json")


@click.command("provenance", cls=declared.TopicCommand)
@click.argument("repo", required=False, type=Place())
@declared.options(server=ComparedServer, output=OutputOptions)
def command(repo: Path | None, server: ComparedServer, output: OutputOptions) -> int:
    """Show where a model repository, or what a running server serves, comes from.

    The chain of each endpoint: files and their sha256, options, the training run and the data set that were
    named when it was built, and the git commit. Every file of REPO is read; exits 1 if one is not as it was
    built, or if a server serves something else than REPO, which is compared as trb verify does.

    \b
    Examples:
      trb provenance
      trb provenance --url http://localhost:8000
      trb provenance model_repository --url http://localhost:8000 --json
      trb provenance --sbom > sbom.json
    """
    import json

    from triton_repo_builder import repository
    from triton_repo_builder.repository import sbom as bom
    from triton_repo_builder.ship.vcs import lineage

    url, sbom = server.url, output.sbom
    if sbom and url:
        raise click.UsageError("--sbom reads a repository, not a server.")
    chain: tuple[Link, ...] = ()
    if repo is not None or url is None:
        console.recovered(repo or DEFAULT_REPOSITORY, write=False, whole=True)
        read = repository.read(repo or DEFAULT_REPOSITORY)
        if sbom:
            console.echo(json.dumps(bom.cyclonedx(read), indent=1, ensure_ascii=False))
            return 0
        chain = lineage.of_repository(read)
    server.send_key()
    if url is not None and repo is not None:
        from triton_repo_builder.ship.deploy import revision, verify

        chain = verify.compared(chain, revision.Revision(name=str(repo), path=repo), url)
    elif url is not None:
        chain = lineage.of_server(url)
    if output.as_json:
        console.echo(json.dumps([link.to_json() for link in chain], indent=1, ensure_ascii=False))
    else:
        _print(chain)
    return int(any(link.agrees is False or link.altered for link in chain))


def _print(chain: tuple[Link, ...]) -> None:

    for link in chain:
        facts = link.facts
        versions = ", ".join(map(str, facts.versions))
        console.echo(console.style(facts.name, bold=True), f" version {versions}" if versions else "")
        rows = [(file, f"sha256 {sha}") for file, sha in facts.sources]
        if facts.options is not None:
            rows.append(
                ("options", ", ".join(f"{k}={v}" for k, v in facts.options.items()) or "the defaults")
            )
        rows += [
            ("content", facts.content and f"sha256 {facts.content}"),
            ("options digest", facts.options_digest),
            ("source run", facts.source_run),
            ("data set", facts.dataset_id),
            ("hub model", facts.hub and f"hf://{facts.hub}/{facts.hub_file}"),
            ("licence", facts.license),
            ("converted", _converted(facts)),
            *((f"label {key}", value) for key, value in facts.labels),
            *(("edited", f"{path}: {edit}") for path, edit in sorted(facts.edits.items())),
            ("built by", facts.trb_version and f"trb {facts.trb_version}"),
            ("git commit", link.commit),
            ("altered", some(link.altered, 5)),
            ("server", _server(link)),
        ]
        filled = [(name, value) for name, value in rows if value]
        for name, value in filled:
            console.echo(f"  {name:<16} {value}")
        if not facts.sources:
            console.echo("  no provenance: not built by trb, or by an older version")
    if not chain:
        console.echo("no endpoint")


def _converted(facts: Facts) -> str:
    """The weights that were converted, and the commit on the Hub that has them."""
    if not facts.conversion:
        return ""
    weights = some([f"{file} sha256 {sha}" for file, sha in facts.conversion.weights.items()], 3)
    return f"by {facts.conversion.converter} from {weights}" + (f" of {facts.hub}" if facts.hub else "")


def _server(link: Link) -> str:
    if not link.result:
        return link.server
    if not link.server:
        return "does not serve it"
    if link.agrees:
        compared = ", ".join(
            reason for reason in link.reasons if not link.facts.content or link.facts.content not in reason
        )
        return f"{link.server} serves the same: {compared}"
    difference = "serves something else" if link.agrees is False else "what it serves cannot be known"
    return f"{link.server}: {difference}" + "".join(f"\n    {reason}" for reason in link.reasons)

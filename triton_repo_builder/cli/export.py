"""``trb export``: files for other tools."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Names, Seconds, Switch
from triton_repo_builder.base.text import some
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place
from triton_repo_builder.cli.usage_errors import Misuse
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.options import Slo
from triton_repo_builder.ship.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from triton_repo_builder.ship.rendered import Difference, Rendered

HIGHEST_PORT = 65535
SHORTEST, LONGEST = 60, 86_400
"""Seconds of a window: four scrapes, a day."""
SHORTEST_DRIFT = 600
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")


EXPLAINED = """

Reads deploy.toml (see trb deploy init) or FILE. The same input gives the same bytes; edited files stay. With
--check nothing is written, and the exit code is 1 if DIR is not what would be written.
"""
EXAMPLES = """
\b
Examples:
  trb export {name}
  trb export {name} staging.toml -o deploy/staging
  trb export {name} --check
"""


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Where the files go."""

    output: Path | None = None
    check: bool = option(False, Switch(), Topic.OUTPUT, "Write nothing; exit 1 if DIR differs.")
    force: bool = option(False, Switch(), Topic.OUTPUT, "Replace files in DIR that were edited.")
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@dataclass(frozen=True, kw_only=True)
class TargetOptions(FolderOptions):
    """The folder of a platform's files."""

    output: Path | None = option(
        None,
        FilePath(file=False),
        Topic.OUTPUT,
        "Folder for the files.",
        default="deploy/ and the platform's name",
        also=("-o",),
        metavar="DIR",
    )


@dataclass(frozen=True, kw_only=True)
class MonitoringOptions(FolderOptions):
    """The servers, the objective, and where the files go."""

    output: Path = option(
        Path("monitoring"),
        FilePath(file=False),
        Topic.OUTPUT,
        "Folder for the files.",
        also=("-o",),
        metavar="DIR",
    )
    targets: tuple[str, ...] = option(
        ("localhost:8002",),
        Names(),
        Topic.SERVER,
        "Metrics port of a server with this repository, as Prometheus reaches it (repeatable).",
        flag="--target",
        metavar="HOST:PORT",
    )
    gateways: tuple[str, ...] = option(
        (),
        Names(),
        Topic.SERVER,
        "A gateway (trb gateway), likewise; it also measures the objective (repeatable).",
        flag="--gateway",
        metavar="HOST:PORT",
    )
    alertmanagers: tuple[str, ...] = option(
        (),
        Names(),
        Topic.SERVER,
        "An Alertmanager, as Prometheus reaches it; alerts are sent there (repeatable).",
        flag="--alertmanager",
        metavar="HOST:PORT",
    )
    objective: Objective = option(
        Objective(percentile="p99", ms=500.0),
        Slo(),
        Topic.SEARCH,
        "Latency objective, as of trb tune.",
        default="p99=500ms",
        metavar="P=TIME",
    )
    window: float = option(
        300.0, Seconds(), Topic.SEARCH, "Window of rates in the rules.", default="5m", metavar="TIME"
    )
    drift_window: float = option(
        3600.0,
        Seconds(),
        Topic.SEARCH,
        "Window in which texts and answers are compared with the reference; 5m is one in any case.",
        default="1h",
        metavar="TIME",
    )

    def checked(self) -> MonitoringOptions:
        """The options. Raises ``Misuse``."""
        metrics = "write the host and port of its metrics, without http:// and /metrics"
        for flag, addresses, remedy in (
            ("--target", self.targets, metrics),
            ("--gateway", self.gateways, metrics),
            ("--alertmanager", self.alertmanagers, "write its host and port, without http://"),
        ):
            for address in addresses:
                match = _ADDRESS.fullmatch(address)
                if not match or not 0 < int(match[2]) <= HIGHEST_PORT:
                    raise Misuse(
                        f"'{address:.80}' is not of the form HOST:PORT",
                        where=flag,
                        remedy=remedy,
                    )
        if self.objective.share == 1:
            raise Misuse(
                "max leaves no request that may be late, so no budget that could burn",
                where="--objective",
                remedy="use p99, p95, p90 or p50",
            )
        if not SHORTEST <= self.window <= LONGEST or self.window % 1:
            raise Misuse(
                "must be whole seconds, from 1m to 24h", where="--window", remedy="leave it out for 5m"
            )
        if not SHORTEST_DRIFT <= self.drift_window <= LONGEST or self.drift_window % 1:
            raise Misuse(
                "must be whole seconds, from 10m to 24h",
                where="--drift-window",
                remedy="leave it out for 1h",
            )
        return self


@click.group("export")
def command() -> None:
    """Write files for other tools.

    \b
    Examples:
      trb export monitoring
      trb export compose
    """


@command.command("monitoring", cls=declared.TopicCommand)
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@declared.options(options=MonitoringOptions)
def monitoring(repo: Path, options: MonitoringOptions) -> int:
    """Write Prometheus rules and Grafana dashboards for the endpoints of REPO (default: model_repository).

    DIR gets prometheus.yml (what is scraped, where alerts go), rules.yml (recording and alert rules),
    drift.yml, and grafana/ (dashboards, and a file that provisions them). Repositories that trb did not build
    get those that need only Triton's own metrics. Equal input gives equal bytes; edited files stay.

    \b
    Examples:
      trb export monitoring
      trb export monitoring --target triton-1:8002 --target triton-2:8002 --objective p99=50ms
      trb export monitoring --gateway gateway:9000 --alertmanager alertmanager:9093 -o deploy/monitoring
      trb export monitoring -o deploy/monitoring --check
    """
    from triton_repo_builder import repository
    from triton_repo_builder.ship.monitoring import export, rules
    from triton_repo_builder.ship.vcs import git

    console.recovered(repo, write=False, whole=True)
    read = repository.read(repo)
    settings = rules.Settings(
        objective=rules.Objective(share=options.objective.share, seconds=options.objective.ms / 1000),
        window=_duration(int(options.window)),
        drift_window=_duration(int(options.drift_window)),
        targets=tuple(dict.fromkeys(options.targets)),
        gateways=tuple(dict.fromkeys(options.gateways)),
        alertmanagers=tuple(dict.fromkeys(options.alertmanagers)),
        commit=git.last_commit(repo),
    )
    return _written(export.render(read, settings), options)


def _target(name: str, about: str) -> click.Command:
    """The command of one platform."""

    @command.command(name, cls=declared.TopicCommand, help=f"{about}{EXPLAINED}{EXAMPLES.format(name=name)}")
    @click.argument("file", type=Place(), default=Path("deploy.toml"))
    @declared.options(options=TargetOptions)
    def run(file: Path, options: TargetOptions) -> int:
        from triton_repo_builder.ship.canary import exported
        from triton_repo_builder.ship.targets import export

        output = options.output or Path("deploy") / name
        deployment = export.read(file, output, name)
        rendered = exported.keeping(export.render(name, deployment), output)
        if not options.check:
            export.preflight(name, deployment)
        for line in export.notes(name, deployment):
            console.note(line)
        return _written(rendered, replace(options, output=output))

    return run


for _name, _about in TARGETS.items():
    _target(_name, _about)


def _written(rendered: Rendered, options: FolderOptions) -> int:
    """Write the files, or compare them with the folder; the exit code."""
    from triton_repo_builder.ship import rendered as folder

    output = options.output
    assert output is not None
    if options.check:
        changes = folder.differences(rendered, output)
    else:
        changes = folder.write(rendered, output, force=options.force)
    if options.as_json:
        changed = {change.path: change.state for change in changes}
        edited = [change.path for change in changes if change.edited]
        listed = list(rendered.contents)
        console.echo(json.dumps({"files": listed, "changed": changed, "edited": edited}, indent=1))
    else:
        _print(output, changes, check=options.check)
    return int(options.check and bool(changes))


def _print(output: Path, changes: Sequence[Difference], *, check: bool) -> None:
    for change in changes:
        state = change.state if check else "removed" if change.state == "stale" else "wrote"
        console.echo(f"{state:<8} {output / change.path}")
    if not changes:
        console.echo(f"{output} is up to date")
    elif check:
        console.echo(_remedy(changes), err=True)


def _remedy(changes: Sequence[Difference]) -> str:
    edited = [change.path for change in changes if change.edited]
    if not edited:
        return "write them with the same command without --check"
    return f"edited: {some(edited)}; --force replaces {'them' if edited[1:] else 'it'}"


def _duration(seconds: int) -> str:
    """A duration as Prometheus writes it."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"

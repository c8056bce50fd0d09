"""``trb canary``: a new version takes over step by step, and goes back by itself."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import FilePath, Filled, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import METRICS_PAGE, Place, addresses

if TYPE_CHECKING:
    from rich.table import Table

    from triton_repo_builder.run.client import Urls
    from triton_repo_builder.ship.canary.commands import Places
    from triton_repo_builder.ship.canary.engine import Look
    from triton_repo_builder.ship.canary.judge import Verdict
    from triton_repo_builder.ship.canary.state import State
    from triton_repo_builder.ship.targets.facts import Deployment

FILE = Path("deploy.toml")
ROUTES = Path("deploy/compose/traefik/routes.yml")
TRAEFIK = "http://127.0.0.1:8080"
GRPC_PORT = "the URL's port + 1"
OF_START = ("gateway", "routed_canary")
"""Options without a meaning once the traffic has moved."""
MEDIAN = 0.5
"""Quantile of a verdict that the rule on p99 gave for the median."""


@dataclass(frozen=True, kw_only=True)
class RoutesOptions:
    """The file that Traefik reads."""

    routes: Path = option(
        ROUTES,
        FilePath(folder=False),
        Topic.DEPLOYMENT,
        "Traefik's dynamic configuration, as trb export compose writes it.",
        default=str(ROUTES),
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class CanaryServers(RoutesOptions):
    """Both servers, Traefik and its file."""

    stable: str = field(
        metadata=declare(
            Filled(), Topic.RUNNING, "HTTP address of the server that has the traffic.", metavar="URL"
        )
    )
    canary: str = field(
        metadata=declare(
            Filled(), Topic.RUNNING, "HTTP address of the server with the new version.", metavar="URL"
        )
    )
    traefik: str | None = option(
        None,
        Filled(),
        Topic.RUNNING,
        "Traefik's API and metrics.",
        default=f"{TRAEFIK}; to finish, as at the start",
        metavar="URL",
    )
    gateway: str | None = option(
        None,
        Filled(),
        Topic.RUNNING,
        "A gateway that runs with --shadow CANARY: its comparisons count for the rule on answers.",
        metavar="URL",
    )
    stable_grpc: str | None = option(
        None, Filled(), Topic.RUNNING, "gRPC address of the stable server.", default=GRPC_PORT, rare=True
    )
    canary_grpc: str | None = option(
        None, Filled(), Topic.RUNNING, "gRPC address of the canary.", default=GRPC_PORT, rare=True
    )
    stable_metrics: str | None = option(
        None, Filled(), Topic.RUNNING, "Metrics page of the stable server.", default=METRICS_PAGE, rare=True
    )
    canary_metrics: str | None = option(
        None, Filled(), Topic.RUNNING, "Metrics page of the canary.", default=METRICS_PAGE, rare=True
    )
    routed_canary: str | None = option(
        None,
        Filled(),
        Topic.RUNNING,
        "The canary as Traefik reaches it, e.g. http://bert-canary:8000.",
        default="as --canary",
        metavar="URL",
        rare=True,
    )

    def again(self, command: str, file: Path) -> str:
        """The command line of another command on the same canary, with all options that were given."""
        words = ["trb", "canary", command]
        if file != FILE:
            words.append(str(file))
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None or (each.name in OF_START and command != "start"):
                continue
            words += [f"--{each.name.replace('_', '-')}", str(value)]
        return shlex.join(words)

    def back(self) -> str:
        """The command line that goes back."""
        words = ["trb", "canary", "abort", "--routes", str(self.routes)]
        return shlex.join(words + (["--traefik", self.traefik] if self.traefik else []))

    def places(self, deployment: Deployment, *, traefik: str = TRAEFIK) -> Places:
        """All addresses. The admin key of the deployment is sent to both servers.

        ``traefik``: its address if none was given.
        """
        from triton_repo_builder.run.client import admin_key
        from triton_repo_builder.ship.canary.commands import Places
        from triton_repo_builder.ship.canary.world import Servers

        stable = addresses(self.stable, self.stable_grpc, self.stable_metrics, option="--stable")
        canary = addresses(self.canary, self.canary_grpc, self.canary_metrics, option="--canary")
        key = admin_key.read(deployment.spec.exposure.admin_key)
        for urls in (stable, canary):
            admin_key.remember(urls.http, key)
            click.get_current_context().call_on_close(lambda url=urls.http: admin_key.forget(url))
        routed = canary
        if self.routed_canary is not None:
            routed = addresses(self.routed_canary, option="--routed-canary")
        return Places(
            servers=Servers(stable=stable, canary=canary, gateway=(self.gateway or "").rstrip("/")),
            routed_stable=_backend(stable),
            routed_canary=_backend(routed),
            traefik=(self.traefik or traefik).rstrip("/"),
            file=self.routes,
        )


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """The form of the result."""

    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@dataclass(frozen=True, kw_only=True)
class CommandOptions(RoutesOptions):
    """A canary that was begun."""

    traefik: str | None = option(
        None,
        Filled(),
        Topic.RUNNING,
        "Traefik's API and metrics.",
        default="as at the start",
        metavar="URL",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the state as JSON.", flag="--json")


@dataclass(frozen=True, kw_only=True)
class StatusOptions(RoutesOptions):
    """A canary that was begun."""

    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the state as JSON.", flag="--json")


@click.group("canary")
def command() -> None:
    """Let a new version take over step by step; it goes back by itself if it does worse.

    \b
    Examples:
      trb canary start --stable http://localhost:8000 --canary http://localhost:8100
      trb canary status
      trb canary abort
    """


@command.command("start", cls=declared.TopicCommand)
@click.argument("file", type=Place(), default=FILE)
@declared.options(servers=CanaryServers, options=ResultOptions)
def start(file: Path, servers: CanaryServers, options: ResultOptions) -> int:
    """Send more and more of the traffic to a second server, by the steps and rules of FILE (deploy.toml).

    Each step lasts until the canary has answered enough requests; golden cases make up for missing traffic.
    If the canary fails more, is slower, or answers something else than the stable server, all traffic goes
    back to the stable one, and the exit code is 9. The command blocks until the end. After Ctrl-C the weights
    stay; the same command goes on with the step.

    \b
    Examples:
      trb canary start --stable http://localhost:8000 --canary http://localhost:8100
      trb canary start staging.toml --stable http://bert:8000 --canary http://bert-canary:8000 \\
        --routes /etc/traefik/routes.yml --traefik http://traefik:8080
    """
    from triton_repo_builder.ship.canary import commands, state
    from triton_repo_builder.ship.targets import export

    deployment = export.read(file)
    places = servers.places(deployment)
    try:
        with _shown(quiet=options.as_json) as tell:
            result = commands.start(deployment, places, tell)
    except KeyboardInterrupt:
        console.line(
            f"the weights in {servers.routes} stay as they are; go on with the same command, or go back with "
            f"{servers.back()}"
        )
        raise
    if options.as_json:
        console.echo(json.dumps(_as_json(result, running=False), ensure_ascii=False))
    if result.result == state.PROMOTED:
        if not options.as_json:
            _print_promoted(result, servers, file)
        return 0
    if options.as_json:
        return int(Code.PROMOTE_FAILED.exit)
    raise _taken_back(result)


@command.command("status", cls=declared.TopicCommand)
@declared.options(options=StatusOptions)
def status(options: StatusOptions) -> None:
    """Show the step of a canary, its rules and its end.

    \b
    Examples:
      trb canary status
      trb canary status --routes /etc/traefik/routes.yml --json
    """
    from triton_repo_builder.ship.canary import commands

    current, running = commands.status(options.routes)
    moved = commands.moved(options.routes, current)
    if options.as_json:
        document = {**_as_json(current, running=running), "routes_file": moved}
        console.echo(json.dumps(document, ensure_ascii=False))
    else:
        _print_state(current, running=running)
        if moved and not running:
            console.note(f"{moved}; trb canary abort sends all traffic to the stable server")


@command.command("promote", cls=declared.TopicCommand)
@declared.options(options=CommandOptions)
def promote(options: CommandOptions) -> None:
    """Send all traffic to the canary now, whatever the rules say.

    \b
    Examples:
      trb canary promote
      trb canary promote --routes /etc/traefik/routes.yml
    """
    from triton_repo_builder.ship.canary import commands

    _print_commanded(commands.promote(options.routes, options.traefik), options)


@command.command("abort", cls=declared.TopicCommand)
@declared.options(options=CommandOptions)
def abort(options: CommandOptions) -> None:
    """Send all traffic to the stable server now, also after a promotion.

    \b
    Examples:
      trb canary abort
      trb canary abort --routes /etc/traefik/routes.yml
    """
    from triton_repo_builder.ship.canary import commands

    _print_commanded(commands.abort(options.routes, options.traefik), options)


@command.command("finish", cls=declared.TopicCommand)
@click.argument("file", type=Place(), default=FILE)
@declared.options(servers=CanaryServers)
def finish(file: Path, servers: CanaryServers) -> None:
    """After a promotion, when the stable server has the new version: send all traffic there again.

    Golden cases go to both servers first. If their answers differ, nothing is changed.

    \b
    Examples:
      trb canary finish --stable http://localhost:8000 --canary http://localhost:8100
    """
    from triton_repo_builder.ship.canary import commands
    from triton_repo_builder.ship.targets import export

    deployment = export.read(file)
    commands.finish(deployment, servers.places(deployment, traefik=""))
    console.echo("all traffic is at the stable server, which answers as the canary does; stop the canary")


def _backend(urls: Urls) -> Any:
    from triton_repo_builder.ship.targets.routes import Backend

    secure = urls.grpc.startswith("grpcs://")
    host = urls.grpc.removeprefix("grpcs://")
    return Backend(http=urls.http.rstrip("/"), grpc=f"{'https' if secure else 'h2c'}://{host}")


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Callable[[Look], None]]:
    """A live table on a terminal, else a line when a step begins and when its note changes."""
    if quiet:
        yield lambda look: None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda look: live.update(_table(look), refresh=True)


class _Lines:
    """Lines for a log: each step's begin, each other note."""

    def __init__(self) -> None:
        self._last: tuple[int, str] = (-1, "")

    def __call__(self, look: Look) -> None:
        now = (look.percent, look.note)
        if now == self._last:
            return
        if look.percent != self._last[0]:
            first = (
                "golden cases before any traffic" if not look.percent else f"{look.percent} % of the traffic"
            )
            console.line(first)
        if look.note:
            console.line(f"  {look.note}")
        self._last = now


def _table(look: Look) -> Table:
    from rich import box
    from rich.table import Table

    title = (
        f"{look.percent} % to the canary · step {look.step + 1} of {look.steps} · {look.seconds:.0f} s · "
        f"{look.requests:,} requests" + (f" · {look.note}" if look.note else "")
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in RIGHT else "left", no_wrap=True)
    for verdict in look.verdicts:
        table.add_row(*(console.cell(text) for text in _row(verdict)))
    return table


COLUMNS = ("rule", "source", "stable", "canary", "value", "limit", "requests", "")
RIGHT = ("stable", "canary", "value", "limit", "requests")


def _row(verdict: Verdict) -> tuple[str, ...]:
    return _cells(
        {
            "rule": verdict.rule.name,
            "source": verdict.source,
            "stable": verdict.stable,
            "canary": verdict.canary,
            "value": verdict.value,
            "limit": verdict.rule.limit,
            "requests": verdict.requests,
            "state": verdict.state,
            "quantile": verdict.quantile,
        }
    )


def _cells(rule: dict[str, Any]) -> tuple[str, ...]:
    """A row, of a verdict or of its JSON."""
    share = rule["rule"] in ("failures", "answers")
    times = rule["rule"] == "p99"

    def side(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{1000 * value:.1f} ms" if times else f"{100 * value:.3g} %"

    def number(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{100 * value:.3g} %" if share else f"{value:.2f}"

    return (
        f"{rule['rule']} (median)" if rule["quantile"] == MEDIAN else rule["rule"],
        rule["source"],
        side(rule["stable"]),
        side(rule["canary"]),
        number(rule["value"]),
        number(rule["limit"]),
        f"{rule['requests']:,}",
        rule["state"],
    )


def _print_state(current: State, *, running: bool) -> None:
    from triton_repo_builder.ship.canary import state

    console.echo(f"{current.name}: {_where(current, running=running)}")
    if current.reason:
        console.echo(f"  {current.reason}")
    now = current.latest if current.result == state.RUNNING else None
    if now and now["note"]:
        console.echo(f"  {now['note']}")
    steps = [(f"{step['percent']} %", step) for step in current.history]
    if now:
        steps.append((f"{now['percent']} %, {'now' if running else 'interrupted'}", now))
    rows = [
        (name, *_cells(rule)) for name, step in steps for rule in step["rules"] if rule["state"] != "no data"
    ]
    if rows:
        console.table(("step", *COLUMNS), rows, right=("step", *RIGHT), whole=("rule", "source"))
    if current.result == state.RUNNING and not running:
        console.note("no process drives it: go on with the same trb canary start, or trb canary abort")


def _where(current: State, *, running: bool) -> str:
    from triton_repo_builder.ship.canary import state

    if current.result != state.RUNNING:
        return f"{current.result}; the canary has {current.weight} % of the traffic"
    step = (
        f"step {current.step + 1} of {len(current.steps)}" if current.step >= 0 else "before the first step"
    )
    return f"{current.weight} % to {current.canary}, {step}" + ("" if running else ", stopped")


def _print_promoted(result: State, servers: CanaryServers, file: Path) -> None:
    how = f" ({result.reason})" if result.reason else ""
    console.echo(f"promoted: {result.canary} has all the traffic{how}")
    _print_steps(result)
    console.echo(
        f"next: give {result.stable} the new version, then\n"
        f"  {servers.again('finish', file)}\n"
        f"or go back to it: {servers.back()}"
    )


def _print_steps(result: State) -> None:
    for step in result.history:
        sides = [
            f"{name} {side['requests']:,} requests, {side['failures']:,} failed"
            + ("" if side["p99_ms"] is None else f", p99 {side['p99_ms']:.1f} ms")
            for name, side in (("stable", step["stable"]), ("canary", step["canary"]))
        ]
        golden = f"; {step['golden_requests']:,} golden requests each" if step["golden_requests"] else ""
        console.echo(f"  {step['percent']:>3} %  {step['seconds']:.0f} s: {'; '.join(sides)}{golden}")


def _taken_back(result: State) -> TrbError:
    from triton_repo_builder.ship.canary import state

    percent = result.history[-1]["percent"] if result.history else 0
    if percent:
        back = f"all traffic was back at the stable server {result.back_s:.1f} s after the step began"
        if result.first_bad_s is not None and result.result != state.ABORTED:
            back += f", {result.first_bad_s:.1f} s after the first bad request was seen"
    else:
        back = "it got no traffic"
    if result.result == state.ABORTED:
        return TrbError(
            Code.PROMOTE_FAILED, f"aborted at {percent} %: {back}", where=result.canary, remedy=AFTER
        )
    return TrbError(
        Code.PROMOTE_FAILED,
        f"taken back at {percent} %: {result.reason}\n{back}",
        where=result.canary,
        remedy=AFTER,
    )


AFTER = "trb canary status shows every step; correct the new version, then start again"


def _print_commanded(result: State | None, options: CommandOptions) -> None:
    from triton_repo_builder.ship.canary.traefik import edited

    if options.as_json:
        document = {"result": "aborted"} if result is None else _as_json(result, running=False)
        console.echo(json.dumps(document, ensure_ascii=False))
    elif result is None or not result.weight:
        console.echo("all traffic is at the stable server")
        if (kept := edited(options.routes)).exists():
            console.note(f"the routes file was edited; the edit is kept as {kept}")
    else:
        console.echo(f"all traffic is at {result.canary}")


def _as_json(current: State, *, running: bool) -> dict[str, Any]:
    document = current.to_json()
    document.pop("baseline")
    return {**document, "running": running}

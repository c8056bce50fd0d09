"""``trb gateway``: the API that existing clients speak, in front of a running tritonserver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from triton_repo_builder.base import files
from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import FilePath, Filled, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.options import PORT

COLUMNS = ("endpoint", "compared", "dropped", "failed", "agree", "mean", "worst", "ms p50, p99", "shadow's")


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where the gateway is, and what is behind it."""

    url: str = option(
        "127.0.0.1:8001",
        Filled(),
        Topic.RUNNING,
        "Triton's gRPC address; grpcs:// for TLS; dns:/// for all servers of a name.",
        metavar="HOST:PORT",
    )
    repo: Path | None = option(
        None,
        FilePath(file=False),
        Topic.RUNNING,
        "The repository that the server runs: for tokens, prompts, labels.",
        metavar="DIR",
    )
    host: str = option("127.0.0.1", Filled(), Topic.SERVER, "Address to listen on.", metavar="ADDRESS")
    port: int = option(9000, PORT, Topic.SERVER, "0: any free port.", also=("-p",))
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print one JSON object when ready.", flag="--json")
    end_with_input: bool = option(False, Switch(), Topic.SERVER, "", hidden=True)
    """Stop at the end of standard input, a pipe whose other end ``trb serve --openai`` holds."""

    def checked(self) -> PlaceOptions:
        """The options. Raises ``TrbError`` USAGE."""
        from triton_repo_builder.run.gateway import addresses

        addresses.check_grpc("--url", self.url)
        return self


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """How the gateway is asked."""

    key: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.RUNNING,
        "File with an API key, if the gateway asks for one.",
        flag="--api-key",
        metavar="FILE",
        envvar="TRB_API_KEY_FILE",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print one JSON object.", flag="--json")


@click.group("gateway", cls=declared.TopicGroup, invoke_without_command=True)
@click.pass_context
@declared.options(place=PlaceOptions, options=GatewayOptions)
def command(context: click.Context, place: PlaceOptions, options: GatewayOptions) -> int:
    """Answer OpenAI, Cohere, TEI and Hugging Face clients with the endpoints of a running tritonserver.

    With --shadow a second server or version gets copies of requests. Their answers are compared and never
    sent: see trb gateway status.

    \b
    Examples:
      trb gateway --repo model_repository
      trb gateway --url triton:8001 --host 0.0.0.0 --api-keys keys.txt
      trb gateway --shadow 127.0.0.1:8101            a second server gets copies, 1 of 20 requests
      trb gateway status                             how far its answers agree
      curl localhost:9000/v1/embeddings -H 'Content-Type: application/json' -d '{"input": "hello"}'
    """
    if context.invoked_subcommand is not None:
        return 0
    from triton_repo_builder.run.gateway import addresses, server

    addresses.check_apart(options.shadow.target, place.url)

    def ready(url: str) -> None:
        if place.as_json:
            console.echo(json.dumps({"url": url, "triton": place.url}))
        else:
            console.echo(f"ready: {url}  docs {url}/docs")

    if place.end_with_input:
        _end_with_input()
    where = server.Listening(host=place.host, port=place.port, triton=place.url, repo=place.repo)
    server.run(where, options, ready)
    return 0


def _end_with_input() -> None:
    """Stop as by Ctrl-C when the other end of standard input is closed, also by a kill."""
    import os
    import signal
    import threading

    def wait() -> None:
        while os.read(0, 64):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


@command.command(
    "status", cls=declared.TopicCommand, short_help="Show how far the answers of the shadow agree."
)
@click.argument("url", default="http://127.0.0.1:9000")
@declared.options(options=StatusOptions)
def status(url: str, options: StatusOptions) -> int:
    """Show how far the shadow of the gateway at URL (default: http://127.0.0.1:9000) agrees.

    Copies are compared, dropped (the shadow is slower than they come) or failed. Mean and worst are cosines
    for embeddings, else the largest difference of scores. Times are those at Triton, of the last 1,000
    copies.

    \b
    Examples:
      trb gateway status
      trb gateway status http://gateway:9000 --api-key key --json
    """
    report = _report(url, options.key)
    if options.as_json:
        console.echo(json.dumps(report, ensure_ascii=False))
        return 0
    if not report["target"]:
        console.echo("no shadow: start the gateway with --shadow HOST:PORT|VERSION")
        return 0
    kind = "version" if str(report["target"]).isdecimal() else "server"
    percent = 100 * report["share"]
    console.echo(f"shadow: {kind} {report['target']}, {percent:.3g} % of the requests")
    if report["endpoints"]:
        rows = [_row(entry) for entry in report["endpoints"]]
        console.table(COLUMNS, rows, right=COLUMNS[1:7], whole=COLUMNS[7:])
    for entry in report["endpoints"]:
        if entry["last_failure"]:
            console.echo(f"{entry['endpoint']}: the last failure: {entry['last_failure']}")
    return 0


def _report(url: str, key: Path | None) -> dict[str, Any]:
    """``GET /shadow``. Raises ``TrbError`` UNREACHABLE, and NOT_FOUND of the key's file."""
    from triton_repo_builder.run.client import Body, HttpClient, RequestFailed
    from triton_repo_builder.run.client.values import document

    try:
        words = files.read_text(key).split() if key is not None else []
    except OSError as error:
        assert key is not None
        raise files.unreadable(key, error) from None
    headers = {"Authorization": f"Bearer {words[0]}"} if words else {}
    try:
        answer = HttpClient(url, 10).send("GET", "/shadow", Body(data=b"", headers=headers))
        report = document(answer.data) if answer.status == 200 else None
    except (RequestFailed, ValueError) as error:
        raise TrbError(
            Code.UNREACHABLE, f"no gateway answers: {error}", where=url, remedy="start one: trb gateway"
        ) from None
    if answer.status in (401, 403):
        raise TrbError(
            Code.UNREACHABLE, "the gateway asks for an API key", where=url, remedy="--api-key FILE"
        )
    if not isinstance(report, dict) or "endpoints" not in report:
        raise TrbError(
            Code.UNREACHABLE,
            f"no gateway of trb answers there (status {answer.status})",
            where=url,
            remedy="name the gateway's URL, not that of the server",
        )
    return report


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    agreement, measure = entry["agreement"], entry["measure"]

    def number(name: str) -> str:
        value = entry[name]
        return "" if value is None else f"{value:.6f}" if measure == "cosine" else f"{value:.2g}"

    def times(name: str) -> str:
        p50, p99 = entry[name]["p50"], entry[name]["p99"]
        return "" if p50 is None else f"{p50:.1f}, {p99:.1f}"

    return (
        entry["endpoint"],
        f"{entry['compared']:,}",
        f"{entry['dropped']:,}",
        f"{entry['failed']:,}",
        "" if agreement is None else f"{100 * agreement:.2f} %",
        number("mean"),
        number("worst"),
        times("primary_ms"),
        times("shadow_ms"),
    )

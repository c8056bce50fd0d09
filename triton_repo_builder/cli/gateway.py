"""``trb gateway``: the API that existing clients speak, in front of a running tritonserver."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Filled, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.options import PORT


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where the gateway is, and what is behind it."""

    url: str = option(
        "127.0.0.1:8001",
        Filled(),
        Topic.RUNNING,
        "Triton's gRPC address; grpcs:// for TLS.",
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


@click.command("gateway", cls=declared.TopicCommand)
@declared.options(place=PlaceOptions, options=GatewayOptions)
def command(place: PlaceOptions, options: GatewayOptions) -> int:
    """Answer OpenAI, Cohere, TEI and Hugging Face clients with the endpoints of a running tritonserver.

    \b
    Examples:
      trb gateway --repo model_repository
      trb gateway --url triton:8001 --host 0.0.0.0 --api-keys keys.txt
      curl localhost:9000/v1/embeddings -H 'Content-Type: application/json' -d '{"input": "hello"}'
    """
    from triton_repo_builder.run.gateway import server

    def ready(url: str) -> None:
        if place.as_json:
            console.echo(json.dumps({"url": url, "triton": place.url}))
        else:
            console.echo(f"ready: {url}  docs {url}/docs")

    where = server.Listening(host=place.host, port=place.port, triton=place.url, repo=place.repo)
    server.run(where, options, ready)
    return 0

"""``trb serve``: run a real tritonserver on a repository."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.base.declaration import Topic, nested, option
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.option_values import FilePath, Filled, Number, Switch
from triton_repo_builder.cli import console, declared, engines, interrupts
from triton_repo_builder.cli.following import Following, RevisionOptions, prepared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, VARIABLE, Repo
from triton_repo_builder.cli.serve_openai import OpenAIOptions
from triton_repo_builder.run.options import ServeOptions

if TYPE_CHECKING:
    from triton_repo_builder.run.serve import KeptServer, RunningServer
    from triton_repo_builder.ship.stores import Location


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """Options of the process itself."""

    admin_key: Path | None = option(
        None,
        FilePath(),
        Topic.SERVER,
        "Model control, shared memory, trace and logging need the key in this file.",
        metavar="FILE",
        envvar=VARIABLE,
    )
    restarts: int = option(
        5,
        Number(0, 100),
        Topic.SERVER,
        "Start a server that ends by itself again, at most so often within minutes; 0: never.",
        metavar="N",
    )
    logs: bool = option(False, Switch(), Topic.OUTPUT, "Print the server's output.")
    detach: bool = option(
        False, Switch(), Topic.OUTPUT, "Return when ready and keep it running: see trb status, trb stop."
    )
    name: str | None = option(
        None,
        Filled(),
        Topic.OUTPUT,
        "With --detach: the name by which trb status, logs and stop call it.",
        default="the repository's folder, with a number if another server has that name",
        metavar="NAME",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print one JSON object when ready.", flag="--json")
    supervise: Path | None = option(None, FilePath(), Topic.OUTPUT, "", hidden=True)
    openai: OpenAIOptions = nested(OpenAIOptions)

    @property
    def log_json(self) -> bool:
        """Whether lines on stderr are JSON; a server in the background tells them to its command."""
        return self.openai.gateway.log_format == "json" and self.supervise is None

    def say(self, text: str) -> None:
        """Print a line about the server on stderr."""
        if self.log_json:
            from triton_repo_builder.run.serve import log_lines

            text = log_lines.line(text)
        console.line(text)

    def checked(self) -> ProcessOptions:
        """The options. Raises ``UsageError`` for a name that no server can have."""
        if self.name is None:
            return self
        from triton_repo_builder.run.serve.background import registry

        if not self.detach and self.supervise is None:
            raise click.UsageError("--name is for a server in the background: add --detach.")
        if not registry.NAME.fullmatch(self.name):
            raise click.BadParameter(
                f"'{self.name}' is not a name: at most 63 letters, digits, '_', '.' or '-', not only digits",
                param_hint="--name",
            )
        return self


@click.command("serve", cls=declared.TopicCommand)
@click.argument("repo", type=Repo(), default=DEFAULT_REPOSITORY)
@declared.options(
    engine=engines.EngineOptions, options=ServeOptions, revision=RevisionOptions, process=ProcessOptions
)
def command(
    repo: Path | Location,
    engine: engines.EngineOptions,
    options: ServeOptions,
    revision: RevisionOptions,
    process: ProcessOptions,
) -> int:
    """Run tritonserver on REPO (default: model_repository) and wait until every model answers.

    Prints each endpoint with its inputs, outputs and a curl line to paste. A model that fails is named with
    its cause. A Python model whose process dies is loaded again, or the server is stopped: it never only
    seems to be ready. A server that ends is started again, with the models that were loaded. Ctrl-C stops
    the server, a second Ctrl-C at once.

    \b
    Examples:
      trb serve
      trb serve my_repository --http-port 0 --grpc-port 0 --metrics-port 0
      trb serve --load bert --detach --name bert     then: trb logs bert, trb stop bert
      trb serve --openai                             OpenAI's and Cohere's clients: http://localhost:9000
      trb serve --load none
      trb serve --engine docker --triton-release 24.10
      trb serve s3://models/minilm                   what 'trb push' put there, read from the bucket
      trb serve s3://models/minilm --follow          and each later revision, once it is proven
      trb serve --trace otlp://localhost:4318        spans of each step; with --openai, of the gateway, too
      trb serve --logs --log-format json             one JSON object for each message
      trb serve --verify                             refuse a repository that was altered since its build
      trb serve --host 0.0.0.0 --admin-key key       reached from elsewhere; trb load --admin-key key
    """
    from triton_repo_builder.run import serve
    from triton_repo_builder.run.client import admin_key
    from triton_repo_builder.run.gateway import addresses
    from triton_repo_builder.run.serve.background import registry

    key = admin_key.read(process.admin_key) if process.admin_key else ""
    following = prepared(repo, engine.name, options.models, revision) if revision.follow else None
    with interrupts.ctrl_c_in_background():
        if process.detach:
            if process.name:
                registry.check_free(process.name)
            supervised = replace(process, logs=False, detach=False, as_json=False)
            # The key itself stays in its file.
            arguments = declared.arguments(engine, options, revision, supervised)
            location = str(repo.absolute() if isinstance(repo, Path) else repo)
            return _detached([location, *arguments], as_json=process.as_json)
        addresses.check_apart(process.openai.gateway.shadow.target, f"{engine.host}:{options.grpc_port}")
        process = replace(process, openai=process.openai.prepared(engine.host))
        options = replace(
            process.openai.applied(options),
            host=engine.host,
            container=engine.container,
            admin_key=key,
            log_file=options.log_file and options.log_file.absolute(),
        )
        with (
            _shown(options) if process.logs else nullcontext(options) as options,
            # What a server reads from a bucket by itself cannot be compared before it does.
            engines.opened(
                following.start if following else repo,
                engine,
                direct=not revision.verify and following is None,
                signed_by=revision.public_keys,
            ) as opened,
        ):
            if revision.verify:
                _verify(opened.path)
            options = replace(options, models_url=opened.models_url)
            name = str(repo) if opened.path != repo else str(opened.path.resolve())
            start = partial(serve.keep, opened.path, options, restarts=process.restarts, engine=engine.name)
            return _run(opened.path, name, start, following, process)


@contextmanager
def _shown(options: ServeOptions) -> Iterator[ServeOptions]:
    """Print the server's output on stderr, from its first line on."""
    import tempfile

    from triton_repo_builder.run.serve.background import log_follow

    temporary = options.log_file is None
    if temporary:
        held, name = tempfile.mkstemp(prefix="trb-", suffix=".log")
        os.close(held)
    file = options.log_file or Path(name)
    with log_follow.following(file, lambda text: console.echo(text, nl=False, err=True)):
        yield replace(options, log_file=file)
    # After a failure the message names it.
    if temporary:
        file.unlink(missing_ok=True)


def _run(
    repo: Path,
    source: str,
    start: Callable[..., KeptServer],
    following: Following | None,
    process: ProcessOptions,
) -> int:
    """``_serve``; its error is a line of the log if that is JSON."""
    try:
        return _serve(repo, source, start, following, process)
    except TrbError as error:
        if not process.log_json:
            raise
        from triton_repo_builder.run.serve import log_lines

        details = console.error_as_json(error)
        console.line(log_lines.line(str(details.pop("error")), "error", **details))
        return int(error.code.exit)


def _serve(
    repo: Path,
    source: str,
    start: Callable[..., KeptServer],
    following: Following | None,
    process: ProcessOptions,
) -> int:
    """Serve in the foreground, or as the supervisor of a server in the background (``--supervise``)."""
    from triton_repo_builder.run.codegen import snippets
    from triton_repo_builder.run.serve.background import registry

    begun, say = time.time(), process.say
    with nullcontext(say) if process.log_json else _progress() as tell:
        kept = start(progress=tell)
    server, entry_file, as_json = kept.server, process.supervise, process.as_json
    shown = False

    def restarted() -> None:
        if entry_file is not None:
            _update(entry_file, kept)

    try:
        with (
            following.started(server, repo) if following else nullcontext(),
            process.openai.running(kept, repo, say) as gateway,
        ):
            examples = [
                snippets.usage(server.urls.http, name, repo / name, gateway) for name in server.endpoints
            ]
            about = _about(server, repo, source, [endpoint.to_json() for endpoint in examples])
            if gateway is not None:
                about["urls"]["openai"] = gateway.url
            if entry_file is not None:
                entry = replace(_entry(about, begun), grace=process.openai.grace)
                registry.add(entry_file, entry, process.name or "")
            else:
                _show(about, as_json=as_json)
            shown = True
            _wait(kept, restarted, say)
    except TrbError as error:
        if not (as_json and shown):
            raise
        console.print_error(error)  # not raised: the endpoints are the one object on stdout
        return int(error.code.exit)
    except KeyboardInterrupt:
        say("stopping the server")
    finally:
        kept.stop()
    if entry_file is not None:
        registry.forget(entry_file)
    say("stopped")
    return 0


def _wait(kept: KeptServer, restarted: Callable[[], None], say: Callable[[str], None]) -> None:
    try:
        kept.wait(restarted)
    except KeyboardInterrupt:
        say("stopping the server")


def _verify(repo: Path) -> None:
    from triton_repo_builder import repository
    from triton_repo_builder.check import verified

    count = verified.check(repository.read(repo))
    console.echo(f"verified: {count} files are as manifest.json states", err=True)


def _detached(arguments: list[str], *, as_json: bool) -> int:
    from triton_repo_builder.run.serve.background import detach, registry

    result = detach.start(arguments, lambda line: console.echo(line, err=True))
    if isinstance(result, int):
        return result
    _show(registry.about(result), as_json=as_json)
    if not as_json:
        console.echo(f"runs in the background; stop it with: trb stop {shlex.quote(result.name)}")
    return 0


def _about(server: RunningServer, repo: Path, source: str, endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": repo.resolve().name,
        "repository": source,
        "engine": server.engine,
        "about": server.about,
        "container": server.container,
        "pid": os.getpid(),
        "server_pid": server.pid,
        "urls": asdict(server.urls),
        "log": str(server.log),
        "endpoints": endpoints,
    }


def _entry(about: dict[str, Any], started: float) -> Any:
    from triton_repo_builder.run.serve.background import registry
    from triton_repo_builder.run.serve.processes import proc

    return registry.Background(born=proc.start_time(about["pid"]), started=started, **about)


def _update(file: Path, kept: KeptServer) -> None:
    """Update the entry with the process, container and log of a restarted server."""
    from triton_repo_builder.run.serve.background import registry

    entry, server = registry.read(file), kept.server
    if entry is None:
        return
    entry = replace(
        entry, server_pid=server.pid, container=server.container, log=str(server.log), restarts=kept.restarts
    )
    try:
        registry.write(file, entry)
    except TrbError as error:  # a full disk; the server itself goes on
        console.print_error(error)


def _show(about: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        console.echo(json.dumps(about, ensure_ascii=False))
        return
    if about["endpoints"]:
        show_endpoints(about["endpoints"])
    else:
        console.echo(f"no model is loaded; load one with: trb load NAME --url {about['urls']['http']}")
    urls = about["urls"]
    console.echo(about["about"])
    console.echo(f"ready: HTTP {urls['http']}  gRPC {urls['grpc']}  metrics {urls['metrics']}")
    if "openai" in urls:
        console.echo(f"gateway: {urls['openai']}  OpenAI clients {urls['openai']}/v1")


def show_endpoints(endpoints: list[dict[str, Any]]) -> None:
    """Print a table of inputs and outputs, and curl lines for each endpoint: one item, and many texts."""
    rows = [(e["name"], _tensors(e["inputs"]), _tensors(e["outputs"])) for e in endpoints]
    console.table(("endpoint", "inputs", "outputs"), rows)
    for endpoint in endpoints:
        # As they are: a table or a wrapped line could not be pasted.
        titles = endpoint.get("titles") or {}
        for call, title in titles.items():
            console.echo(f"# {endpoint['name']}, {title}:\n{endpoint[call]}")
        if not titles:
            console.echo(endpoint["curl"] or f"# {endpoint['name']}: {endpoint['note']}")


def _tensors(listed: list[dict[str, Any]]) -> str:
    return "\n".join(f"{t['name']} {t['datatype']} {list(t['shape'])}" for t in listed)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Print lines on stderr, or on a terminal show a spinner, until the server is ready."""

    if not sys.stderr.isatty():
        yield console.line
        return
    spinning = True
    with console.status() as spinner:
        yield (
            lambda text: spinner(text) if spinning and not text.startswith("warning") else console.line(text)
        )
    spinning = False

"""``trb serve``: run a real tritonserver on a repository."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.cli import console, engines, interrupts
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, SIGNATURE_HELP, VARIABLE, Place, Real, Repo

if TYPE_CHECKING:
    from triton_repo_builder.cli.following import Following
    from triton_repo_builder.run.serve import KeptServer, RunningServer, ServeOptions
    from triton_repo_builder.ship.stores import Location

PORT = click.IntRange(0, 65535)


@click.command("serve")
@click.argument("repo", type=Repo(), default=DEFAULT_REPOSITORY)
@engines.options
@click.option("--http-port", type=PORT, default=8000, show_default=True, help="0: any free port.")
@click.option("--grpc-port", type=PORT, default=8001, show_default=True, help="0: any free port.")
@click.option("--metrics-port", type=PORT, default=8002, show_default=True, help="0: any free port.")
@click.option(
    "--load",
    "models",
    multiple=True,
    metavar="NAME",
    help="Load only this model and what it needs; repeatable. none: nothing yet, see trb load.",
)
@click.option(
    "--timeout",
    type=Real(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds until all models must be ready.",
)
@click.option(
    "--admin-key",
    type=Place(),
    metavar="FILE",
    envvar=VARIABLE,
    show_envvar=True,
    help="Model control, shared memory, trace and logging need the key in this file.",
)
@click.option("--open-apis", is_flag=True, help="Leave these APIs open also beyond this machine (--host).")
@click.option(
    "--verify", is_flag=True, help="First compare every file with manifest.json; refuse if one was altered."
)
@click.option(
    "--require-signature", "public_keys", type=Place(dir_okay=False), metavar="FILE", help=SIGNATURE_HELP
)
@click.option(
    "--follow", is_flag=True, help="For a URL: take up each new revision, proven by trb smoke, or stay."
)
@click.option(
    "--refuse-older",
    is_flag=True,
    help="With --follow and --require-signature: refuse what was signed before a revision that was seen.",
)
@click.option(
    "--interval",
    type=Real(1, 86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="With --follow: time between two looks at the pointer.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0, 100),
    default=5,
    show_default=True,
    metavar="N",
    help="Start a server that ends by itself again, at most so often within minutes; 0: never.",
)
@click.option("--log-file", type=Place(dir_okay=False), help="File for the server's output.")
@click.option("--logs", is_flag=True, help="Print the server's output.")
@click.option("--verbose", is_flag=True, help="Let the server log every request.")
@click.option(
    "--detach", is_flag=True, help="Return when ready and keep it running: see trb status, trb stop."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when ready.")
@click.option("--supervise", type=Place(), hidden=True)
def command(
    repo: Path | Location,
    engine: engines.Choice,
    http_port: int,
    grpc_port: int,
    metrics_port: int,
    models: tuple[str, ...],
    timeout: float,
    admin_key: Path | None,
    open_apis: bool,
    verify: bool,
    public_keys: Path | None,
    follow: bool,
    refuse_older: bool,
    interval: float,
    restarts: int,
    log_file: Path | None,
    logs: bool,
    verbose: bool,
    detach: bool,
    as_json: bool,
    supervise: Path | None,
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
      trb serve --load bert --detach
      trb serve --load none
      trb serve --engine docker --triton-release 24.10
      trb serve s3://models/minilm                   what 'trb push' put there, read from the bucket
      trb serve s3://models/minilm --follow          and each later revision, once it is proven
      trb serve --verify                             refuse a repository that was altered since its build
      trb serve --host 0.0.0.0 --admin-key key       reached from elsewhere; trb load --admin-key key
    """
    from triton_repo_builder.run.client import admin_key as key_file
    from triton_repo_builder.run.serve import ServeOptions

    options = ServeOptions(
        host=engine.host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        load_timeout=timeout,
        models=models,
        log_file=None if log_file is None else Path(log_file).absolute(),
        log_verbose=int(verbose),
        container=engine.container(),
        admin_key=key_file.read(admin_key) if admin_key else "",
        open_apis=open_apis,
    )
    following = None
    if follow:
        from triton_repo_builder.cli.following import prepared

        following = prepared(repo, engine.name, models, public_keys, interval, refuse_older=refuse_older)
    elif refuse_older:
        raise click.UsageError("--refuse-older goes with --follow.")
    with interrupts.ctrl_c_in_background():
        if detach:
            arguments = _arguments(repo, engine, options, admin_key, public_keys, verify=verify)
            arguments += [f"--restarts={restarts}"]
            arguments += ["--follow", f"--interval={interval}"] if follow else []
            arguments += ["--refuse-older"] if refuse_older else []
            return _detached(arguments, as_json=as_json)
        with (
            _shown(options) if logs else nullcontext(options) as options,
            # What a server reads from a bucket by itself cannot be compared before it does.
            engines.opened(
                following.start if following else repo,
                engine,
                direct=not verify and following is None,
                signed_by=public_keys,
            ) as opened,
        ):
            if verify:
                _verify(opened.path)
            options = replace(options, models_url=opened.models_url)
            name = str(repo) if opened.path != repo else str(opened.path.resolve())
            return _run(
                opened.path,
                name,
                engine,
                options,
                following,
                restarts=restarts,
                as_json=as_json,
                entry_file=supervise,
            )


@contextmanager
def _shown(options: ServeOptions) -> Iterator[ServeOptions]:
    """Print the server's output on stderr, from its first line on."""
    import tempfile

    from triton_repo_builder.run.serve.background import log_follow

    own = options.log_file is None
    if own:
        held, name = tempfile.mkstemp(prefix="trb-", suffix=".log")
        os.close(held)
    file = options.log_file or Path(name)
    with log_follow.following(file, lambda text: console.echo(text, nl=False, err=True)):
        yield replace(options, log_file=file)
    # After a failure the message names it.
    if own:
        file.unlink(missing_ok=True)


def _run(
    repo: Path,
    source: str,
    engine: engines.Choice,
    options: ServeOptions,
    following: Following | None,
    *,
    restarts: int,
    as_json: bool,
    entry_file: Path | None,
) -> int:
    """Serve in the foreground, or as the supervisor of a server in the background (``entry_file``)."""
    from triton_repo_builder.run import serve
    from triton_repo_builder.run.codegen import snippets
    from triton_repo_builder.run.serve.background import registry

    begun = time.time()
    with _progress() as tell:
        kept = serve.keep(repo, options, restarts=restarts, engine=engine.name, progress=tell)
    server = kept.server

    def restarted() -> None:
        if entry_file is not None:
            _update(entry_file, kept)

    try:
        examples = [snippets.usage(server.urls.http, name, repo / name) for name in server.endpoints]
        about = _about(server, repo, source, [endpoint.to_json() for endpoint in examples])
        if entry_file is not None:
            registry.write(entry_file, _entry(about, begun))
        else:
            _show(about, as_json=as_json)
        with following.started(server, repo) if following else nullcontext():
            _wait(kept, restarted)
    except TrbError as error:
        if not as_json:
            raise
        console.print_error(error)  # not raised: the endpoints are the one object on stdout
        return int(error.code.exit)
    except KeyboardInterrupt:
        console.echo("stopping the server", err=True)
    finally:
        kept.stop()
    if entry_file is not None:
        registry.forget(entry_file)
    console.echo("stopped", err=True)
    return 0


def _wait(kept: KeptServer, restarted: Callable[[], None]) -> None:
    try:
        kept.wait(restarted)
    except KeyboardInterrupt:
        console.echo("stopping the server", err=True)


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
        console.echo(f"runs in the background; stop it with: trb stop {result.name}")
    return 0


def _arguments(
    repo: Path | Location,
    engine: engines.Choice,
    options: ServeOptions,
    admin_key: Path | None,
    public_keys: Path | None,
    *,
    verify: bool,
) -> list[str]:
    """The command line of the same server in the background. The key itself stays in its file."""
    ports = {
        "--http-port": options.http_port,
        "--grpc-port": options.grpc_port,
        "--metrics-port": options.metrics_port,
    }
    return [
        str(repo.absolute() if isinstance(repo, Path) else repo),
        *engine.arguments(),
        *(f"{option}={number}" for option, number in ports.items()),
        f"--timeout={options.load_timeout}",
        *(f"--load={name}" for name in options.models),
        *([f"--log-file={options.log_file}"] if options.log_file else []),
        *([f"--require-signature={public_keys.absolute()}"] if public_keys else []),
        *(["--verbose"] if options.log_verbose else []),
        *([f"--admin-key={admin_key.absolute()}"] if admin_key else []),
        *(["--open-apis"] if options.open_apis else []),
        *(["--verify"] if verify else []),
    ]


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
    """Have the entry name the process, container and log of a server that was started again."""
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


def show_endpoints(endpoints: list[dict[str, Any]]) -> None:
    """Print a table of inputs and outputs, and the shortest curl line for each endpoint."""
    rows = [(e["name"], _tensors(e["inputs"]), _tensors(e["outputs"])) for e in endpoints]
    console.table(("endpoint", "inputs", "outputs"), rows)
    for endpoint in endpoints:
        # As they are: a table or a wrapped line could not be pasted.
        line = endpoint.get("generate") or endpoint["curl"]
        console.echo(line or f"# {endpoint['name']}: {endpoint['note']}")


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

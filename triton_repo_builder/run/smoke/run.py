"""All checks, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.client import HttpClient, RequestFailed, Urls
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.options import SmokeOptions
from triton_repo_builder.run.smoke import (
    batch,
    concurrent,
    health,
    malformed,
    parity,
)
from triton_repo_builder.run.smoke.attempt import not_done
from triton_repo_builder.run.smoke.report import GOLDEN, Check, SmokeReport, Status
from triton_repo_builder.run.smoke.session import DECOUPLED, ServedEndpoint, SmokeSession, prepare
from triton_repo_builder.run.smoke.target import StatedEndpoint, targets

Progress = Callable[[str, int, int], None]
"""Called before each stage with its name, the number of finished stages and the number of all."""

Stage = tuple[str, Callable[[SmokeSession, ServedEndpoint], Iterator[Check]]]
STAGES: tuple[Stage, ...] = (
    (GOLDEN, parity.checks),
    ("in a batch", batch.checks),
    ("concurrent clients", concurrent.checks),
    ("malformed requests", malformed.checks),
)


def run(
    urls: Urls,
    repository: Repository | None,
    options: SmokeOptions,
    progress: Progress = lambda stage, done, total: None,
) -> SmokeReport:
    """Check a running server against a repository; ``None`` if no local one is readable.

    Raises ``TrbError`` if the server does not answer at all or the repository cannot be used;
    everything else is in the report.
    """
    http = HttpClient(urls.http, options.timeout)
    grpc = GrpcClient(urls.grpc, options.timeout)
    session = SmokeSession(http=http, grpc=grpc, options=options)
    try:
        session = replace(session, release=releases.of_server(_reach(session)))
        chosen = _chosen(session, repository)
        checks: list[Check] = []
        stages = len(_stages(options))
        total = len(chosen) * (stages + 1) + 1
        progress("server", 0, total)
        checks += health.server(session)
        for number, target in enumerate(chosen):
            checks += _endpoint(session, target, progress, 1 + number * (stages + 1), total)
        progress("done", total, total)
        return SmokeReport(
            url=http.url,
            grpc_url=urls.grpc,
            server_version=http.version() if http.answers_live() else "",
            repository=str(repository.path) if repository else "",
            endpoints=tuple(target.name for target in chosen),
            checks=tuple(checks),
        )
    finally:
        grpc.close()


def reach(urls: Urls, timeout: float = 10) -> None:
    """Raise ``TrbError`` UNREACHABLE unless a server answers at both addresses."""
    grpc = GrpcClient(urls.grpc, timeout)
    try:
        _reach(SmokeSession(http=HttpClient(urls.http, timeout), grpc=grpc, options=SmokeOptions()))
    finally:
        grpc.close()


def _reach(session: SmokeSession) -> str:
    """The server's version; raises ``TrbError`` unless both protocols answer."""
    try:
        version = session.http.version()
    except RequestFailed as error:
        raise TrbError(
            Code.UNREACHABLE,
            f"no tritonserver answers: {error}",
            where=session.http.url,
            remedy="start one with 'trb serve', or leave out --url and smoke starts its own",
        ) from None
    try:
        session.grpc.version()
    except RequestFailed as error:
        raise TrbError(
            Code.UNREACHABLE,
            f"the server answers HTTP, but not gRPC here: {error}",
            where=session.grpc.url,
            remedy="name the gRPC address with --grpc-url HOST:PORT (tritonserver's default port is 8001)",
        ) from None
    return version


def _chosen(session: SmokeSession, repository: Repository | None) -> tuple[StatedEndpoint, ...]:
    try:
        options = session.options
        return targets(repository, session.http, options.endpoints, golden=options.cases)
    except RequestFailed as error:
        raise TrbError(
            Code.UNREACHABLE,
            f"the server does not list its models: {error}",
            where=session.http.url,
            remedy="name the local repository: trb smoke REPO --url …",
        ) from None


def _stages(options: SmokeOptions) -> list[Stage]:
    return [stage for stage in STAGES if options.malformed or stage[1] is not malformed.checks]


def _endpoint(
    session: SmokeSession, target: StatedEndpoint, progress: Progress, done: int, total: int
) -> Iterator[Check]:
    progress(f"{target.name}: metadata", done, total)
    try:
        endpoint = prepare(session, target)
    except RequestFailed as error:
        yield health.absent(session, target, str(error))
        return
    yield from health.endpoint(session, target, endpoint)
    if endpoint.interface.decoupled:
        for name, _ in _stages(session.options):
            yield not_done(name, name, target.name, DECOUPLED, Status.SKIPPED)
        return
    for number, (name, checks) in enumerate(_stages(session.options)):
        progress(f"{target.name}: {name}", done + number + 1, total)
        yield from checks(session, endpoint)
        if checks is parity.checks:
            endpoint = parity.as_served(session, endpoint)

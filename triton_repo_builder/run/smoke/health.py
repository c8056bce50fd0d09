"""Whether the server is up, and serves the repository's endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.smoke.attempt import Mismatch, Seen, attempt, not_done
from triton_repo_builder.run.smoke.report import Check, Status
from triton_repo_builder.run.smoke.session import GRPC, ServedEndpoint, SmokeSession
from triton_repo_builder.run.smoke.target import StatedEndpoint

HTTP = "HTTP"
Client = HttpClient | GrpcClient


def server(session: SmokeSession) -> Iterator[Check]:
    """Live and ready over both protocols, one version, every model of the server's repository loaded."""
    for protocol, client in _clients(session):
        yield attempt("server", "live", partial(_live, client), protocol=protocol)
        yield attempt("server", "ready", partial(_ready, client), protocol=protocol)
    yield attempt("server", "version", partial(_version, session))
    try:
        yield attempt("server", "models loaded", partial(_loaded, session))
    except TrbError as error:  # the server lists its models for holders of its admin key only
        yield not_done("server", "models loaded", "", error.message, Status.SKIPPED)


def _clients(session: SmokeSession) -> tuple[tuple[str, Client], ...]:
    return ((HTTP, session.http), (GRPC, session.grpc))


def _live(client: Client) -> Seen:
    if not client.live():
        raise Mismatch("expected the server to be live, but it is not")
    return Seen()


def _ready(client: Client) -> Seen:
    if not client.ready():
        raise Mismatch("expected the server to be ready, but it is not")
    return Seen()


def _steps_ready(session: SmokeSession, client: Client, served: ServedEndpoint) -> Seen:
    """The endpoint and each model that it is composed of: an ensemble does not ask its steps."""
    if unready := session.unready(client, served):
        raise Mismatch(f"expected {unready} to be ready, but it is not")
    return Seen()


def _version(session: SmokeSession) -> Seen:
    over_http, over_grpc = session.http.version(), session.grpc.version()
    if over_http != over_grpc:
        raise Mismatch(
            f"two servers: {session.http.url} is {over_http}, {session.grpc.url} (gRPC) is {over_grpc}"
        )
    return Seen(detail=f"tritonserver {over_http}")


def _loaded(session: SmokeSession) -> Seen:
    entries = session.http.index()
    # An entry without a state was never loaded, which is right in explicit mode.
    failed = [entry for entry in entries if entry.state not in ("READY", "") and entry.reason != "unloaded"]
    if failed:
        raise Mismatch("; ".join(f"{e.name} is {e.state}: {e.reason or 'no reason given'}" for e in failed))
    return Seen(detail=f"{sum(entry.state == 'READY' for entry in entries)} models")


def absent(session: SmokeSession, target: StatedEndpoint, reason: str) -> Check:
    """The check of an endpoint that the server does not serve."""
    try:
        loaded = sorted({entry.name for entry in session.http.index() if entry.state == "READY"})
        serves = f"; it serves: {', '.join(loaded) or 'nothing'}"
    except (RequestFailed, TrbError):
        serves = ""
    detail = f"expected the server to serve {target.name}, got {reason}{serves}"
    return Check(group="metadata", name="served", endpoint=target.name, status=Status.FAILED, detail=detail)


def endpoint(session: SmokeSession, target: StatedEndpoint, served: ServedEndpoint) -> Iterator[Check]:
    """Ready, and inputs and outputs equal to the repository's, over both protocols."""
    for protocol, client in _clients(session):
        ready = partial(_steps_ready, session, client, served)
        yield attempt("metadata", "ready", ready, endpoint=target.name, protocol=protocol)
        if target.stated and (target.stated.inputs or target.stated.outputs):
            name = f"metadata equals {target.source}"
            equal = partial(_equal, client, target.source, target.stated)
            yield attempt("metadata", name, equal, endpoint=target.name, protocol=protocol)
    if target.stated is None:
        yield attempt(
            "metadata", "HTTP equals gRPC", partial(_protocols, session, target.name), endpoint=target.name
        )
        # The user who leaves out the cases knows that there is no repository.
        status = Status.UNVERIFIED if session.options.cases else Status.SKIPPED
        yield _unverified(target, "no local repository to compare the metadata with", status)
    elif not (target.stated.inputs and target.stated.outputs):
        yield _unverified(
            target, "config.pbtxt leaves inputs or outputs for the server to complete", Status.SKIPPED
        )
    if target.stated is not None and target.states_batch_size:
        equal = partial(_batch_size, target.source, target.stated, served)
        yield attempt("metadata", "max_batch_size", equal, endpoint=target.name)


def _unverified(target: StatedEndpoint, why: str, status: Status) -> Check:
    return not_done("metadata", "metadata equals the repository's", target.name, why, status)


def _equal(client: Client, source: str, stated: Endpoint) -> Seen:
    served = client.endpoint(stated.name)
    wrong = [
        *_differences("input", stated.inputs, served.inputs, source),
        *_differences("output", stated.outputs, served.outputs, source),
    ]
    if wrong:
        raise Mismatch("; ".join(wrong))
    return Seen(detail=", ".join(_show(tensor) for tensor in served.inputs + served.outputs))


def _differences(
    kind: str, stated: tuple[Tensor, ...], served: tuple[Tensor, ...], source: str
) -> Iterator[str]:
    """None if the source leaves all tensors of this kind to the server."""
    by_name = {tensor.name: tensor for tensor in served}
    names = [tensor.name for tensor in stated]
    for tensor in stated:
        actual = by_name.get(tensor.name)
        if actual != tensor:
            text = f"has {_show(actual)}" if actual else "has no such tensor"
            yield f"{kind}: {source} has {_show(tensor)}, the server {text}"
    for tensor in served if stated else ():
        if tensor.name not in names:
            yield f"{kind}: {source} has no {tensor.name}, the server has {_show(tensor)}"


def _show(tensor: Tensor) -> str:
    return f"{tensor.name} {tensor}"


def _protocols(session: SmokeSession, name: str) -> Seen:
    over_http, over_grpc = (_facts(client, name) for client in (session.http, session.grpc))
    if over_http != over_grpc:
        raise Mismatch(f"HTTP has {over_http}, gRPC has {over_grpc}")
    return Seen()


def _facts(client: Client, name: str) -> tuple[Endpoint, str, list[str]]:
    metadata = client.metadata(name)
    versions = [str(version) for version in metadata.get("versions", ())]
    return Endpoint.of_server(metadata), str(metadata.get("platform", "")), versions


def _batch_size(source: str, stated: Endpoint, served: ServedEndpoint) -> Seen:
    if stated.max_batch_size != served.max_batch_size:
        raise Mismatch(f"{source} has {stated.max_batch_size}, the server {served.max_batch_size}")
    return Seen(detail=f"max_batch_size {served.max_batch_size}")

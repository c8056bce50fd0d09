"""Checks that the measured requests reach the server whose statistics are read."""

from __future__ import annotations

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.load.requests import Payload
from triton_repo_builder.measure.bench.target import Target
from triton_repo_builder.run.client import Body, HttpClient, RequestFailed, statistics
from triton_repo_builder.run.client.grpc import GrpcClient, send_encoded

CONNECT = 10.0
"""Seconds in which a gRPC server must answer with its version."""
SETTLE = 2.0
"""Seconds in which the statistics must show a request that was answered."""
OTHER_SERVER = ("UNAVAILABLE", "UNIMPLEMENTED", "NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED")
"""Answers of a server that has no such model, or is not a tritonserver."""


def check(target: Target, protocol: str, payload: Payload, timeout: float) -> str:
    """Send one request as it will be measured; the statistics must count it.

    Raises ``TrbError`` if gRPC reaches no server or another one. Returns a note if only the statistics are in
    doubt. A request that the server refuses is not an error here: levels count those.
    """
    try:
        before = _requests(target, statistics.read(target.http))
    except RequestFailed as error:
        _send(target, protocol, payload, timeout)
        return f"the server does not give its statistics ({error}): rows per execution and times are unknown"
    failure = _send(target, protocol, payload, timeout)
    suspect = failure in ("", *OTHER_SERVER)
    _, counted = statistics.wait_until(
        target.http, lambda now: bool(now) and _requests(target, now) != before, SETTLE if suspect else 0.0
    )
    if counted or not suspect:
        return ""
    if protocol != "grpc":
        return (
            f"a request over HTTP was not counted by the statistics of {target.http.url}: if several servers "
            "answer there, rows per execution and times are those of any one of them"
        )
    answer = f"answers {failure}" if failure else "answered a request"
    raise _error(
        target, f"{answer}, but the statistics of {target.http.url} did not count it: another server"
    )


def _requests(target: Target, counters: statistics.ModelCounters) -> int:
    """Requests of the endpoint so far, successful or failed."""
    return counters.get(target.name, statistics.Counters()).requests


def _send(target: Target, protocol: str, payload: Payload, timeout: float) -> str:
    """The kind of failure; empty if the request succeeded."""
    if protocol == "grpc":
        _connect(target)
        return send_encoded(payload.address, payload.bodies[0], timeout)
    body = Body(data=payload.bodies[0], headers=payload.headers[0])
    path = payload.address.removeprefix(target.http.url)
    try:
        status = HttpClient(target.http.url, timeout).send("POST", path, body).status
    except RequestFailed as error:
        return str(error)
    return "" if status == 200 else f"HTTP {status}"


def _connect(target: Target) -> None:
    client = GrpcClient(target.variant.urls.grpc, CONNECT)
    try:
        client.version()
    except RequestFailed as error:
        raise _error(target, f"no tritonserver answers over gRPC: {error}") from None
    finally:
        client.close()


def _error(target: Target, message: str) -> TrbError:
    return TrbError(
        Code.UNREACHABLE,
        message,
        where=target.variant.urls.grpc,
        remedy=f"name the gRPC address of the server at {target.http.url} with --grpc-url HOST:PORT, "
        "or measure HTTP alone with --protocol http",
    )

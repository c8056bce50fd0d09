"""Golden cases as traffic: sent to both servers in turn, timed, and the answers compared."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from triton_repo_builder.repository import Repository
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.client import Body, HttpClient, RequestFailed, Urls
from triton_repo_builder.run.client.codec import Array, encode_binary, encode_json
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.gateway import agreement, recognition
from triton_repo_builder.run.options import SmokeOptions
from triton_repo_builder.run.smoke import session
from triton_repo_builder.run.smoke.session import BINARY, ServedEndpoint, SmokeSession
from triton_repo_builder.run.smoke.target import targets
from triton_repo_builder.ship.canary import sample
from triton_repo_builder.ship.canary.sample import Answers, Sample
from triton_repo_builder.ship.targets.routes import CANARY, STABLE

TIMEOUT = 30.0
"""Seconds for each request."""


@dataclass(frozen=True, kw_only=True)
class GoldenRequest:
    """One case, encoded."""

    endpoint: Endpoint
    case: str
    body: Body
    tolerance: float
    """Largest difference of numbers that counts as the same, for a task that no gateway knows."""


@dataclass(frozen=True, kw_only=True)
class GoldenResults:
    """Results of golden cases at both servers so far."""

    stable: Sample = field(default_factory=Sample)
    canary: Sample = field(default_factory=Sample)
    answers: Answers = field(default_factory=Answers)
    requests: int = 0
    """Requests that each server got."""

    def plus(self, other: GoldenResults) -> GoldenResults:
        """Both together."""
        return GoldenResults(
            stable=self.stable.plus(other.stable),
            canary=self.canary.plus(other.canary),
            answers=self.answers.plus(other.answers),
            requests=self.requests + other.requests,
        )


class Golden:
    """The golden cases of a repository's endpoints, or cases made from the server's metadata."""

    def __init__(self, requests: Sequence[GoldenRequest], stable: HttpClient, canary: HttpClient) -> None:
        self.requests = tuple(requests)
        self._clients = {STABLE: stable, CANARY: canary}
        self._next = itertools.cycle(range(len(self.requests)))
        self._turn = itertools.cycle((STABLE, CANARY))

    def round(self) -> GoldenResults:
        """Every case once."""
        return self.some(len(self.requests))

    def some(self, most: int, seconds: float = float("inf")) -> GoldenResults:
        """The next cases, at most so many, and none that begins after so many seconds."""
        if not self.requests:
            return GoldenResults()
        until = time.monotonic() + seconds
        times: Mapping[str, list[float]] = {STABLE: [], CANARY: []}
        failed = {STABLE: 0, CANARY: 0}
        answers, sent = Answers(), 0
        while sent < most and time.monotonic() < until:
            request = self.requests[next(self._next)]
            sent += 1
            first = next(self._turn)  # neither server is always the one that answers with warm caches
            results: dict[str, dict[str, Array]] = {}
            problem = ""
            for side in (first, CANARY if first == STABLE else STABLE):
                began = time.perf_counter()
                try:
                    results[side] = self._clients[side].infer(request.endpoint.name, request.body)
                except RequestFailed as error:
                    failed[side] += 1
                    problem = error.message
                else:
                    times[side].append(time.perf_counter() - began)
            if len(results) == len(self._clients):
                answers = answers.plus(compared(request, results[STABLE], results[CANARY]))
            elif STABLE in results:
                example = f"case {request.case} of {request.endpoint.name} fails: {problem:.200}"
                answers = answers.plus(Answers(compared=1, different=1, example=example))
        return GoldenResults(
            stable=sample.of(times[STABLE], failed[STABLE]),
            canary=sample.of(times[CANARY], failed[CANARY]),
            answers=answers,
            requests=sent,
        )


def of(repository: Repository, stable: Urls, canary: Urls, endpoints: Sequence[str]) -> Golden:
    """The cases of these endpoints. Raises ``TrbError`` for files that cannot be read."""
    http = HttpClient(stable.http, TIMEOUT)
    grpc = GrpcClient(stable.grpc, TIMEOUT)
    try:
        served = SmokeSession(http=http, grpc=grpc, options=SmokeOptions())
        requests = [
            request
            for target in targets(repository, http, ())
            if target.name in endpoints
            for request in _requests(session.prepare(served, target))
        ]
    finally:
        grpc.close()
    return Golden(requests, http, HttpClient(canary.http, TIMEOUT))


def _requests(endpoint: ServedEndpoint) -> Iterator[GoldenRequest]:
    if endpoint.file is None:
        return
    encode: Callable[[Mapping[str, Array]], Body] = (
        encode_binary if endpoint.http_protocol == BINARY else encode_json
    )
    for case in endpoint.file.cases:
        yield GoldenRequest(
            endpoint=endpoint.interface,
            case=case.name,
            body=encode(session.inputs_of(case)),
            tolerance=endpoint.file.tolerance.alone,
        )


def compared(request: GoldenRequest, stable: Mapping[str, Array], canary: Mapping[str, Array]) -> Answers:
    """Both answers, row by row, as their task has it: by label, order, text or direction."""
    task = recognition.task(request.endpoint)
    batched = request.endpoint.max_batch_size > 0
    try:
        if task:
            same = list(agreement.compared(task, batched, [dict(stable)], [dict(canary)]).same)
        else:
            same = [_same(stable, canary, request.tolerance)]
    except (KeyError, IndexError, ValueError, TypeError):  # other outputs, other shapes
        same = [False]
    different = same.count(False)
    example = (
        f"case {request.case} of {request.endpoint.name}: {_beside(stable, canary)}" if different else ""
    )
    return Answers(compared=len(same), different=different, example=example)


def _same(stable: Mapping[str, Array], canary: Mapping[str, Array], tolerance: float) -> bool:
    if stable.keys() - canary.keys():
        return False
    return all(_close(array, canary[name], tolerance) for name, array in stable.items())


def _close(first: Array, second: Array, tolerance: float) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind not in "fc":
        return bool(np.array_equal(first, second))
    return bool(np.allclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True))


def _beside(stable: Mapping[str, Array], canary: Mapping[str, Array]) -> str:
    """The first output that is not equal, in both answers."""
    for name, array in stable.items():
        other = canary.get(name)
        if other is None:
            return f"no output {name}"
        if array.shape != other.shape or not np.array_equal(array, other):
            return f"{name} {_shown(array)}, then {_shown(other)}"
    return "equal numbers in another form"


def _shown(array: Array) -> str:
    first = array.reshape(-1)[:1].tolist()
    value = first[0] if first else ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return f"{value:.6g}" if isinstance(value, float) else repr(value)[:60]

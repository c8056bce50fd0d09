"""Many clients at once: every answer right, every row counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event

from triton_repo_builder.repository import cases
from triton_repo_builder.run.client import RequestFailed, statistics
from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.client.statistics import ModelCounters
from triton_repo_builder.run.smoke import compare
from triton_repo_builder.run.smoke.attempt import Mismatch, Seen, attempt, not_done
from triton_repo_builder.run.smoke.report import Check
from triton_repo_builder.run.smoke.session import ServedEndpoint, SmokeSession, inputs_of

GROUP = "concurrent clients"
SHOWN = 3
"""Wrong answers that are spelled out."""
LATE = 10.0
"""Seconds within which a busy server's statistics hold every answer it has given."""


@dataclass(frozen=True, kw_only=True)
class _Sent:
    """Rows of this stage, and when it began."""

    rows: int
    begun: float

    def samples(self, instances: int) -> int:
        """Rows at most that this many instances send again for metrics: one a second, and one at each end."""
        return instances * (2 + int(time.monotonic() - self.begun))


@dataclass(frozen=True, kw_only=True)
class _Job:
    case: cases.Case
    protocol: str
    send: Callable[[], dict[str, Array]]


def checks(session: SmokeSession, endpoint: ServedEndpoint) -> Iterator[Check]:
    """All cases mixed over all clients and both protocols, and the statistics before and after."""
    file = endpoint.file
    if file is None:
        return
    jobs = [
        _Job(case=case, protocol=p, send=session.sender(endpoint.name, p, inputs_of(case)))
        for case in file.cases
        for p in endpoint.protocols
    ]
    sent = session.options.clients * session.options.requests
    protocol = " + ".join(endpoint.protocols)
    begun, before = time.monotonic(), None if session.options.live else _counters(session, endpoint)
    answers = partial(_answers, session, endpoint, jobs, file.tolerance.batched)
    answered = attempt(GROUP, "answers", answers, endpoint=endpoint.name, protocol=protocol)
    yield answered
    if session.options.live:
        return
    if before is None:
        yield not_done(GROUP, "rows counted", endpoint.name, "the server gives no statistics")
        return
    for model in endpoint.models:
        count = partial(_counted, session, endpoint, before, model, _Sent(rows=sent, begun=begun))
        yield attempt("executions", model, count, endpoint=endpoint.name)


def _answers(session: SmokeSession, endpoint: ServedEndpoint, jobs: list[_Job], allowed: float) -> Seen:
    clients, requests = session.options.clients, session.options.requests

    def client(number: int) -> list[Seen | str]:
        # An offset per client, so that different cases meet in the server.
        turns = (turn for turn in range(requests) if not interrupted.is_set())
        return [_one(jobs[(number + turn) % len(jobs)], endpoint, allowed) for turn in turns]

    interrupted = Event()
    start = time.perf_counter()
    pool = ThreadPoolExecutor(clients)
    try:
        results = [result for client_results in pool.map(client, range(clients)) for result in client_results]
    finally:
        interrupted.set()
        pool.shutdown(wait=False, cancel_futures=True)
    seconds = time.perf_counter() - start
    wrong = [result for result in results if isinstance(result, str)]
    if wrong:
        shown = "; ".join(dict.fromkeys(wrong[:SHOWN]))
        raise Mismatch(f"{len(wrong)} of {len(results)} requests: {shown}")
    worst = max(seen.difference or 0.0 for seen in results if isinstance(seen, Seen))
    detail = f"{len(results)} requests of {clients} clients, {len(results) / seconds:.0f} per second"
    return Seen(detail=detail, difference=worst, allowed=allowed)


def _one(job: _Job, endpoint: ServedEndpoint, allowed: float) -> Seen | str:
    try:
        answer = job.send()
        if endpoint.max_batch_size:
            answer = compare.row(answer, 0, 1, job.case, endpoint.interface.outputs)
        return compare.same(job.case, answer, allowed)
    except Mismatch as problem:
        return f"{job.case.name} ({job.protocol}): {problem}"
    except RequestFailed as problem:
        return f"{job.case.name} ({job.protocol}): expected an answer, got {problem}"


def _counters(session: SmokeSession, endpoint: ServedEndpoint) -> ModelCounters | None:
    """Counters of the endpoint's models; None if the server does not give them all."""
    try:
        counters = statistics.settled(session.http, endpoint.models)
    except RequestFailed:
        return None
    return counters if counters.keys() >= endpoint.models.keys() else None


def _counted(
    session: SmokeSession, endpoint: ServedEndpoint, before: ModelCounters, model: str, sent: _Sent
) -> Seen:
    """Wait until the model has counted every request of this stage, and no others but samples for metrics."""
    deadline = time.monotonic() + LATE
    while True:
        after = statistics.settled(session.http, {model, endpoint.name})
        outer, inner = (statistics.growth(before, after, name) for name in (endpoint.name, model))
        # Answers from the endpoint's own cache never reach its steps.
        times = endpoint.models[model]
        expected = sent.rows if model == endpoint.name else (sent.rows - outer.cached) * times
        counted = inner.rows + inner.cached
        if counted >= expected or time.monotonic() > deadline:
            break
    if not expected <= counted <= expected + sent.samples(endpoint.sampled.get(model, 0)):
        raise Mismatch(
            f"expected {expected} rows counted, the statistics have {counted}"
            + (" (is another client using this server?)" if counted > expected else "")
        )
    cached = f", {inner.cached} from the cache" if inner.cached else ""
    each = inner.rows / inner.executions if inner.executions else 0.0
    return Seen(
        detail=f"{model}: {inner.rows} rows in {inner.executions} executions, {each:.1f} rows each{cached}"
    )

"""Whether an answer depends on its neighbours in a batch, and whether the batch size is enforced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier

from triton_repo_builder.repository import cases
from triton_repo_builder.run.client import REFUSED, RequestFailed
from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.smoke import compare
from triton_repo_builder.run.smoke.attempt import LeftOut, Mismatch, Seen, attempt, not_done
from triton_repo_builder.run.smoke.neighbour import (
    Neighbours,
    shapes,
    stack,
    text,
)
from triton_repo_builder.run.smoke.report import Check, Status
from triton_repo_builder.run.smoke.session import (
    GRPC,
    ServedEndpoint,
    SmokeSession,
    inputs_of,
)

ROUNDS = 4
"""Pairs of requests sent at once for each case: any one pair may miss the batcher's window."""
LARGEST = 64 * 2**20
"""Bytes of a full batch above which it is not sent."""
HTTP_LIMIT = "--http-max-input-size"
"""Named where the server refuses a body above its limit, by default 64 MiB from release 25.06 on.

As JSON, numbers take several times their bytes."""


@dataclass(frozen=True, kw_only=True)
class _Batches:
    """Inputs of all checks of this file."""

    session: SmokeSession
    endpoint: ServedEndpoint
    file: cases.CaseFile

    def own(self, answer: Mapping[str, Array], place: int, rows: int, case: cases.Case) -> Seen:
        part = compare.row(answer, place, rows, case, self.endpoint.interface.outputs)
        return compare.same(case, part, self.file.tolerance.batched)

    def joined(self, case: cases.Case, neighbour: Mapping[str, Array], place: int, protocol: str) -> Seen:
        """The case as row ``place`` of two."""
        rows = [neighbour, inputs_of(case)] if place else [inputs_of(case), neighbour]
        answer = self.session.ask(self.endpoint.name, protocol, stack(rows))
        return self.own(answer, place, 2, case)

    def together(self, case: cases.Case, neighbour: Mapping[str, Array]) -> Seen:
        """The case and its neighbour as two requests at the same moment, some times over."""
        gate = Barrier(2, timeout=self.session.options.timeout)  # one may be interrupted before it is sent

        def send(inputs: Mapping[str, Array]) -> dict[str, Array]:
            gate.wait()
            return self.session.ask(self.endpoint.name, GRPC, inputs)

        worst = 0.0
        with ThreadPoolExecutor(2) as pool:
            for _ in range(ROUNDS):
                other, mine = pool.submit(send, neighbour), pool.submit(send, inputs_of(case))
                other.result()
                worst = max(worst, self.own(mine.result(), 0, 1, case).difference or 0.0)
        return Seen(difference=worst, allowed=self.file.tolerance.batched)

    def rows(self, picked: list[cases.Case], protocol: str) -> dict[str, Array]:
        """One request of these cases; a body above the server's own limit says nothing of the endpoint."""
        try:
            return self.session.ask(self.endpoint.name, protocol, stack([inputs_of(case) for case in picked]))
        except RequestFailed as error:
            if HTTP_LIMIT in error.message:
                raise LeftOut(f"{len(picked)} rows are too large for the server: {error.message}") from None
            raise

    def full(self, picked: list[cases.Case], protocol: str) -> Seen:
        """Send as many rows as the endpoint promises, and compare every one."""
        answer = self.rows(picked, protocol)
        results = [self.own(answer, place, len(picked), case) for place, case in enumerate(picked)]
        worst = max(result.difference or 0.0 for result in results)
        return Seen(difference=worst, allowed=self.file.tolerance.batched)

    def over(self, picked: list[cases.Case], protocol: str) -> Seen:
        """One row more, to be refused."""
        try:
            self.rows(picked, protocol)
        except RequestFailed as error:
            if error.kind == REFUSED:
                return Seen()
            raise Mismatch(f"{len(picked)} rows: expected a refusal, got {error}") from None
        raise Mismatch(f"{len(picked)} rows: expected a refusal, they were answered")


def checks(session: SmokeSession, endpoint: ServedEndpoint) -> Iterator[Check]:
    """Cases beside a neighbour in one request and in two at once; the largest batch and one row more."""
    if endpoint.file is None:
        return
    if endpoint.max_batch_size == 0:
        yield _skipped(endpoint, "max_batch_size is 0: every request is one item, Triton joins none")
        return
    batches = _Batches(session=session, endpoint=endpoint, file=endpoint.file)
    neighbours = Neighbours(session, endpoint, endpoint.file)
    for case in endpoint.file.cases:
        neighbour = neighbours.of(case)
        for place, protocol in enumerate(endpoint.protocols) if endpoint.max_batch_size > 1 else ():
            action = partial(batches.joined, case, neighbour, place, protocol)
            yield attempt("in a batch", case.name, action, endpoint=endpoint.name, protocol=protocol)
        action = partial(batches.together, case, neighbour)
        yield attempt("beside another request", case.name, action, endpoint=endpoint.name, protocol=GRPC)
    yield from _limits(batches, endpoint)


def _skipped(endpoint: ServedEndpoint, why: str) -> Check:
    return not_done("in a batch", "batch", endpoint.name, why, Status.SKIPPED)


def _limits(batches: _Batches, endpoint: ServedEndpoint) -> Iterator[Check]:
    size = endpoint.max_batch_size
    first = min(batches.file.cases, key=lambda case: len(text(case)))
    weight = (size + 1) * sum(array.nbytes for array in inputs_of(first).values())
    if weight > LARGEST:
        yield _skipped(endpoint, f"{size} rows would be {weight / 2**20:.0f} MB in one request: not sent")
        return
    alike = [case for case in batches.file.cases if shapes(case) == shapes(first)]
    picked = [alike[number % len(alike)] for number in range(size + 1)]
    for protocol in endpoint.protocols:
        action = partial(batches.full, picked[:size], protocol)
        name = f"{size} rows answered"
        yield attempt("batch limit", name, action, endpoint=endpoint.name, protocol=protocol)
        action = partial(batches.over, picked, protocol)
        name = f"{size + 1} rows refused"
        yield attempt("batch limit", name, action, endpoint=endpoint.name, protocol=protocol)

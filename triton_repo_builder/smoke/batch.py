"""Does a case's answer depend on its neighbours, and does the batch size end where it should?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

from triton_repo_builder import cases
from triton_repo_builder.client import REFUSED, SILENT, Array, RequestFailed
from triton_repo_builder.smoke import compare
from triton_repo_builder.smoke.attempt import Mismatch, Seen, attempt
from triton_repo_builder.smoke.report import Check, Status
from triton_repo_builder.smoke.session import GRPC, Endpoint, Session, inputs_of

WORDS = 300
ROUNDS = 4
"""Pairs of requests sent at once for each case: any one pair may miss the batcher's window."""
LARGEST = 64 * 2**20
"""Bytes of a full batch above which it is not sent."""


def checks(session: Session, endpoint: Endpoint) -> Iterator[Check]:
    """Cases beside a neighbour in one request and in two at once; the largest batch and one row more."""
    if endpoint.file is None:
        return
    if endpoint.max_batch_size == 0:
        yield _skipped(endpoint, "max_batch_size is 0: a request is one item, Triton joins none")
        return
    for case in endpoint.file.cases:
        neighbour = neighbour_of(session, endpoint, endpoint.file, case)
        if endpoint.max_batch_size > 1:
            for order, protocol in enumerate(endpoint.protocols):
                yield attempt(
                    "in a batch",
                    case.name,
                    lambda c=case, n=neighbour, o=order, p=protocol: _joined(session, endpoint, c, n, o, p),  # type: ignore[misc]
                    endpoint=endpoint.name,
                    protocol=protocol,
                )
        yield attempt(
            "beside another request",
            case.name,
            lambda c=case, n=neighbour: _together(session, endpoint, c, n),  # type: ignore[misc]
            endpoint=endpoint.name,
            protocol=GRPC,
        )
    yield from _limits(session, endpoint, endpoint.file)


def _skipped(endpoint: Endpoint, why: str) -> Check:
    return Check(group="in a batch", name="batch", endpoint=endpoint.name, status=Status.SKIPPED, detail=why)


def neighbour_of(
    session: Session, endpoint: Endpoint, file: cases.CaseFile, case: cases.Case
) -> Mapping[str, Array]:
    """Inputs to share a batch with ``case``: for text a long one, else other values of equal shape."""
    if not endpoint.text:
        other = next((c for c in file.cases if c.name != case.name and _shapes(c) == _shapes(case)), None)
        # Reversing keeps every value valid, whatever it means (a token, a pixel).
        return inputs_of(other) if other else {k: np.flip(v).copy() for k, v in inputs_of(case).items()}
    longest = max(file.cases, key=lambda c: len(_text(c)))
    long = lengthened(inputs_of(longest))
    try:
        session.ask(endpoint.name, GRPC, long)
    except RequestFailed as error:
        if error.kind != REFUSED:
            raise Mismatch(f"a text of {WORDS} words: expected an answer, got {error}") from None
        # An endpoint may bound its texts; then the longest it is known to answer must do.
        return inputs_of(longest)
    return long


def lengthened(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The same inputs with the longest text repeated until it has ``WORDS`` words."""
    texts = {name: b" ".join(v.reshape(-1).tolist()) for name, v in inputs.items() if v.dtype.kind == "O"}
    name = max(texts, key=lambda key: len(texts[key]))
    words = texts[name].split() or [b"word"]
    array = inputs[name].copy()
    array.fill(b" ".join((words * (WORDS // len(words) + 1))[:WORDS]))
    return {**inputs, name: array}


def _text(case: cases.Case) -> str:
    return " ".join(str(text) for tensor in case.inputs if tensor.datatype == "BYTES" for text in tensor.data)


def _shapes(case: cases.Case) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((tensor.name, tensor.shape) for tensor in case.inputs)


def stack(rows: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """One request of several rows."""
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _joined(
    session: Session,
    endpoint: Endpoint,
    case: cases.Case,
    neighbour: Mapping[str, Array],
    place: int,
    protocol: str,
) -> Seen:
    """The case as first (gRPC) or second (HTTP) of two rows."""
    assert endpoint.file is not None
    rows = [inputs_of(case), neighbour]
    if place:
        rows.reverse()
    answer = session.ask(endpoint.name, protocol, stack(rows))
    own = compare.row(answer, place, 2, case, endpoint.metadata.outputs)
    return compare.same(case, own, endpoint.file.tolerance.batched)


def _together(session: Session, endpoint: Endpoint, case: cases.Case, neighbour: Mapping[str, Array]) -> Seen:
    assert endpoint.file is not None
    allowed = endpoint.file.tolerance.batched
    gate = Barrier(2)

    def send(inputs: Mapping[str, Array]) -> dict[str, Array]:
        gate.wait()
        return session.ask(endpoint.name, GRPC, inputs)

    worst = 0.0
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            other, own = pool.submit(send, neighbour), pool.submit(send, inputs_of(case))
            other.result()
            seen = compare.same(case, _cut(own.result(), case, endpoint), allowed)
            worst = max(worst, seen.difference or 0.0)
    return Seen(difference=worst, allowed=allowed)


def _cut(answer: Mapping[str, Array], case: cases.Case, endpoint: Endpoint) -> dict[str, Array]:
    return compare.row(answer, 0, 1, case, endpoint.metadata.outputs)


def _limits(session: Session, endpoint: Endpoint, file: cases.CaseFile) -> Iterator[Check]:
    group, size = "batch limit", endpoint.max_batch_size
    first = min(file.cases, key=lambda case: len(_text(case)))
    alike = [case for case in file.cases if _shapes(case) == _shapes(first)]
    weight = sum(array.nbytes for array in inputs_of(first).values())
    if weight * (size + 1) > LARGEST:
        why = f"{size} rows would be {weight * size / 2**20:.0f} MB, more than smoke sends in one request"
        yield Check(group=group, name="batch", endpoint=endpoint.name, status=Status.SKIPPED, detail=why)
        return
    picked = [alike[number % len(alike)] for number in range(size + 1)]
    rows = [inputs_of(case) for case in picked]

    def full(protocol: str) -> Seen:
        answer = session.ask(endpoint.name, protocol, stack(rows[:size]))
        seen = [
            compare.same(
                picked[i],
                compare.row(answer, i, size, picked[i], endpoint.metadata.outputs),
                file.tolerance.batched,
            )
            for i in range(size)
        ]
        worst = max(one.difference or 0.0 for one in seen)
        return Seen(difference=worst, allowed=file.tolerance.batched)

    def over(protocol: str) -> Seen:
        try:
            session.ask(endpoint.name, protocol, stack(rows))
        except RequestFailed as error:
            if error.kind == REFUSED:
                return Seen()
            silent = "silence" if error.kind == SILENT else "a server error"
            raise Mismatch(f"{size + 1} rows: expected a refusal, got {silent}: {error}") from None
        raise Mismatch(f"{size + 1} rows: expected a refusal, they were answered")

    for protocol in endpoint.protocols:
        for name, action in ((f"{size} rows answered", full), (f"{size + 1} rows refused", over)):
            yield attempt(
                group,
                name,
                lambda a=action, p=protocol: a(p),  # type: ignore[misc]
                endpoint=endpoint.name,
                protocol=protocol,
            )

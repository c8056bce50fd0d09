"""Every case alone, over both protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from triton_repo_builder.repository import cases
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.smoke import compare
from triton_repo_builder.run.smoke.attempt import Seen, attempt, not_done
from triton_repo_builder.run.smoke.report import GOLDEN, Check, Status
from triton_repo_builder.run.smoke.session import (
    BINARY,
    GRPC,
    ServedEndpoint,
    SmokeSession,
    inputs_of,
)

MADE = "repeatability"


def checks(session: SmokeSession, endpoint: ServedEndpoint) -> Iterator[Check]:
    """Golden cases against the original model's answers; made cases against the server's first ones."""
    if not endpoint.golden:
        yield unproven(endpoint.name, endpoint.why, requested=session.options.cases)
    if endpoint.file is None:
        yield not_done(MADE, "answers", endpoint.name, endpoint.why)
        return
    group = GOLDEN if endpoint.golden else MADE
    for protocol in endpoint.protocols:
        for case in endpoint.file.cases:
            ask = partial(_alone, session, endpoint, endpoint.file, case, protocol)
            yield attempt(group, case.name, ask, endpoint=endpoint.name, protocol=protocol)


def _alone(
    session: SmokeSession, endpoint: ServedEndpoint, file: cases.CaseFile, case: cases.Case, protocol: str
) -> Seen:
    answer = session.ask(endpoint.name, protocol, inputs_of(case))
    result = compare.same(case, answer, file.tolerance.alone)
    return replace(result, detail=endpoint.not_json if protocol == BINARY else "")


def as_served(session: SmokeSession, endpoint: ServedEndpoint) -> ServedEndpoint:
    """The endpoint with the server's own answers alone as the expected answers in a batch.

    The original's answers of 8 bits may differ by steps from another kernel's; a batch must not change any.
    """
    file = endpoint.file
    if file is None or file.tolerance.alone <= file.tolerance.batched:
        return endpoint
    try:
        served = tuple(
            _served(case, session.ask(endpoint.name, GRPC, inputs_of(case))) for case in file.cases
        )
    except RequestFailed:
        return endpoint  # a failure alone is reported already
    return replace(endpoint, file=replace(file, cases=served))


def _served(case: cases.Case, answer: Mapping[str, Array]) -> cases.Case:
    outputs = tuple(
        replace(cases.record(tensor.name, tensor.datatype, answer[tensor.name]), at=tensor.at)
        for tensor in case.outputs
        if tensor.name in answer
    )
    return replace(case, outputs=outputs)


def unproven(endpoint: str, why: str, *, requested: bool) -> Check:
    """Parity that could not be checked: not a success, unless the user left the cases out."""
    status = Status.UNVERIFIED if requested else Status.SKIPPED
    return not_done(GOLDEN, "parity with the original model", endpoint, f"not checked: {why}", status)

"""Every case alone, over both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from triton_repo_builder.golden import cases
from triton_repo_builder.smoke import compare
from triton_repo_builder.smoke.attempt import Seen, attempt
from triton_repo_builder.smoke.report import GOLDEN, Check, Status
from triton_repo_builder.smoke.session import (
    BINARY,
    Session,
    Subject,
    inputs_of,
)

MADE = "repeatability"


def checks(session: Session, endpoint: Subject) -> Iterator[Check]:
    """Golden cases against the original model's answers; made cases against the server's first ones."""
    if not endpoint.golden:
        yield unproven(endpoint.name, endpoint.why, asked=session.options.cases)
    if endpoint.file is None:
        yield Check(
            group=MADE, name="answers", endpoint=endpoint.name, status=Status.UNVERIFIED, detail=endpoint.why
        )
        return
    group = GOLDEN if endpoint.golden else MADE
    for protocol in endpoint.protocols:
        for case in endpoint.file.cases:
            ask = partial(_alone, session, endpoint, endpoint.file, case, protocol)
            yield attempt(group, case.name, ask, endpoint=endpoint.name, protocol=protocol)


def _alone(
    session: Session, endpoint: Subject, file: cases.CaseFile, case: cases.Case, protocol: str
) -> Seen:
    answer = session.ask(endpoint.name, protocol, inputs_of(case))
    result = compare.same(case, answer, file.tolerance.alone)
    return replace(result, detail=endpoint.not_json if protocol == BINARY else "")


def unproven(endpoint: str, why: str, *, asked: bool) -> Check:
    """Parity that could not be checked: not a success, unless the user left the cases out."""
    return Check(
        group=GOLDEN,
        name="parity with the original model",
        endpoint=endpoint,
        status=Status.UNVERIFIED if asked else Status.SKIPPED,
        detail=f"not checked: {why}",
    )

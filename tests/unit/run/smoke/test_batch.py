"""The largest batch, on a server that takes no larger body."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from triton_repo_builder.repository import cases
from triton_repo_builder.run.client import REFUSED, RequestFailed
from triton_repo_builder.run.smoke import batch
from triton_repo_builder.run.smoke.report import Status

LARGE = (
    "request JSON size of 97632896 bytes exceeds the maximum allowed input size of 67108864 bytes. "
    "Use --http-max-input-size to increase the limit."
)
"""Seen on 26.08 over HTTP."""
ROWS = "inference request batch-size must be <= 2 for 'e'"


def limits(refusals: dict[str, str]) -> dict[tuple[str, str], tuple[Status, str]]:
    """The checks of an endpoint of two rows; ``refusals``: what a server says to each, by protocol."""
    tensor = cases.record("X", "FP32", np.zeros((1, 2), np.float32))
    file = cases.CaseFile(
        endpoint="e",
        recorded_with="",
        tolerance=cases.Tolerance(alone=0.0, batched=0.0, reason=""),
        cases=(cases.Case(name="a", inputs=(tensor,), outputs=()),),
    )

    def ask(endpoint: str, protocol: str, inputs: dict[str, Any]) -> dict[str, Any]:
        if protocol in refusals:
            raise RequestFailed(REFUSED, "400", refusals[protocol])
        if len(inputs["X"]) > 2:
            raise RequestFailed(REFUSED, "400", ROWS)
        return {}

    endpoint = SimpleNamespace(
        name="e", max_batch_size=2, protocols=("HTTP", "gRPC"), interface=SimpleNamespace(outputs=())
    )
    batches = batch._Batches(
        session=cast(Any, SimpleNamespace(ask=ask)), endpoint=cast(Any, endpoint), file=file
    )
    found = batch._limits(batches, cast(Any, endpoint))
    return {(check.name, check.protocol): (check.status, check.detail) for check in found}


def test_a_body_above_the_servers_limit_says_nothing_of_the_endpoint() -> None:
    found = limits({"HTTP": LARGE})
    for rows, name in ((2, "2 rows answered"), (3, "3 rows refused")):
        detail = f"{rows} rows are too large for the server: {LARGE}"
        assert found[name, "HTTP"] == (Status.SKIPPED, detail)
        assert found[name, "gRPC"][0] is Status.PASSED


@pytest.mark.parametrize(
    ("refusals", "status"), [({}, Status.PASSED), ({"HTTP": ROWS}, Status.FAILED)], ids=["taken", "refused"]
)
def test_the_endpoints_own_refusal_counts(refusals: dict[str, str], status: Status) -> None:
    found = limits(refusals)
    assert found["2 rows answered", "HTTP"][0] is status
    assert found["3 rows refused", "HTTP"][0] is Status.PASSED

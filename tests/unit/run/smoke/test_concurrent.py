"""Many clients at once, against a server that loses a row or counts one twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from triton_repo_builder.repository import cases
from triton_repo_builder.repository.cases import Case, CaseFile, Tolerance
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.options import SmokeOptions
from triton_repo_builder.run.smoke import concurrent
from triton_repo_builder.run.smoke.report import Status
from triton_repo_builder.run.smoke.session import ServedEndpoint, SmokeSession

ONE = np.ones(1, dtype=np.float32)


@dataclass
class Server:
    """Both clients in one; every answer is right."""

    error: int
    """Rows that its statistics have too many."""
    sent: int = 0

    def infer(self, *_: object) -> dict[str, Array]:
        self.sent += 1
        return {"Y": ONE}

    def call(self, *_: object) -> dict[str, Any]:
        rows = self.sent + self.error if self.sent else 0
        return {"model_stats": [{"name": "m", "inference_count": rows, "execution_count": rows}]}


@pytest.mark.parametrize(
    ("error", "sampled", "status"),
    [
        (0, {}, Status.PASSED),
        (-1, {}, Status.FAILED),
        (1, {}, Status.FAILED),
        (1, {"m": 1}, Status.PASSED),
        (-1, {"m": 1}, Status.FAILED),
        (9, {"m": 1}, Status.FAILED),
        (1, {"another": 1}, Status.FAILED),
    ],
)
def test_every_row_must_be_counted_once(
    error: int, sampled: dict[str, int], status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "LATE", 0.0)
    server = Server(error)
    session = SmokeSession(
        http=cast(HttpClient, server),
        grpc=cast(GrpcClient, server),
        options=SmokeOptions(clients=1, requests=4),
    )
    x, y = (cases.record(name, "FP32", ONE) for name in "XY")
    file = CaseFile(
        endpoint="m",
        recorded_with="",
        tolerance=Tolerance(alone=0.0, batched=0.0, reason=""),
        cases=(Case(name="c", inputs=(x,), outputs=(y,)),),
    )
    interface = Endpoint(
        name="m",
        inputs=(Tensor(name="X", datatype="FP32", shape=(1,)),),
        outputs=(Tensor(name="Y", datatype="FP32", shape=(1,)),),
        max_batch_size=0,
    )
    subject = ServedEndpoint(
        interface=interface, models={"m": 1}, file=file, golden=True, example={}, sampled=sampled
    )
    answers, rows = concurrent.checks(session, subject)
    assert (answers.status, rows.status) == (Status.PASSED, status), rows.detail

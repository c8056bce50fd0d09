"""One level of load, with a pool of clients that need no server."""

from __future__ import annotations

import time
from array import array
from typing import Any, cast

import pytest
from bench_values import target

from triton_repo_builder.measure.bench import level
from triton_repo_builder.measure.bench.load.messages import Chunk
from triton_repo_builder.measure.bench.load.requests import Payload
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.bench.options import Shape
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.run.client import HttpClient, RequestFailed


class Pool:
    """One client process that reports ten answers whenever it is asked."""

    def prepare(self, _: object) -> None: ...

    def begin(self, _: float) -> None: ...

    def take(self) -> list[Chunk]:
        now = time.monotonic()
        return [
            Chunk(
                due=array("d", [now - 0.01] * 10),
                ended=array("d", [now - 0.001] * 10),
                kind=array("q", [0] * 10),
                kinds=("",),
                examples={},
                lag=array("d"),
                cpu=0.0,
                sent=10,
            )
        ]

    def stop(self, _: float) -> list[Chunk]:
        return self.take()


class Silent(HttpClient):
    """A server that lives and gives no statistics."""

    def call(self, *_: Any, **__: Any) -> Any:
        raise RequestFailed("refused", "404", "no statistics")

    def answers_live(self) -> bool:
        return True


@pytest.mark.parametrize("rows", [1, 4])
def test_rows_per_second_are_of_all_rows_of_a_request(rows: int) -> None:
    options = BenchOptions(rows=rows, warmup=0.0, window=0.05, min_windows=2, max_windows=2, processes=1)
    found = level.run(
        cast(WorkerPool, Pool()),
        target(http=Silent("http://127.0.0.1:1")),
        Shape(protocol="http", mode="closed", concurrency=1),
        Payload(address="127.0.0.1:1", bodies=(b"",), headers=({},)),
        options,
        lambda _: None,
    )
    assert found.throughput > 0
    assert found.rows_per_second == pytest.approx(found.throughput * rows)

"""Whether requests that come at once share executions, on a machine that may be busy with something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from triton_repo_builder.run.client import HttpClient, statistics
from triton_repo_builder.run.client.statistics import Counters

SALVOS = 12
STILL = 0.2
"""Seconds without a change after which nothing of what ran before is still to be counted."""
LATE = 30.0
"""Seconds that a row may be counted after its answer: Triton counts after it answers, the execution last."""


def joins(
    client: HttpClient, models: Sequence[str], rows: int, send: Callable[[], object], *, most: float
) -> None:
    """Assert that each of ``models`` needs fewer than ``most`` executions for the ``rows`` that are sent.

    A client that gets no core sends one request after the other, and there is nothing to join: then again.
    Rows are counted every time.
    """
    fewest = dict.fromkeys(models, float("inf"))
    before = {model: _still(client, model) for model in models}
    for _ in range(SALVOS):
        send()
        for model, old in before.items():
            new = _counted(client, model, old.rows + rows)
            assert new.rows - old.rows == rows, f"{model}: {new.rows - old.rows} of {rows} rows counted"
            fewest[model] = min(fewest[model], new.executions - old.executions)
            before[model] = new
        if max(fewest.values()) < most:
            return
    raise AssertionError(f"executions for {rows} rows: {fewest}, not below {most:g}")


def _still(client: HttpClient, model: str) -> Counters:
    last = _counters(client, model)
    while True:
        time.sleep(STILL)
        now = _counters(client, model)
        if now == last:
            return now
        last = now


def _counted(client: HttpClient, model: str, rows: int) -> Counters:
    until = time.monotonic() + LATE
    while True:
        now = _counters(client, model)
        if now.rows >= rows or time.monotonic() > until:
            return _still(client, model)
        time.sleep(0.02)


def _counters(client: HttpClient, model: str) -> Counters:
    return statistics.read(client)[model]

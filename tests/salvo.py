"""Whether requests that come at once share executions, on a machine that may be busy with something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from triton_repo_builder.client import HttpClient

SALVOS = 5


def joins(
    client: HttpClient, models: Sequence[str], rows: int, send: Callable[[], object], *, most: float
) -> None:
    """Assert that each of ``models`` needs fewer than ``most`` executions for the ``rows`` that are sent.

    A client that gets no core sends one request after the other, and there is nothing to join: then again.
    Rows are counted every time.
    """
    fewest = dict.fromkeys(models, float("inf"))
    for _ in range(SALVOS):
        before = {model: client.counts(model) for model in models}
        send()
        for model, old in before.items():
            new = client.counts(model)
            assert new.rows - old.rows == rows, model
            fewest[model] = min(fewest[model], new.executions - old.executions)
        if max(fewest.values()) < most:
            return
    raise AssertionError(f"executions for {rows} rows: {fewest}, not below {most:g}")

"""Snapshots between windows: which of them can be relied on, and when a level ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from triton_repo_builder.measure.bench.load.messages import OK
from triton_repo_builder.measure.bench.measure.window_statistics import Floats, Kinds
from triton_repo_builder.run.client import statistics
from triton_repo_builder.run.serve.processes import cpu


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters read between two windows."""

    at: float
    counters: statistics.ModelCounters
    server_cpu: float | None
    busy: cpu.Busy | None
    client_cpu: tuple[float, ...]
    """CPU time by process; empty if the snapshot was made up afterwards."""
    gpu: dict[str, float]
    tokens: tuple[float, float] = (0.0, 0.0)
    """Hits and misses of the tokenizer cache so far."""


def consistent(snapshots: Sequence[Snapshot], *models: str) -> list[Snapshot]:
    """Snapshots that contain every model, up to the first restart of one."""
    kept: list[Snapshot] = []
    for snapshot in snapshots:
        if any(name not in snapshot.counters for name in models):
            continue
        if kept and any(restarted(kept[-1], snapshot, name) for name in models):
            break
        kept.append(snapshot)
    return kept


def covering(snapshots: Sequence[Snapshot], models: Sequence[str]) -> list[Snapshot]:
    """Snapshots that the split per model can be computed from; ``models`` begins with the endpoint.

    A model that it runs may have been unloaded or loaded again while the endpoint stayed. One that is in no
    snapshot is ignored.
    """
    present = [name for name in models if any(name in snapshot.counters for snapshot in snapshots)]
    return consistent(snapshots, *dict.fromkeys([models[0], *present]))


def restarted(before: Snapshot, after: Snapshot, endpoint: str) -> bool:
    """Whether a counter fell: the server is another process, or the model was loaded again."""
    old, new = before.counters.get(endpoint), after.counters.get(endpoint)
    return old is not None and new is not None and new.requests < old.requests


def truncate_at_restart(
    snapshots: Sequence[Snapshot], endpoint: str, ended: Floats, kinds: Kinds
) -> Sequence[Snapshot]:
    """Snapshots up to the last one at which the server that ended or restarted still answered.

    If it ended in the first window, the time of its last answer stands for the second snapshot. If it never
    answered, all are kept: they show failures alone.
    """
    good = consistent(snapshots, endpoint)
    if len(good) > 1:
        return snapshots[: snapshots.index(good[-1]) + 1]
    answers = ended[(kinds == OK) & (ended > snapshots[0].at)]
    if not answers.size:
        return snapshots
    last = float(answers.max())
    return [
        snapshots[0],
        # The next number after it, because a window does not hold its own end.
        replace(
            snapshots[-1], at=float(np.nextafter(last, np.inf)), counters={}, server_cpu=None, client_cpu=()
        ),
    ]


def mean_gpu(snapshots: Sequence[Snapshot]) -> dict[str, float]:
    """Mean over the readings of each GPU, without the first: that is of the time before the windows."""
    later = snapshots[1:]
    uuids = {uuid for snapshot in later for uuid in snapshot.gpu}
    return {
        uuid: float(np.mean([snapshot.gpu[uuid] for snapshot in later if uuid in snapshot.gpu]))
        for uuid in sorted(uuids)
    }

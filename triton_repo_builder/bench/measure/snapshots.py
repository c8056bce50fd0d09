"""Readings at the borders between windows: which of them can be relied on, and where a level ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from triton_repo_builder.bench.load.messages import OK
from triton_repo_builder.bench.measure import cpu
from triton_repo_builder.bench.measure.window_statistics import Floats, Kinds
from triton_repo_builder.client import statistics


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Readings at one border between windows."""

    at: float
    stats: statistics.Snapshot
    server_cpu: float | None
    busy: cpu.Busy | None
    client_cpu: tuple[float, ...]
    """By process; empty where the border was set afterwards."""
    gpu: dict[str, float]


def known(marks: Sequence[Mark], *models: str) -> list[Mark]:
    """Those at which the server told of all these models, up to the first at which one had begun anew."""
    found: list[Mark] = []
    for mark in marks:
        if any(name not in mark.stats for name in models):
            continue
        if found and any(restarted(found[-1], mark, name) for name in models):
            break
        found.append(mark)
    return found


def told(marks: Sequence[Mark], models: Sequence[str]) -> list[Mark]:
    """The borders that the split per model can lie between; ``models`` begins with the endpoint.

    A model that it runs may have been unloaded or loaded again while the endpoint stayed. One that the server
    never told of says nothing of that.
    """
    ever = [name for name in models if any(name in mark.stats for mark in marks)]
    return known(marks, *dict.fromkeys([models[0], *ever]))


def restarted(before: Mark, after: Mark, endpoint: str) -> bool:
    """Whether the server counted less than before: it is another process, or the model was loaded again."""
    old, new = before.stats.get(endpoint), after.stats.get(endpoint)
    return old is not None and new is not None and new.requests < old.requests


def cut(marks: Sequence[Mark], endpoint: str, ended: Floats, kinds: Kinds) -> Sequence[Mark]:
    """The borders up to the last at which the server that ended still answered.

    Where it ended in the first window, its last answer is the border. Where it never answered, all are kept:
    they show failures alone.
    """
    good = known(marks, endpoint)
    if len(good) > 1:
        return marks[: marks.index(good[-1]) + 1]
    answers = ended[(kinds == OK) & (ended > marks[0].at)]
    if not answers.size:
        return marks
    last = float(answers.max())
    return [
        marks[0],
        # The next number after it, because a window does not hold its own end.
        replace(marks[-1], at=float(np.nextafter(last, np.inf)), stats={}, server_cpu=None, client_cpu=()),
    ]


def mean_gpu(marks: Sequence[Mark]) -> dict[str, float]:
    """Mean over the readings of each GPU, without the first: that tells of the time before the windows."""
    later = marks[1:]
    uuids = {uuid for mark in later for uuid in mark.gpu}
    return {
        uuid: float(np.mean([mark.gpu[uuid] for mark in later if uuid in mark.gpu])) for uuid in sorted(uuids)
    }

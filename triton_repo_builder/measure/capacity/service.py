"""One server's work on a request, as measured: the time of a batch by its size, and how batches form."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One model of the endpoint; requests go from one stage to the next."""

    model: str
    instances: int
    max_batch: int
    """Largest batch; 1 if the model does not join requests."""
    delay_ms: float
    """How long the first request of a batch may wait for others."""
    threads: int
    """Cores that an execution keeps busy."""
    batch_ms: Mapping[int, float]
    """Time of an execution by its rows: of one row from an idle model, of more from one that is busy."""

    def time(self, rows: int) -> float:
        """Milliseconds of an execution: measured, or on the line through the nearest measured sizes."""
        sizes = sorted(self.batch_ms)
        if rows in self.batch_ms or len(sizes) == 1:
            return self.batch_ms.get(rows, self.batch_ms[sizes[0]])
        upper = min(max(bisect_left(sizes, rows), 1), len(sizes) - 1)
        low, high = sizes[upper - 1], sizes[upper]
        slope = (self.batch_ms[high] - self.batch_ms[low]) / (high - low)
        return max(self.batch_ms[low] + slope * (rows - low), 1e-6)

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Stage:
        """Raises one of ``files.DAMAGED``."""
        return cls(
            model=str(document["model"]),
            instances=_least(document["instances"], 1),
            max_batch=_least(document["max_batch"], 1),
            delay_ms=float(document["delay_ms"]),
            threads=_least(document["threads"], 1),
            batch_ms={int(size): float(value) for size, value in dict(document["batch_ms"]).items()},
        )

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "batch_ms": {str(size): value for size, value in self.batch_ms.items()}}


@dataclass(frozen=True, kw_only=True)
class Service:
    """One server and the machine that it runs on."""

    stages: tuple[Stage, ...]
    overhead_ms: float
    """Time of a request outside of the models, or CPU if that is more: the server's front, the network."""
    cores: int
    """Cores that all executions share; 0 if they do not compute on the CPU."""
    spread: tuple[tuple[float, float], ...]
    """Spread of single requests: (share of requests, time over the mean), ascending."""
    contention: float = 1.0
    """Time of an execution while executions keep all cores busy, over its time alone: caches and memory are
    shared, too."""

    @property
    def per_second(self) -> float:
        """Limit of requests per second: by the slowest stage with full batches, or by the cores."""
        best = [
            max(stage.instances * rows * 1000 / stage.time(rows) for rows in range(1, stage.max_batch + 1))
            for stage in self.stages
        ]
        if self.cores:
            work = self.overhead_ms + sum(
                self.contention
                * min(stage.threads * stage.time(rows) / rows for rows in range(1, stage.max_batch + 1))
                for stage in self.stages
            )
            best.append(self.cores * 1000 / work)
        return min(best)

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Service:
        """Raises one of ``files.DAMAGED``."""
        stages = tuple(map(Stage.of_json, document["stages"]))
        if not stages or not all(stage.batch_ms for stage in stages):
            raise ValueError("a service without measured stages")
        return cls(
            stages=stages,
            overhead_ms=float(document["overhead_ms"]),
            cores=int(document["cores"]),
            spread=tuple((float(share), float(factor)) for share, factor in document["spread"]),
            contention=max(1.0, float(document.get("contention", 1.0))),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "stages": [stage.to_json() for stage in self.stages],
            "spread": [list(pair) for pair in self.spread],
        }


def _least(value: Any, least: int) -> int:
    number = int(value)
    if number < least:
        raise ValueError(f"{number} is less than {least}")
    return number

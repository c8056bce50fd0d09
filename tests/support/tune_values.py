"""Reports of ``trb tune`` made by hand."""

from __future__ import annotations

from typing import Any

from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.tune.report import MEASURED, Compared, Report, Trial

BASE = {"instances": 2, "threads": 1, "batching": 0, "max batch": 32, "tokenizer instances": 1}


def trial(number: int = 1, capacity: float = 100.0, latency: float | None = 40.0, **changes: Any) -> Trial:
    values: dict[str, Any] = {
        "number": number,
        "name": "default",
        "setting": BASE,
        "status": MEASURED,
        "capacity": capacity,
        "latency_ms": latency,
        "saturation": capacity * 1.2,
        "reachable": 0.0,
        "reason": "",
        "bottleneck": "",
        "rows_per_execution": 2.0,
        "overhead": 0.5,
        "seconds": 8.0,
    }
    return Trial(**{**values, **changes})


def compared(name: str, *capacities: float, default: tuple[float, ...] = (), **setting: Any) -> Compared:
    ratios = sorted(own / other for own, other in zip(capacities, default, strict=False))
    return Compared(
        name=name,
        setting={**BASE, **setting},
        capacity=sorted(capacities)[len(capacities) // 2],
        capacities=capacities,
        latency_ms=45.0,
        ratio=ratios[len(ratios) // 2] if ratios else None,
        lowest=ratios[0] if ratios else None,
        highest=ratios[-1] if ratios else None,
        bottleneck="",
    )


def report(*trials: Trial, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "command": "trb tune --slo '<p99>'",
        "started": "2024-10-01T12:00:00+00:00",
        "seconds": 60.0,
        "endpoint": "sentiment",
        "objective": Objective(percentile="p99", ms=50),
        "rps": None,
        "budget": 60.0,
        "machine": {"cpu": "a CPU", "cores": 2},
        "versions": {"python": "3.11"},
        "space": {name: [value] for name, value in BASE.items()},
        "trials": trials,
        "compared": (),
        "chosen": "default",
        "setting": BASE,
        "better": False,
        "gains": (),
        "service": None,
        "notes": (),
    }
    return Report(**{**values, **changes})

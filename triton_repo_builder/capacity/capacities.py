"""What one machine holds: a CSV that the user writes, or a report of ``trb tune`` or ``trb bench``."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import files
from triton_repo_builder.bench.objective import LEAST_ANSWERED, PERCENTILES, Objective
from triton_repo_builder.capacity.service import Service
from triton_repo_builder.errors import Code, TrbError

REMEDY = (
    "give a report.json of 'trb tune --output DIR' or of 'trb bench --rate …', or a CSV with the columns "
    "name, instance, per_second (or per_minute) and p99_ms (or latency_ms)"
)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Requests per second that one machine answers, and how fast it does at that load."""

    name: str
    instance: str
    per_second: float
    latency_ms: float
    percentile: str
    """Which percentile ``latency_ms`` is; empty if the source does not say."""
    source: str
    service: Service | None = None
    """What a simulation needs; None if it was not measured."""


def read(path: Path, instance: str, objective: Objective) -> tuple[Capacity, ...]:
    """The capacities of a file; ``instance`` is the machine that reports were measured on.

    Raises ``TrbError`` NOT_FOUND, USAGE.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise files.unreadable(path, error) from None
    except UnicodeDecodeError:
        raise _wrong(path, "is not UTF-8 text") from None
    if path.suffix.lower() == ".csv":
        return tuple(_row(path, row, instance, objective) for row in csv.DictReader(text.splitlines()))
    try:
        document = files.load_json(text)
        if not isinstance(document, dict):
            raise TypeError("it is not an object")
        return tuple(
            _tuned(path, document, instance, objective)
            if "trials" in document
            else _benched(path, document, instance, objective)
        )
    except files.DAMAGED as error:
        raise _wrong(path, f"is no report of capacities: {type(error).__name__} {error}") from None


def _row(path: Path, row: Mapping[str, Any], instance: str, objective: Objective) -> Capacity:
    name = row.get("name") or path.stem
    own = f"{objective.percentile}_ms"
    stated = next((column for column in (own, "latency_ms") if row.get(column)), "")
    if not stated:
        # A harder percentile that holds is as good.
        harder = PERCENTILES[PERCENTILES.index(objective.percentile) :]
        stated = next((f"{each}_ms" for each in harder if row.get(f"{each}_ms")), "")
    if not stated:
        raise _wrong(path, f"row '{name}' has neither {own} nor latency_ms")
    rate = _number(path, name, row, "per_second") if row.get("per_second") else None
    if rate is None:
        rate = _number(path, name, row, "per_minute") / 60
    return Capacity(
        name=name,
        instance=row.get("instance") or instance,
        per_second=rate,
        latency_ms=_number(path, name, row, stated),
        percentile="" if stated == "latency_ms" else stated.removesuffix("_ms"),
        source=path.name,
    )


def _number(path: Path, name: str, row: Mapping[str, Any], column: str) -> float:
    try:
        value = float(row.get(column) or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise _wrong(path, f"{column} of '{name}' is {row.get(column)!r:.40}, not a number above 0")
    return value


def _tuned(path: Path, document: Mapping[str, Any], instance: str, objective: Objective) -> list[Capacity]:
    """The settings that a tune run compared at the end: the default and the best."""
    percentile = str(document["objective"]["percentile"])
    if PERCENTILES.index(percentile) < PERCENTILES.index(objective.percentile):
        raise _wrong(path, f"was tuned for {percentile}, which says nothing about {objective.percentile}")
    service = Service.of_json(document["service"]) if document.get("service") else None
    chosen = document["chosen"]
    return [
        Capacity(
            name=str(entry["name"]),
            instance=instance,
            per_second=float(entry["capacity"]),
            latency_ms=float(entry["latency_ms"]),
            percentile=percentile,
            source=path.name,
            service=service if entry["name"] == chosen else None,
        )
        for entry in document["compared"]
        if entry["capacity"]
    ]


def _benched(path: Path, document: Mapping[str, Any], instance: str, objective: Objective) -> list[Capacity]:
    """Of each variant the highest rate that holds the objective; if none does, the lowest, which fails it."""
    rows: dict[str, list[Capacity]] = {}
    for level in document["levels"]:
        latency = level["latency"]
        if level["mode"] != "open" or latency is None:
            continue
        kept = not level["failures"] and level["throughput"] >= LEAST_ANSWERED * level["rate"]
        rows.setdefault(str(level["variant"] or level["endpoint"]), []).append(
            Capacity(
                name=str(level["variant"] or level["endpoint"]),
                instance=instance,
                per_second=float(level["throughput"]),
                # A level that did not keep up meets no objective.
                latency_ms=objective.of(latency) if kept else math.inf,
                percentile=objective.percentile,
                source=path.name,
            )
        )
    if not rows:
        raise ValueError("no level with --rate, and only an open loop shows what holds")
    best = []
    for group in rows.values():
        holding = [row for row in group if row.latency_ms <= objective.ms]
        best.append(
            max(holding, key=lambda row: row.per_second)
            if holding
            else min(group, key=lambda row: row.per_second)
        )
    return best


def _wrong(path: Path, message: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=str(path), remedy=REMEDY)

"""Ratios to an earlier report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_repo_builder.bench.report.baseline_file import KEY, MACHINE
from triton_repo_builder.bench.report.report import (
    Baseline,
    BenchReport,
    Level,
    Ratio,
)


def ratio(new: Level, old: Level) -> Ratio:
    """This level's numbers over another one's."""
    p50, p99 = (old.latency.p50, old.latency.p99) if old.latency else (None, None)
    return _ratio(new, old.variant, old.throughput, p50, p99, old.server_cpu_ms)


def _ratio(
    new: Level, variant: str, throughput: float, p50: float | None, p99: float | None, cpu: float | None
) -> Ratio:
    return Ratio(
        variant=new.variant,
        against=variant,
        level=f"{new.protocol} {new.load}" + (f" length {new.length}" if new.length else ""),
        throughput=_over(new.throughput, throughput),
        p50=_over(new.latency.p50 if new.latency else None, p50),
        p99=_over(new.latency.p99 if new.latency else None, p99),
        server_cpu=_over(new.server_cpu_ms, cpu),
    )


def _over(new: float | None, old: float | None) -> float | None:
    return new / old if new is not None and old else None


def compare(report: BenchReport, document: Mapping[str, Any], file: Path) -> BenchReport:
    """The report with its ratios to an earlier one (``earlier.load``), and what makes them doubtful."""
    entries = document["levels"]
    single = len({entry["variant"] for entry in entries}) == 1
    pairs: list[tuple[Level, Mapping[str, Any]]] = []
    for level in report.levels:
        same = [e for e in entries if _key(e) == level.key and (single or e["variant"] == level.variant)]
        pairs += [(level, same[0])] if same else []
    notes = [*_machines(report, document), *_texts(pairs)]
    if document["client"] != report.client:
        notes.append(f"another client: {document['client']}")
    if lost := len(report.levels) - len(pairs):
        notes.append(f"{lost} of {len(report.levels)} levels have no counterpart of the same load in {file}")
    ratios = tuple(_ratio(level, entry["variant"], *_numbers(entry)) for level, entry in pairs)
    return replace(report, baseline=Baseline(file=str(file), ratios=ratios, notes=tuple(notes)))


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[name] for name in KEY)


def _numbers(entry: Mapping[str, Any]) -> tuple[float, float | None, float | None, float | None]:
    latency = entry["latency"] or {}
    return entry["throughput"], latency.get("p50"), latency.get("p99"), entry["server_cpu_ms"]


def _machines(report: BenchReport, document: Mapping[str, Any]) -> list[str]:
    old, new = document["machine"], report.machine
    return [
        f"another machine: {name} was {old.get(name)}, is {new.get(name)}"
        for name in MACHINE
        if old.get(name) != new.get(name)
    ]


def _texts(pairs: list[tuple[Level, Mapping[str, Any]]]) -> list[str]:
    """Levels whose texts or tensors were others: what both were really sent is compared."""
    known = [(level.sent, entry["sent"]) for level, entry in pairs if entry.get("sent")]
    other = sum(new != old for new, old in known)
    found = []
    if other:
        where = "" if other == len(pairs) else f" at {other} of {len(pairs)} levels"
        found.append(f"other texts or tensors were sent{where}")
    if len(known) < len(pairs):
        found.append("whether the same was sent is not known: the older report does not say")
    return found

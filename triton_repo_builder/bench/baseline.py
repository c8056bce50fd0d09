"""Ratios to an earlier report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_repo_builder.bench.report import SCHEMA, Baseline, BenchReport, Latency, Level, Ratio
from triton_repo_builder.errors import Exit, TrbError

REMEDY = "name the report.json of an earlier 'trb bench --output DIR'"


def ratio(new: Level, old: Level) -> Ratio:
    """This level's numbers over another one's."""
    return _ratio(new, old.variant, old.throughput, old.latency, old.server_cpu_ms)


def _ratio(new: Level, variant: str, throughput: float, latency: Latency | None, cpu: float | None) -> Ratio:
    return Ratio(
        variant=new.variant,
        against=variant,
        level=f"{new.protocol} {new.load}" + (f" length {new.length}" if new.length else ""),
        throughput=_over(new.throughput, throughput),
        p50=_over(new.latency.p50 if new.latency else None, latency.p50 if latency else None),
        p99=_over(new.latency.p99 if new.latency else None, latency.p99 if latency else None),
        server_cpu=_over(new.server_cpu_ms, cpu),
    )


def _over(new: float | None, old: float | None) -> float | None:
    return new / old if new is not None and old else None


def load(path: Path) -> dict[str, Any]:
    """Read a report; raises ``TrbError`` where it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrbError(
            Exit.NOT_FOUND, f"cannot be read: {error.strerror}", where=str(path), remedy=REMEDY
        ) from None
    except ValueError as error:
        raise TrbError(Exit.USAGE, f"is no JSON: {error}", where=str(path), remedy=REMEDY) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "levels" not in document:
        raise TrbError(Exit.USAGE, f"is no report of schema {SCHEMA}", where=str(path), remedy=REMEDY)
    try:
        for entry in document["levels"]:
            _key(entry), _numbers(entry)
    except (KeyError, TypeError) as error:
        raise TrbError(
            Exit.USAGE, f"is a damaged report: {type(error).__name__} {error}", where=str(path), remedy=REMEDY
        ) from None
    return document


def compare(report: BenchReport, document: Mapping[str, Any], file: Path) -> BenchReport:
    """The report with its ratios to the earlier one of the same load, and what makes them doubtful."""
    entries = document["levels"]
    single = len({entry["variant"] for entry in entries}) == 1
    ratios, lost = [], 0
    for level in report.levels:
        same = [e for e in entries if _key(e) == level.key and (single or e["variant"] == level.variant)]
        if same:
            ratios.append(_ratio(level, same[0]["variant"], *_numbers(same[0])))
        else:
            lost += 1
    notes = _differences(report, document)
    if lost:
        notes.append(f"{lost} of {len(report.levels)} levels have no counterpart of the same load in {file}")
    return replace(report, baseline=Baseline(file=str(file), ratios=tuple(ratios), notes=tuple(notes)))


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[name] for name in ("protocol", "mode", "concurrency", "rate", "length", "rows"))


def _numbers(entry: Mapping[str, Any]) -> tuple[float, Latency | None, float | None]:
    latency = entry["latency"]
    return entry["throughput"], Latency(**latency) if latency else None, entry["server_cpu_ms"]


def _differences(report: BenchReport, document: Mapping[str, Any]) -> list[str]:
    found = []
    machine = document.get("machine", {})
    for name in ("cpu", "cores", "memory_gib"):
        if machine.get(name) != report.machine.get(name):
            found.append(f"another machine: {name} was {machine.get(name)}, is {report.machine.get(name)}")
    old, new = list(document.get("texts", {}).values()), list(report.texts.values())
    keys = ("source", "texts", "median", "unit")
    if [[one.get(key) for key in keys] for one in old] != [[one.get(key) for key in keys] for one in new]:
        found.append("other texts were sent")
    if document.get("client") != report.client:
        found.append(f"another client: {document.get('client')}")
    return found

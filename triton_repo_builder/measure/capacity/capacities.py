"""Capacity of one machine: a CSV that the user writes, or a report of ``trb tune`` or ``trb bench``."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.capacity import sheet
from triton_repo_builder.measure.capacity.service import Service
from triton_repo_builder.measure.objective import LEAST_ANSWERED, PERCENTILES, Objective

REMEDY = (
    "give a report.json of 'trb tune --output DIR' or of 'trb bench --rate …', or a CSV with the columns "
    "name, instance, per_second (or per_minute) and p99_ms (or latency_ms)"
)


COLUMNS = ("name", "instance", "per_second", "per_minute", "latency_ms", *(f"{p}_ms" for p in PERCENTILES))
LEAST = 1e-9
"""Lowest rate and latency: a smaller one, or one over a billion, is a mistake in the file."""
MOST_CONTENTION = 100.0
MOST_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Requests per second that one machine answers, and how fast it does at that load."""

    name: str
    instance: str
    per_second: float
    latency_ms: float
    percentile: str
    """Percentile of ``latency_ms``; empty if the source does not say."""
    source: str
    service: Service | None = None
    """Service times for a simulation; None if they were not measured."""
    notes: tuple[str, ...] = ()
    """Notes of the run that measured it, such as that other programs used the machine."""


def read(path: Path, instance: str, objective: Objective) -> tuple[Capacity, ...]:
    """The capacities of a file; ``instance`` is the machine that reports were measured on.

    Raises ``TrbError`` NOT_FOUND, USAGE.
    """
    try:
        text = sheet.text(path)
        if path.suffix.lower() == ".csv":
            return _sheet(path, text, instance, objective)
    except ValueError as error:
        raise _wrong(path, str(error)) from None
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
        missing = "no field " if isinstance(error, KeyError) else ""
        raise _wrong(path, f"is no report of capacities: {missing}{error}") from None


def _sheet(path: Path, text: str, instance: str, objective: Objective) -> tuple[Capacity, ...]:
    """Raises ``TrbError`` USAGE, and ``ValueError`` with the fault."""
    listed: list[Capacity] = []
    seen: set[tuple[str, str]] = set()
    for where, row in sheet.rows(text, COLUMNS):
        listed.append(_row(path, where, row, instance, objective))
        key = (row.get("name", ""), listed[-1].instance)
        if key[0] and key in seen:
            raise ValueError(f"{where} has a second capacity of '{key[0]}' on '{key[1]}'")
        seen.add(key)
    return tuple(listed)


def _row(path: Path, where: str, row: Mapping[str, str], instance: str, objective: Objective) -> Capacity:
    name = row.get("name") or path.stem
    column_name = f"{objective.percentile}_ms"
    # A harder percentile that holds is as good.
    harder = (f"{each}_ms" for each in PERCENTILES[PERCENTILES.index(objective.percentile) :])
    stated = next((column for column in (column_name, "latency_ms", *harder) if row.get(column)), "")
    if not stated:
        raise _wrong(path, f"{where}, '{name}', has neither {column_name} nor latency_ms")
    if row.get("per_second"):
        rate = _number(path, where, row, "per_second")
    else:
        rate = _number(path, where, row, "per_minute") / 60
    return Capacity(
        name=name,
        instance=row.get("instance") or instance,
        per_second=rate,
        latency_ms=_number(path, where, row, stated),
        percentile="" if stated == "latency_ms" else stated.removesuffix("_ms"),
        source=path.name,
    )


def _number(path: Path, where: str, row: Mapping[str, str], column: str) -> float:
    try:
        return _positive(row.get(column) or "", column)
    except ValueError as error:
        raise _wrong(path, f"{where}: {error}") from None


def _positive(value: Any, name: str) -> float:
    """Raises ``ValueError``."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not LEAST <= number < 1 / LEAST:
        raise ValueError(f"{name} is {value!r:.40}, not a number above 0")
    return number


def _tuned(path: Path, document: Mapping[str, Any], instance: str, objective: Objective) -> list[Capacity]:
    """The settings that a tune run compared at the end: the default and the best."""
    percentile = str(document["objective"]["percentile"])
    if percentile not in PERCENTILES:
        raise ValueError(f"{percentile!r:.40} is not a percentile")
    if PERCENTILES.index(percentile) < PERCENTILES.index(objective.percentile):
        raise _wrong(path, f"was tuned for {percentile}, which says nothing about {objective.percentile}")
    service = _service(document["service"]) if document.get("service") else None
    chosen = document["chosen"]
    if not any(entry["capacity"] for entry in document["compared"]):
        raise _wrong(
            path,
            "proves no capacity: that run was interrupted before its end, or no setting held",
            "let 'trb tune' come to its end: with the same --output it goes on",
        )
    return [
        Capacity(
            name=str(entry["name"]),
            instance=instance,
            per_second=_positive(entry["capacity"], "capacity"),
            latency_ms=_positive(entry["latency_ms"], "latency_ms"),
            percentile=percentile,
            source=path.name,
            service=service if entry["name"] == chosen else None,
            notes=tuple(map(str, document.get("notes") or ())),
        )
        for entry in document["compared"]
        if entry["capacity"]
    ]


def _service(document: Mapping[str, Any]) -> Service:
    """Service times with checked values: a time of 0 would be endless capacity. Raises ``DAMAGED``."""
    service = Service.of_json(document)
    for stage in service.stages:
        for size, value in stage.batch_ms.items():
            _positive(size, f"a batch size of {stage.model}")
            _positive(value, f"batch_ms of {stage.model}")
        if stage.max_batch > MOST_ROWS or not 0 <= stage.delay_ms < 1 / LEAST:
            raise ValueError(f"max_batch or delay_ms of {stage.model} is out of range")
    if not (0 <= service.overhead_ms < 1 / LEAST and 0 <= service.cores < MOST_ROWS and service.spread):
        raise ValueError("overhead_ms, cores or spread is out of range")
    if not service.contention < MOST_CONTENTION:
        raise ValueError("contention is out of range")
    shares = [share for share, _ in service.spread]
    if shares != sorted(shares) or not all(0 <= n < 1 / LEAST for pair in service.spread for n in pair):
        raise ValueError("spread is not ascending shares of requests, each with a factor")
    return service


def _benched(path: Path, document: Mapping[str, Any], instance: str, objective: Objective) -> list[Capacity]:
    """The highest rate of each variant that meets the objective; if none does, the lowest, which fails it."""
    rows: dict[str, list[Capacity]] = {}
    for level in document["levels"]:
        latency = level["latency"]
        if level["mode"] != "open" or latency is None or not level["throughput"]:
            continue
        kept = not level["failures"] and level["throughput"] >= LEAST_ANSWERED * level["rate"]
        rows.setdefault(str(level["variant"] or level["endpoint"]), []).append(
            Capacity(
                name=str(level["variant"] or level["endpoint"]),
                instance=instance,
                per_second=_positive(level["throughput"], "throughput"),
                # A level that did not keep up meets no objective.
                latency_ms=objective.of(latency) if kept else math.inf,
                percentile=objective.percentile,
                source=path.name,
            )
        )
    if not rows:
        raise _closed_loop(path, document, objective)
    best = []
    for group in rows.values():
        holding = [row for row in group if row.latency_ms <= objective.ms]
        best.append(
            max(holding, key=lambda row: row.per_second)
            if holding
            else min(group, key=lambda row: row.per_second)
        )
    return best


SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)
"""Rates to measure, as shares of the highest throughput of waiting clients."""


def _closed_loop(path: Path, document: Mapping[str, Any], objective: Objective) -> Exception:
    """The error for a report without rates: with the command that measures them, if it says how."""
    answered = [float(level["throughput"] or 0) for level in document["levels"]]
    highest = max(answered, default=0.0)
    if not 0 < highest < 1 / LEAST:
        return ValueError("no level with --rate, and only an open loop shows what holds")
    rates = ",".join(f"{share * highest:.{0 if highest >= 20 else 2}f}" for share in SHARES)
    command = shlex.join([*_without_clients(str(document.get("command", ""))), "--rate", rates])
    return _wrong(
        path,
        "was measured with --concurrency: clients that wait for their answers never queue, so it does not "
        f"say at which rate {objective} holds",
        f"measure rates: {command} --output rates; then give rates/{path.name}",
    )


def _without_clients(command: str) -> list[str]:
    """The words of a ``trb bench`` command, less the options for its clients and its folder."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if words[:2] != ["trb", "bench"]:
        return ["trb", "bench"]
    kept: list[str] = []
    value_follows = False
    for word in words:
        name, equals, _ = word.partition("=")
        if value_follows:
            value_follows = False
        elif name in ("--concurrency", "--output", "--baseline"):
            value_follows = not equals
        elif word != "--json":
            kept.append(word)
    return kept


def _wrong(path: Path, message: str, remedy: str = REMEDY) -> TrbError:
    return TrbError(Code.USAGE, message, where=str(path), remedy=remedy)

"""Ratios to other levels: of another variant, or of an earlier report.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import load_json
from triton_repo_builder.measure.bench.report.report import SCHEMA, Baseline, BenchReport, Level, Ratio

REMEDY = "name the report.json of an earlier 'trb bench --output DIR'"
LONGEST_VALUE = 40
"""Characters of a wrong value that are shown."""
MACHINE = ("cpu", "cores", "memory_gib")
"""Facts of the machine that must be equal for a fair comparison."""


@dataclass(frozen=True, kw_only=True)
class EarlierLevel:
    """The part of a level that a comparison needs."""

    variant: str
    protocol: str
    mode: str
    concurrency: float | None
    rate: float | None
    length: float | None
    rows: float
    throughput: float
    p50: float | None
    p99: float | None
    server_cpu_ms: float | None
    sent: str
    """Empty in reports of older releases."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal to ``Level.key`` of a comparable level."""
        return (self.protocol, self.mode, self.concurrency, self.rate, self.length, self.rows)


@dataclass(frozen=True, kw_only=True)
class EarlierReport:
    """The part of a report that a comparison needs."""

    client: str
    machine: Mapping[str, str | float | None]
    levels: tuple[EarlierLevel, ...]


def load(path: Path) -> EarlierReport:
    """Read a report; raises ``TrbError`` if it is not one, or a field that a comparison reads is damaged."""
    try:
        document = load_json(files.read(path), halves=True)
    except OSError as error:
        raise TrbError(
            Code.NOT_FOUND, f"cannot be read: {error.strerror}", where=str(path), remedy=REMEDY
        ) from None
    except ValueError as error:
        raise TrbError(Code.USAGE, f"is not valid JSON: {error}", where=str(path), remedy=REMEDY) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "levels" not in document:
        raise TrbError(Code.USAGE, f"is not a report of schema {SCHEMA}", where=str(path), remedy=REMEDY)
    try:
        return _report(_Object(document, ""))
    except _Damaged as damage:
        raise TrbError(Code.USAGE, f"is a damaged report: {damage}", where=str(path), remedy=REMEDY) from None


def _report(document: _Object) -> EarlierReport:
    client = document.text("client")
    machine = document.object("machine")
    levels = document.member("levels")
    if not isinstance(levels, list) or not levels:
        raise _wrong("levels", levels, "a list of levels")
    facts = {name: machine.scalar(name) for name in MACHINE if machine.values.get(name) is not None}
    return EarlierReport(
        client=client,
        machine=facts,
        levels=tuple(_level(_as_object(entry, f"levels[{n}]")) for n, entry in enumerate(levels)),
    )


def _level(entry: _Object) -> EarlierLevel:
    latency = entry.object("latency") if entry.member("latency") is not None else None
    return EarlierLevel(
        variant=entry.text("variant"),
        protocol=entry.text("protocol"),
        mode=entry.text("mode"),
        concurrency=entry.number_or_null("concurrency"),
        rate=entry.number_or_null("rate"),
        length=entry.number_or_null("length"),
        rows=entry.number("rows"),
        throughput=entry.number("throughput"),
        server_cpu_ms=entry.number_or_null("server_cpu_ms"),
        p50=latency.number("p50") if latency else None,
        p99=latency.number("p99") if latency else None,
        sent=entry.text("sent") if "sent" in entry.values else "",
    )


class _Damaged(Exception):
    """A damaged field, and what is wrong with it."""


@dataclass(frozen=True)
class _Object:
    """A JSON object and its place in the document; every reader raises ``_Damaged``."""

    values: Mapping[str, Any]
    place: str

    def member(self, name: str) -> Any:
        if name not in self.values:
            raise _Damaged(f"{self.place}{name} is missing")
        return self.values[name]

    def object(self, name: str) -> _Object:
        return _as_object(self.member(name), f"{self.place}{name}", "an object or null" if self.place else "")

    def number(self, name: str) -> float:
        value: float = self.member(name)
        try:
            good = type(value) in (int, float) and math.isfinite(value) and value >= 0
        except OverflowError:  # an integer that no float can hold
            good = False
        if not good:
            raise _wrong(self.place + name, value, "a number that is 0 or more")
        return value

    def number_or_null(self, name: str) -> float | None:
        return None if self.member(name) is None else self.number(name)

    def text(self, name: str) -> str:
        value: str = self.member(name)
        try:
            good = isinstance(value, str) and value.encode() is not None
        except UnicodeEncodeError:  # half a surrogate pair: nothing that could be printed later
            good = False
        if not good:
            raise _wrong(self.place + name, value, "a text")
        return value

    def scalar(self, name: str) -> str | float:
        return self.text(name) if isinstance(self.member(name), str) else self.number(name)


def _as_object(value: Any, place: str, expected: str = "") -> _Object:
    if not isinstance(value, dict):
        raise _wrong(place, value, expected or "an object")
    return _Object(value, f"{place}.")


def _wrong(name: str, value: Any, expected: str) -> _Damaged:
    try:
        text = json.dumps(value)
    except ValueError:
        text = "a number of thousands of digits"
    shown = text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"
    return _Damaged(f"{name} is {shown}, not {expected}")


def ratio(new: Level, old: Level | EarlierLevel) -> Ratio:
    """This level's numbers over another one's."""
    p50, p99 = (new.latency.p50, new.latency.p99) if new.latency else (None, None)
    old_p50, old_p99 = (old.p50, old.p99) if isinstance(old, EarlierLevel) else _percentiles(old)
    return Ratio(
        variant=new.variant,
        against=old.variant,
        level=title(new),
        throughput=_over(new.throughput, old.throughput),
        p50=_over(p50, old_p50),
        p99=_over(p99, old_p99),
        server_cpu=_over(new.server_cpu_ms, old.server_cpu_ms),
    )


def title(level: Level) -> str:
    """The level as ratios name it: ``grpc 16 clients``."""
    return f"{level.protocol} {level.load}" + (f" length {level.length}" if level.length else "")


def _percentiles(level: Level) -> tuple[float | None, float | None]:
    return (level.latency.p50, level.latency.p99) if level.latency else (None, None)


def _over(new: float | None, old: float | None) -> float | None:
    return new / old if new is not None and old else None


def compare(report: BenchReport, earlier: EarlierReport, file: Path) -> BenchReport:
    """The report with its ratios to an earlier one, and notes on doubts about them."""
    single = len({level.variant for level in earlier.levels}) == 1
    pairs: list[tuple[Level, EarlierLevel]] = []
    for level in report.levels:
        comparable = [
            old for old in earlier.levels if old.key == level.key and (single or old.variant == level.variant)
        ]
        pairs += [(level, comparable[0])] if comparable else []
    notes = [*_machines(report, earlier), *_texts(pairs)]
    if earlier.client != report.client:
        notes.append(f"another client: {earlier.client}")
    if lost := len(report.levels) - len(pairs):
        notes.append(f"{lost} of {len(report.levels)} levels have no counterpart of the same load in {file}")
    ratios = tuple(ratio(level, old) for level, old in pairs)
    return replace(report, baseline=Baseline(file=str(file), ratios=ratios, notes=tuple(notes)))


def _machines(report: BenchReport, earlier: EarlierReport) -> list[str]:
    return [
        f"another machine: {name} was {earlier.machine.get(name)}, is {report.machine.get(name)}"
        for name in MACHINE
        if earlier.machine.get(name) != report.machine.get(name)
    ]


def _texts(pairs: list[tuple[Level, EarlierLevel]]) -> list[str]:
    """Levels that were sent other texts or tensors, compared by the digest of what was sent."""
    with_digests = [(level.sent, old.sent) for level, old in pairs if old.sent]
    different = sum(new != old for new, old in with_digests)
    notes = []
    if different:
        where = "" if different == len(pairs) else f" at {different} of {len(pairs)} levels"
        notes.append(f"other texts or tensors were sent{where}")
    if len(with_digests) < len(pairs):
        notes.append("whether the same was sent is unknown: the older report does not record it")
    return notes

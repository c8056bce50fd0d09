"""An earlier report.json: every field that a comparison reads is checked before anything is measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.bench.report.report import SCHEMA
from triton_repo_builder.errors import Code, TrbError

REMEDY = "name the report.json of an earlier 'trb bench --output DIR'"
LONG = 40
"""Characters of a wrong value that are shown."""
KEY = ("protocol", "mode", "concurrency", "rate", "length", "rows")
"""What makes two levels of two reports comparable."""
MACHINE = ("cpu", "cores", "memory_gib")


class _Damaged(Exception):
    """What is wrong, and with which field."""


def load(path: Path) -> dict[str, Any]:
    """Read a report; raises ``TrbError`` where it is none, or a comparison with it would break."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrbError(
            Code.NOT_FOUND, f"cannot be read: {error.strerror}", where=str(path), remedy=REMEDY
        ) from None
    except (ValueError, RecursionError) as error:
        raise TrbError(Code.USAGE, f"is no JSON: {error}", where=str(path), remedy=REMEDY) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "levels" not in document:
        raise TrbError(Code.USAGE, f"is no report of schema {SCHEMA}", where=str(path), remedy=REMEDY)
    try:
        _check(document)
    except _Damaged as damage:
        raise TrbError(Code.USAGE, f"is a damaged report: {damage}", where=str(path), remedy=REMEDY) from None
    return document


def _check(document: Mapping[str, Any]) -> None:
    _text(document, "client", "")
    machine = _member(document, "machine", "")
    if not isinstance(machine, dict):
        raise _wrong("machine", machine, "an object")
    for name in MACHINE:
        value = machine.get(name)
        if isinstance(value, str):
            _text(machine, name, "machine.")
        elif value is not None:
            _number(machine, name, "machine.")
    levels = document["levels"]
    if not isinstance(levels, list) or not levels:
        raise _wrong("levels", levels, "a list of levels")
    for number, entry in enumerate(levels):
        where = f"levels[{number}]"
        if not isinstance(entry, dict):
            raise _wrong(where, entry, "an object")
        _check_level(entry, f"{where}.")


def _check_level(entry: Mapping[str, Any], where: str) -> None:
    for name in ("variant", "protocol", "mode"):
        _text(entry, name, where)
    for name in ("rows", "throughput"):
        _number(entry, name, where)
    for name in ("concurrency", "rate", "length", "server_cpu_ms"):
        if _member(entry, name, where) is not None:
            _number(entry, name, where)
    if "sent" in entry:  # older reports lack it
        _text(entry, "sent", where)
    latency = _member(entry, "latency", where)
    if latency is None:
        return
    if not isinstance(latency, dict):
        raise _wrong(f"{where}latency", latency, "an object or null")
    for name in ("p50", "p99"):
        _number(latency, name, f"{where}latency.")


def _member(values: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in values:
        raise _Damaged(f"{where}{name} is missing")
    return values[name]


def _number(values: Mapping[str, Any], name: str, where: str) -> None:
    value = _member(values, name, where)
    try:
        good = type(value) in (int, float) and math.isfinite(value) and value >= 0
    except OverflowError:  # an integer that no float can hold
        good = False
    if not good:
        raise _wrong(where + name, value, "a number that is 0 or more")


def _text(values: Mapping[str, Any], name: str, where: str) -> None:
    value = _member(values, name, where)
    try:
        good = isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:  # half a surrogate pair: nothing that could be printed later
        good = False
    if not good:
        raise _wrong(where + name, value, "a text")


def _wrong(name: str, value: Any, wanted: str) -> _Damaged:
    try:
        text = json.dumps(value)
    except ValueError:
        text = "a number of thousands of digits"
    return _Damaged(f"{name} is {text if len(text) <= LONG else text[:LONG] + '…'}, not {wanted}")

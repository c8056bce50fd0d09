"""Prices of machines: a TOML or CSV file that the user writes."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder import files
from triton_repo_builder.errors import Code, TrbError

PRICE = "price_per_hour"
REMEDY = (
    f'write [instances."c5.xlarge"] and {PRICE} = 0.17 (TOML), or a CSV with the columns instance and {PRICE}'
)


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Price of an hour of each kind of machine."""

    currency: str
    per_hour: Mapping[str, float]


def read(path: Path) -> Prices:
    """Raises ``TrbError`` NOT_FOUND, USAGE."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise files.unreadable(path, error) from None
    except UnicodeDecodeError:
        raise _wrong(path, "is not UTF-8 text") from None
    currency, raw = _csv(path, text) if path.suffix.lower() == ".csv" else _toml(path, text)
    per_hour = {name: _price(path, name, value) for name, value in raw.items()}
    if not per_hour:
        raise _wrong(path, "has no instances")
    return Prices(currency=currency, per_hour=per_hour)


def _toml(path: Path, text: str) -> tuple[str, dict[str, object]]:
    try:
        document = files.load_toml(text)
    except ValueError as error:
        raise _wrong(path, f"is not valid TOML: {error}") from None
    instances = document.get("instances")
    if not isinstance(instances, dict):
        raise _wrong(path, "has no table [instances]")
    listed: dict[str, object] = {
        str(name): entry.get(PRICE) if isinstance(entry, dict) else entry for name, entry in instances.items()
    }
    return str(document.get("currency", "$")), listed


def _csv(path: Path, text: str) -> tuple[str, dict[str, object]]:
    rows = list(csv.DictReader(text.splitlines()))
    if any(row.get("instance") in (None, "") for row in rows):
        raise _wrong(path, "has rows without the column 'instance'")
    return "$", {str(row["instance"]): row.get(PRICE) for row in rows}


def _price(path: Path, name: str, value: object) -> float:
    try:
        price = float(str(value))
    except ValueError:
        price = math.nan
    if not (math.isfinite(price) and price >= 0):
        raise _wrong(path, f"{PRICE} of {name} is {value!r:.40}, not a number that is 0 or more")
    return price


def _wrong(path: Path, message: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=str(path), remedy=REMEDY)

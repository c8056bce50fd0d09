"""Prices of machines: a TOML or CSV file that the user writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.capacity import sheet

PRICE = "price_per_hour"
LIMIT = 1_000_000_000
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
        text = sheet.text(path)
        currency, raw = ("$", _csv(text)) if path.suffix.lower() == ".csv" else _toml(text)
    except ValueError as error:
        raise _wrong(path, str(error)) from None
    per_hour = {name: _price(path, name, value) for name, value in raw.items()}
    if not per_hour:
        raise _wrong(path, "has no instances")
    return Prices(currency=currency, per_hour=per_hour)


def _toml(text: str) -> tuple[str, dict[str, object]]:
    try:
        document = files.load_toml(text)
    except ValueError as error:
        raise ValueError(f"is not valid TOML: {error}") from None
    instances, currency = document.get("instances"), document.get("currency", "$")
    if not isinstance(instances, dict):
        raise ValueError("has no table [instances]")
    if not isinstance(currency, str) or not currency.isprintable():
        raise ValueError(f"currency is {currency!r:.40}, not a name or sign")
    listed: dict[str, object] = {
        str(name): entry.get(PRICE) if isinstance(entry, dict) else entry for name, entry in instances.items()
    }
    return currency, listed


def _csv(text: str) -> dict[str, object]:
    listed: dict[str, object] = {}
    for where, row in sheet.rows(text, ("instance", PRICE)):
        name = row.get("instance")
        if not name:
            raise ValueError(f"{where} has no 'instance'")
        if name in listed:
            raise ValueError(f"{where} has a second price of {name}")
        listed[name] = row.get(PRICE)
    return listed


def _price(path: Path, name: str, value: object) -> float:
    try:
        price = float(str(value))
    except ValueError:
        price = math.nan
    if not 0 <= price < LIMIT:
        raise _wrong(path, f"{PRICE} of {name} is {value!r:.40}, not a number from 0 to {LIMIT:,}")
    return price


def _wrong(path: Path, message: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=str(path), remedy=REMEDY)

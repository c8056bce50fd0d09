"""Replicas and cost of a load for each capacity: offers that meet the objective first, then by cost.

Without prices the cost is None, and offers are in the order of their replicas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.capacity.capacities import Capacity
from triton_repo_builder.measure.capacity.prices import Prices
from triton_repo_builder.measure.objective import Objective

HOUR, MILLION = 3600, 1_000_000


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load to be served, and the reserve."""

    rps: float
    objective: Objective
    headroom: float = 0.2
    """Share by which the load may grow."""
    spare: int = 1
    """Replicas that may be lost at the same time."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One capacity, and the replicas of it that the load needs."""

    capacity: Capacity
    meets: bool
    replicas: int
    """Replicas that the load alone needs."""
    reserved: int
    """Replicas with headroom, and enough if the spare ones are lost."""
    price: float | None
    """Price of one replica for an hour."""
    per_hour: float | None
    reserved_per_hour: float | None
    per_million: float | None
    """Cost of a million requests, without reserve; ``reserved_per_million`` with it."""
    reserved_per_million: float | None


def offers(capacities: Sequence[Capacity], prices: Prices | None, load: Load) -> tuple[Offer, ...]:
    """All offers in the order of the advice. Raises ``TrbError`` USAGE for a machine without a price."""
    priced = [_offer(capacity, prices, load) for capacity in capacities]
    return tuple(sorted(priced, key=_order))


def _order(offer: Offer) -> tuple[bool, float, float, float]:
    reserved, alone = offer.reserved_per_hour, offer.per_hour
    if reserved is None or alone is None:
        reserved, alone = offer.reserved, offer.replicas
    return (not offer.meets, reserved, alone, offer.capacity.latency_ms if offer.price is None else 0)


def _offer(capacity: Capacity, prices: Prices | None, load: Load) -> Offer:
    price = _price(capacity, prices) if prices else None
    replicas = _ceil(load.rps / capacity.per_second)
    reserved = max(_ceil(load.rps * (1 + load.headroom) / capacity.per_second), replicas + load.spare)
    requests = load.rps * HOUR / MILLION
    return Offer(
        capacity=capacity,
        meets=capacity.latency_ms <= load.objective.ms,
        replicas=replicas,
        reserved=reserved,
        price=price,
        per_hour=None if price is None else replicas * price,
        reserved_per_hour=None if price is None else reserved * price,
        per_million=None if price is None else replicas * price / requests,
        reserved_per_million=None if price is None else reserved * price / requests,
    )


def _price(capacity: Capacity, prices: Prices) -> float:
    if capacity.instance not in prices.per_hour:
        machines = ", ".join(prices.per_hour)
        raise TrbError(
            Code.USAGE,
            f"'{capacity.name}' was measured on '{capacity.instance}', which has no price"
            if capacity.instance
            else f"'{capacity.name}' does not say on which machine it was measured",
            where=capacity.source,
            remedy=f"name the machine with --on; the price file has: {machines}",
        )
    return prices.per_hour[capacity.instance]


def _ceil(value: float) -> int:
    """Up to the next whole number, ignoring rounding errors."""
    return max(1, math.ceil(value - 1e-9))

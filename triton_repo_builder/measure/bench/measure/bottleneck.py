"""Whether the client, not the server, was the limit."""

from __future__ import annotations

from dataclasses import dataclass

SATURATED = 0.95
"""Share of the machine's CPU above which clients take CPU time from the server."""
CLIENT_PART = 0.25
"""Part of a saturated machine's CPU that the clients may use without a remark."""
LATE = 0.25
"""Lateness of the client's event loop as part of the median latency."""


@dataclass(frozen=True, kw_only=True)
class ClientLoad:
    """The clients' load during a level."""

    busiest_core: float
    cores: float
    machine_busy: float | None
    machine_cores: int
    lag_ms: float | None
    p50_ms: float | None
    same_machine: bool
    processes: int


def verdict(load: ClientLoad, limit: float) -> str:
    """One sentence if the client may be the bottleneck, else empty."""
    if load.busiest_core > limit:
        return (
            f"the client is a bottleneck: its busiest process used {load.busiest_core:.0%} of a core; "
            f"use more than {load.processes} with --processes, or a machine of its own"
        )
    part = load.cores / load.machine_cores
    saturated = load.machine_busy is not None and load.machine_busy > SATURATED
    if load.same_machine and saturated and part > CLIENT_PART:
        return (
            f"the client takes CPU from the server: {part:.0%} of this machine, which was "
            f"{load.machine_busy:.0%} busy; use a machine of its own"
        )
    # A server on the same cores makes any client late; that matters if it shows in the latency.
    if load.lag_ms is not None and load.p50_ms and load.lag_ms > max(2.0, LATE * load.p50_ms):
        return (
            f"the client ran late: its event loop waited {load.lag_ms:.1f} ms for a core at the 95th "
            f"percentile, and the median latency is {load.p50_ms:.1f} ms; the latencies include that"
        )
    return ""

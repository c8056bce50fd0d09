"""Back-pressure: requests, rows and bytes under way, and what is refused with 429 because of them.

A queue that only grows answers everybody too late. A request that would wait longer than its deadline, at the
rate at which Triton answers now, is refused at once.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from triton_repo_builder.run.gateway.access import Access
from triton_repo_builder.run.gateway.options import MIB, GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal

FADING = 5.0
"""Seconds after which an answer counts a third as much in the rate."""
ENOUGH = 0.05
"""Seconds of work after which a rate says something."""
LONGEST_WAIT = 60
"""Most seconds in Retry-After."""
BODIES = 8
"""Bodies of the largest size that fit in memory at a time."""


@dataclass(slots=True)
class Queue:
    """The rows that wait for one endpoint, and the rate at which it answers."""

    rows: int = 0
    _done: float = 0.0
    _seconds: float = 0.0
    _mark: float = 0.0

    def enter(self, rows: int) -> None:
        """Count rows that are on their way. Time without any does not count in the rate."""
        if not self.rows:
            self._mark = time.monotonic()
        self.rows += rows

    def answered(self, rows: int, fewer: int) -> None:
        """Count rows that were answered, so that ``fewer`` rows wait."""
        now = time.monotonic()
        passed = now - self._mark
        kept = math.exp(-passed / FADING)
        self._done = self._done * kept + rows
        self._seconds = self._seconds * kept + passed
        self._mark = now
        self.rows -= fewer

    @property
    def rate(self) -> float:
        """Rows a second, recently; 0: unknown."""
        return self._done / self._seconds if self._seconds > ENOUGH else 0.0

    def seconds(self, extra: int) -> float:
        """Seconds until so many extra rows would be answered; 0 if nothing waits or the rate is unknown."""
        return (self.rows + extra) / self.rate if self.rows and self.rate else 0.0


@dataclass(slots=True)
class Ticket:
    """Rows of one call, from its admission until the last is answered or given up."""

    admission: Admission
    queue: Queue
    left: int
    at_once: int
    """Most rows of the call that wait at Triton at a time: other calls wait for no others."""

    @property
    def waiting(self) -> int:
        """Rows of the call in the queue."""
        return min(self.left, self.at_once)

    def answered(self, rows: int) -> None:
        """Count an answered part."""
        rows, before = min(rows, self.left), self.waiting
        self.left -= rows
        self.admission.rows -= rows
        self.queue.answered(rows, before - self.waiting)

    def close(self) -> None:
        """Give up what was not answered."""
        self.queue.rows -= self.waiting
        self.admission.rows -= self.left
        self.left = 0


@dataclass(slots=True)
class Admission:
    """Everything under way in one gateway, within the limits of its options."""

    options: GatewayOptions
    requests: int = 0
    rows: int = 0
    bytes: int = 0
    queues: dict[str, Queue] = field(default_factory=dict)

    def hold(self, access: Access, size: int) -> None:
        """Count bytes of a request's body. Raises ``Refusal`` 429."""
        if self.bytes + size > BODIES * self.options.most_bytes * MIB:
            raise overloaded("the bodies of other requests take all the memory that is allowed")
        self.bytes += size
        access.held += size

    def enter(self, access: Access) -> None:
        """Let a request in whose body has been read. Raises ``Refusal`` 429."""
        if self.requests >= self.options.most_requests:
            raise overloaded(f"{self.requests} requests are under way, the most that are allowed")
        self.requests += 1
        access.entered = True

    def leave(self, access: Access) -> None:
        """The request's client has its answer, or has gone."""
        self.bytes -= access.held
        self.requests -= access.entered

    def ticket(self, model: str, rows: int, deadline: float, at_once: int) -> Ticket:
        """Let rows in that are to be answered within ``deadline`` seconds. Raises ``Refusal`` 429.

        ``at_once``: most of them that wait at Triton at a time.
        """
        queue = self.queues.setdefault(model, Queue())
        # A request that is alone is tried: nothing else shows how fast the endpoint is now.
        if self.rows and self.rows + rows > self.options.most_rows:
            raise overloaded(
                f"{self.rows} rows are under way, and {self.options.most_rows} are allowed",
                queue.seconds(0),
            )
        seconds = queue.seconds(rows)
        if seconds > deadline:
            raise overloaded(
                f"{queue.rows} rows wait for '{model}': an answer would take about {seconds:.0f} s, and the "
                f"deadline is {deadline:g} s",
                seconds - deadline,
            )
        ticket = Ticket(self, queue, rows, at_once)
        queue.enter(ticket.waiting)
        self.rows += rows
        return ticket


def overloaded(message: str, seconds: float = 0.0) -> Refusal:
    """A refusal of a right request, which makes sense again after so many seconds."""
    after = min(max(1, math.ceil(seconds)), LONGEST_WAIT)
    return Refusal(429, f"{message}: try again later", code="overloaded", retry_after=after)

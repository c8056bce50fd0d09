"""When the requests of an open loop are due."""

from __future__ import annotations

import random
from collections.abc import Iterator


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Seconds since the start of each arrival, for ever: the gaps are exponential, with mean 1 / rate.

    Streams of several processes add up to one of the summed rate, as Poisson processes do.
    """
    chance = random.Random(seed)
    due = 0.0
    while True:
        due += chance.expovariate(rate)
        yield due

"""Texts of which a known share was sent before, for caches of tokens and of answers."""

from __future__ import annotations

import random
from collections.abc import Sequence

POPULAR = 64
"""Number of popular texts, which are sent repeatedly."""
SENT = 1 << 14
"""Texts of a level before they repeat from the first."""


def mixed(texts: Sequence[str], share: float, salt: str, seed: int) -> tuple[str, ...]:
    """Popular texts with this probability, else one that nobody sends a second time.

    Texts of another ``salt`` are all different ones, so that one level finds nothing of the level before.
    """
    chance = random.Random(f"{seed} {salt}")
    popular = [_own(texts[chance.randrange(len(texts))], f"{salt}, {number}") for number in range(POPULAR)]
    return tuple(
        chance.choice(popular)
        if chance.random() < share
        else _own(texts[chance.randrange(len(texts))], f"{salt}; {number}")
        for number in range(SENT)
    )


def _own(text: str, mark: str) -> str:
    """The text with a unique mark at its beginning: its end may be cut off."""
    return f"{mark}: {text}"

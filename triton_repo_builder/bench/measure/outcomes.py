"""Every request that ended, from all client processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from triton_repo_builder.bench.load.messages import OK, Chunk
from triton_repo_builder.bench.measure.window_statistics import Floats, Kinds


class Requests:
    """Everything that ended so far, from all client processes."""

    def __init__(self) -> None:
        self._due: list[Floats] = []
        self._ended: list[Floats] = []
        self._kind: list[Kinds] = []
        self._numbers: dict[str, int] = {"": OK}
        self.examples: dict[str, str] = {}
        self.lag: list[tuple[float, float]] = []

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Take over what the processes recorded; each numbers its kinds of failure itself."""
        for chunk in chunks:
            numbers = np.array([self._numbers.setdefault(k, len(self._numbers)) for k in chunk.kinds])
            self._due.append(np.array(chunk.due))
            self._ended.append(np.array(chunk.ended))
            self._kind.append(numbers[np.array(chunk.kind, dtype=np.int64)])
            for kind, text in chunk.examples.items():
                self.examples.setdefault(kind, text)

    def arrays(self) -> tuple[Floats, Floats, Kinds]:
        """Due, ended, kind."""
        return np.concatenate(self._due), np.concatenate(self._ended), np.concatenate(self._kind)

    def failures(self, kinds: Kinds) -> dict[str, int]:
        """Counts by name."""
        names = {number: name for name, number in self._numbers.items()}
        counts = Counter(int(kind) for kind in kinds if kind != OK)
        return {names[number]: count for number, count in counts.most_common()}

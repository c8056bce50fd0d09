"""Rows of a ragged batch, grouped by length: on a CPU padding costs what real tokens cost.

A model whose config has the parameter ``ragged_filler`` says by it that its ragged inputs are rows, that a
request of several rows ends its shorter ones with that value, and that every row is answered by itself.
Then the rows of one execute may run in any grouping. The C++ backend does not know the parameter and runs
them as one batch, with the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SLACK = 1.3
"""A group may contain up to 30 % padding: more costs more than another run saves (measured on CPUs)."""
MOST = 16384
"""Tokens in a group, padding included: 32 rows of 512. More at once is not faster on a CPU, and takes memory
that ONNX Runtime keeps. A longer row runs alone."""


@dataclass(slots=True)
class Row:
    """One row of one request, its filler cut off."""

    item: int
    arrays: dict[str, Array]
    length: int


def ragged_filler(config: dict[str, Any]) -> int | None:
    """The value that ends short rows, where the model's config names one and all its inputs are ragged."""
    parameter = config.get("parameters", {}).get("ragged_filler")
    ragged = all(entry.get("allow_ragged_batch") for entry in config["input"])
    if parameter is None or not ragged or config.get("batch_output"):
        return None
    return int(parameter["string_value"])


def output_fillers(config: dict[str, Any]) -> dict[str, float]:
    """Outputs whose rows may differ in length, each with what ends the shorter ones of a request."""
    prefix = "ragged_output_filler:"
    return {
        key[len(prefix) :]: float(parameter["string_value"])
        for key, parameter in config.get("parameters", {}).items()
        if key.startswith(prefix)
    }


def rows_of(items: Sequence[dict[str, Array]], source: str, filler: int) -> list[Row]:
    """Every row of every request; ``source`` is the input whose filler counts."""
    rows = []
    for number, arrays in enumerate(items):
        lengths = np.maximum((arrays[source] != filler).sum(axis=1), 1).tolist()
        for row, length in enumerate(lengths):
            cut = {name: array[row, :length] for name, array in arrays.items()}
            rows.append(Row(number, cut, length))
    return rows


def groups(lengths: Sequence[int], slack: float = SLACK) -> list[list[int]]:
    """Indices in groups of similar length: padded to its longest, a group grows by at most ``slack``.

    No group of several has more than ``MOST`` tokens.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    found: list[list[int]] = []
    total = 0
    for index in order:
        longest = lengths[index]
        padded = longest * (len(found[-1]) + 1) if found else 0
        if found and padded <= slack * (total + longest) and padded <= MOST:
            found[-1].append(index)
            total += longest
        else:
            found.append([index])
            total = longest
    return found


def stack(rows: Sequence[Array], filler: float = 0) -> Array:
    """Rows of one output in one array, the shorter ones filled up.

    An answer as long as its row has another size in each group; the C++ backend fills up in the same way.
    """
    if len({row.shape for row in rows}) == 1:
        return np.stack(rows)
    sizes = np.max([row.shape for row in rows], axis=0)
    values = np.full((len(rows), *sizes), filler, rows[0].dtype)
    for number, row in enumerate(rows):
        place = (number, *map(slice, row.shape))
        values[place] = row
    return values

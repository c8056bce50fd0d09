"""Inputs of a request whose rows are strings."""

from __future__ import annotations

from typing import Any

import numpy as np


def column(data: list[bytes]) -> Any:
    """[rows, 1] of bytes; numpy would cut zeros off the ends of files."""
    array = np.empty((len(data), 1), dtype=object)
    array[:, 0] = data
    return array

"""Graphs composed before and after the user's graph, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, kw_only=True)
class Head:
    """The graph after the user's graph: its text (``model/graph/heads/``), the user's tensor bound to each of
    its inputs, and string constants (name, values) that it takes as inputs."""

    text: str
    bind: Mapping[str, str]
    strings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    floats: tuple[tuple[str, tuple[int, ...], bytes], ...] = ()
    """Number constants (name, shape, little-endian float32 in C order), inputs like ``strings``."""
    inputs: tuple[str, ...] = ()
    """Inputs of the head that the served graph takes, besides the user's: int64 [batch, 2]."""
    oldest_opset: int = 11
    """The oldest opset of the user's graph for its operators; CumSum and GatherElements are of 11."""


class Rows(Enum):
    """Which rows of a batch the model sees together."""

    PADDED = "padded"
    """All rows together, padded to the longest."""
    GROUPS = "groups"
    """Rows of similar length together, one group after the other."""
    PACKED = "packed"
    """All rows together, without padding: nodes that treat each token by itself run over all tokens."""
    SINGLE = "single"
    """Each row by itself, never padded: for a model whose answer depends on the other rows or on padding."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """The graph before the user's graph (``model/graph/ragged.py``)."""

    text: str
    """A graph; each of its outputs takes the place of the user's input of that name."""
    group: str = ""
    """If the model runs group by group: the beginning of the loop's body, which makes the user's inputs of
    one group of rows; ``text`` is then the graph before the loop."""
    packed: bool = False
    """Whether the user's graph is rewritten to run without padding (``model/graph/packing/``)."""
    blocks: bool = False
    """Whether attention over long rows runs in blocks of queries (``model/graph/query_blocks.py``)."""
    fill: Mapping[str, float] = field(default_factory=dict)
    """Output → filler of rows that are shorter than another group's; 0 if it is not named."""

"""A row of the table: what is exported of one architecture. Plain data; the config is made in ``export``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEXT = ("base", "classes", "multi", "one", "cross", "nli", "tokens", "span", "mask")

ENCODER = ("base", "classes", "span", "mask")
"""The heads of one more encoder: what else there is depends on the heads alone."""

VISION = ("base", "image classes")

DETECTION = ("objects",)

AREAS = ("areas",)

TOWERS = ("towers",)

SOUNDS = ("sound classes", "speech")

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.2,
}

DECODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "initializer_range": 0.2,
    "max_position_embeddings": 512,
    "use_cache": False,
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One row."""

    name: str
    model_type: str
    """As in config.json; ``export`` asks transformers for that config class."""
    config: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    """The tokenizer; empty for images."""
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    """What its tokenizer_config.json says besides."""
    slow: bool = False
    """Only the files of the slow tokenizer are left beside the model, no tokenizer.json."""
    heads: tuple[str, ...] = TEXT
    inputs: tuple[str, ...] = ()
    """The graph's inputs, where they are not those that optimum gives it."""
    exported_as: str = ""
    """The exporter's task, where it is not that of the head."""
    module: str = ""
    """The class in ``export`` that the model is put in."""
    without_vectors: int = 0
    """Tokens added to the vocabulary that the embedding table has no row for."""
    options: tuple[str, ...] = ()
    """Flags of trb build for each of its cells."""
    by_torch: bool = False
    """Exported by ``torch.onnx.export`` as it is today, attention as the model has it by default."""
    auto: str = ""
    """The transformers class, where none of the Auto classes gives it."""
    processor: str = ""
    """The image processor's class."""
    edges: tuple[int, int] | None = None
    """Its shortest and longest edge, where images keep their shape."""
    processing: Mapping[str, Any] = field(default_factory=dict)
    """What its image processor is made with, in place of the usual size."""

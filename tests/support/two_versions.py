"""Two versions of an endpoint whose tokenizers and weights both differ: a mixture answers as neither."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import tiny
from onnx import numpy_helper


def make(folder: Path) -> tuple[Path, Path]:
    """Exported folders, both called ``sentiment``."""
    one = tiny.classifier(folder / "one" / "sentiment")
    two = tiny.classifier(folder / "two" / "sentiment")
    change_weights(two / "model.onnx")
    reverse_letters(two / "tokenizer.json")
    return one, two


def change_weights(path: Path, names: tuple[str, ...] = ("table", "classifier"), seed: int = 99) -> None:
    """Other weights of the same shapes."""
    model = onnx.load(path)
    for initializer in model.graph.initializer:
        if initializer.name in names:
            values = numpy_helper.to_array(initializer)
            fresh = np.random.default_rng(seed).normal(size=values.shape).astype(values.dtype)
            initializer.CopyFrom(numpy_helper.from_array(fresh, initializer.name))
    path.write_bytes(model.SerializeToString())


def reverse_letters(path: Path) -> None:
    """The same words under other ids."""
    document = json.loads(path.read_text())
    vocabulary = document["model"]["vocab"]
    words = [word for word in vocabulary if word not in tiny.SPECIAL]
    ids = [vocabulary[word] for word in words]
    vocabulary.update(zip(words, reversed(ids), strict=True))
    path.write_text(json.dumps(document))

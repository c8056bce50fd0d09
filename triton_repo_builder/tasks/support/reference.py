"""The arithmetic of the heads in numpy, in double precision: golden cases prove the heads against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Over the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def sigmoid(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of each number."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def activate(logits: npt.NDArray[Any], activation: str) -> npt.NDArray[Any]:
    """``softmax``, ``sigmoid``, ``tanh``, ``relu`` or ``none``."""
    if activation == "softmax":
        return softmax(logits)
    if activation == "sigmoid":
        return sigmoid(logits)
    if activation == "tanh":
        return np.asarray(np.tanh(logits))
    return np.asarray(np.maximum(logits, 0)) if activation == "relu" else logits


def unit_length(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Vectors along the last axis divided by their lengths, as torch.nn.functional.normalize."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))

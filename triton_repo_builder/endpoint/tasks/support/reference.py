"""The arithmetic of the heads in numpy, in double precision: golden cases prove the heads against it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Over the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def sigmoid(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sigmoid of each number."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def activate(logits: npt.NDArray[Any], activation: str) -> npt.NDArray[Any]:
    """By the name of an activation in the heads; ``none`` leaves the numbers."""
    return ACTIVATIONS[activation](logits)


def _gelu(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    erf = np.vectorize(math.erf, otypes=[np.float64])(values / math.sqrt(2))
    return np.asarray(values * (erf + 1) / 2)


def _selu(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    alpha, scale = 1.6732632423543772, 1.0507009873554805  # torch.nn.SELU
    return np.asarray(scale * np.where(values > 0, values, alpha * np.expm1(np.minimum(values, 0))))


ACTIVATIONS: Mapping[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "none": lambda values: values,
    "softmax": softmax,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda values: np.maximum(values, 0),
    "gelu": _gelu,
    "silu": lambda values: values * sigmoid(values),
    "mish": lambda values: values * np.tanh(np.logaddexp(0, values)),
    "leaky_relu": lambda values: np.where(values > 0, values, 0.01 * values),
    "elu": lambda values: np.where(values > 0, values, np.expm1(np.minimum(values, 0))),
    "selu": _selu,
    "softplus": lambda values: np.logaddexp(0, values),
    "softsign": lambda values: values / (1 + np.abs(values)),
}


def unit_length(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Vectors along the last axis divided by their lengths, as torch.nn.functional.normalize."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))

"""The Dense module of sentence-transformers: activation(x @ weightᵀ + bias) after pooling.

Its files: ``config.json`` (in_features, out_features, bias, activation_function) and ``model.safetensors``
(linear.weight [out, in], linear.bias [out]).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder import containment
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.graph.heads.pooling import DenseLayer
from triton_repo_builder.read import tokenizer
from triton_repo_builder.tasks.support import reference

FILE = "model.safetensors"
ACTIVATIONS = {"Identity": "none", "Tanh": "tanh", "ReLU": "relu", "Sigmoid": "sigmoid"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """One layer: ``weight`` [in, out] (transposed, as MatMul takes it), ``bias`` [out]."""

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    activation: str
    folder: Path

    @property
    def layer(self) -> DenseLayer:
        """The layer as the graph's head needs it."""
        return DenseLayer(
            inputs=self.weight.shape[0], outputs=self.weight.shape[1], activation=self.activation
        )

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The layer in numpy, for the golden cases: rows [n, in] → [n, out]."""
        values = rows @ self.weight.astype(np.float64) + self.bias
        return reference.activate(values, self.activation)


def read(folder: Path) -> Dense:
    """The layer in ``folder``. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    config: Mapping[str, Any] = tokenizer.settings(folder, "config.json")
    named = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
    if named not in ACTIVATIONS:
        raise _refused(folder / "config.json", f"the activation {named} of a Dense module is not supported")
    if not containment.within(folder, FILE):
        raise _refused(folder, f"the Dense module has no {FILE}")
    from safetensors.numpy import load_file

    try:
        tensors = load_file(str(folder / FILE))
        weight = tensors["linear.weight"].astype(np.float32).T
        bias = tensors.get("linear.bias", np.zeros(weight.shape[1])).astype(np.float32)
    except Exception as error:  # the Rust library raises plain Exception
        raise _refused(folder / FILE, f"the weights of the Dense module cannot be read: {error}") from None
    return Dense(weight=np.ascontiguousarray(weight), bias=bias, activation=ACTIVATIONS[named], folder=folder)


def _refused(where: Path, message: str) -> TrbError:
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        message,
        where=str(where),
        remedy="save the model again with a current sentence-transformers, or export it with that module "
        "inside the graph (optimum's sentence-transformers export)",
    )

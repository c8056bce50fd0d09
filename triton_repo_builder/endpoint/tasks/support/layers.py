"""The modules of sentence-transformers that come after pooling: Dense, LayerNorm, Normalize.

Dense is activation(x @ weightᵀ + bias). Its files: ``config.json`` (in_features, out_features, bias,
activation_function) and ``model.safetensors`` (linear.weight [out, in], linear.bias [out]). LayerNorm has
norm.weight and norm.bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import containment
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks.support import reference
from triton_repo_builder.model.graph.heads import layers as heads_layers
from triton_repo_builder.model.read import tokenizer

FILE = "model.safetensors"
TORCH = "torch."
"""Other classes are the model's own: sentence-transformers takes Tanh unless it may run them."""
ACTIVATIONS = {
    "Identity": "none",
    "Tanh": "tanh",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "GELU": "gelu",
    "SiLU": "silu",
    "Mish": "mish",
    "LeakyReLU": "leaky_relu",
    "ELU": "elu",
    "SELU": "selu",
    "Softplus": "softplus",
    "Softsign": "softsign",
}
POOLED = "sentence_embedding"
"""The feature that a Dense module reads and writes unless its file says otherwise."""
SAVE = (
    "save the model again with a current sentence-transformers: python -c 'from sentence_transformers import "
    'SentenceTransformer as S; S("FOLDER").save_pretrained("FOLDER")\''
)
INSIDE = (
    "export the model with its modules inside the graph: optimum-cli export onnx --model FOLDER --library "
    "sentence_transformers --task sentence-similarity EXPORTED"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """One layer: ``weight`` [in, out] (transposed, as MatMul takes it), ``bias`` [out]."""

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    activation: str
    folder: Path
    output: str = POOLED

    @property
    def graph(self) -> heads_layers.Layer:
        """The layer as the graph's head needs it."""
        return heads_layers.DenseLayer(
            inputs=self.weight.shape[0], outputs=self.weight.shape[1], activation=self.activation
        )

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The layer in numpy, for the golden cases: rows [n, in] → [n, out]."""
        values = rows @ self.weight.astype(np.float64) + self.bias
        return reference.activate(values, self.activation)


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerNorm:
    """torch.nn.LayerNorm over the values of a row."""

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    folder: Path

    @property
    def graph(self) -> heads_layers.Layer:
        """The layer as the graph's head needs it."""
        return heads_layers.NormLayer(outputs=len(self.weight))

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The layer in numpy: rows [n, width] → [n, width]."""
        centred = rows - rows.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        return np.asarray(centred / deviation * self.weight + self.bias)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitLength:
    """Normalize before another layer."""

    weight: None = None
    bias: None = None

    @property
    def graph(self) -> heads_layers.Layer:
        """The layer as the graph's head needs it."""
        return heads_layers.UnitLayer()

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The layer in numpy."""
        return reference.unit_length(rows)


Layer = Dense | LayerNorm | UnitLength


def floats(layers: Sequence[Layer]) -> tuple[tuple[str, tuple[int, ...], bytes], ...]:
    """(name, shape, content) of the weights, by the names of the head's inputs."""
    return tuple(
        (f"layer_{number}_{name}", tuple(array.shape), array.astype("<f4").tobytes())
        for number, layer in enumerate(layers)
        for name, array in (("weight", layer.weight), ("bias", layer.bias))
        if array is not None
    )


def facts(layers: Sequence[Layer]) -> tuple[tuple[str, Any], ...]:
    """For the manifest: the widths of the Dense modules, and all modules if there are others."""
    dense = [layer.weight.shape[1] for layer in layers if isinstance(layer, Dense)]
    names = [type(layer).__name__ for layer in layers]
    others = len(dense) < len(layers)
    return (*((("dense", dense),) if dense else ()), *((("layers", names),) if others else ()))


def width(layers: Sequence[Layer], before: int) -> int:
    """How many values the last layer gives, of ``before`` that the first one takes. Raises ``TrbError``.

    -1: not known.
    """
    giver = "the vector before it"
    for layer in layers:
        if isinstance(layer, UnitLength):
            continue
        if before not in (-1, layer.weight.shape[0]):
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"the {type(layer).__name__} module takes {layer.weight.shape[0]} values, and {giver} has "
                f"{before}",
                where=str(layer.folder),
                remedy="use the module that was saved with this model",
            )
        before, giver = layer.weight.shape[-1], f"the vector of {layer.folder.name}"
    return before


def read(folder: Path) -> Dense:
    """The Dense layer in ``folder``. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    config: Mapping[str, Any] = tokenizer.settings(folder, "config.json")
    stated = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    named = stated.rsplit(".", 1)[-1]
    if named not in ACTIVATIONS or not stated.startswith(TORCH):
        shown = named if stated.startswith(TORCH) else f"{stated}, which is no class of torch,"
        raise _refused(
            folder / "config.json", f"the activation {shown:.60} of a Dense module is not supported"
        )
    tensors = _weights(folder, "Dense")
    try:
        weight = tensors["linear.weight"].astype(np.float32).T
        bias = tensors.get("linear.bias", np.zeros(weight.shape[1])).astype(np.float32)
    except (LookupError, ValueError) as error:
        raise _unreadable(folder, "Dense", error) from None
    return Dense(
        weight=np.ascontiguousarray(weight),
        bias=bias,
        activation=ACTIVATIONS[named],
        folder=folder,
        output=str(config.get("module_output_name") or POOLED),
    )


def read_norm(folder: Path) -> LayerNorm:
    """The LayerNorm in ``folder``. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    tensors = _weights(folder, "LayerNorm")
    try:
        weight, bias = (tensors[f"norm.{name}"].astype(np.float32) for name in ("weight", "bias"))
    except (LookupError, ValueError) as error:
        raise _unreadable(folder, "LayerNorm", error) from None
    return LayerNorm(weight=weight, bias=bias, folder=folder)


def reads(folder: Path) -> str:
    """The feature that a Dense module reads."""
    return str(tokenizer.settings(folder, "config.json").get("module_input_name") or POOLED)


def _weights(folder: Path, module: str) -> Mapping[str, npt.NDArray[Any]]:
    if not containment.within(folder, FILE):
        raise _refused(folder, f"the {module} module has no {FILE}")
    from safetensors.numpy import load_file

    try:
        tensors: Mapping[str, npt.NDArray[Any]] = load_file(str(folder / FILE))
    except Exception as error:  # the Rust library raises plain Exception
        raise _unreadable(folder, module, error) from None
    return tensors


def _unreadable(folder: Path, module: str, error: Exception) -> TrbError:
    return _refused(folder / FILE, f"the weights of the {module} module cannot be read: {error}")


def _refused(where: Path, message: str) -> TrbError:
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        message,
        where=str(where),
        remedy=f"{SAVE}; or {INSIDE}",
    )

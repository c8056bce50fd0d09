"""What a model file says of itself, as plain values: no ONNX type leaves ``graph/``."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.dtypes import DType

Dim = int | str | None
"""A fixed size, a symbolic name, or unknown."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One input or output. ``shape`` is None where the graph does not state even the rank."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None
    kind: str = "tensor"
    """``tensor``, or ``sequence``, ``map``, ``optional``, which Triton cannot carry."""

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as Triton writes it: -1 for every size that is not fixed."""
        return tuple(dim if isinstance(dim, int) else -1 for dim in self.shape or ())

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name} {self.dtype.name}[{shape}]"


@dataclass(frozen=True, kw_only=True)
class Batchability:
    """Whether requests can be joined along the first axis, and if not, which tensor prevents it."""

    possible: bool
    tensor: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ExternalFile:
    """A file that holds tensor data of the model: ``location`` is relative to the model file."""

    location: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class ModelSignature:
    """What ``trb`` knows of an ONNX model without reading its weights."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    optional_inputs: tuple[TensorSpec, ...]
    """Initializers that are listed as graph inputs and may be overridden."""
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    """(domain, version), the default domain as ``ai.onnx`` first."""
    producer: str
    operators: frozenset[str]
    external: tuple[ExternalFile, ...]
    bytes: int
    """Size of the model file and all its external data."""
    batch: Batchability
    vocabulary: int | None = None
    """Rows of the embedding table that ``input_ids`` indexes, where the graph shows it."""

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        return dict(self.opsets).get("ai.onnx", 0)

    @property
    def quantised(self) -> bool:
        """Whether activations are quantised at run time, so that answers depend on the batch."""
        return bool(self.operators & {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QAttention"})

    def input(self, name: str) -> TensorSpec | None:
        """The input of that name, if there is one."""
        return next((spec for spec in self.inputs if spec.name == name), None)

    def output(self, name: str) -> TensorSpec | None:
        """The output of that name, if there is one."""
        return next((spec for spec in self.outputs if spec.name == name), None)

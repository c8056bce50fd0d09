"""Inputs, outputs and versions of a model file as plain values: no ONNX type leaves ``model/graph/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from triton_repo_builder.base.dtypes import DType

RECIPE, DIFFERENCE = "trb.recipe", "trb.difference"
"""Keys of ``metadata_props`` that ``trb optimize`` writes."""
PER_ROW = "per-row"
"""In a recipe: activations have a scale for each row."""
SCALES_OF_BATCH = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention")
INTEGER = ("MatMulInteger", "ConvInteger")
"""Without a recipe, their scales are unknown."""
STEPS = 0.02
"""How far other kernels move the answers of 8 bits by rounding to the next step, if the file does not say.

Seen: 0.006 between ONNX Runtime 1.28 and 1.31 on one CPU, of all-MiniLM-L6-v2 by ``quantize_dynamic``.
"""

Dim = int | str | None
"""A fixed size, a symbolic name, or unknown."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One input or output. ``shape`` is None if the graph does not state even the rank."""

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
    """Facts about an ONNX model that need no reading of its weights."""

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
    """Rows of the embedding table that ``input_ids`` indexes, if the graph shows it."""
    made_by: Mapping[str, str] = field(default_factory=dict)
    """The operator that computes each output, e.g. ``Softmax``."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """``metadata_props``: the exporter's facts about the model."""
    exact_outputs: bool = False
    """Whether the shapes of the outputs are those that ONNX Runtime has, an unknown one as well."""
    half_precision: bool = False
    """Whether it computes with floats of 16 bits anywhere: its answers move more with the order of a sum."""

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        return dict(self.opsets).get("ai.onnx", 0)

    @property
    def computes_in_integers(self) -> bool:
        """Whether products are of integers."""
        return bool(self.operators & {*SCALES_OF_BATCH, *INTEGER})

    @property
    def quantised(self) -> bool:
        """Whether activations are quantised by the largest number of a batch, which changes answers."""
        integer = () if PER_ROW in self.metadata.get(RECIPE, "") else INTEGER
        return bool(self.operators & {*SCALES_OF_BATCH, *integer})

    @property
    def rounding(self) -> float:
        """How far 8 bits may move its answers: as ``trb optimize`` measured, else ``STEPS``."""
        usual = STEPS if self.computes_in_integers else 0.0
        try:
            stated = float(self.metadata.get(DIFFERENCE, 0))
        except ValueError:
            return usual
        return stated if 0 < stated < 1 else usual

    def input(self, name: str) -> TensorSpec | None:
        """The input of that name, if there is one."""
        return next((spec for spec in self.inputs if spec.name == name), None)

    def output(self, name: str) -> TensorSpec | None:
        """The output of that name, if there is one."""
        return next((spec for spec in self.outputs if spec.name == name), None)


def batchability(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Batchability:
    """Triton batches along a first axis that every input and output must leave open."""
    for role, specs in (("input", inputs), ("output", outputs)):
        for spec in specs:
            reason = ""
            if spec.kind != "tensor":
                reason = f"{role} '{spec.name}' is a {spec.kind}, not a tensor"
            elif spec.shape is None:
                reason = f"the graph does not state the shape of {role} '{spec.name}'"
            elif not spec.shape:
                reason = f"{role} '{spec.name}' is a scalar and has no batch axis"
            elif isinstance(spec.shape[0], int):
                reason = f"the first axis of {role} '{spec.name}' is fixed at {spec.shape[0]}"
            if reason:
                return Batchability(possible=False, tensor=spec.name, reason=reason)
    if not inputs:
        return Batchability(possible=False, reason="the model has no inputs")
    return Batchability(possible=True)


def refine(signature: ModelSignature, shapes: Mapping[str, tuple[Dim, ...]]) -> ModelSignature:
    """The signature with these output sizes, and the graph's own names of those that are not known.

    Triton compares a config's output dims with what ONNX Runtime infers, not with the file.
    """

    def refined(spec: TensorSpec) -> TensorSpec:
        inferred = shapes.get(spec.name)
        if inferred is None:
            return spec
        stated = spec.shape if spec.shape is not None else ()
        named = stated if len(stated) == len(inferred) else (None,) * len(inferred)
        merged = tuple(
            new if isinstance(new, int) or isinstance(old, int) else old or new
            for old, new in zip(named, inferred, strict=True)
        )
        return replace(spec, shape=merged)

    outputs = tuple(refined(spec) for spec in signature.outputs)
    return replace(signature, outputs=outputs, batch=batchability(signature.inputs, outputs))

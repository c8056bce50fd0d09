"""The repository to be made, as frozen values. Pure: standard library only.

Field names are those of Triton's ModelConfig (model_config.proto) if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TensorPlan:
    """One input or output of a config.pbtxt. ``dims`` leave out the batch axis if the model batches."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    label_filename: str = ""
    allow_ragged_batch: bool = False
    optional: bool = False
    """An input that a request may leave out."""


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """An entry of ``optimization.execution_accelerators``; ``field`` is the list that it is in."""

    field: str
    name: str
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchInput:
    """A ``batch_input``: a graph input that Triton derives from the shapes of a batch."""

    kind: str
    target_name: str
    data_type: str
    source_input: str


@dataclass(frozen=True, kw_only=True)
class DynamicBatching:
    """The ``dynamic_batching`` block."""

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    max_queue_size: int = 0
    """Requests that may wait; 0: any number."""
    queue_timeout_microseconds: int = 0
    """How long one may wait before it is refused; 0: for ever."""
    priority_levels: int = 0
    """Levels of requests, the first ahead of the others; 0: all alike."""


@dataclass(frozen=True, kw_only=True)
class InstanceGroup:
    """Number, kind and devices of the instances."""

    count: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class WarmupInput:
    """One input of a warm-up sample: zeros, or the bytes of ``warmup/<input_data_file>``."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    input_data_file: str = ""


@dataclass(frozen=True, kw_only=True)
class EnsembleStep:
    """One step of an ensemble: (the step's tensor, the ensemble's tensor) pairs."""

    model_name: str
    input_map: tuple[tuple[str, str], ...]
    output_map: tuple[tuple[str, str], ...]


def between(name: str, public: Sequence[str]) -> str:
    """An ensemble's name of a tensor between its steps: the steps' own, or a free one if the ensemble has an
    input or output of that name."""
    while name in public:
        name = f"trb_{name}"
    return name


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model directory's config.pbtxt. An ensemble is a model with steps and without backend."""

    name: str
    about: str
    """One line at the head of the file: this model's purpose."""
    max_batch_size: int
    input: tuple[TensorPlan, ...]
    output: tuple[TensorPlan, ...]
    backend: str = ""
    batch_input: tuple[BatchInput, ...] = ()
    dynamic_batching: DynamicBatching | None = None
    instance_group: InstanceGroup | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    warmup: tuple[WarmupInput, ...] = ()
    step: tuple[EnsembleStep, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()
    """(field, why its value was chosen): comments of the file."""
    response_cache: bool = False
    accelerator: Accelerator | None = None
    latency_buckets: tuple[int, ...] = ()
    """Bounds in milliseconds of the server's latency histogram."""


def about_model(*, front: bool, head: bool) -> str:
    """The served graph in words, for ``ModelPlan.about``."""
    parts = " and ".join(name for name, present in (("front", front), ("head", head)) if present)
    return f"The ONNX model, with its {parts} in the graph." if parts else "The ONNX model as it is."


@dataclass(frozen=True, kw_only=True)
class RepositoryPlan:
    """All models of one endpoint: the endpoint itself, its tokenizer, post-processing, and the ONNX model.

    A plain model is only the last of these.
    """

    task: str
    models: tuple[ModelPlan, ...]
    version: int
    notes: tuple[str, ...] = ()
    """Decisions the user should know of: guesses, fallbacks."""
    shared: tuple[str, ...] = ()
    """Models that other endpoints may use, too (``endpoint/render/shared_tokenizer.py``)."""

    @property
    def endpoint(self) -> ModelPlan:
        """The model that clients call."""
        return self.models[0]

    @property
    def network(self) -> ModelPlan:
        """The model that the user's graph runs in."""
        return self.models[-1]

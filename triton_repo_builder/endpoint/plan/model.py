"""The repository to be made, as frozen values. Pure: standard library only.

Field names are those of Triton's ModelConfig (model_config.proto) if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


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
class Step:
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
    """One line at the head of the file: what this model is for."""
    max_batch_size: int
    input: tuple[TensorPlan, ...]
    output: tuple[TensorPlan, ...]
    backend: str = ""
    batch_input: tuple[BatchInput, ...] = ()
    dynamic_batching: DynamicBatching | None = None
    instance_group: InstanceGroup | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    warmup: tuple[WarmupInput, ...] = ()
    step: tuple[Step, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()
    """(field, why its value was chosen): comments of the file."""
    response_cache: bool = False
    accelerator: Accelerator | None = None


def about_model(*, front: bool, head: bool) -> str:
    """The served graph in words, for ``ModelPlan.about``."""
    parts = " and ".join(name for name, present in (("front", front), ("head", head)) if present)
    return f"The ONNX model, with its {parts} in the graph." if parts else "The ONNX model as it is."


def joining(max_batch_size: int) -> DynamicBatching | None:
    """For a Python model, which joins requests of any shape: None if there is nothing to join."""
    return DynamicBatching() if max_batch_size > 1 else None


@dataclass(frozen=True, kw_only=True)
class Head:
    """What is composed after the user's graph: its text (``graph/heads/``), the user's tensor bound to
    each of its inputs, and string constants (name, values) that it takes as inputs."""

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
    """All, padded to the longest."""
    GROUPS = "groups"
    """Those of similar length, one group after the other."""
    PACKED = "packed"
    """All without padding: what treats each token by itself runs over the tokens of all rows."""
    SINGLE = "single"
    """Each by itself and never padded: for a model whose answer depends on the other rows or on padding."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """What is composed before the user's graph (``graph/ragged.py``)."""

    text: str
    """A graph; each of its outputs takes the place of the user's input of that name."""
    group: str = ""
    """If the model runs group by group: the beginning of the loop's body, which makes the user's inputs of
    one group of rows; ``text`` is what comes before the loop then."""
    packed: bool = False
    """Whether the user's graph is rewritten to run without padding (``graph/packing/``)."""
    blocks: bool = False
    """Whether attention over long rows runs in blocks of queries (``graph/query_blocks.py``)."""
    fill: Mapping[str, float] = field(default_factory=dict)
    """Output → what fills up rows that are shorter than those of another group; 0 if it is not named."""


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
    """Models that other endpoints may use, too (``render/shared_tokenizer.py``)."""

    @property
    def endpoint(self) -> ModelPlan:
        """The model that clients call."""
        return self.models[0]

    @property
    def network(self) -> ModelPlan:
        """The model that the user's graph runs in."""
        return self.models[-1]

"""Triton's ModelConfig as typed values, whether from config.pbtxt or from a server's ``/config``.

Field names are those of model_config.proto:
https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

CONFIG = "config.pbtxt"
PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
}
"""The backend of each platform; an ensemble's platform is ``ensemble``, and it has no backend."""


@dataclass(frozen=True, kw_only=True)
class TensorConfig:
    """One ``input`` or ``output``: ``dims`` leave out the batch axis if ``max_batch_size`` is above 0."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    optional: bool = False
    allow_ragged_batch: bool = False
    label_filename: str = ""


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """One step of an ensemble; the keys of both maps are the step's tensors, the values the ensemble's."""

    model_name: str
    model_version: int
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class InstanceGroupConfig:
    """Some instances of a model; ``count`` 0 leaves the number to the backend."""

    name: str
    count: int
    kind: str


@dataclass(frozen=True)
class ModelConfig:
    """A view of one model's configuration; a field that is not set has the proto's default.

    ``raw`` holds the parsed message (``pbtxt.parse``) or the server's JSON, for code that has to walk fields
    which have no property here.
    """

    raw: Mapping[str, Any] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether a top-level field is set; proto3 drops a scalar that is set to its default."""
        return name in self.raw

    @property
    def name(self) -> str:
        return str(self.raw.get("name", ""))

    @property
    def platform(self) -> str:
        return str(self.raw.get("platform", ""))

    @property
    def backend(self) -> str:
        """The ``backend`` field as written."""
        return str(self.raw.get("backend", ""))

    @property
    def runs_on(self) -> str:
        """``onnxruntime``, ``python``, ``ensemble`` …: from ``backend``, else from ``platform``."""
        return self.backend or PLATFORMS.get(self.platform, self.platform)

    @property
    def default_model_filename(self) -> str:
        return str(self.raw.get("default_model_filename", ""))

    @property
    def max_batch_size(self) -> int:
        """0 means that shapes have no implicit batch axis."""
        return int(self.raw.get("max_batch_size") or 0)

    @property
    def inputs(self) -> tuple[TensorConfig, ...]:
        return tuple(_tensor(item) for item in self.messages("input"))

    @property
    def outputs(self) -> tuple[TensorConfig, ...]:
        return tuple(_tensor(item) for item in self.messages("output"))

    @property
    def optional_inputs(self) -> frozenset[str]:
        """Names of the inputs that a request may leave out."""
        return frozenset(item.name for item in self.inputs if item.optional)

    @property
    def steps(self) -> tuple[StepConfig, ...]:
        """The steps of an ensemble; empty for any other model."""
        scheduling = self.raw.get("ensemble_scheduling") or {}
        return tuple(
            StepConfig(
                model_name=str(item.get("model_name", "")),
                model_version=int(item.get("model_version", 0)),
                input_map=item.get("input_map", {}),
                output_map=item.get("output_map", {}),
            )
            for item in scheduling.get("step", ())
        )

    @property
    def parameters(self) -> Mapping[str, str]:
        """The text of each parameter."""
        listed = self.raw.get("parameters") or {}
        return {key: str(value.get("string_value", "")) for key, value in listed.items()}

    @property
    def instance_groups(self) -> tuple[InstanceGroupConfig, ...]:
        return tuple(
            InstanceGroupConfig(
                name=str(item.get("name", "")),
                count=int(item.get("count", 0)),
                kind=str(item.get("kind", "KIND_AUTO")),
            )
            for item in self.messages("instance_group")
        )

    @property
    def dynamic_batching(self) -> Mapping[str, Any] | None:
        """The ``dynamic_batching`` block, or None; an empty block also enables batching."""
        block: Mapping[str, Any] | None = self.raw.get("dynamic_batching")
        return block

    @property
    def decoupled(self) -> bool:
        """Whether one request may get several answers."""
        return bool((self.raw.get("model_transaction_policy") or {}).get("decoupled"))

    @property
    def cached(self) -> bool:
        """Whether the server may answer from its cache of answers."""
        return bool((self.raw.get("response_cache") or {}).get("enable"))

    @property
    def version_policy(self) -> Mapping[str, Any]:
        """The block with one of ``latest``, ``all`` and ``specific``; empty means the latest version."""
        block: Mapping[str, Any] = self.raw.get("version_policy") or {}
        return block

    def check(self) -> None:
        """Raise one of ``files.DAMAGED`` if a property cannot be read: a server's JSON may have any shape."""
        for name, member in vars(type(self)).items():
            if isinstance(member, property):
                getattr(self, name)
        for step in self.steps:
            _ = dict(step.input_map), dict(step.output_map)
        _ = dict(self.dynamic_batching or {})
        self.select(())

    def messages(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """A repeated message field as it is in ``raw``."""
        return tuple(self.raw.get(name) or ())

    def select(self, versions: Iterable[int]) -> tuple[int, ...]:
        """The versions that ``version_policy`` serves, of these, ascending; by default the latest one."""
        available = tuple(sorted(versions))
        policy = self.version_policy
        if "all" in policy:
            return available
        if "specific" in policy:
            listed = [int(version) for version in policy["specific"].get("versions", [])]
            return tuple(version for version in available if version in listed)
        # latest {} means num_versions: 0, and so none.
        count = int(policy["latest"].get("num_versions", 0)) if "latest" in policy else 1
        return available[-count:] if count else ()


def _tensor(item: Mapping[str, Any]) -> TensorConfig:
    return TensorConfig(
        name=str(item.get("name", "")),
        data_type=str(item.get("data_type", "TYPE_INVALID")),
        dims=tuple(int(dim) for dim in item.get("dims", ())),
        optional=bool(item.get("optional")),
        allow_ragged_batch=bool(item.get("allow_ragged_batch")),
        label_filename=str(item.get("label_filename", "")),
    )

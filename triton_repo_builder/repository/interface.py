"""The inputs and outputs of an endpoint as clients see them: one type for all sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.base.dtypes import BY_CONFIG
from triton_repo_builder.repository.config import ModelConfig, TensorConfig


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input or output, with the names and types of the inference protocol and the batch axis."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = field(default=False, compare=False)
    """An input that a request may leave out. Not compared: a server's metadata lacks it."""

    def __str__(self) -> str:
        return f"{self.datatype}{list(self.shape)}"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model that clients call."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int = 0
    """0: requests are not batched and shapes have no batch axis."""
    decoupled: bool = False
    """Whether one request may get several answers, which needs gRPC streaming."""

    @property
    def needed(self) -> tuple[Tensor, ...]:
        """The inputs that every request must have."""
        return tuple(tensor for tensor in self.inputs if not tensor.optional)

    @property
    def optional(self) -> frozenset[str]:
        """Names of the inputs that a request may leave out."""
        return frozenset(tensor.name for tensor in self.inputs if tensor.optional)

    @classmethod
    def of_config(cls, name: str, config: ModelConfig) -> Endpoint:
        """Without inputs or outputs if config.pbtxt leaves them to the server's auto-completion."""
        batched = config.max_batch_size > 0
        return cls(
            name=name,
            inputs=tuple(_of_config(item, batched) for item in config.inputs),
            outputs=tuple(_of_config(item, batched) for item in config.outputs),
            max_batch_size=config.max_batch_size,
            decoupled=config.decoupled,
        )

    @classmethod
    def of_manifest(cls, name: str, entry: Mapping[str, Any]) -> Endpoint:
        """From an endpoint's entry. Raises KeyError, TypeError or ValueError if the entry is damaged."""
        return cls(
            name=name,
            inputs=_tensors(entry["inputs"]),
            outputs=_tensors(entry["outputs"]),
            max_batch_size=int(entry["max_batch_size"]),
        )

    @classmethod
    def of_server(
        cls, metadata: Mapping[str, Any], config: ModelConfig | None = None, name: str = ""
    ) -> Endpoint:
        """From ``GET /v2/models/NAME`` and ``/config``, or the same two calls over gRPC."""
        settings = config or ModelConfig()
        return cls(
            name=name or str(metadata["name"]),
            inputs=_tensors(metadata.get("inputs", ()), settings.optional_inputs),
            outputs=_tensors(metadata.get("outputs", ())),
            max_batch_size=settings.max_batch_size,
            decoupled=settings.decoupled,
        )

    def to_manifest(self) -> dict[str, Any]:
        """The endpoint as an entry of the manifest, for ``of_manifest``."""
        return {
            "max_batch_size": self.max_batch_size,
            "inputs": [_to_json(tensor) for tensor in self.inputs],
            "outputs": [_to_json(tensor) for tensor in self.outputs],
        }


def wire_type(data_type: str) -> str:
    """The protocol's name of a configuration's data type: ``FP32`` for ``TYPE_FP32``."""
    row = BY_CONFIG.get(data_type)
    return row.wire if row else data_type.removeprefix("TYPE_")


def _of_config(item: TensorConfig, batched: bool) -> Tensor:
    shape = (-1, *item.dims) if batched else item.dims
    return Tensor(name=item.name, datatype=wire_type(item.data_type), shape=shape, optional=item.optional)


def _tensors(
    listed: Iterable[Mapping[str, Any]], optional: frozenset[str] = frozenset()
) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            name=str(item["name"]),
            datatype=str(item["datatype"]),
            # gRPC, and some servers over HTTP, write integers as strings.
            shape=tuple(int(dim) for dim in item.get("shape", ())),
            optional=bool(item.get("optional")) or item["name"] in optional,
        )
        for item in listed
    )


def _to_json(tensor: Tensor) -> dict[str, Any]:
    stated = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    return {**stated, "optional": True} if tensor.optional else stated

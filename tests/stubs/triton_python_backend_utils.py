"""Typed stand-in for the module that Triton's Python backend gives to models: for mypy and pytest only.

It holds the part of the 24.10 interface that ``triton_repo_builder/runtime`` uses, with the behaviour
that a model can observe: errors by value, tensors of numpy, requested outputs.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}


class TritonModelException(Exception):
    """What the backend's own functions raise."""


class TritonError:
    """The error of one response; not an exception."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = message
        self._code = code

    def code(self) -> int:
        return self._code

    def message(self) -> str:
        return self._message


class Tensor:
    """A named array."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._name = name
        self._array = array if array.dtype == np.object_ else np.ascontiguousarray(array).reshape(array.shape)

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._array

    def is_cpu(self) -> bool:
        return True

    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)


TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_MEMORY_CPU = 0


class PreferredMemory:
    """Where the answers of another model are wanted."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None: ...


class InferenceResponseSender:
    """Where a decoupled model's answers go; tests read ``sent``."""

    def __init__(self) -> None:
        self.sent: list[InferenceResponse] = []

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if response is not None:
            self.sent.append(response)


class InferenceRequest:
    """One request; tests build it as the server would, models as one to another model.

    Tests set ``server``, which answers the latter.
    """

    server: ClassVar[Callable[[InferenceRequest], InferenceResponse]]

    def __init__(
        self,
        inputs: Sequence[Tensor],
        requested_output_names: Sequence[str] = (),
        request_id: str = "",
        correlation_id: int = 0,
        parameters: str | Mapping[str, str | int | bool] = "{}",
        model_name: str = "",
        model_version: int = -1,
        preferred_memory: PreferredMemory | None = None,
    ) -> None:
        self.model = (model_name, model_version)
        self._inputs = list(inputs)
        self._requested = set(requested_output_names)
        self._id = request_id
        self._correlation_id = correlation_id
        self._sender = InferenceResponseSender()
        self._parameters = parameters if isinstance(parameters, str) else json.dumps(parameters)

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def requested_output_names(self) -> set[str]:
        return self._requested

    def request_id(self) -> str:
        return self._id

    def correlation_id(self) -> int:
        return self._correlation_id

    def parameters(self) -> str:
        return self._parameters

    def get_response_sender(self) -> InferenceResponseSender:
        return self._sender

    def is_cancelled(self) -> bool:
        return False

    def exec(self) -> InferenceResponse:
        return type(self).server(self)


class InferenceResponse:
    """Either tensors or an error."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self._tensors = list(output_tensors)
        self._error = error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class Logger:
    """Lines in the server's log."""

    @staticmethod
    def log_info(message: str) -> None: ...

    @staticmethod
    def log_warn(message: str) -> None: ...

    @staticmethod
    def log_error(message: str) -> None: ...

    @staticmethod
    def log_verbose(message: str) -> None: ...


class ModelConfig:
    """What ``auto_complete_config`` is given."""

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """The configuration itself, not a copy."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        if self._model_config["max_batch_size"] > max_batch_size:
            raise ValueError("configuration specified a larger max_batch_size")
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        self._model_config["input"].append(input)

    def add_output(self, output: dict[str, Any]) -> None:
        self._model_config["output"].append(output)


def _by_name(entries: Sequence[Any], name: str) -> Any:
    return next((entry for entry in entries if entry.name() == name), None)


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input of that name, or None."""
    found: Tensor | None = _by_name(inference_request.inputs(), name)
    return found


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output of that name, or None."""
    found: Tensor | None = _by_name(inference_response.output_tensors(), name)
    return found


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The properties of an input in the configuration, or None."""
    return next((entry for entry in model_config.get("input", ()) if entry["name"] == name), None)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The properties of an output in the configuration, or None."""
    return next((entry for entry in model_config.get("output", ()) if entry["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether the model may answer a request any number of times."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """``TYPE_FP32`` → ``numpy.float32``."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


class Metric:
    """One counter or gauge; tests read ``total``."""

    def __init__(self, family: MetricFamily) -> None:
        self.total = 0.0
        self.family = weakref.ref(family)

    def increment(self, value: float) -> None:
        if self.family() is None:
            raise TritonModelException("the corresponding 'MetricFamily' has been deleted")
        if value < 0:
            raise TritonModelException("TRITONSERVER_METRIC_KIND_COUNTER can only be incremented")
        self.total += value

    def set(self, value: float) -> None:
        self.total = value


class MetricFamily:
    """Metrics of one name; tests read ``page``, and set ``enabled`` to what --allow-metrics says."""

    COUNTER = 0
    GAUGE = 1
    enabled: ClassVar = True
    made: ClassVar[dict[tuple[str, tuple[tuple[str, str], ...]], Metric]] = {}

    def __init__(self, name: str, description: str, kind: int) -> None:
        if not self.enabled:
            raise TritonModelException("metrics are not enabled")
        self.name = name

    def Metric(self, labels: Mapping[str, str]) -> Metric:
        metric = self.made.setdefault((self.name, tuple(sorted(labels.items()))), Metric(self))
        metric.family = weakref.ref(self)  # as the server counts the families of one name
        return metric

    @classmethod
    def page(cls, **common: str) -> dict[str, float]:
        """The values by series, as ``name{label="value"}``; without the labels that all have in common."""
        values = {}
        for (name, labels), metric in cls.made.items():
            assert common.items() <= dict(labels).items()
            rest = ",".join(f'{key}="{value}"' for key, value in labels if key not in common)
            values[f"{name}{{{rest}}}" if rest else name] = metric.total
        return values

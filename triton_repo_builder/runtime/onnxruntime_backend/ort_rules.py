"""The load rules of Triton's C++ onnxruntime backend, in its words: for ``trb check`` and our backend.

Each function takes plain values and returns the server's message if the rule is broken, else an empty text.
Standard library only: the server's Python imports this module by its plain name, ``trb check`` as part of the
package. Source: ModelInstanceState::ValidateInputs and ValidateOutputs, CompareDimsSupported, in
https://github.com/triton-inference-server/onnxruntime_backend/tree/main/src
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

DEFAULT_MAX_BATCH_SIZE = 4
"""``default-max-batch-size``, set if the backend completes a configuration by itself."""


def is_complete(config: Mapping[str, Any]) -> bool:
    """Whether nothing in a configuration needs to be filled in; then the graph is not opened."""
    return bool((config["input"] or config.get("batch_input")) and config["output"])


def shape_text(dims: Iterable[int]) -> str:
    """``[-1,4]``."""
    return "[" + ",".join(map(str, dims)) + "]"


def kind(name: str, onnx_type: str) -> str:
    """``onnx_type``: TENSOR, SEQUENCE, MAP, OPAQUE, SPARSETENSOR."""
    if onnx_type == "TENSOR":
        return ""
    return f"Unsupported ONNX Type 'ONNX_TYPE_{onnx_type}' for I/O '{name}', expected 'ONNX_TYPE_TENSOR'."


def autofill(model: str, *, batchable: bool, max_batch_size: int) -> str:
    """A configuration that the backend completes."""
    if batchable or not max_batch_size:
        return ""
    return (
        f"autofill failed for model '{model}': model does not support batching while non-zero "
        "max_batch_size is specified"
    )


def input_count(model: str, configured: int, provided: int) -> str:
    """Inputs of the configuration without optional ones, and of the graph without initializers."""
    if configured == provided:
        return ""
    return (
        f"unable to load model '{model}', configuration expects {configured} inputs, "
        f"model provides {provided}"
    )


def control_name(name: str) -> str:
    """A sequence control that the graph has no input for."""
    return f"configuration specified sequence control '{name}', but model does not provide that input"


def control_dims(model: str, name: str, graph: Sequence[int], *, batching: bool) -> str:
    """``graph``: the shape of a sequence control, with the batch axis."""
    dims = tuple(graph)[1 if batching else 0 :]
    if dims == (1,):
        return ""
    return (
        f"unable to load model '{model}', sequence control '{name}' in model has dims {shape_text(dims)} "
        "but dims [1] is expected"
    )


_CONTROL_TYPES = {
    "int32_false_true": "TYPE_INT32",
    "fp32_false_true": "TYPE_FP32",
    "bool_false_true": "TYPE_BOOL",
}


def control_type(model: str, name: str, control: Mapping[str, Any], provided: str) -> str:
    """One ``control`` of a sequence control against the type of the graph's input."""
    configured = str(control.get("data_type", ""))
    if control.get("kind") != "CONTROL_SEQUENCE_CORRID":
        configured = next((kind for field, kind in _CONTROL_TYPES.items() if control.get(field)), "")
    if configured == provided or not configured:
        return ""
    return (
        f"unable to load model '{model}', sequence control '{name}', the model expects data-type "
        f"{provided or 'TYPE_<invalid>'} but the model configuration specifies data-type {configured}"
    )


def optional(model: str, name: str, *, batching: bool) -> str:
    """An optional input."""
    if not batching:
        return ""
    return (
        f"unable to load model '{model}', optional input '{name}' is not supported for models "
        "that support batching"
    )


def name(role: str, name: str, allowed: Collection[str]) -> str:
    """``role``: input or output; ``allowed``: the graph's names."""
    if name in allowed:
        return ""
    return f"unexpected inference {role} '{name}', allowed {role}s are: {', '.join(sorted(allowed))}"


def datatype(model: str, role: str, name: str, configured: str, provided: str) -> str:
    """``TYPE_FP32`` and the like; ``provided`` is empty if Triton has no such type."""
    if configured == provided:
        return ""
    return (
        f"unable to load model '{model}', configuration expects datatype {configured} for {role} '{name}', "
        f"model provides {provided or 'TYPE_<invalid>'}"
    )


def unsupported_datatype(model: str, role: str, name: str, datatype: str) -> str:
    """The message for a type that the backend does not know."""
    return f"unsupported datatype {datatype} for {role} '{name}' for model '{model}'"


def ragged(model: str, name: str, graph: Sequence[int], *, optional: bool = False) -> str:
    """An input with ``allow_ragged_batch``."""
    start = f"unable to load model '{model}', configuration expects model provides input with shape [-1] "
    if optional:
        return f"{start}for ragged input '{name}', which is not supported for optional input"
    if tuple(graph) != (-1,):
        return f"{start} for ragged input '{name}', model provides {shape_text(graph)}"
    return ""


def scalar(model: str, name: str, dims: Sequence[int], shown: Sequence[int]) -> str:
    """``dims`` of a tensor that is a scalar in the graph; ``shown`` are those in the message."""
    if all(dim == 1 for dim in dims):
        return ""
    return (
        f"unable to load model '{model}', scalar tensor '{name}', should only provide 1 in the "
        "model configuration when the model doesn't support batching. Model configuration provided: "
        f"{shape_text(shown)}."
    )


def batch_axis(model: str, name: str, graph: Sequence[int], *, batching: bool) -> str:
    """The first axis of a tensor that is not a scalar."""
    if not batching or graph[0] == -1:
        return ""
    return (
        f"model '{model}', tensor '{name}': for the model to support batching the shape should have at least "
        f"1 dimension and the first dimension must be -1; but shape expected by the model is "
        f"{shape_text(graph)}"
    )


def dims(
    model: str, name: str, graph: Sequence[int], configured: Sequence[int], *, batching: bool, exact: bool
) -> str:
    """``configured``: the dims or their reshape, without the batch axis.

    Inputs may be narrower than the graph; outputs are ``exact``: they must equal it.
    """
    full = [-1, *configured] if batching else list(configured)
    if fits(graph, full, exact=exact):
        return ""
    shape = f"shape {shape_text(full)}"
    if batching:
        shape = (
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
            f"making complete shape {shape_text(full)}"
        )
    return (
        f"model '{model}', tensor '{name}': the model expects {len(graph)} dimensions (shape "
        f"{shape_text(graph)}) but the model configuration specifies {len(full)} dimensions ({shape})"
    )


def fits(graph: Sequence[int], configured: Sequence[int], *, exact: bool) -> bool:
    """Whether a full shape is the graph's, or, if not ``exact``, fixes axes that the graph leaves open."""
    return len(graph) == len(configured) and all(
        size == own or (own == -1 and not exact) for own, size in zip(graph, configured, strict=True)
    )

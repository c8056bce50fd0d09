"""The graph against config.pbtxt: what the C++ backend refuses at load time, in its order and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import INTERNAL, UNSUPPORTED, Refused
    from triton_repo_builder.runtime.onnxruntime_backend.ort_graph import (
        TYPES,
        TensorInfo,
        shape_text,
        tensor_infos,
    )
else:
    from ort_errors import INTERNAL, UNSUPPORTED, Refused
    from ort_graph import TYPES, TensorInfo, shape_text, tensor_infos

_CONTROLS = {
    "CONTROL_SEQUENCE_START",
    "CONTROL_SEQUENCE_END",
    "CONTROL_SEQUENCE_READY",
    "CONTROL_SEQUENCE_CORRID",
}


def check(config: dict[str, Any], session: ort.InferenceSession) -> None:
    """Raise ``Refused`` where the configuration does not fit the graph."""
    _check_inputs(config, session)
    _check_outputs(config, session)


def dims_of(entry: dict[str, Any]) -> list[int]:
    """What the graph is compared with: the reshape where there is one, else the dims."""
    dims = entry["reshape"].get("shape", []) if entry.get("reshape") is not None else entry["dims"]
    return [int(dim) for dim in dims]


def _check_inputs(config: dict[str, Any], session: ort.InferenceSession) -> None:
    model, batch_size = config["name"], config["max_batch_size"]
    infos = tensor_infos(session.get_inputs())
    optional = tensor_infos(session.get_overridable_initializers())
    expected = sum(not entry.get("optional") for entry in config["input"])
    expected += len(config.get("batch_input") or []) + _sequence_inputs(config, infos)
    if expected != len(infos):
        raise Refused(
            f"unable to load model '{model}', configuration expects {expected} inputs, "
            f"model provides {len(infos)}"
        )
    infos |= optional
    for entry in config["input"]:
        name = entry["name"]
        if entry.get("optional") and batch_size:
            raise Refused(
                f"unable to load model '{model}', optional input '{name}' is not supported for models "
                "that support batching"
            )
        info = _named(entry, infos, "input")
        _check_type(model, entry, info, "input")
        if entry.get("allow_ragged_batch"):
            _check_ragged(model, entry, info)
        else:
            _check_dims(model, info, dims_of(entry), batch_size, exact=False)


def _check_outputs(config: dict[str, Any], session: ort.InferenceSession) -> None:
    infos = tensor_infos(session.get_outputs())
    scattered = {name for entry in config.get("batch_output") or [] for name in entry["target_name"]}
    for entry in config["output"]:
        info = _named(entry, infos, "output")
        _check_type(config["name"], entry, info, "output")
        if entry["name"] not in scattered:
            _check_dims(config["name"], info, dims_of(entry), config["max_batch_size"], exact=True)


def _named(entry: dict[str, Any], infos: dict[str, TensorInfo], side: str) -> TensorInfo:
    try:
        return infos[entry["name"]]
    except KeyError:
        allowed = ", ".join(sorted(infos))
        raise Refused(
            f"unexpected inference {side} '{entry['name']}', allowed {side}s are: {allowed}"
        ) from None


def _check_type(model: str, entry: dict[str, Any], info: TensorInfo, side: str) -> None:
    given = entry["data_type"]
    if given not in TYPES.values():
        raise Refused(f"unsupported datatype {given} for {side} '{info.name}' for model '{model}'", INTERNAL)
    if given != info.type:
        raise Refused(
            f"unable to load model '{model}', configuration expects datatype {given} for {side} "
            f"'{info.name}', model provides {info.type or 'TYPE_<invalid>'}"
        )


def _check_ragged(model: str, entry: dict[str, Any], info: TensorInfo) -> None:
    start = f"unable to load model '{model}', configuration expects model provides input with shape [-1] "
    if entry.get("optional"):
        raise Refused(f"{start}for ragged input '{info.name}', which is not supported for optional input")
    if info.dims != (-1,):
        raise Refused(f"{start} for ragged input '{info.name}', model provides {shape_text(info.dims)}")


def _check_dims(model: str, info: TensorInfo, dims: Sequence[int], batch_size: int, *, exact: bool) -> None:
    if not info.dims:
        if any(dim != 1 for dim in dims):
            raise Refused(
                f"unable to load model '{model}', scalar tensor '{info.name}', should only provide 1 in the "
                "model configuration when the model doesn't support batching. Model configuration provided: "
                f"{shape_text(dims)}."
            )
        return
    start = f"model '{model}', tensor '{info.name}': "
    graph = shape_text(info.dims)
    if batch_size > 0 and info.dims[0] != -1:
        raise Refused(
            f"{start}for the model to support batching the shape should have at least 1 dimension and the "
            f"first dimension must be -1; but shape expected by the model is {graph}"
        )
    full = [-1, *dims] if batch_size > 0 else dims
    if _fits(info.dims, full, exact):
        return
    shape = f"shape {shape_text(dims)}"
    if batch_size > 0:
        shape = (
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
            f"making complete shape {shape_text(full)}"
        )
    raise Refused(
        f"{start}the model expects {len(info.dims)} dimensions (shape {graph}) but the model configuration "
        f"specifies {len(full)} dimensions ({shape})"
    )


def _fits(graph: Sequence[int], given: Sequence[int], exact: bool) -> bool:
    """Inputs may narrow a dimension that the graph leaves open; outputs may not."""
    return len(graph) == len(given) and all(
        want == have or (want == -1 and not exact) for want, have in zip(graph, given, strict=True)
    )


def _sequence_inputs(config: dict[str, Any], infos: dict[str, TensorInfo]) -> int:
    """How many graph inputs the sequence batcher fills in; states need the C++ backend."""
    sequence = config.get("sequence_batching") or {}
    if sequence.get("state"):
        raise Refused(
            f"unable to load model '{config['name']}', sequence batching with 'state' needs the C++ "
            "onnxruntime backend: serve it with Docker",
            UNSUPPORTED,
        )
    names = list(_controls(sequence.get("control_input") or []))
    for name in names:
        if name not in infos:
            raise Refused(
                f"configuration specified sequence control '{name}', but model does not provide that input",
                INTERNAL,
            )
        dims = infos[name].dims[1 if config["max_batch_size"] > 0 else 0 :]
        if dims != (1,):
            raise Refused(
                f"unable to load model '{config['name']}', sequence control '{name}' in model has dims "
                f"{shape_text(dims)} but dims [1] is expected"
            )
    return len(names)


def _controls(entries: Iterable[dict[str, Any]]) -> Iterable[str]:
    for entry in entries:
        for control in entry.get("control") or []:
            if control.get("kind", "CONTROL_SEQUENCE_START") in _CONTROLS:
                yield entry["name"]

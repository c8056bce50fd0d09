"""Compare an open session with the configuration, in the order of the C++ backend; rules in ort_rules.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend import ort_rules
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import INTERNAL, UNSUPPORTED, Refused
    from triton_repo_builder.runtime.onnxruntime_backend.ort_graph import TYPES, TensorInfo, tensor_infos
else:
    import ort_rules
    from ort_errors import INTERNAL, UNSUPPORTED, Refused
    from ort_graph import TYPES, TensorInfo, tensor_infos

_CONTROLS = {
    "CONTROL_SEQUENCE_START",
    "CONTROL_SEQUENCE_END",
    "CONTROL_SEQUENCE_READY",
    "CONTROL_SEQUENCE_CORRID",
}


def check(
    config: dict[str, Any], session: ort.InferenceSession, older: Iterable[ort.InferenceSession] = ()
) -> None:
    """Raise ``Refused`` if the configuration does not fit the graph.

    ``older``: sessions with the outputs of older ONNX Runtimes, one of which they may fit instead.
    """
    _check_inputs(config, session)
    try:
        _check_outputs(config, session)
    except Refused:
        if not any(_outputs_fit(config, other) for other in older):
            raise


def dims_of(entry: dict[str, Any]) -> list[int]:
    """The shape that is compared with the graph: the reshape if there is one, else the dims."""
    dims = entry["reshape"].get("shape", []) if entry.get("reshape") is not None else entry["dims"]
    return [int(dim) for dim in dims]


def _check_inputs(config: dict[str, Any], session: ort.InferenceSession) -> None:
    model, batching = config["name"], config["max_batch_size"] > 0
    infos = tensor_infos(session.get_inputs())
    optional = tensor_infos(session.get_overridable_initializers())
    expected = sum(not entry.get("optional") for entry in config["input"])
    expected += len(config.get("batch_input") or []) + _sequence_inputs(config, infos)
    _refuse(ort_rules.input_count(model, expected, len(infos)))
    infos |= optional
    for entry in config["input"]:
        name = entry["name"]
        if entry.get("optional"):
            _refuse(ort_rules.optional(model, name, batching=batching))
        _refuse(ort_rules.name("input", name, infos))
        _check_type(model, entry, infos[name], "input")
        if entry.get("allow_ragged_batch"):
            _refuse(ort_rules.ragged(model, name, infos[name].dims, optional=bool(entry.get("optional"))))
        else:
            _check_dims(model, infos[name], dims_of(entry), batching=batching, exact=False)


def _check_outputs(config: dict[str, Any], session: ort.InferenceSession) -> None:
    model, batching = config["name"], config["max_batch_size"] > 0
    infos = tensor_infos(session.get_outputs())
    scattered = {name for entry in config.get("batch_output") or [] for name in entry["target_name"]}
    for entry in config["output"]:
        name = entry["name"]
        _refuse(ort_rules.name("output", name, infos))
        _check_type(model, entry, infos[name], "output")
        if name not in scattered:
            _check_dims(model, infos[name], dims_of(entry), batching=batching, exact=True)


def _outputs_fit(config: dict[str, Any], session: ort.InferenceSession) -> bool:
    try:
        _check_outputs(config, session)
    except Refused:
        return False
    return True


def _refuse(message: str) -> None:
    if message:
        raise Refused(message)


def _check_type(model: str, entry: dict[str, Any], info: TensorInfo, role: str) -> None:
    configured = entry["data_type"]
    if configured not in TYPES.values():
        raise Refused(ort_rules.unsupported_datatype(model, role, info.name, configured), INTERNAL)
    _refuse(ort_rules.datatype(model, role, info.name, configured, info.type))


def _check_dims(model: str, info: TensorInfo, dims: Sequence[int], *, batching: bool, exact: bool) -> None:
    if not info.dims:
        _refuse(ort_rules.scalar(model, info.name, dims, dims))
        return
    _refuse(ort_rules.batch_axis(model, info.name, info.dims, batching=batching))
    _refuse(ort_rules.dims(model, info.name, info.dims, dims, batching=batching, exact=exact))


def _sequence_inputs(config: dict[str, Any], infos: dict[str, TensorInfo]) -> int:
    """Number of graph inputs that the sequence batcher fills in; states need the C++ backend."""
    sequence = config.get("sequence_batching") or {}
    if sequence.get("state"):
        raise Refused(
            f"unable to load model '{config['name']}', sequence batching with 'state' needs the C++ "
            "onnxruntime backend: serve it with Docker",
            UNSUPPORTED,
        )
    controls = list(_controls(sequence.get("control_input") or []))
    for name, control in controls:
        if name not in infos:
            raise Refused(ort_rules.control_name(name), INTERNAL)
        batching = config["max_batch_size"] > 0
        _refuse(ort_rules.control_dims(config["name"], name, infos[name].dims, batching=batching))
        _refuse(ort_rules.control_type(config["name"], name, control, infos[name].type))
    return len(controls)


def _controls(entries: Iterable[dict[str, Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
    for entry in entries:
        for control in entry.get("control") or []:
            if control.get("kind", "CONTROL_SEQUENCE_START") in _CONTROLS:
                yield entry["name"], control

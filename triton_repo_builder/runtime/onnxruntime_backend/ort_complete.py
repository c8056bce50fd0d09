"""Complete a configuration without inputs or outputs as the C++ backend does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend import ort_rules
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import Refused
    from triton_repo_builder.runtime.onnxruntime_backend.ort_graph import TensorInfo, tensor_infos
else:
    import ort_rules
    from ort_errors import Refused
    from ort_graph import TensorInfo, tensor_infos


def complete(config: dict[str, Any], session: ort.InferenceSession) -> str:
    """Change ``config`` in place; returns a line for the log, or an empty text."""
    inputs = tensor_infos(session.get_inputs())
    outputs = tensor_infos(session.get_outputs())
    note = _complete_batching(config, [*inputs.values(), *outputs.values()])
    batching = config["max_batch_size"] > 0
    if not config["input"] and not config.get("batch_input"):
        config["input"] = [_entry(info, batching) for info in inputs.values()]
    if not config["output"]:
        config["output"] = [_entry(info, batching) for info in outputs.values()]
    return note


def _complete_batching(config: dict[str, Any], infos: Iterable[TensorInfo]) -> str:
    name, note = config["name"], ""
    batchable = all(info.dims[:1] == (-1,) for info in infos)
    if message := ort_rules.autofill(name, batchable=batchable, max_batch_size=config["max_batch_size"]):
        raise Refused(message)
    if not batchable:
        return note
    if config["max_batch_size"] == 0:
        config["max_batch_size"] = ort_rules.DEFAULT_MAX_BATCH_SIZE
        note = (
            f"autofilled max_batch_size to {ort_rules.DEFAULT_MAX_BATCH_SIZE} for model '{name}' since "
            "batching is supported but no max_batch_size is specified in model configuration. Must specify "
            "max_batch_size to utilize autofill with a larger max batch size"
        )
    if config["max_batch_size"] > 1 and "sequence_batching" not in config:
        config.setdefault("dynamic_batching", {"preferred_batch_size": [config["max_batch_size"]]})
    return note


def _entry(info: TensorInfo, batching: bool) -> dict[str, Any]:
    dims = list(info.dims[1:] if batching else info.dims)
    entry: dict[str, Any] = {"name": info.name, "data_type": info.type or "TYPE_INVALID", "dims": dims or [1]}
    if batching and not dims:
        # A row that is a scalar: Triton has no empty dims.
        entry["reshape"] = {"shape": []}
    return entry

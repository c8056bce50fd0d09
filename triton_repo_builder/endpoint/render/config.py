"""Plan → text of config.pbtxt: Triton's own message, printed field by field, with the reasons as comments."""

from __future__ import annotations

from typing import Any

from triton_repo_builder.endpoint.plan.model import ModelPlan, TensorPlan
from triton_repo_builder.repository import pbtxt

COMMENTS = {
    "batch_input": "Requests of any length make one batch: tokens concatenated, separated by these lengths.",
    "model_metrics": "Takes effect on a server started with --metrics-config=histogram_latencies=true.",
    "response_cache": "Takes effect on a server started with --cache-config.",
    "ensemble_scheduling": "key: the step's own tensor name; value: its name in this ensemble.",
}
LATENCY = "nv_inference_first_response_histogram_ms"
REASON_OF = {"instance_group": "instances", "dynamic_batching": "batching"}
"""The option whose reason explains a field; for others it has the field's own name."""


def config(model: ModelPlan) -> str:
    """The config.pbtxt of one model."""
    lines = [f"# {model.about}", "# Written by trb. After an edit, run 'trb check'."]
    explained = set()
    for name, text in pbtxt.elements(as_config(model)):
        if name not in explained:
            lines += [f"# {comment}" for comment in _comments(model, name)]
            explained.add(name)
        lines.append(text)
    return "\n".join(lines) + "\n"


def _comments(model: ModelPlan, name: str) -> list[str]:
    named = {REASON_OF.get(name, name)}
    if name == "max_batch_size" and model.max_batch_size > 1 and model.dynamic_batching is None:
        named.add("batching")  # there is no field that could have the reason
    reasons = [reason for field, reason in model.reasons if field in named]
    return [*([COMMENTS[name]] if name in COMMENTS else []), *reasons]


def as_config(model: ModelPlan) -> dict[str, Any]:
    """The plan in the names of model_config.proto, in the order of the file."""
    fields: dict[str, Any] = {
        "name": model.name,
        **({"platform": "ensemble"} if model.step else {"backend": model.backend}),
        "max_batch_size": model.max_batch_size,
        "input": [_tensor(tensor) for tensor in model.input],
        "output": [_tensor(tensor) for tensor in model.output],
        "batch_input": [
            {
                "kind": item.kind,
                "target_name": [item.target_name],
                "data_type": item.data_type,
                "source_input": [item.source_input],
            }
            for item in model.batch_input
        ],
    }
    if model.instance_group:
        group = model.instance_group
        fields["instance_group"] = [{"count": group.count, "kind": group.kind}]
    if model.dynamic_batching:
        batching = model.dynamic_batching
        fields["dynamic_batching"] = {
            "preferred_batch_size": list(batching.preferred_batch_size),
            "max_queue_delay_microseconds": batching.max_queue_delay_microseconds,
        }
        if batching.priority_levels:
            fields["dynamic_batching"]["priority_levels"] = batching.priority_levels
            fields["dynamic_batching"]["default_priority_level"] = batching.priority_levels
        if batching.max_queue_size or batching.queue_timeout_microseconds:
            # A request that waited too long is refused by default (timeout_action REJECT).
            fields["dynamic_batching"]["default_queue_policy"] = {
                "default_timeout_microseconds": batching.queue_timeout_microseconds,
                "max_queue_size": batching.max_queue_size,
            }
    if model.accelerator:
        entry = {"name": model.accelerator.name, "parameters": dict(model.accelerator.parameters)}
        fields["optimization"] = {"execution_accelerators": {model.accelerator.field: [entry]}}
    if model.response_cache:
        fields["response_cache"] = {"enable": True}
    if model.latency_buckets:
        control = {
            "metric_identifier": {"family": LATENCY},
            "histogram_options": {"buckets": list(model.latency_buckets)},
        }
        fields["model_metrics"] = {"metric_control": [control]}
    fields["parameters"] = {key: {"string_value": value} for key, value in model.parameters}
    if model.warmup:
        fields["model_warmup"] = [_warmup(model)]
    if model.step:
        fields["ensemble_scheduling"] = {
            "step": [
                {
                    "model_name": step.model_name,
                    "model_version": -1,
                    "input_map": dict(step.input_map),
                    "output_map": dict(step.output_map),
                }
                for step in model.step
            ]
        }
    return fields


def _tensor(tensor: TensorPlan) -> dict[str, Any]:
    rare = {  # inputs have no labels, and outputs none of the others
        "label_filename": tensor.label_filename,
        "allow_ragged_batch": tensor.allow_ragged_batch,
        "optional": tensor.optional,
    }
    return {
        "name": tensor.name,
        "data_type": tensor.data_type,
        "dims": list(tensor.dims),
        **{field: value for field, value in rare.items() if value},
        **({} if tensor.reshape is None else {"reshape": {"shape": list(tensor.reshape)}}),
    }


def _warmup(model: ModelPlan) -> dict[str, Any]:
    return {
        "name": "first_request",
        "batch_size": 1 if model.max_batch_size else 0,
        "count": 1,
        "inputs": {
            tensor.name: {
                "data_type": tensor.data_type,
                "dims": list(tensor.dims),
                **(
                    {"input_data_file": tensor.input_data_file}
                    if tensor.input_data_file
                    else {"zero_data": True}
                ),
            }
            for tensor in model.warmup
        },
    }

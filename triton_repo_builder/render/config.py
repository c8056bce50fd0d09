"""Plan → text of config.pbtxt. The only importer of Jinja."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jinja2

from triton_repo_builder import resources
from triton_repo_builder.plan.model import ModelPlan, TensorPlan
from triton_repo_builder.repository import pbtxt

TEMPLATE = "config.pbtxt.jinja"


@cache
def environment() -> jinja2.Environment:
    """Templates that fail on an undefined name, with the ``pbtxt`` filter for every string."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["pbtxt"] = pbtxt.quote
    env.filters["python"] = repr
    env.filters["javascript"] = json.dumps
    env.filters["docstring"] = _docstring
    return env


def _docstring(text: str) -> str:
    """A name within a docstring, which it must not end."""
    return text.replace("\\", "/").replace('"', "'")


def render(template: str, **values: Any) -> str:
    """The text of a template that is no config.pbtxt."""
    return environment().get_template(template).render(**values)


def config(model: ModelPlan) -> str:
    """The config.pbtxt of one model, read back through Triton's own message before it is returned."""
    text = environment().get_template(TEMPLATE).render(model=model)
    read = pbtxt.parse(text)
    if read != as_config(model):
        raise AssertionError(f"config.pbtxt of '{model.name}' does not say what was planned:\n{text}\n{read}")
    return text


def as_config(model: ModelPlan) -> dict[str, Any]:
    """What ``pbtxt.parse`` must read from this plan; as in proto3, defaults are absent."""
    wanted: dict[str, Any] = {
        "name": model.name,
        "platform": "ensemble" if model.step else "",
        "backend": model.backend,
        "max_batch_size": model.max_batch_size,
        "input": [_tensor(tensor) for tensor in model.input],
        "output": [_tensor(tensor) for tensor in model.output],
        "parameters": {key: _strip({"string_value": value}) for key, value in model.parameters},
    }
    if model.instance_group:
        wanted["instance_group"] = [{"count": model.instance_group.count, "kind": model.instance_group.kind}]
    if wanted.get("instance_group", [{}])[0].get("kind") == "KIND_AUTO":
        del wanted["instance_group"][0]["kind"]  # the default of the enum
    if model.batch_input:
        wanted["batch_input"] = [
            _strip(
                {
                    "kind": ""
                    if item.kind == "BATCH_ELEMENT_COUNT"
                    else item.kind,  # the default of the enum
                    "target_name": [item.target_name],
                    "data_type": item.data_type,
                    "source_input": [item.source_input],
                }
            )
            for item in model.batch_input
        ]
    if model.dynamic_batching:
        wanted["dynamic_batching"] = _strip(
            {
                "preferred_batch_size": list(model.dynamic_batching.preferred_batch_size),
                "max_queue_delay_microseconds": model.dynamic_batching.max_queue_delay_microseconds,
            }
        )
    if model.response_cache:
        wanted["response_cache"] = {"enable": True}
    if model.warmup:
        wanted["model_warmup"] = [_warmup(model)]
    if model.step:
        steps = [
            {
                "model_name": step.model_name,
                "model_version": -1,
                "input_map": dict(step.input_map),
                "output_map": dict(step.output_map),
            }
            for step in model.step
        ]
        wanted["ensemble_scheduling"] = {"step": steps}
    return _strip(wanted, keep=("dynamic_batching",))


def _tensor(tensor: TensorPlan) -> dict[str, Any]:
    wanted = _strip(
        {
            "name": tensor.name,
            "data_type": tensor.data_type,
            "dims": list(tensor.dims),
            "label_filename": tensor.label_filename,
            "allow_ragged_batch": tensor.allow_ragged_batch,
            "optional": tensor.optional,
        }
    )
    if tensor.reshape is not None:
        wanted["reshape"] = {"shape": list(tensor.reshape)} if tensor.reshape else {}
    return wanted


def _warmup(model: ModelPlan) -> dict[str, Any]:
    inputs = {
        tensor.name: _strip(
            {
                "data_type": tensor.data_type,
                "dims": list(tensor.dims),
                "input_data_file": tensor.input_data_file,
                "zero_data": not tensor.input_data_file,
            }
        )
        for tensor in model.warmup
    }
    return _strip(
        {
            "name": "first_request",
            "batch_size": 1 if model.max_batch_size else 0,
            "count": 1,
            "inputs": inputs,
        }
    )


def _strip(values: dict[str, Any], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value or key in keep}

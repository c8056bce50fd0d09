"""What is rendered reads back as what was planned, whatever the names are."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from triton_repo_builder.base import dtypes
from triton_repo_builder.endpoint.plan.model import (
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    ModelPlan,
    TensorPlan,
    WarmupInput,
)
from triton_repo_builder.endpoint.render import config as render_config
from triton_repo_builder.repository import pbtxt

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TYPES = st.sampled_from(sorted(dtypes.BY_CONFIG))
DIMS = st.lists(st.integers(-1, 4096).filter(bool), min_size=1, max_size=4).map(tuple)
SIZES = st.integers(1, 2**31 - 1)
PAIRS = st.dictionaries(TEXT, TEXT, min_size=1, max_size=3).map(lambda pairs: tuple(pairs.items()))
RESHAPES = st.none() | st.just(()) | DIMS
INPUT = st.builds(TensorPlan, name=TEXT, data_type=TYPES, dims=DIMS, reshape=RESHAPES)
OUTPUT = st.builds(
    TensorPlan, name=TEXT, data_type=TYPES, dims=DIMS, reshape=RESHAPES, label_filename=st.just("") | TEXT
)
COMMON: dict[str, Any] = {
    "name": TEXT,
    "about": st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=20),
    "max_batch_size": st.integers(0, 2**31 - 1),
    "input": st.lists(INPUT, min_size=1, max_size=3).map(tuple),
    "output": st.lists(OUTPUT, min_size=1, max_size=3).map(tuple),
    "response_cache": st.booleans(),
    "latency_buckets": st.lists(st.integers(1, 60_000), max_size=4).map(tuple),
}
MODELS = st.builds(
    ModelPlan,
    **COMMON,
    backend=TEXT,
    dynamic_batching=st.none()
    | st.builds(
        DynamicBatching,
        preferred_batch_size=st.lists(SIZES, max_size=3).map(tuple),
        max_queue_delay_microseconds=st.integers(0, 2**63 - 1),
    ),
    instance_group=st.none()
    | st.builds(InstanceGroup, count=SIZES, kind=st.sampled_from(["KIND_AUTO", "KIND_CPU", "KIND_GPU"])),
    parameters=st.dictionaries(TEXT, st.just("") | TEXT, max_size=3).map(lambda items: tuple(items.items())),
    warmup=st.lists(
        st.builds(WarmupInput, name=TEXT, data_type=TYPES, dims=DIMS, input_data_file=st.just("") | TEXT),
        max_size=3,
    ).map(tuple),
)
ENSEMBLES = st.builds(
    ModelPlan,
    **COMMON,
    step=st.lists(
        st.builds(EnsembleStep, model_name=TEXT, input_map=PAIRS, output_map=PAIRS), min_size=1, max_size=3
    ).map(tuple),
)


@settings(deadline=None)
@given(MODELS | ENSEMBLES)
def test_read_back_is_the_plan(model: ModelPlan) -> None:
    assert read_back(pbtxt.parse(render_config.config(model)), model.about) == normal(model)


def read_back(config: dict[str, Any], about: str) -> ModelPlan:
    """A plan from the parsed text, by its own rules: nothing of ``render`` is used."""
    groups = config.get("instance_group", [])
    batching = config.get("dynamic_batching")
    scheduling = config.get("ensemble_scheduling", {"step": []})
    warmup = config.get("model_warmup", [{"inputs": {}}])[0]
    assert ("platform" in config) == bool(scheduling["step"])
    return ModelPlan(
        name=config["name"],
        about=about,
        max_batch_size=config.get("max_batch_size", 0),
        input=tuple(_tensor(entry) for entry in config["input"]),
        output=tuple(_tensor(entry) for entry in config["output"]),
        backend=config.get("backend", ""),
        dynamic_batching=None
        if batching is None
        else DynamicBatching(
            preferred_batch_size=tuple(batching.get("preferred_batch_size", ())),
            max_queue_delay_microseconds=batching.get("max_queue_delay_microseconds", 0),
        ),
        instance_group=InstanceGroup(count=groups[0]["count"], kind=groups[0].get("kind", "KIND_AUTO"))
        if groups
        else None,
        parameters=tuple(
            sorted(
                (key, entry.get("string_value", "")) for key, entry in config.get("parameters", {}).items()
            )
        ),
        warmup=tuple(
            WarmupInput(
                name=name,
                data_type=entry["data_type"],
                dims=tuple(entry["dims"]),
                input_data_file=entry.get("input_data_file", ""),
            )
            for name, entry in sorted(warmup["inputs"].items())
        ),
        step=tuple(
            EnsembleStep(
                model_name=entry["model_name"],
                input_map=tuple(sorted(entry["input_map"].items())),
                output_map=tuple(sorted(entry["output_map"].items())),
            )
            for entry in scheduling["step"]
        ),
        response_cache=config.get("response_cache", {}).get("enable", False),
        latency_buckets=tuple(
            bound
            for control in config.get("model_metrics", {}).get("metric_control", ())
            for bound in control["histogram_options"]["buckets"]
        ),
    )


def _tensor(entry: dict[str, Any]) -> TensorPlan:
    return TensorPlan(
        name=entry["name"],
        data_type=entry["data_type"],
        dims=tuple(entry["dims"]),
        reshape=tuple(entry["reshape"].get("shape", ())) if "reshape" in entry else None,
        label_filename=entry.get("label_filename", ""),
    )


def normal(model: ModelPlan) -> ModelPlan:
    """Maps have no order, and the last entry of a key counts."""
    from dataclasses import replace

    return replace(
        model,
        parameters=tuple(sorted(model.parameters)),
        warmup=tuple(
            sorted({entry.name: entry for entry in model.warmup}.values(), key=lambda entry: entry.name)
        ),
        step=tuple(
            replace(step, input_map=tuple(sorted(step.input_map)), output_map=tuple(sorted(step.output_map)))
            for step in model.step
        ),
    )


def test_a_reason_stands_above_its_field_and_a_limit_of_zero_is_written() -> None:
    plan = ModelPlan(
        name="m",
        about="What it is.",
        max_batch_size=0,
        input=(TensorPlan(name="X", data_type="TYPE_FP32", dims=(1, -1)),),
        output=(TensorPlan(name="Y", data_type="TYPE_FP32", dims=(1,), reshape=()),),
        backend="onnxruntime",
        instance_group=InstanceGroup(count=2, kind="KIND_CPU"),
        dynamic_batching=DynamicBatching(),
        parameters=(("a", "1"), ("b", "2")),
        reasons=(("instances", "one per core"), ("b", "because"), ("max_batch_size", "no batch axis")),
    )
    assert (
        render_config.config(plan)
        == """\
# What it is.
# Written by trb. After an edit, run 'trb check'.
name: "m"
backend: "onnxruntime"
# no batch axis
max_batch_size: 0
input { name: "X" data_type: TYPE_FP32 dims: [1, -1] }
output {
  name: "Y"
  data_type: TYPE_FP32
  dims: [1]
  reshape {
  }
}
# one per core
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { }
parameters { key: "a" value { string_value: "1" } }
# because
parameters { key: "b" value { string_value: "2" } }
"""
    )

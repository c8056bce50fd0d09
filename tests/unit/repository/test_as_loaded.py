"""A configuration as a server prints it, against the file: fillings are none, everything else is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from triton_repo_builder.repository import as_loaded, pbtxt
from triton_repo_builder.repository.config import ModelConfig

FILE = """
name: "m" backend: "onnxruntime" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 100 }
parameters { key: "trb.version" value { string_value: "1" } }
"""
LOADED: dict[str, Any] = {
    "name": "m",
    "platform": "onnxruntime_onnx",
    "backend": "onnxruntime",
    "runtime": "libtriton_onnxruntime.so",
    "version_policy": {"latest": {"num_versions": 1}},
    "max_batch_size": 8,
    "input": [
        {"name": "X", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [2], "optional": False}
    ],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [2], "label_filename": ""}],
    "batch_input": [],
    "optimization": {
        "priority": "PRIORITY_DEFAULT",
        "input_pinned_memory": {"enable": True},
        "output_pinned_memory": {"enable": True},
    },
    "dynamic_batching": {
        "preferred_batch_size": [8],
        "max_queue_delay_microseconds": 100,
        "priority_queue_policy": {},
    },
    "instance_group": [{"name": "m_0", "kind": "KIND_CPU", "count": 2, "gpus": []}],
    "default_model_filename": "model.onnx",
    "parameters": {"trb.version": {"string_value": "1"}},
    "model_transaction_policy": {"decoupled": False},
    "a_field_of_a_newer_server": 3,
}
ENSEMBLE = """
name: "e" platform: "ensemble" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
ensemble_scheduling { step {
  model_name: "m" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
} }
"""


def config(text: str) -> ModelConfig:
    return ModelConfig(pbtxt.parse(text))


def differences(**changed: Any) -> tuple[str, ...]:
    loaded = {**copy.deepcopy(LOADED), **changed}
    return as_loaded.differences(config(FILE), ModelConfig(loaded), 1)


def test_what_triton_fills_in_is_no_difference() -> None:
    assert differences() == ()
    assert LOADED["dynamic_batching"]["preferred_batch_size"] == [8]  # nothing of the caller's was changed
    assert as_loaded.differences(config(FILE), config(FILE), 1) == ()


def test_what_triton_fills_in_for_the_oldest_sequence_batcher_is_no_difference() -> None:
    file = config('name: "m" max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 2 } }')
    oldest = {"max_candidate_sequences": 2, "preferred_batch_size": [4]}
    loaded = ModelConfig({"name": "m", "max_batch_size": 4, "sequence_batching": {"oldest": oldest}})
    assert as_loaded.differences(file, loaded, 1) == ()


@pytest.mark.parametrize("stated", ["", "model_transaction_policy { decoupled: true }"])
@pytest.mark.parametrize("decoupled", [False, True])
def test_an_ensemble_is_as_decoupled_as_its_steps(stated: str, decoupled: bool) -> None:
    file = config(ENSEMBLE.replace('model_name: "m"', 'model_name: "m" model_namespace: "n"') + stated)
    step = {"model_name": "m", "model_version": 1, "input_map": {"X": "X"}, "output_map": {"Y": "Y"}}
    loaded = {
        **pbtxt.parse(ENSEMBLE),
        "ensemble_scheduling": {"step": [step]},
        "model_transaction_policy": {"decoupled": decoupled},
    }
    assert as_loaded.differences(file, ModelConfig(loaded), 1) == ()


def test_what_a_model_completes_is_no_difference() -> None:
    file = config('name: "m" backend: "python" input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }')
    loaded = ModelConfig(copy.deepcopy(LOADED) | {"backend": "python", "parameters": {}})
    assert as_loaded.differences(file, loaded, 1, completes=True) == ()
    assert as_loaded.differences(file, loaded, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_batch_size", 4),
        ("input", [{"name": "X", "data_type": "TYPE_INT32", "dims": [2]}]),
        ("instance_group", [{"name": "m_0", "kind": "KIND_CPU", "count": 3}]),
        ("instance_group", [{"kind": "KIND_CPU", "count": 2}, {"kind": "KIND_CPU", "count": 2}]),
        ("dynamic_batching", {"max_queue_delay_microseconds": 200}),
        ("dynamic_batching", {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100}),
        ("response_cache", {"enable": True}),
        ("optimization", {"graph": {"level": 1}}),
        ("backend", "python"),
        ("model_transaction_policy", {"decoupled": True}),
    ],
)
def test_what_was_changed_is_named(field: str, value: Any) -> None:
    assert [text for text in differences(**{field: value}) if text.startswith(f"{field} is ")]


def test_parameters_are_named_one_by_one() -> None:
    sha = "ab" * 32
    changed = {"trb.version": {"string_value": "2"}, "trb.model_sha256": {"string_value": sha}}
    assert differences(parameters=changed) == (
        "parameter trb.model_sha256 is abababababab…, not unset",
        "parameter trb.version is 2, not 1",
    )


def test_a_step_without_version_means_the_served_one() -> None:
    pinned = ENSEMBLE.replace("-1", "3")
    assert as_loaded.differences(config(ENSEMBLE), config(pinned), 3) == ()
    assert len(as_loaded.differences(config(ENSEMBLE), config(pinned), 2)) == 1


def test_a_file_that_leaves_most_to_triton() -> None:
    loaded = ModelConfig({**copy.deepcopy(LOADED), "parameters": {}})
    assert as_loaded.differences(config('backend: "onnxruntime"'), loaded, 1) == ()


def test_what_is_no_configuration_is_an_error_of_its_own() -> None:
    with pytest.raises(pbtxt.PbtxtError):
        differences(max_batch_size="many")


def test_no_number_and_no_end_are_read_as_the_server_states_them() -> None:
    def slots(least: float | str) -> ModelConfig:
        return ModelConfig({"sequence_batching": {"direct": {"minimum_slot_utilization": least}}})

    for value, stated in ((float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")):
        assert as_loaded.differences(slots(value), slots(stated), 1) == ()
    assert len(as_loaded.differences(slots(float("nan")), slots("Infinity"), 1)) == 1


def test_the_newest_version_of_a_step_is_another_than_a_number() -> None:
    def step(version: int) -> ModelConfig:
        maps = {"input_map": {f"a_long_name_{i}": "X" for i in range(9)}, "output_map": {"Y": "Y"}}
        steps = [{"model_name": "m", "model_version": version, **maps}]
        return ModelConfig({"platform": "ensemble", "ensemble_scheduling": {"step": steps}})

    assert as_loaded.differences(step(-1), step(2), 2) == ()
    assert as_loaded.differences(step(-1), step(-1), None) == ()
    (difference,) = as_loaded.differences(step(-1), step(2), None)
    assert '"model_version": 2' in difference
    assert '"model_version": -1' in difference

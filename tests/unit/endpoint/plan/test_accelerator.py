"""``--accelerator``: what config.pbtxt gets, through Triton's own message, and what cannot work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from cli import call

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.repository import pbtxt


def accelerators(model: Path, name: str, tmp_path: Path, **options: Any) -> dict[str, Any]:
    made = tiny.make(model, tmp_path / "out", name="bert", **options)
    parsed = pbtxt.parse(tiny.config(made, name))
    found: dict[str, Any] = parsed.get("optimization", {}).get("execution_accelerators", {})
    return found


def test_tensorrt_gets_the_shapes_of_the_padding_and_the_batch(tmp_path: Path) -> None:
    model = tiny.classifier(tmp_path / "model")
    options: dict[str, Any] = {"accelerator": "tensorrt", "device": "gpu", "padding": "fixed:16"}
    options["max_batch_size"] = 8
    (entry,) = accelerators(model, "bert_model", tmp_path, **options)["gpu_execution_accelerator"]
    assert entry["name"] == "tensorrt"
    inputs = pbtxt.parse(tiny.config(tiny.make(model, tmp_path / "o", name="bert", **options), "bert_model"))[
        "input"
    ]
    shapes = {
        size: ",".join(f"{one['name']}:{rows}x16" for one in inputs)
        for size, rows in {"min": 1, "opt": 8, "max": 8}.items()
    }
    assert entry["parameters"] == {
        "precision_mode": "FP32",
        "trt_engine_cache_enable": "true",
        "trt_engine_cache_path": "/tmp/trb_tensorrt/bert_model",
        "trt_timing_cache_enable": "true",
        **{f"trt_profile_{size}_shapes": text for size, text in shapes.items()},
    }


def test_the_preferred_batch_is_what_tensorrt_is_best_at(tmp_path: Path) -> None:
    model = tiny.classifier(tmp_path / "model")
    options = {
        "accelerator": "tensorrt",
        "device": "gpu",
        "padding": "fixed:16",
        "preferred_batch_size": (4,),
    }
    (entry,) = accelerators(model, "bert_model", tmp_path, **options)["gpu_execution_accelerator"]
    assert "input_ids:4x16" in entry["parameters"]["trt_profile_opt_shapes"]


def test_openvino_takes_no_parameters(tmp_path: Path) -> None:
    model = tiny.classifier(tmp_path / "model")
    found = accelerators(model, "bert_model", tmp_path, accelerator="openvino", device="cpu")
    assert [entry["name"] for entry in found["cpu_execution_accelerator"]] == ["openvino"]
    assert not found["cpu_execution_accelerator"][0].get("parameters")


def test_none_is_the_default(tmp_path: Path) -> None:
    assert accelerators(tiny.classifier(tmp_path / "model"), "bert_model", tmp_path) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accelerator": "tensorrt", "device": "cpu"}, "TensorRT is for NVIDIA GPUs"),
        ({"accelerator": "openvino", "device": "gpu"}, "OpenVINO accelerates CPUs"),
        ({"accelerator": "tensorrt", "device": "gpu"}, "ragged texts have any"),
        ({"accelerator": "tensorrt", "device": "gpu", "padding": "batch"}, "has an axis of any length"),
        ({"accelerator": "tensorrt", "device": "gpu", "precision": "int8"}, "dynamically quantised integers"),
        ({"accelerator": "openvino", "device": "cpu", "precision": "int8"}, "the kernels of ONNX Runtime"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.classifier(tmp_path / "model"), tmp_path / "out", **options)
    assert message in caught.value.message and caught.value.where == "--accelerator"


def test_the_option_is_one_of_the_command_line(tmp_path: Path) -> None:
    model = tiny.classifier(tmp_path / "model")
    done = call("build", "--model", model, "--output", tmp_path / "out", "--accelerator", "cuda")
    assert (done.returncode, "--accelerator" in done.stderr) == (2, True)

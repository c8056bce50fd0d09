"""Which endpoints get a sample of their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_detectors
import tiny_images

from triton_repo_builder.repository import pbtxt

MODELS: dict[str, Any] = {
    "classifier": tiny.classifier,
    "embedder": tiny.embedder,
    "image": tiny_images.folder,
    "detector": tiny_detectors.detr,
    "tensor": lambda folder: tiny.tensor_model(folder / "model.onnx"),
}


@pytest.mark.parametrize(
    ("kind", "options", "step", "outputs"),
    [
        ("classifier", {}, "m_tokenizer", "label,score"),
        ("embedder", {}, "m_tokenizer", "embedding"),
        ("image", {}, "m_preprocess", "label,score"),
        ("detector", {}, "m_preprocess", "labels,count"),
        ("tensor", {}, "m", ""),
        ("classifier", {"raw_output": True}, "m_tokenizer", ""),
        ("classifier", {"metrics": "off"}, "m_tokenizer", ""),
        ("classifier", {"triton_release": "24.05"}, "m_tokenizer", ""),
        ("classifier", {"share_tokenizer": True}, "tokenizer_", ""),
    ],
)
def test_the_step_before_the_graph_names_the_model_and_its_outputs(
    kind: str, options: dict[str, Any], step: str, outputs: str, tmp_path: Path
) -> None:
    if step == "m_preprocess":
        options = {"pillow_wheel": (tiny_images.wheel(tmp_path / "p.whl"),)}
    made = tiny.make(MODELS[kind](tmp_path / "m"), tmp_path / "repo", name="m", **options)
    files = {file.path: file for file in made.files}
    config = next(path for path in files if path.startswith(step) and path.endswith("config.pbtxt"))
    parameters = pbtxt.parse((files[config].content or b"").decode()).get("parameters", {})
    sampled = {key: value["string_value"] for key, value in parameters.items() if key.startswith("answers")}
    assert sampled == ({"answers_model": "m_model", "answers": outputs} if outputs else {})
    code = f"{Path(config).parent}/1/answer_metrics.py"
    assert (code in files) is bool(outputs)


def test_the_model_itself_is_told_to_count_nothing(tmp_path: Path) -> None:
    """By the embedded engine, whose backend counts; Triton's own does not know the parameter."""
    made = tiny.make(tiny.classifier(tmp_path / "m"), tmp_path / "repo", metrics="off")
    assert pbtxt.parse(tiny.config(made, "m_model"))["parameters"]["metrics"] == {"string_value": "off"}
    made = tiny.make(tiny.classifier(tmp_path / "m"), tmp_path / "repo")
    assert "metrics" not in pbtxt.parse(tiny.config(made, "m_model"))["parameters"]

"""A text pipeline of scikit-learn needs a locale; ONNX Runtime's message does not say what to do."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import tiny
from onnx import TensorProto, helper

from triton_repo_builder.base.errors import Code, TrbError


def pipeline(path: Path, locale: str) -> Path:
    node = helper.make_node(
        "StringNormalizer", ["x"], ["y"], case_change_action="LOWER", is_case_sensitive=0, locale=locale
    )
    shape = [None]
    graph = helper.make_graph(
        [node],
        "pipeline",
        [helper.make_tensor_value_info("x", TensorProto.STRING, shape)],
        [helper.make_tensor_value_info("y", TensorProto.STRING, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def test_the_locale_and_how_to_install_it_are_named(tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(pipeline(tmp_path / "m.onnx", "xx_YY.UTF-8"), output, golden=True)
    assert caught.value.code is Code.GOLDEN_FAILED
    assert (
        caught.value.message
        == "its StringNormalizer needs the locale xx_YY.UTF-8, which is not installed here"
    )
    assert "localedef -i xx_YY -f UTF-8 xx_YY.UTF-8" in caught.value.remedy
    assert "C.UTF-8" in caught.value.remedy


def test_every_image_has_that_of_c(tmp_path: Path, output: Path) -> None:
    made = tiny.make(pipeline(tmp_path / "m.onnx", "C.UTF-8"), output, golden=True)
    assert made.entry.served.cases

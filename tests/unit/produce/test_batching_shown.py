"""Tensor models batch only where a run has shown that their rows are independent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from onnx import parser

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.build import Build


def model(folder: Path, nodes: str, inputs: str = "float[n,4] X", output: str = "float[n,4] Y") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({inputs}) => ({output})
    <int64[2] eight = {{8, 4}}, int64[2] wide = {{5003, 4}}, int64[3] nine = {{-1, 3, 9}},
     float zero = {{0.0}}> {{
      {nodes}
    }}"""
    (folder / "model.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    return folder


def made_of(folder: Path, output: Path, **options: str) -> Build:
    return tiny.make(folder, output, golden=True, **options)


def cases(made: Build) -> bool:
    return any(file.path.endswith("smoke.json") for file in made.files)


def batches(made: Build) -> bool:
    (config,) = [file.content.decode() for file in made.files if file.path.endswith("config.pbtxt")]
    return "max_batch_size: 0" not in config


def notes(made: Build) -> str:
    return "\n".join(made.notes)


def test_a_branch_by_values(tmp_path: Path, output: Path) -> None:
    folder = model(
        tmp_path / "m",
        """m = ReduceMax <keepdims = 0> (X) c = Greater (m, zero) [branch] Y = If (c) <
            then_branch = a () => (float[n,4] A) { A = Relu (X) },
            else_branch = b () => (float[n,4] B) { B = Neg (X) }
        >""",
    )
    made = made_of(folder, output)
    assert not batches(made)
    assert "served without batching: its If 'branch' is decided by values" in notes(made)
    with pytest.raises(TrbError) as caught:
        made_of(folder, output, batching="on")
    assert caught.value.code is Code.NOT_BATCHABLE


def test_random_numbers(tmp_path: Path, output: Path) -> None:
    made = made_of(model(tmp_path / "m", "[noise] r = RandomNormalLike (X) Y = Add (X, r)"), output)
    assert not batches(made)
    assert "no golden cases: its RandomNormalLike 'noise' draws random numbers" in notes(made)


@pytest.mark.parametrize("on", [False, True])
def test_a_model_that_takes_nothing_that_is_generated(on: bool, tmp_path: Path, output: Path) -> None:
    folder = model(tmp_path / "m", "w = ConstantOfShape (wide) Y = MatMul (X, w)", "float[n,w] X")
    made = made_of(folder, output, batching="on" if on else "auto")
    assert batches(made) is on
    assert "no golden cases: the model refuses generated inputs" in notes(made)
    assert ("nothing has shown that an answer is the same beside others" in notes(made)) is on
    assert ("no run has shown that rows of a batch do not change each other" in notes(made)) is not on


def test_a_batch_that_was_baked_in(tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError, match="the graph runs with 8 rows only") as caught:
        made_of(model(tmp_path / "m", "Y = Reshape (X, eight)"), output)
    assert caught.value.code is Code.NOT_BATCHABLE
    assert not output.exists()


def test_sizes_of_the_graph_itself_are_tried(tmp_path: Path, output: Path) -> None:
    nodes = "r = Reshape (X, nine) Y = ReduceMax <axes = [1, 2], keepdims = 0> (r)"
    made = made_of(model(tmp_path / "m", nodes, "float[n,a,b] X", "float[n] Y"), output)
    assert cases(made)


def test_sizes_of_config_json_are_tried(tmp_path: Path, output: Path) -> None:
    folder = model(tmp_path / "m", "w = ConstantOfShape (wide) Y = MatMul (X, w)", "float[n,w] X")
    assert not cases(made_of(folder, output))
    (folder / "config.json").write_text(json.dumps({"context_length": 5003}))
    assert cases(made_of(folder, output))


def test_the_context_length_comes_first(tmp_path: Path, output: Path) -> None:
    """A model of time series runs at other lengths, too, with answers that it was not made for."""
    nodes = "Y = ReduceMax <axes = [1], keepdims = 0> (X)"
    folder = model(tmp_path / "m", nodes, "float[n,w] X", "float[n] Y")
    (folder / "config.json").write_text(json.dumps({"context_length": 48}))
    (recorded,) = (file.content for file in made_of(folder, output).files if file.path.endswith("smoke.json"))
    assert recorded is not None
    shapes = [tensor["shape"] for case in json.loads(recorded)["cases"] for tensor in case["inputs"]]
    assert {tuple(shape) for shape in shapes} == {(1, 48)}


def test_axes_of_other_names_are_other_axes(tmp_path: Path, output: Path) -> None:
    made = made_of(
        model(tmp_path / "m", "Y = MatMul (X, Z)", "float[images,4] X, float[texts,4] Z", "float[n,m] Y"),
        output,
    )
    assert not batches(made)
    assert "the first axes of its inputs are not the same: 'images' of 'X', 'texts' of 'Z'" in notes(made)


def test_axes_that_torch_named_by_itself(tmp_path: Path, output: Path) -> None:
    inputs = "float[X_dynamic_axes_1,4] X, float[Z_dynamic_axes_1,4] Z"
    assert batches(made_of(model(tmp_path / "m", "Y = Add (X, Z)", inputs), output))

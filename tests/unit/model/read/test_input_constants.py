"""``--constant``: what it takes, the graph that is served, and what the untouched file is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
import tiny_images
import tiny_onnx as t
import tiny_sounds

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import InvalidValue
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks import embedding
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.options import OPTIONS
from triton_repo_builder.model.read.source import Source, SourceOverrides
from triton_repo_builder.produce.build import Build

TASK = "task_id"
SCALES = {
    "int32": t.INT32,
    "int64": t.INT64,
    "uint8": onnx.TensorProto.UINT8,
    "bool": t.BOOL,
    "float": t.FLOAT,
    "float16": t.FP16,
    "double": onnx.TensorProto.DOUBLE,
}


def scaled(path: Path, shape: list[Any] | None, kind: int = t.INT64, *, opset: int = 17) -> Path:
    """X [batch, 2] times the number → Y."""
    column = [t.node("Cast", [TASK], ["number"], to=t.FLOAT), t.node("Reshape", ["number", "column"], ["c"])]
    content = t.model(
        [*column, t.node("Mul", ["X", "c"], ["Y"])],
        [t.tensor("X", ["batch", 2]), t.tensor(TASK, shape, kind)],
        [t.tensor("Y", ["batch", 2])],
        initializers=[t.constant("column", t.INT64, [2], [-1, 1])],
        opset=opset,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def read(path: Path, *pairs: tuple[str, str]) -> Source:
    return reader.read_source(path, SourceOverrides(constants=pairs))


def refused(path: Path, *pairs: tuple[str, str]) -> tuple[str, str]:
    with pytest.raises(TrbError) as caught:
        read(path, *pairs)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--constant")
    return caught.value.message, caught.value.remedy


def served(source: Source) -> onnxruntime.InferenceSession:
    """The graph that a repository would have."""
    return onnxruntime.InferenceSession(reader.load(source.skeleton).SerializeToString())


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("shape", [[], [1], ["batch"], ["n"], [None]])
@pytest.mark.parametrize("opset", [9, 17])
def test_the_number_is_part_of_the_graph(kind: str, shape: list[Any], opset: int, tmp_path: Path) -> None:
    value = "true" if kind == "bool" else "3"
    source = read(scaled(tmp_path / "m.onnx", shape, SCALES[kind], opset=opset), (TASK, value))
    assert [spec.name for spec in source.signature.inputs] == ["X"]
    assert source.signature.batch.possible
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    (answer,) = served(source).run(None, {"X": rows})
    np.testing.assert_array_equal(answer, rows * (1 if kind == "bool" else 3))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int32", "3000000000"),
        ("int64", "1.5"),
        ("uint8", "-1"),
        ("uint8", "256"),
        ("bool", "2"),
        ("float", "nan"),
        ("float", "1e39"),
        ("float16", "70000"),
        ("float", "one"),
        ("int64", ""),
    ],
)
def test_a_value_of_another_type(kind: str, value: str, tmp_path: Path) -> None:
    message, remedy = refused(scaled(tmp_path / "m.onnx", [], SCALES[kind]), (TASK, value))
    assert message == f"'{value}' is not a value of input {TASK} {kind}[]"
    assert remedy == ("give true or false" if kind == "bool" else f"give a number of type {kind}")


@pytest.mark.parametrize("shape", [["batch", 1], [2], None])
def test_an_input_that_is_no_single_number(shape: list[Any] | None, tmp_path: Path) -> None:
    message, _ = refused(scaled(tmp_path / "m.onnx", shape), (TASK, "1"))
    assert message.endswith("is not a single number: a scalar, or one for each row")


def test_names_that_are_not_there(tmp_path: Path) -> None:
    path = scaled(tmp_path / "m.onnx", [])
    assert refused(path, ("task", "1")) == ("the model has no input 'task'", "its inputs are X, task_id")
    alone = tmp_path / "alone.onnx"
    alone.write_bytes(t.identity([1]))
    assert refused(alone, ("X", "1"))[0] == "no input is left for requests"


def test_an_axis_that_is_not_the_batch(tmp_path: Path) -> None:
    inputs = [t.tensor("X", ["batch", "tokens"]), t.tensor(TASK, ["tokens"])]
    content = t.model([t.node("Mul", ["X", TASK], ["Y"])], inputs, [t.tensor("Y", ["batch", "tokens"])])
    (tmp_path / "m.onnx").write_bytes(content)
    message, _ = refused(tmp_path / "m.onnx", (TASK, "1"))
    assert message == f"the axis of input {TASK} float[tokens] is not the batch of another input"


def with_task(folder: Path, shape: list[Any]) -> Path:
    """An embedder whose vectors are those of ``tiny.text_model`` times a number."""
    tiny.embedder(folder)
    model = onnx.load(folder / "model.onnx")
    model.graph.node[-1].output[0] = "before"
    number = [
        t.node("Cast", [TASK], ["number"], to=t.FLOAT),
        t.node("Reshape", ["number", "cube"], ["factor"]),
    ]
    model.graph.node.extend([*number, t.node("Mul", ["before", "factor"], ["last_hidden_state"])])
    model.graph.initializer.append(t.constant("cube", t.INT64, [3], [-1, 1, 1]))
    model.graph.input.append(t.tensor(TASK, shape, t.INT64))
    onnx.save(model, folder / "model.onnx")
    return folder


def test_a_model_that_could_be_served_says_how(tmp_path: Path) -> None:
    folder = with_task(tmp_path / "t", [])
    task, why = tasks.choose(reader.read_source(folder), None)
    assert task.NAME == "tensor"
    assert why == (
        "a tokenizer cannot fill its input 'task_id': served as plain tensors "
        "(--constant task_id=VALUE gives it once)"
    )
    with pytest.raises(TrbError) as caught:
        tasks.choose(reader.read_source(folder), "embedding")
    assert caught.value.remedy == "give it once, --constant task_id=VALUE, or use --task tensor"
    assert tasks.choose(read(folder, (TASK, "2")), None) == (embedding, "")


def test_images_that_could_be_served_say_how(tmp_path: Path) -> None:
    folder = with_temperature(tiny_images.folder(tmp_path / "i"))
    task, why = tasks.choose(reader.read_source(folder), None)
    assert (task.NAME, "--constant temperature=VALUE" in why) == ("tensor", True)
    with pytest.raises(TrbError) as caught:
        tasks.choose(reader.read_source(folder), "image-classification")
    assert caught.value.remedy.startswith("give it once, --constant temperature=VALUE, or ")
    assert tasks.choose(read(folder, ("temperature", "0.5")), None)[0].NAME == "image-classification"


def with_temperature(folder: Path) -> Path:
    """An image classifier whose logits are divided by an input."""
    model = onnx.load(folder / "model.onnx")
    model.graph.node[-1].output[0] = "before"
    model.graph.node.append(t.node("Div", ["before", "temperature"], ["logits"]))
    model.graph.input.append(t.tensor("temperature", []))
    onnx.save(model, folder / "model.onnx")
    return folder


def cases(made: Build) -> Any:
    assert made.plan is not None
    return next(file.content for file in made.files if file.path.endswith("smoke.json"))


@pytest.mark.parametrize("shape", [[], [1], ["batch"]])
def test_golden_cases_are_recorded_with_it(shape: list[Any], tmp_path: Path, output: Path) -> None:
    folder = with_task(tmp_path / "t", shape)
    made = tiny.make(folder, output, golden=True, constant=((TASK, "2"),), normalize=False)
    other = tiny.make(folder, output, golden=True, constant=((TASK, "3"),), normalize=False)
    assert cases(made) != cases(other)
    assert "trb_tokens" in tiny.config(made, "t_model")
    plain = tiny.make(
        scaled(tmp_path / "m.onnx", shape), output, golden=True, constant=((TASK, "2"),), task="tensor"
    )
    assert TASK not in tiny.config(plain, "m")
    assert "max_batch_size: 32" in tiny.config(plain, "m")
    images = with_temperature(tiny_images.folder(tmp_path / "i"))
    wheels = (tiny_images.wheel(tmp_path / "p.whl"),)
    made = tiny.make(images, output, golden=True, constant=(("temperature", "0.5"),), pillow_wheel=wheels)
    assert made.plan.task == "image-classification"


def test_trb_toml(tmp_path: Path) -> None:
    value = OPTIONS["constant"].value
    for stated in ({TASK: 2, "flag:0": True}, [f"{TASK}=2", "flag:0=True"]):
        assert value.from_toml(stated, tmp_path) == (("flag:0", "True"), (TASK, "2"))
    with pytest.raises(InvalidValue) as caught:
        value.from_toml([TASK], tmp_path)
    assert caught.value.message == "'task_id' is not of the form input=value"
    assert caught.value.remedy == "write for example task_id=1, each key once"


def test_sounds(tmp_path: Path) -> None:
    folder = tiny_sounds.classifier(tmp_path / "s")
    model = onnx.load(folder / "model.onnx")
    model.graph.input.append(t.tensor("temperature", ["batch"]))
    onnx.save(model, folder / "model.onnx")
    task, why = tasks.choose(reader.read_source(folder), None)
    assert task.NAME == "tensor"
    assert why.endswith("served as plain tensors (--constant temperature=VALUE gives the other once)")
    source = read(folder, ("temperature", "0.5"))
    assert tasks.choose(source, None)[0].NAME == "audio-classification"

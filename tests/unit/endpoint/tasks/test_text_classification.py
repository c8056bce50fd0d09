from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import text_classification
from triton_repo_builder.endpoint.tasks.support import labels
from triton_repo_builder.endpoint.tasks.task import TaskPlan
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.options import BuildOptions


def plan(folder: Path) -> TaskPlan:
    return text_classification.plan(reader.read_source(folder), BuildOptions(model=folder))


def configured(folder: Path, labels: int | str = 3, **config: Any) -> Path:
    """A classifier whose config.json says this."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(
        t.model([], [t.tensor("input_ids", ["n", "s"], t.INT64)], [t.tensor("logits", ["n", labels])])
    )
    tiny.put_json(folder / "config.json", config)
    return folder


def test_labels_are_sorted_by_number(tmp_path: Path) -> None:
    named = {str(number): f"name {number}" for number in reversed(range(11))}
    assert plan(configured(tmp_path, 11, id2label=named)).labels == tuple(
        f"name {number}" for number in range(11)
    )


def test_a_dynamic_width_is_that_of_the_labels(tmp_path: Path) -> None:
    made = plan(configured(tmp_path, "labels", id2label={"0": "a", "1": "b"}))
    assert made.outputs[-1].dims == (2,)
    with pytest.raises(TrbError, match="no file says how many labels output 'logits' has"):
        plan(configured(tmp_path, "labels"))


def test_labels_without_names(tmp_path: Path) -> None:
    made = plan(configured(tmp_path, 2))
    assert made.labels == ("LABEL_0", "LABEL_1")
    (note,) = made.notes
    assert note.startswith("no labels found in config.json: they are called LABEL_0 to LABEL_1. ")
    assert "--labels FILE" in note and note.endswith('"id2label": {"0": "NAME", "1": "NAME"}')


def test_labels_that_only_label2id_names(tmp_path: Path) -> None:
    made = plan(configured(tmp_path, "labels", label2id={"bad": 1, "good": 0}))
    assert made.labels == ("good", "bad")
    assert made.notes == (labels.TURNED,)


def test_label2id_that_does_not_name_every_label_is_not_read(tmp_path: Path) -> None:
    made = plan(configured(tmp_path, 2, label2id={"bad": 1, "good": 2}))
    assert made.labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"0": "a", "2": "c", "3": "d"}, "id2label in config.json does not name every label by its number"),
        ({"1": "a", "2": "b", "3": "c"}, "id2label in config.json does not name every label by its number"),
        ({"a": 0, "b": 1, "c": 2}, "id2label in config.json does not name every label by its number"),
        ({"0": "a", "00": "b", "1": "c"}, "id2label in config.json does not name every label by its number"),
        (["a", "b", "c"], "'id2label' is ['a', 'b', 'c'], not an object of numbers and names"),
        (5, "'id2label' is 5, not an object of numbers and names"),
        ({"0": "a", "1": "b"}, "config.json names 2 labels, output 'logits' has 3"),
    ],
)
def test_labels_that_do_not_fit(named: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        plan(configured(tmp_path, 3, id2label=named))
    assert (caught.value.code, caught.value.message) == (Code.TASK_UNCLEAR, message)


def test_labels_that_would_break_a_file_of_lines(tmp_path: Path) -> None:
    named = {"0": "two\nlines\r\n", "1": "half \ud83d a pair", "2": ""}
    assert plan(configured(tmp_path, 3, id2label=named)).labels == ("two lines", "half ? a pair", "")


@pytest.mark.parametrize(
    ("labels", "problem", "activation"),
    [
        (3, None, "softmax"),
        (3, "single_label_classification", "softmax"),
        (3, "multi_label_classification", "sigmoid"),
        (3, "regression", "none"),
        (1, None, "sigmoid"),
        (1, "regression", "none"),
    ],
)
def test_activation_by_the_rules_of_transformers(
    labels: int, problem: str | None, activation: str, tmp_path: Path
) -> None:
    made = plan(configured(tmp_path, labels, problem_type=problem))
    assert dict(made.facts)["activation"] == activation
    names = [output.name for output in made.outputs]
    assert names == ["label", "score", "scores"]
    assert [(text.name, text.optional) for text in made.texts] == [("TEXT", False), ("TEXT_PAIR", True)]
    logits = np.array([[0.0, 1.0, -1.0][:labels]], np.float32)
    scores = made.reference({"logits": logits}, np.ones((1, 4)))["scores"]
    expected = {
        "softmax": np.exp(logits) / np.exp(logits).sum(),
        "sigmoid": 1 / (1 + np.exp(-logits)),
        "none": logits,
    }[activation]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_the_reference_names_the_top_label(tmp_path: Path) -> None:
    made = plan(configured(tmp_path, 2, id2label={"0": "no", "1": "yés"}))
    answer = made.reference({"logits": np.array([[1.0, 2.0], [2.0, 1.0]])}, np.ones((2, 1)))
    assert answer["label"].tolist() == [["yés".encode()], [b"no"]]


def test_no_scores(tmp_path: Path) -> None:
    tiny.text_model(tmp_path / "model.onnx")
    with pytest.raises(TrbError, match="no output of scores"):
        plan(tmp_path)


@pytest.mark.parametrize("way", [[], ["Identity"], ["Cast", "Identity"]])
@pytest.mark.parametrize("operator", ["Softmax", "Sigmoid"])
@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification"])
def test_scores_of_the_graph_are_taken_as_they_are(
    operator: str, kind: str, way: list[str], tmp_path: Path
) -> None:
    """Under any name, and however they get from there to the output; a second softmax would flatten them."""
    folder = configured(tmp_path, 3, problem_type=kind)
    names = ["scored", *(f"via_{number}" for number in range(len(way)))]
    nodes = [
        t.node("Cast", ["input_ids"], ["numbers"], to=t.FLOAT),
        t.node(operator, ["numbers"], ["scored"]),
    ]
    for number, step in enumerate(way):
        more = {"to": t.FLOAT} if step == "Cast" else {}
        nodes.append(t.node(step, [names[number]], [names[number + 1]], **more))
    nodes[-1].output[0] = "probabilities"
    inputs, outputs = [t.tensor("input_ids", ["n", 3], t.INT64)], [t.tensor("probabilities", ["n", 3])]
    (folder / "model.onnx").write_bytes(t.model(nodes, inputs, outputs))
    made = plan(folder)
    assert dict(made.facts)["activation"] == "none"
    assert f"output 'probabilities' comes from a {operator}: its numbers are the scores" in made.notes
    scores = np.array([[0.7, 0.2, 0.1]], np.float32)
    answer = made.reference({"probabilities": scores}, np.ones((1, 3)))
    np.testing.assert_array_equal(answer["scores"], scores)

"""Building endpoints that need more than one text or the text again, on tiny real models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.golden import text
from triton_repo_builder.endpoint.tasks.task import OriginalRun
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce.build import Build


def span_model(folder: Path, **model: Any) -> Path:
    """The tiny classifier's table as a question answering model: two logits for each token."""
    return token_model(folder, ("start_logits", "end_logits"), **model)


def token_model(
    folder: Path, names: tuple[str, ...], *, length: int | str = "s", labels: int = 0, batch: int | str = "n"
) -> Path:
    """Logits of each token: its embedding times a column each, or times a matrix of ``labels``."""
    columns = labels or 1
    inputs = [t.tensor(name, [batch, length], t.INT64) for name in ("input_ids", "attention_mask")]
    nodes = [t.node("Gather", ["table", "input_ids"], ["words"])]
    weights = [tiny.numpy_helper.from_array(3 * tiny.weights(tiny.ROWS, tiny.WIDTH, seed=1), "table")]
    for seed, name in enumerate(names):
        weights.append(
            tiny.numpy_helper.from_array(tiny.weights(tiny.WIDTH, columns, seed=9 + seed), name + "_w")
        )
        nodes.append(t.node("MatMul", ["words", name + "_w"], [name if labels else name + "_3"]))
        if not labels:
            nodes.append(t.node("Squeeze", [name + "_3", "last"], [name]))
    weights.append(tiny.numpy_helper.from_array(np.array([2]), "last"))
    shape = [batch, length, labels] if labels else [batch, length]
    outputs = [t.tensor(name, shape) for name in names]
    graph = tiny.helper.make_graph(nodes, "tokens", inputs, outputs, initializer=weights)
    tiny.save(folder / "model.onnx", graph)
    tiny.describe(folder)
    return folder


def roomy(folder: Path) -> Path:
    """With room for 120 tokens: the tokenizer makes one of each letter."""
    for name, more in (
        ("config.json", {"max_position_embeddings": 120}),
        ("tokenizer_config.json", {"model_max_length": 120}),
    ):
        document = json.loads((folder / name).read_text())
        tiny.put_json(folder / name, {**document, **more})
    return folder


def made(model: Path, output: Path, **options: Any) -> Build:
    return tiny.make(model, output, golden=True, **options)


def recorded(build: Build) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        next(file.content for file in build.files if file.path.endswith("/smoke.json"))
    )
    return document


def test_an_endpoint_with_post_processing(tmp_path: Path) -> None:
    folder = tiny.describe(
        token_model(tmp_path / "ner", ("logits",), labels=3), id2label={"0": "O", "1": "B-X", "2": "I-X"}
    )
    build = made(folder, tmp_path / "out", task="token-classification", aggregation="max")
    assert [model.name for model in build.plan.models] == [
        "ner",
        "ner_tokenizer",
        "ner_postprocess",
        "ner_model",
    ]
    paths = {file.path for file in build.files}
    assert {"ner_postprocess/1/model.py", "ner_postprocess/1/answer.py", "ner_model/1/model.onnx"} <= paths
    document = recorded(build)
    case = next(case for case in document["cases"] if case["name"] == "sentence")
    outputs = {tensor["name"]: tensor["data"] for tensor in case["outputs"]}
    entities = json.loads(outputs["entities"][0])
    assert entities
    assert [item["text"] for item in entities] == outputs["text"]


def test_a_long_context_is_several_rows_of_the_original(tmp_path: Path) -> None:
    build = made(roomy(span_model(tmp_path / "qa")), tmp_path / "out", task="question-answering")
    tokenizer = dict(build.plan.models[1].parameters)
    assert (tokenizer["max_length"], tokenizer["stride"]) == ("120", "60")
    document = recorded(build)
    assert "several_pieces" in [case["name"] for case in document["cases"]]
    # The tokenizer's first request is a real question: an empty one would be refused, and the load fail.
    warmup = {file.path: file.content for file in build.files if "/warmup/" in file.path}
    content = warmup["qa_tokenizer/warmup/QUESTION"]
    assert content == len("Where do I live?").to_bytes(4, "little") + b"Where do I live?"


def test_a_hypothesis_must_leave_room(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "nli", labels=3)
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, tmp_path / "out", task="zero-shot-classification", max_length=6)
    assert caught.value.code == Code.USAGE
    assert "of each text are special ones or of what is never cut" in caught.value.message
    assert caught.value.remedy == "set --max-length to 19 or more"


def test_rows_longer_than_the_model_takes(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.embedder(tmp_path / "bert"), tmp_path / "out", padding="fixed:9999")
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--padding")
    assert caught.value.message.startswith("9999 is more than the model's maximum of 24 (")


def test_pieces_must_bring_something_new(tmp_path: Path) -> None:
    # Three special tokens and a stride of half the length: of six tokens none would be new.
    folder = span_model(tmp_path / "qa")
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, tmp_path / "out", task="question-answering", max_length=6)
    assert caught.value.code == Code.USAGE
    assert caught.value.message.startswith(
        "--max-length allows 6 tokens, and 3 of each text are special ones, and"
    )
    assert caught.value.remedy == "set --max-length to 7 or more"
    tiny.make(folder, tmp_path / "out", task="question-answering", max_length=7)


@pytest.mark.parametrize("options", [{}, {"padding": "rows"}, {"padding": "fixed:24"}])
def test_rows_of_several_pieces_need_a_graph_that_takes_the_front(
    options: dict[str, Any], tmp_path: Path
) -> None:
    folder = span_model(tmp_path / "qa", length=24)
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, tmp_path / "out", task="question-answering", **options)
    assert caught.value.code == Code.NOT_BATCHABLE
    assert caught.value.message == (
        "the task question-answering needs a model that takes rows of any length in a batch: "
        "every text has 24 tokens"
    )
    assert "--padding" not in caught.value.remedy


@pytest.mark.parametrize("padding", ["fixed:20", "rows", "batch"])
def test_rows_of_several_pieces_rule_out_padding(padding: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(span_model(tmp_path / "qa"), tmp_path / "out", task="question-answering", padding=padding)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--padding")
    assert (
        caught.value.message == f"{padding}: the task question-answering needs rows of any length in a batch"
    )
    assert caught.value.remedy == "leave it out"


def test_positions_that_skip_another_padding_id(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "m")
    graph = tiny.onnx.load(folder / "model.onnx")
    for value in graph.graph.input:
        value.name = value.name.replace("token_type_ids", "position_ids")
    for node in graph.graph.node:
        node.input[:] = [name.replace("token_type_ids", "position_ids") for name in node.input]
    tiny.onnx.save(graph, folder / "model.onnx")
    config = json.loads((folder / "config.json").read_text())
    tiny.put_json(folder / "config.json", {**config, "model_type": "roberta", "pad_token_id": 0})
    assert tiny.make(folder, tmp_path / "out").plan.models
    tiny.put_json(folder / "config.json", {**config, "model_type": "roberta", "pad_token_id": 1})
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, tmp_path / "out")
    assert caught.value.code is Code.TOKENIZER_MISMATCH


def test_a_graph_of_one_row_is_refused_before_it_is_run(tmp_path: Path) -> None:
    """A long context makes several rows, on which the original fails: that is no reason for --no-golden."""
    folder = span_model(tmp_path / "qa", batch=1)
    for golden in (True, False):
        with pytest.raises(TrbError) as caught:
            tiny.make(folder, tmp_path / "out", task="question-answering", golden=golden)
        assert caught.value.code == Code.NOT_BATCHABLE
        assert "the first axis of input 'input_ids' is fixed at 1" in caught.value.message


def test_answers_of_each_token_are_as_long_as_the_graph_fixes_them(tmp_path: Path) -> None:
    folder = token_model(tmp_path / "ner", ("logits",), length=16, labels=3)
    build = tiny.make(folder, tmp_path / "out", task="token-classification", golden=True)
    assert {entry.name: entry.dims for entry in build.plan.models[-1].output} == {"trb_scores": (16, 3)}
    assert build.plan.endpoint.output[1].dims == (-1,)
    free = token_model(tmp_path / "free", ("logits",), labels=3)
    build = tiny.make(free, tmp_path / "out", task="token-classification", padding="fixed:16")
    assert build.plan.models[-1].output[0].dims == (-1, 3)


def test_fill_mask_with_rows_padded_by_the_tokenizer(tmp_path: Path) -> None:
    folder = token_model(tmp_path / "mlm", ("logits",), labels=tiny.ROWS)
    tiny.tokenizer(folder / "tokenizer.json", extra=["[MASK]"])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 24, "mask_token": "[MASK]"}
    tiny.put_json(folder / "tokenizer_config.json", {**settings, "pad_token": "[PAD]", "unk_token": "[UNK]"})
    build = tiny.make(folder, tmp_path / "out", task="fill-mask", padding="fixed:20", top_k=2)
    post = build.plan.models[2]
    assert {entry.name: entry.dims for entry in post.input} == {
        "trb_tokens": (20,),
        "trb_ids": (-1, 2),
        "trb_scores": (-1, 2),
    }
    assert ("trb_tokens", "input_ids") in build.plan.endpoint.step[2].input_map


def asked(score: float) -> OriginalRun:
    outputs = {"logits": np.array([[[score, 0.0], [5.0, 0.0]]], np.float32)}
    return OriginalRun(tokenizer=None, example={}, rows=[], outputs=outputs, mask=np.ones((1, 2)))


@pytest.mark.parametrize(("score", "stable"), [(4.0, True), (1e-6, False)])
def test_an_answer_that_noise_would_change_is_not_recorded(
    score: float, stable: bool, tmp_path: Path
) -> None:
    folder = token_model(tmp_path / "ner", ("logits",), labels=3)
    task = tasks.TASKS["token-classification"].plan(reader.read_source(folder), BuildOptions(model=folder))

    def answer(one: OriginalRun) -> dict[str, Any]:
        best = one.outputs["logits"].argmax(axis=2)
        label = np.array([[b"ab"[i : i + 1] for i in best[0]]], dtype=object)
        numbers = {
            "start": best.astype(np.int32),
            "end": best.astype(np.int32),
            "score": one.outputs["logits"][0],
        }
        return {"entities": label, "label": label, "text": label, **numbers}

    changed = text.replace(task, answer=answer)
    assert text.stable(changed, asked(score), answer(asked(score)), 1e-4) is stable


def test_cases_of_every_task_can_be_sent(tmp_path: Path) -> None:
    """Rows of different inputs have names and shapes as the endpoint states them."""
    folder = tiny.classifier(tmp_path / "nli", labels=3)
    build = made(roomy(folder), tmp_path / "out", task="zero-shot-classification")
    document = recorded(build)
    shapes = {
        case["name"]: {tensor["name"]: tensor["shape"] for tensor in case["inputs"]}
        for case in document["cases"]
    }
    assert shapes["short"] == {"TEXT": [1, 1], "LABELS": [1, 4]}


def test_a_model_without_room_for_the_examples_has_no_cases(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "nli", labels=3)
    build = made(folder, tmp_path / "out", task="zero-shot-classification", max_length=20)
    assert not any(file.path.endswith("smoke.json") for file in build.files)
    # Nothing shows that the sample of a warm-up would fit, and one that fails may end the whole server.
    assert not any("/warmup/" in file.path for file in build.files)
    assert all(b"model_warmup" not in file.content for file in build.files if file.path.endswith(".pbtxt"))
    assert any(note.startswith("no golden cases: the examples are too long") for note in build.notes)
    assert build.entry.served.facts["rows"] == "single"  # nor that rows may run together


def test_noise_leaves_what_stands_for_minus_infinity() -> None:
    lowest = np.finfo(np.float32).min
    array = np.array([[1.0, 2000.0, -np.inf, np.nan]], np.float32)
    noisy_outputs = text._with_noise(array, np.random.default_rng(0), 1e-4)
    assert 0 < abs(noisy_outputs[0, 0] - 1) <= 1.1e-4
    assert 0 < abs(noisy_outputs[0, 1] - 2000) <= 0.21
    np.testing.assert_array_equal(noisy_outputs[0, 2:], array[0, 2:])
    assert text._with_noise(np.array([lowest]), np.random.default_rng(0), 1e-4).dtype == np.float32
    assert text._with_noise(np.array([3]), np.random.default_rng(0), 1e-4).tolist() == [3]

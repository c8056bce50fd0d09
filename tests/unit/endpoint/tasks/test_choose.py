from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks.task import takes_text
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import SourceOverrides


def chosen(folder: Path, wanted: str | None = None, **given: Any) -> tuple[str, str]:
    module, reason = tasks.choose(reader.read_source(folder, SourceOverrides(**given)), wanted)
    return module.NAME, reason


def test_what_the_files_say(tmp_path: Path) -> None:
    assert chosen(tiny.embedder(tmp_path / "e")) == ("embedding", "")
    assert chosen(tiny.classifier(tmp_path / "c")) == ("text-classification", "")
    assert chosen(tiny.tensor_model(tmp_path / "x.onnx")) == ("tensor", "")


def test_what_is_a_guess_is_said_to_be_one(tmp_path: Path) -> None:
    tiny.text_model(tmp_path / "model.onnx")
    tiny.tokenizer(tmp_path / "tokenizer.json")
    guess = "task 'embedding' is a guess from the model's files; --task overrides it"
    assert chosen(tmp_path) == ("embedding", guess)
    tiny.text_model(tmp_path / "model.onnx", output="logits")
    assert chosen(tmp_path)[0] == "text-classification"
    assert chosen(tmp_path, "tensor") == ("tensor", "")


def test_another_architecture_is_not_called_a_classifier(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "c")
    tiny.put_json(folder / "config.json", {"architectures": ["BertForMultipleChoice"]})
    name, reason = chosen(folder)
    assert name == "tensor"
    assert reason == "no task is known for this model: served as plain tensors (--task names one)"


def test_labels_without_an_architecture_name_the_tasks_to_choose_from(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "c")
    tiny.put_json(folder / "config.json", {"id2label": {"0": "bad", "1": "good"}})
    tiny.rename(folder / "model.onnx", {"logits": "scores"})
    name, reason = chosen(folder)
    assert name == "tensor"
    assert "(--task text-classification, for a label of each token token-classification)" in reason


def test_no_tokenizer(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx")
    assert chosen(path)[0] == "tensor"
    with pytest.raises(TrbError) as caught:
        chosen(path, "embedding")
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "no tokenizer.json beside the model")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(TrbError) as caught:
        chosen(path)
    assert caught.value.code == Code.SLOW_TOKENIZER
    assert chosen(path, "tensor") == ("tensor", "")


def test_a_vocabulary_beside_an_image_model_is_nobodys_business(tmp_path: Path) -> None:
    path = tiny.tensor_model(tmp_path / "m.onnx")
    (tmp_path / "vocab.txt").write_text("cat")
    assert chosen(path) == ("tensor", "")


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        ("translation", Code.USAGE, "'translation' is unknown"),
        ("", Code.USAGE, "'' is unknown"),
        ("embedding", Code.TASK_UNCLEAR, "a tokenizer cannot fill its inputs (X)"),
    ],
)
def test_tasks_that_cannot_be(wanted: str, code: Code, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        chosen(tiny.tensor_model(tmp_path / "m.onnx"), wanted)
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ([t.tensor("input_ids", ["n", "s"], t.INT64)], True),
        ([t.tensor("input_ids", ["n", "s"], t.INT32), t.tensor("attention_mask", ["n", "s"])], True),
        ([t.tensor("input_ids", ["s"], t.INT64)], False),
        ([t.tensor("input_ids", None, t.INT64)], False),
        ([t.tensor("input_ids", ["n", "s", 3], t.INT64)], False),
        ([t.tensor("input_ids", ["n", "s"])], False),
        ([t.tensor("input_ids", ["n", "s"], t.STRING)], False),
        ([t.tensor("input_ids", ["n", "s"], t.INT64), t.tensor("attention_mask", ["n", 1, "s", "s"])], False),
        ([t.tensor("input_ids", ["n", "s"], t.INT64), t.tensor("pixel_values", ["n", "s"])], False),
        ([t.tensor("attention_mask", ["n", "s"], t.INT64)], False),
    ],
)
def test_what_a_tokenizer_can_fill(inputs: list[Any], expected: bool, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(t.model([], inputs, [t.tensor("Y", ["n"])]))
    assert takes_text(reader.read_source(tmp_path / "m.onnx").signature) is expected


def test_an_input_that_no_tokenizer_fills_is_named(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "model.onnx")
    # As long as the other name, so that the file stays a valid message.
    path.write_bytes(path.read_bytes().replace(b"token_type_ids", b"global_mask_42"))
    tiny.tokenizer(tmp_path / "tokenizer.json")
    why = "a tokenizer cannot fill its input 'global_mask_42': served as plain tensors"
    assert chosen(tmp_path) == ("tensor", why)
    with pytest.raises(TrbError, match=r"does not apply to task tensor .a tokenizer cannot fill its input"):
        tiny.make(tmp_path, tmp_path / "out", pooling="mean")


@pytest.mark.parametrize(
    ("output", "config"),
    [
        ("text_embeds", {"architectures": ["CLIPTextModelWithProjection"], "projection_dim": 8}),
        ("text_features", {"architectures": ["CLIPModel"]}),
        ("pooler_output", {"model_type": "clip_text_model"}),
        ("output", {"architectures": ["ClapTextModelWithProjection"]}),
        ("embeddings", {}),
    ],
)
def test_one_vector_for_each_text_is_an_embedding(
    output: str, config: dict[str, Any], tmp_path: Path
) -> None:
    tiny.describe(tmp_path, **config)
    inputs = [t.tensor(name, ["n", "s"], t.INT64) for name in ("input_ids", "attention_mask")]
    (tmp_path / "model.onnx").write_bytes(t.model([], inputs, [t.tensor(output, ["n", 8])]))
    task, _ = chosen(tmp_path)
    assert task == "embedding"
    made = tasks.TASKS[task].plan(reader.read_source(tmp_path), BuildOptions(model=tmp_path))
    assert dict(made.facts) == {"pooling": "in the model", "normalize": False}
    # Nothing but sentence-transformers' own files could say more, and a tower of CLIP has none.
    assert bool(made.notes) == (output == "embeddings")

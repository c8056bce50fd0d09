"""Graph inputs under other names than those of transformers."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.releases import default
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.model.graph import compose, reader, walk
from triton_repo_builder.model.read import input_names
from triton_repo_builder.model.read.source import SourceOverrides

USUAL = ("input_ids", "attention_mask", "token_type_ids")


def folder(path: Path, *names: str) -> Path:
    tiny.embedder(path)
    tiny.rename(path / "model.onnx", dict(zip(USUAL, names, strict=True)))
    return path


@pytest.mark.parametrize(
    "names",
    [
        ("input.1", "attention_mask", "token_type_ids"),
        ("input_word_ids", "input_mask", "segment_ids"),
        ("input_word_ids:0", "input_mask:0", "input_type_ids:0"),
        ("serving_default_input_ids:0", "serving_default_mask:0", "serving_default_segment_ids:0"),
        ("x", "mask.1", "type_ids"),
        ("l_input_ids_", "l_attention_mask_", "l_token_type_ids_"),
        ("l_kwargs_input_ids_", "kwargs_attention_mask", "l_kwargs_token_type_ids_"),
        ("inputIds", "attentionMask", "tokenTypeIds"),
        ("Input-Ids", "Attention-Mask", "Segment-Ids"),
        ("input_ids_1", "attention_mask_1", "token_type_ids_1"),
        ("ids", "mask", "token_type"),
        ("INPUT_IDS", "MASK", "SEGMENTS"),
    ],
)
def test_recognised(names: tuple[str, str, str], tmp_path: Path) -> None:
    read = reader.read_source(folder(tmp_path, *names))
    assert [spec.name for spec in read.signature.inputs] == list(USUAL)
    assert tasks.choose(read, None)[0].NAME == "embedding"
    assert f"input '{names[0]}' is taken for input_ids (--input input_ids={names[0]})" in read.notes
    # As plain tensors they keep the names that the file has.
    assert [spec.name for spec in reader.as_exported(read).signature.inputs] == list(names)


def test_a_usual_name_that_another_tensor_has(tmp_path: Path) -> None:
    tiny.embedder(tmp_path)
    tiny.rename(tmp_path / "model.onnx", {"input_ids": "input.1", "words": "input_ids"})
    read = reader.read_source(tmp_path)
    model = reader.load(read.skeleton)
    assert "input_ids" not in {name for node in walk.nodes(model) for name in node.output}
    compose.compose(read.skeleton, weights="weights.onnx", head=None, release=default())


def test_more_than_one_reading_is_left_to_the_user(tmp_path: Path) -> None:
    path = folder(tmp_path, "a", "b", "token_type_ids")
    read = reader.read_source(path)
    module, reason = tasks.choose(read, None)
    assert module.NAME == "tensor"
    assert "--input input_ids=a" in reason
    named = reader.read_source(path, SourceOverrides(inputs=(("input_ids", "b"), ("attention_mask", "a"))))
    assert [spec.name for spec in named.signature.inputs] == ["attention_mask", "input_ids", "token_type_ids"]
    assert tasks.choose(named, None)[0].NAME == "embedding"


def test_inputs_that_are_known_are_not_called_unclear(tmp_path: Path) -> None:
    """The options that are shown name all of them: pasted, they build the model."""
    path = folder(tmp_path, "ids", "valid", "segment_ids")
    _, reason = tasks.choose(reader.read_source(path), None)
    assert "not known what 'valid' is for, which may be attention_mask or position_ids" in reason
    shown = reason[reason.index("e.g. ") + 5 : -1].split(" ")
    assert shown[::2] == ["--input"] * 3
    given = tuple((option.split("=")[0], option.split("=")[1]) for option in shown[1::2])
    assert tasks.choose(reader.read_source(path, SourceOverrides(inputs=given)), None)[0].NAME == "embedding"


def test_an_input_that_is_no_row_of_tokens_is_not_offered_a_name(tmp_path: Path) -> None:
    """BERT-Squad's ``unique_ids`` are one number for each text: no line with them could work."""
    rows = [t.tensor(f"{name}:0", ["n", 256], t.INT64) for name in ("segment_ids", "input_ids")]
    ids = t.tensor("unique_ids:0", ["n"], t.INT64)
    nodes = [t.node("Identity", ["unique_ids:0"], ["unique"]), t.node("Identity", ["input_ids:0"], ["y"])]
    outputs = [t.tensor("unique", ["n"], t.INT64), t.tensor("y", ["n", 256], t.INT64)]
    (tmp_path / "model.onnx").write_bytes(t.model(nodes, [ids, *rows], outputs))
    tiny.tokenizer(tmp_path / "tokenizer.json")
    read = reader.read_source(tmp_path)
    reason = tasks.choose(read, None)[1]
    assert reason == "a tokenizer cannot fill 'unique_ids:0', not [batch, tokens]: served as plain tensors"
    with pytest.raises(TrbError) as caught:
        tasks.choose(read, "question-answering")
    assert caught.value.remedy.startswith("export the model without 'unique_ids:0'")


def test_names_are_quoted_for_a_shell(tmp_path: Path) -> None:
    """Names with blanks: pasted, the options name all inputs."""
    path = folder(tmp_path, "ids", "valid ones", "segment_ids")
    reason = tasks.choose(reader.read_source(path), None)[1]
    shown = shlex.split(reason[reason.index("e.g. ") + 5 : -1])
    given = tuple((option.split("=")[0], option.split("=")[1]) for option in shown[1::2])
    assert tasks.choose(reader.read_source(path, SourceOverrides(inputs=given)), None)[0].NAME == "embedding"


def test_a_mask_of_padding_is_not_offered_as_an_attention_mask(tmp_path: Path) -> None:
    path = folder(tmp_path, "tokens", "padding_mask", "segment_ids")
    module, reason = tasks.choose(reader.read_source(path), None)
    assert module.NAME == "tensor"
    assert "is no attention_mask" in reason
    assert "--input" not in reason


def test_a_task_that_is_asked_for_says_how_to_name_them(tmp_path: Path) -> None:
    read = reader.read_source(folder(tmp_path, "a", "b", "token_type_ids"))
    with pytest.raises(TrbError) as caught:
        tasks.choose(read, "embedding")
    assert caught.value.code is Code.TASK_UNCLEAR
    assert "--input input_ids=a" in caught.value.remedy
    assert "attention_mask" in caught.value.remedy


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((("ids", "a"),), "'ids' is unknown"),
        ((("input_ids", "c"),), "the model has no input 'c'"),
        ((("input_ids", "a"),), "a tokenizer cannot fill 'b'"),
        ((("input_ids", "a"), ("attention_mask", "a")), "one input is named twice"),
    ],
)
def test_what_does_not_fit_is_said(given: tuple[tuple[str, str], ...], message: str, tmp_path: Path) -> None:
    path = folder(tmp_path, "a", "b", "token_type_ids")
    with pytest.raises(TrbError) as caught:
        reader.read_source(path, SourceOverrides(inputs=given))
    assert caught.value.code is Code.USAGE
    assert caught.value.message == message


def test_a_model_of_numbers_keeps_its_names(tmp_path: Path) -> None:
    """A tokenizer may be beside anything."""
    floats = [t.tensor("mask", ["n", 4]), t.tensor("x", ["n", 4])]
    (tmp_path / "model.onnx").write_bytes(t.model([], floats, [t.tensor("y", ["n", 4])]))
    tiny.tokenizer(tmp_path / "tokenizer.json")
    read = reader.read_source(tmp_path)
    assert not input_names.looks_like_text(read.signature)
    assert not read.skeleton.renamed


def test_the_original_is_asked_by_its_own_names(tmp_path: Path, output: Path) -> None:
    made = tiny.make(folder(tmp_path / "m", "input.1", "input_mask", "segment_ids"), output, golden=True)
    twin = tiny.make(folder(tmp_path / "n", *USUAL), output, golden=True, name="m")
    (own,), (usual,) = (
        [file.content for file in build.files if file.path == "m/smoke.json"] for build in (made, twin)
    )
    assert own == usual


def test_plain_tensors_take_no_names(tmp_path: Path, output: Path) -> None:
    path = folder(tmp_path / "m", "a", "b", "token_type_ids")
    with pytest.raises(TrbError) as caught:
        tiny.make(path, output, task="tensor", input=(("input_ids", "a"), ("attention_mask", "b")))
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--input")

"""What exporters leave behind is named, and taken from the folder of the original."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import source
from triton_repo_builder.model.read.source import SourceOverrides
from triton_repo_builder.produce.write.built import BuiltEndpoint

PROMPTS = "config_sentence_transformers.json"


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """As optimum writes it: the graph, the tokenizer and config.json."""
    folder = tiny.embedder(tmp_path / "exported")
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    return folder


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tiny.embedder(tmp_path / "original")
    (folder / "model.onnx").unlink()
    tiny.put_json(folder / PROMPTS, {"prompts": {"query": "query: ", "passage": ""}})
    tiny.put_json(folder / "sentence_bert_config.json", {"max_seq_length": 24})
    return folder


def facts(made: BuiltEndpoint) -> tuple[str, dict[str, object]]:
    return made.entry.served.task, made.entry.served.facts


def test_the_build_names_what_is_missing(exported: Path, output: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(exported, output)
    for name in ("modules.json", PROMPTS, "--from-model"):
        assert name in caught.value.remedy
    made = tiny.make(exported, output, pooling="mean")
    (note,) = [note for note in made.notes if "--from-model" in note]
    assert note.startswith(f"not found beside the model: modules.json with 1_Pooling/ and {PROMPTS}")


def test_it_is_taken_from_the_original(exported: Path, original: Path, output: Path) -> None:
    made = tiny.make(exported, output, from_model=original, prompt="query")
    task, found = facts(made)
    assert task == "embedding"
    assert (found["pooling"], found["normalize"], found["prompt"]) == ("mean", True, "query: ")
    assert not any("--from-model" in note for note in made.notes)
    config = next(file.content for file in made.files if file.path.endswith("_tokenizer/config.pbtxt"))
    assert b'{ key: "max_length" value { string_value: "24" } }' in config


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"hidden_size": 9}, Code.TASK_UNCLEAR, "this is another model: its hidden_size is 9"),
        ({"vocab_size": 7}, Code.TASK_UNCLEAR, "this is another model: its vocab_size is 7"),
        (None, Code.NOT_FOUND, "no config.json"),
    ],
)
def test_another_model_is_refused(
    change: dict[str, int] | None, code: Code, message: str, exported: Path, original: Path, output: Path
) -> None:
    tiny.put_json(exported / "config.json", {"hidden_size": 8, "vocab_size": 64})
    if change is None:
        (original / "config.json").unlink()
    else:
        tiny.put_json(original / "config.json", change)
    with pytest.raises(TrbError) as caught:
        tiny.make(exported, output, from_model=original)
    assert caught.value.code is code
    assert message in caught.value.message


def test_an_activation_of_a_cross_encoder(tmp_path: Path, output: Path) -> None:
    folder = tiny.classifier(tmp_path / "exported", labels=1)
    made = tiny.make(folder, output, task="rerank")
    assert any(PROMPTS in note and "--from-model" in note for note in made.notes)
    original = tiny.classifier(tmp_path / "original", labels=1)
    identity = "torch.nn.modules.linear.Identity"
    tiny.put_json(original / PROMPTS, {"activation_fn": identity})
    made = tiny.make(folder, output, from_model=original)
    assert facts(made) == ("rerank", {"activation": "none", "padding": "ragged", "rows": "single"})


@pytest.mark.parametrize("listed", [None, {"passage": "passage: "}])
def test_a_word_that_names_no_prompt_is_refused(
    listed: dict[str, str] | None, tmp_path: Path, output: Path
) -> None:
    folder = tiny.embedder(tmp_path / "m")
    if listed:
        tiny.put_json(folder / PROMPTS, {"prompts": listed})
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, output, prompt="query")
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--prompt")
    assert "--prompt 'query: '" in caught.value.remedy
    assert facts(tiny.make(folder, output, prompt="query: "))[1]["prompt"] == "query: "


def test_one_of_several_files(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "m")
    tiny.text_model(folder / "onnx" / "model_fp16.onnx")
    tiny.text_model(folder / "model_quantized.onnx")
    read = reader.read_source(folder)
    assert read.notes == (
        "of several ONNX files model.onnx is taken (--file takes another: "
        "model_quantized.onnx, onnx/model_fp16.onnx)",
    )
    named = reader.read_source(folder, SourceOverrides(file="onnx/model_fp16.onnx"))
    assert (named.path, named.notes) == (folder / "onnx" / "model_fp16.onnx", ())
    assert named.tokenizer == folder / "tokenizer.json"
    assert any("model_quantized.onnx" in note for note in tiny.make(folder, output).notes)


@pytest.mark.parametrize(
    ("model", "file", "message"),
    [("m", "x.onnx", "no such file: x.onnx"), ("m/model.onnx", "x.onnx", "--model names a file")],
)
def test_a_file_that_is_not_there(model: str, file: str, message: str, tmp_path: Path) -> None:
    tiny.embedder(tmp_path / "m")
    with pytest.raises(TrbError) as caught:
        source.model_file(tmp_path / model, file)
    assert message in str(caught.value)


def test_no_file_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(t.model([], [], []))
    with pytest.raises(TrbError) as caught:
        source.model_file(tmp_path, "a.onnx")
    assert caught.value.remedy == "it has no ONNX file"


def test_another_tokenizer_is_refused(exported: Path, original: Path, output: Path) -> None:
    tiny.tokenizer(original / "tokenizer.json", extra=["another"])
    with pytest.raises(TrbError) as caught:
        tiny.make(exported, output, from_model=original)
    assert caught.value.code is Code.TASK_UNCLEAR
    assert "its tokenizer gives tokens other ids" in caught.value.message
    made = tiny.make(exported, output, from_model=original, tokenizer=exported)
    assert facts(made)[1]["pooling"] == "mean"


@pytest.mark.parametrize("file", ["../other/model.onnx", "/tmp/model.onnx"])
def test_a_file_outside_of_the_folder(file: str, tmp_path: Path) -> None:
    tiny.embedder(tmp_path / "m")
    tiny.embedder(tmp_path / "other")
    with pytest.raises(TrbError) as caught:
        source.model_file(tmp_path / "m", file)
    assert caught.value.code is Code.USAGE


def test_an_original_without_the_files_is_not_advised_again(
    exported: Path, original: Path, output: Path
) -> None:
    (original / "modules.json").unlink()
    made = tiny.make(exported, output, from_model=original, pooling="mean")
    (note,) = [note for note in made.notes if "modules.json" in note]
    assert note.startswith(f"not found in {original}, either: modules.json")


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
@pytest.mark.parametrize("slow", [False, True])
def test_the_length_of_an_original_without_a_tokenizer_json(
    name: str, slow: bool, exported: Path, original: Path, output: Path
) -> None:
    """The tokenizer is the export's; the length and the case of texts are the original's."""
    (original / "tokenizer.json").unlink()
    (original / "sentence_bert_config.json").unlink()
    tiny.put_json(original / name, {"max_seq_length": 16, "do_lower_case": True})
    if slow:
        (original / "vocab.txt").write_text("\n".join(tiny.WORDS))
    read = reader.read_source(exported, SourceOverrides(original=original))
    assert read.tokenizer == exported / "tokenizer.json"
    spec = read.tokenizer_spec
    assert (spec.max_length, spec.max_length_from, spec.lowered) == (16, name, True)
    made = tiny.make(exported, output, from_model=original)
    assert '{ key: "max_length" value { string_value: "16" } }' in tiny.config(made, "exported_tokenizer")
    assert tiny.make(exported, output, from_model=original, max_length=24).entry


@pytest.mark.parametrize(
    ("stated", "length"),
    [
        ({"processor_kwargs": {"model_max_length": 20}, "max_seq_length": 16}, 20),
        ({"tokenizer_args": {"model_max_length": 12}}, 12),
        ({"processing_kwargs": {"text": {"max_length": 10}}, "max_seq_length": 16}, 10),
    ],
)
def test_the_length_in_the_arguments_of_the_tokenizer(
    stated: dict[str, object], length: int, tmp_path: Path
) -> None:
    folder = tiny.embedder(tmp_path / "m")
    tiny.put_json(folder / "sentence_bert_config.json", stated)
    assert reader.read_source(folder).tokenizer_spec.max_length == length

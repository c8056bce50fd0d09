from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
import transformers
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import source
from triton_repo_builder.model.read.source import SourceOverrides


@pytest.mark.parametrize("name", ["bert", "a", "_a", "BERT-base_v1.5", "0", "a" * 128, "a..b", "a-"])
def test_names_that_triton_takes(name: str) -> None:
    assert source.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "/a",
        "a b",
        " a",
        "a\n",
        "-a",
        ".a",
        "a\\b",
        "ü",
        "a" * 129,
        "a:b",
        "a?b",
        "a%20",
        "manifest.json",
    ],
)
def test_names_that_it_does_not(name: str) -> None:
    with pytest.raises(TrbError) as caught:
        source.check_name(name)
    assert caught.value.code == Code.BAD_NAME
    assert caught.value.message == f"'{name}' cannot be the name of a Triton model"
    suggested = caught.value.remedy.rsplit(" ", 1)[-1]
    assert source.check_name(suggested) == suggested


@given(st.text(max_size=300))
def test_any_text_can_be_cleaned(text: str) -> None:
    assert source.NAME.fullmatch(source.clean_name(text))
    assert len(source.clean_name(text)) <= source.LONGEST_NAME


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("bert.onnx", "bert"),
        ("minilm/model.onnx", "minilm"),
        ("minilm/onnx/model.onnx", "minilm"),
        ("minilm/model_quantized.onnx", "model_quantized"),
        ("all MiniLM (v2)/model.onnx", "all_MiniLM_v2"),
        ("模型/model.onnx", "u6a21u578b"),
        (f"models--BAAI--bge-m3/snapshots/{'5' * 40}/model.onnx", "bge-m3"),
        (f"models--BAAI--bge-m3/snapshots/{'5' * 40}/onnx/model.onnx", "bge-m3"),
        (f"models--gpt2/snapshots/{'c0ffee0123' * 4}/model.onnx", "gpt2"),
        (f"models--BAAI--bge-m3/snapshots/{'5' * 40}/fp16/model.onnx", "fp16"),
        (f"e5/{'5' * 40}/model.onnx", "e5"),
        ("a--b/model.onnx", "a--b"),
        ("minilm/1/model.onnx", "minilm"),
        ("Ärger.onnx", "Arger"),
        ("😀.onnx", "model"),
    ],
)
def test_default_names(path: str, name: str, tmp_path: Path) -> None:
    assert source.default_name(tmp_path / path) == name


def test_a_relative_path_is_named_after_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "minilm" / "onnx").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "minilm" / "onnx")
    assert source.default_name(Path("model.onnx")) == "minilm"
    assert source.default_name(Path("../model.onnx")) == "minilm"


def test_a_link_into_a_cache_is_named_after_the_link(tmp_path: Path) -> None:
    """A Hugging Face cache: models--NAME/snapshots/<commit>/onnx/model.onnx → ../../../blobs/<sha256>."""
    cache = tmp_path / "models--x--minilm"
    blob = tiny.text_model(cache / "blobs" / ("5" * 64))
    link = cache / "snapshots" / "minilm" / "onnx" / "model.onnx"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    assert source.default_name(link) == "minilm"
    tiny.describe(cache / "snapshots" / "minilm")
    read = reader.read_source(cache / "snapshots" / "minilm")
    assert read.path == link
    assert read.tokenizer == cache / "snapshots" / "minilm" / "tokenizer.json"


@pytest.mark.parametrize("name", ["model.onnx", "model_O4.onnx"])
def test_an_export_in_a_folder_of_its_own_belongs_to_the_model_around_it(name: str, tmp_path: Path) -> None:
    """optimum writes ``onnx/`` with its own config.json, and leaves modules.json where it is."""
    model = tiny.embedder(tmp_path / "e5")
    inner = model / "onnx"
    inner.mkdir()
    (model / "model.onnx").rename(inner / name)
    (inner / "config.json").write_bytes((model / "config.json").read_bytes())
    read = reader.read_source(model, SourceOverrides(file=f"onnx/{name}"))
    assert (read.original, read.tokenizer) == (model, model / "tokenizer.json")
    assert read.folder == model
    (inner / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    read = reader.read_source(model, SourceOverrides(file=f"onnx/{name}"))
    assert (read.original, read.tokenizer) == (model, inner / "tokenizer.json")
    (model / "modules.json").unlink()
    read = reader.read_source(model, SourceOverrides(file=f"onnx/{name}"))
    assert (read.original, read.tokenizer) == (None, inner / "tokenizer.json")
    assert reader.read_source(inner / name).original is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["model.onnx"], "model.onnx"),
        (["model.onnx", "model_quantized.onnx"], "model.onnx"),
        (["onnx/model.onnx", "other.onnx"], "onnx/model.onnx"),
        (["bert.onnx"], "bert.onnx"),
        (["onnx/bert.onnx"], "onnx/bert.onnx"),
    ],
)
def test_the_model_in_a_folder(files: list[str], expected: str, tmp_path: Path) -> None:
    for name in files:
        tiny.tensor_model(tmp_path / name)
    assert source.model_file(tmp_path) == tmp_path / expected


def test_several_models_are_listed(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.onnx"):
        tiny.tensor_model(tmp_path / name)
    with pytest.raises(TrbError) as caught:
        source.model_file(tmp_path)
    assert caught.value.message == "several ONNX files: a.onnx, b.onnx"
    assert caught.value.remedy == "name one, e.g. --file a.onnx"


@pytest.mark.parametrize("name", ["absent.onnx", "x" * 300, "nul\0byte"])
def test_a_model_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        source.model_file(tmp_path / name)
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "no such file or folder")


def test_a_broken_link_and_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "link.onnx").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TrbError, match="no such file or folder"):
        source.model_file(tmp_path / "link.onnx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrbError, match=r"no \.onnx file in this folder"):
        source.model_file(tmp_path / "empty")


def test_a_given_tokenizer_brings_its_configuration(tmp_path: Path) -> None:
    model = tiny.text_model(tmp_path / "model" / "model.onnx")
    folder = tiny.describe(tmp_path / "tokenizer", architectures=["X"])
    read = reader.read_source(model, SourceOverrides(tokenizer=folder))
    assert (read.tokenizer, read.folder) == (folder / "tokenizer.json", folder)
    assert read.config["architectures"] == ["X"]
    assert reader.read_source(model).tokenizer is None


@pytest.mark.parametrize("processor", ["TemplateProcessing", "BertProcessing"])
def test_types_that_transformers_does_not_hand_on(processor: str, tmp_path: Path) -> None:
    """Where model_input_names leaves them out, the model takes 0 for the second text of a pair, too."""
    tiny.classifier(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    if processor == "BertProcessing":
        document["post_processor"] = {"type": processor, "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
        tiny.put_json(tmp_path / "tokenizer.json", document)
    own = reader.read_source(tmp_path).tokenizer_spec
    assert own.content is None
    for names in (["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]):
        tiny.put_json(tmp_path / "tokenizer_config.json", {**config, "model_input_names": names})
        spec = reader.read_source(tmp_path).tokenizer_spec
        (pair,) = spec.encode([("hello the", "fox")], None)
        (expected,) = own.encode([("hello the", "fox")], None)
        made = transformers.AutoTokenizer.from_pretrained(tmp_path)("hello the", "fox")
        assert pair.ids == expected.ids == made["input_ids"]
        assert pair.type_ids == made.get("token_type_ids", [0] * len(pair.ids))
        assert pair.sequence_ids == expected.sequence_ids
    tiny.text_model(tmp_path / "model.onnx", output="logits", types=False)
    tiny.put_json(tmp_path / "tokenizer_config.json", {**config, "model_input_names": ["input_ids"]})
    assert reader.read_source(tmp_path).tokenizer_spec.content is None

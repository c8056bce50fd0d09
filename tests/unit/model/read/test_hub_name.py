"""Which paths are names of models on a Hub, and which files of one a build reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import hub as cli_hub
from triton_repo_builder.model.read import hub_files, hub_name, onnx_external, trb_toml
from triton_repo_builder.model.read.hub_name import HubName
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import model_file

E5 = "intfloat/multilingual-e5-small"
COMMIT = "5" * 40


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "revision", "file"),
    [
        (E5, "", ""),
        (f"hf://{E5}", "", ""),
        (f"hf://models/{E5}", "", ""),
        (f"{E5}@v1.0", "v1.0", ""),
        (f"hf://{E5}@{COMMIT}", COMMIT, ""),
        (f"{E5}/onnx/model_O4.onnx", "", "onnx/model_O4.onnx"),
        (f"hf://{E5}@{COMMIT}/onnx/model.onnx", COMMIT, "onnx/model.onnx"),
        (f"hf://{E5}@refs/pr/7/onnx/model.onnx", "refs/pr/7", "onnx/model.onnx"),
        (f"hf://{E5}@refs%2Fpr%2F7", "refs/pr/7", ""),
        (f"hf://{E5}@feature%2Fa/model.onnx", "feature/a", "model.onnx"),
    ],
)
def test_names(text: str, revision: str, file: str) -> None:
    assert hub_name.of(Path(text)) == HubName(model=E5, revision=revision, file=file)


@pytest.mark.parametrize(
    "text",
    [
        *("bert.onnx", "minilm", "../a/b", "/a/b", "~/a/b", "", "."),
        *("models/bert.onnx", "a/b/c", "a/b/tokenizer.json", "a/weights.safetensors", "a/old.PT", "a b/c"),
        *("a/b--c", "a/..b", "a/b@", "a/b@v1/../x.onnx", "a/-b", f"a/{'b' * 97}", "hf://a", "hf://a/b//../c"),
    ],
)
def test_paths(text: str) -> None:
    assert hub_name.of(Path(text)) is None


@pytest.mark.parametrize("place", ["a/b", "a/other", "a"])
def test_what_is_here_is_a_path(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    assert hub_name.of(Path("a/b")) is None
    assert hub_name.of(Path("hf://a/b")) == HubName(model="a/b")


def test_a_path_beside_others_that_does_not_exist_says_how_names_are_written(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(TrbError) as caught:
        model_file(Path("a/b"))
    assert caught.value.code is Code.NOT_FOUND
    assert "hf://a/b" in caught.value.remedy


def test_text_that_is_no_name_is_refused() -> None:
    with pytest.raises(TrbError) as caught:
        cli_hub.fetched(BuildOptions(model=Path("hf://minilm")))
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--model")


@pytest.mark.parametrize("sign", ["hf/hub/models--a--b", "a/b/.cache/huggingface"])
def test_a_folder_with_the_name_of_a_model_is_taken_and_said(
    sign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "a" / "b").mkdir(parents=True)
    options = BuildOptions(model=Path("a/b"))
    assert cli_hub.fetched(options) == (options, ())
    (tmp_path / sign).mkdir(parents=True)
    same, (note,) = cli_hub.fetched(options)
    assert same == options
    assert "hf://a/b" in note


@pytest.mark.parametrize(
    ("value", "model"),
    [(E5, E5), (f"hf://{E5}@v1", f"hf://{E5}@v1"), ("a/b", "sub/a/b"), ("bert.onnx", "sub/bert.onnx")],
)
def test_a_name_in_trb_toml_is_not_a_path(tmp_path: Path, value: str, model: str) -> None:
    (tmp_path / "sub" / "a" / "b").mkdir(parents=True)
    toml = Path("sub/trb.toml")
    toml.write_text(f"[build]\nmodel = {json.dumps(value)}\n")
    assert trb_toml.read_toml(toml)["model"] == Path(model)


@pytest.mark.parametrize("path", ["", "../x", "a/../../x", "/x", "a\\b", "a\x1b[2J", "a\nb"])
def test_paths_that_a_hub_may_not_state(path: str) -> None:
    assert hub_name.is_plain("a/b c.json")
    assert not hub_name.is_plain(path)


FILES = {
    *("README.md", "config.json", "tokenizer.json", "tokenizer_config.json", "sentencepiece.bpe.model"),
    *("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"),
    *("2_Dense/pytorch_model.bin", "pytorch_model.bin", "model.safetensors", "modeling_e5.py", "train.pkl"),
    *("onnx/model.onnx", "onnx/model_O4.onnx", "onnx/config.json", "onnx/tokenizer.json", "onnx/README.md"),
    *("openvino/openvino_model.xml", "openvino/tokenizer.json", "onnx/special_tokens_map.json", "logo.png"),
}


def test_only_what_a_build_reads_is_needed() -> None:
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "../x": "Dense"}
    assert hub_files.companions(FILES, "onnx/model.onnx", modules) == [
        *("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "README.md"),
        *("config.json", "modules.json", "onnx/config.json", "onnx/special_tokens_map.json"),
        *("onnx/tokenizer.json", "tokenizer.json", "tokenizer_config.json"),
    ]
    without = FILES - {"tokenizer.json"}
    assert "sentencepiece.bpe.model" in hub_files.companions(without, "onnx/model.onnx", modules)
    weights = hub_files.companions(FILES | {"0_T/model.safetensors"}, "model.onnx", {"0_T": "Transformer"})
    assert "0_T/model.safetensors" not in weights


@pytest.mark.parametrize(
    ("files", "candidates"),
    [
        (("a.onnx", "onnx/model.onnx"), ["a.onnx"]),
        (("onnx/a.onnx", "fp16/b.onnx", "onnx/c.onnx"), ["onnx/a.onnx", "onnx/c.onnx"]),
        (("x/y/b.onnx", "a/c.onnx", "a/c.onnx_data"), ["a/c.onnx", "x/y/b.onnx"]),
        (("config.json",), []),
    ],
)
def test_candidates(files: tuple[str, ...], candidates: list[str]) -> None:
    assert hub_files.candidates(files) == candidates


def test_external_data_is_what_the_graph_names(tmp_path: Path) -> None:
    model = tiny.externalise(tiny.embedder(tmp_path) / "model.onnx", "weights of it")
    places = onnx_external.locations(model)
    assert places == ("weights of it",)
    assert onnx_external.locations(tiny.tensor_model(tmp_path / "plain.onnx")) == ()
    files = {"onnx/weights of it", "weights of it", "onnx/w.pt", "w.pt", "onnx/data.bin"}
    stated = (*places, "w.pt", "../weights of it", "/etc/passwd", "data.bin", "absent")
    assert hub_files.external(files, "onnx/model.onnx", stated) == ["onnx/data.bin", "onnx/weights of it"]

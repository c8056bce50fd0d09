from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from tokenizers import Tokenizer

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import tokenizer


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (None, "")),
        ({"tokenizer_config.json": {"model_max_length": 512}}, (512, "tokenizer_config.json")),
        ({"tokenizer_config.json": {"model_max_length": 10**30}}, (None, "")),
        ({"tokenizer_config.json": {"model_max_length": 1e30}}, (None, "")),
        ({"tokenizer_config.json": {"model_max_length": "512"}}, (None, "")),
        ({"config.json": {"max_position_embeddings": 512}}, (512, "config.json")),
        ({"config.json": {"n_positions": 1024}}, (1024, "config.json")),
        (
            {
                "tokenizer_config.json": {"model_max_length": 512},
                "config.json": {"max_position_embeddings": 384},
            },
            (384, "config.json"),
        ),
        (
            {
                "tokenizer_config.json": {"model_max_length": 128},
                "config.json": {"max_position_embeddings": 384},
            },
            (128, "tokenizer_config.json"),
        ),
        (
            {
                "sentence_bert_config.json": {"max_seq_length": 256},
                "tokenizer_config.json": {"model_max_length": 128},
                "config.json": {"max_position_embeddings": 512},
            },
            (256, "sentence_bert_config.json"),
        ),
        (
            {"sentence_bert_config.json": {"max_seq_length": None}, "config.json": {"n_positions": 9}},
            (9, "config.json"),
        ),
        (
            {"config.json": {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}},
            (512, "config.json"),
        ),
        ({"config.json": {"model_type": "roberta", "max_position_embeddings": 514}}, (512, "config.json")),
        (
            {"config.json": {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 0}},
            (513, "config.json"),
        ),
        (
            {
                "config.json": {
                    "model_type": "xlm-roberta",
                    "max_position_embeddings": 8194,
                    "pad_token_id": 1,
                }
            },
            (8192, "config.json"),
        ),
        ({"config.json": {"model_type": "deberta-v2", "max_position_embeddings": 512}}, (512, "config.json")),
        ({"config.json": []}, (None, "")),
        ({"tokenizer_config.json": {"max_len": 64}}, (64, "tokenizer_config.json")),
        ({"tokenizer_config.json": {"max_len": 64, "model_max_length": 32}}, (32, "tokenizer_config.json")),
    ],
)
def test_max_length(files: dict[str, Any], expected: tuple[int | None, str], tmp_path: Path) -> None:
    for name, document in files.items():
        tiny.put_json(tmp_path / name, document)
    assert tokenizer.max_length(tmp_path) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"model_type": "bert", "max_position_embeddings": 512, "position_embedding_type": "absolute"}, 512),
        # Its table holds distances, which are as many.
        ({"max_position_embeddings": 512, "position_embedding_type": "relative_key"}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "relative_attention_num_buckets": 32}, 512),
        ({"model_type": "roformer", "max_position_embeddings": 1536, "rotary_value": False}, 1536),
        ({"model_type": "deberta-v2", "max_position_embeddings": 512, "relative_attention": True}, 512),
        ({"model_type": "deberta-v2", "max_position_embeddings": 512, "position_biased_input": False}, None),
        ({"model_type": "t5", "n_positions": 512}, None),
        ({"model_type": "modernbert", "max_position_embeddings": 8192}, None),
        ({"model_type": "new", "max_position_embeddings": 8192, "position_embedding_type": "rope"}, None),
        ({"model_type": "bert", "max_position_embeddings": 8192, "position_embedding_type": "alibi"}, None),
        ({"model_type": "qwen2", "max_position_embeddings": 32768, "rope_theta": 1e6}, None),
    ],
)
def test_table_of_positions(config: dict[str, Any], expected: int | None) -> None:
    assert tokenizer.table_of_positions(config) == expected


@pytest.mark.parametrize(
    ("files", "pad"),
    [
        ({}, 0),
        ({"tokenizer_config.json": {"pad_token": "[SEP]"}}, 3),
        ({"tokenizer_config.json": {"pad_token": {"content": "[SEP]"}}}, 3),
        ({"tokenizer_config.json": {"pad_token": "absent"}, "config.json": {"pad_token_id": 7}}, 7),
        ({"tokenizer_config.json": {"pad_token": None}, "config.json": {"pad_token_id": 7}}, 7),
        ({"config.json": {"pad_token_id": None}}, 0),
        ({"config.json": {"pad_token_id": [5]}}, 0),
    ],
)
def test_pad_id(files: dict[str, Any], pad: int, tmp_path: Path) -> None:
    file = tiny.tokenizer(tmp_path / "tokenizer.json", baked=False)
    for name, document in files.items():
        tiny.put_json(tmp_path / name, document)
    assert tokenizer.read(file).pad_id == pad


def test_the_baked_padding_names_the_pad_id(tmp_path: Path) -> None:
    file = tiny.tokenizer(tmp_path / "tokenizer.json")
    file.write_text(file.read_text().replace('"pad_id": 0', '"pad_id": 9'))
    assert tokenizer.read(file).pad_id == 9


def test_what_a_tokenizer_says(tmp_path: Path) -> None:
    tiny.describe(tmp_path)
    read = tokenizer.read(tmp_path / "tokenizer.json")
    assert (read.max_length, read.max_length_from) == (24, "tokenizer_config.json")
    assert (read.largest_id, read.special_tokens) == (len(tiny.WORDS) - 1, 2)


def test_added_tokens_count_for_the_largest_id(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    file = tiny.tokenizer(tmp_path / "tokenizer.json")
    made = Tokenizer.from_file(str(file))
    made.add_tokens(["<new>"])
    made.save(str(file))
    assert tokenizer.read(file).largest_id == len(tiny.WORDS)


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"", Code.TOKENIZER_INVALID, "is not a tokenizer.json that 'tokenizers' can load"),
        (b"{}", Code.TOKENIZER_INVALID, "is not a tokenizer.json"),
        (b"\xff\xfe", Code.TOKENIZER_INVALID, "is not a tokenizer.json"),
        (b"version https://git-lfs.github.com/spec/v1\noid", Code.LFS_POINTER, "this is a git-LFS pointer"),
    ],
)
def test_files_that_are_no_tokenizer(content: bytes, code: Code, message: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(TrbError) as caught:
        tokenizer.read(file)
    assert caught.value.code == code
    assert message in caught.value.message


def test_a_configuration_that_is_no_json(tmp_path: Path) -> None:
    tiny.describe(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TrbError, match="is not readable JSON") as caught:
        tokenizer.read(tmp_path / "tokenizer.json")
    assert caught.value.where == str(tmp_path / "tokenizer_config.json")


# --- where it is looked for --------------------------------------------------------------------------


def test_beside_the_model_or_in_the_parent_that_belongs_to_it(tmp_path: Path) -> None:
    file = tiny.describe(tmp_path) / "tokenizer.json"
    (tmp_path / "onnx").mkdir()
    assert tokenizer.find(tmp_path) == file
    assert tokenizer.find(tmp_path / "onnx") == file
    assert tokenizer.settings(tmp_path / "onnx", "config.json")["vocab_size"] == tiny.ROWS


def test_a_model_with_its_own_configuration_has_no_parent(tmp_path: Path) -> None:
    tiny.describe(tmp_path)
    tiny.put_json(tmp_path / "other" / "config.json", {"model_type": "gpt2"})
    assert tokenizer.find(tmp_path / "other") is None
    assert tokenizer.settings(tmp_path / "other", "tokenizer_config.json") == {}


def test_files_of_a_parent_without_tokenizer_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("// a project's own, and no JSON")
    (tmp_path / "models").mkdir()
    assert tokenizer.settings(tmp_path / "models", "config.json") == {}


def test_relative_paths_have_parents_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny.describe(tmp_path / "model") / "tokenizer.json"
    (tmp_path / "model" / "onnx").mkdir()
    monkeypatch.chdir(tmp_path / "model" / "onnx")
    found = tokenizer.find(Path())
    assert found is not None
    assert found.samefile(file)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    tiny.tokenizer(Path("tokenizer.json"))
    assert tokenizer.find(Path("..")) is None


def test_a_tokenizer_without_its_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert tokenizer.find(tmp_path) is None
    with pytest.raises(TrbError) as caught:
        tokenizer.locate(tmp_path)
    assert caught.value.code == Code.SLOW_TOKENIZER
    assert "has 'tokenizer_config.json', but neither tokenizer.json nor a vocabulary" in caught.value.message


@pytest.mark.parametrize(("said", "side"), [({}, "right"), ({"truncation_side": "left"}, "left")])
def test_truncation_side(said: dict[str, Any], side: str, tmp_path: Path) -> None:
    tiny.describe(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    tiny.put_json(file, {**json.loads(file.read_text()), **said})
    assert tokenizer.read(tmp_path / "tokenizer.json").truncation_side == side


@pytest.mark.parametrize("what", ["truncation", "padding"])
@pytest.mark.parametrize(
    ("saved", "said", "side"),
    [
        ("Left", {}, "left"),
        ("Left", {"truncation_side": "right", "padding_side": "right"}, "right"),
        ("Right", {"truncation_side": "left", "padding_side": "left"}, "left"),
    ],
)
def test_the_sides_that_are_saved_in_tokenizer_json(
    what: str, saved: str, said: dict[str, Any], side: str, tmp_path: Path
) -> None:
    # transformers takes them unless tokenizer_config.json says otherwise.
    tiny.describe(tmp_path)
    file = tmp_path / "tokenizer.json"
    document = json.loads(file.read_text())
    document[what]["direction"] = saved
    tiny.put_json(file, document)
    tiny.put_json(tmp_path / "tokenizer_config.json", said)
    assert getattr(tokenizer.read(file), f"{what}_side") == side


@pytest.mark.parametrize(
    ("named", "model", "side"),
    [("XLNetTokenizerFast", "", "left"), ("", "xlnet", "left"), ("", "llama", "left"), ("", "bert", "right")],
)
def test_the_side_of_padding_of_a_class(named: str, model: str, side: str, tmp_path: Path) -> None:
    tiny.tokenizer(tmp_path / "tokenizer.json", baked=False)
    tiny.put_json(tmp_path / "config.json", {"model_type": model})
    tiny.put_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": named, "clean_up": True})
    assert tokenizer.read(tmp_path / "tokenizer.json").padding_side == side


def test_positions_of_roberta_count_from_the_pad_id(tmp_path: Path) -> None:
    assert not tokenizer.read(tiny.describe(tmp_path / "bert") / "tokenizer.json").positions_from_pad
    folder = tiny.describe(tmp_path / "roberta", model_type="roberta")
    assert tokenizer.read(folder / "tokenizer.json").positions_from_pad


def test_the_users_file_is_served_as_it_is(tmp_path: Path) -> None:
    file = tiny.describe(tmp_path) / "tokenizer.json"
    assert tokenizer.read(file).content is None
    assert tokenizer.read(file).served == file.read_bytes()


def test_tokenizer_config_has_the_last_word(tmp_path: Path) -> None:
    file = tiny.tokenizer(tmp_path / "tokenizer.json", baked=False)
    tiny.put_json(
        tmp_path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    )
    served = Tokenizer.from_str(tokenizer.read(file).served.decode())
    assert Tokenizer.from_file(str(file)).encode("Hello").tokens == ["[CLS]", "hello", "[SEP]"]
    assert served.encode("Hello").tokens == ["[CLS]", "[UNK]", "[SEP]"]


@pytest.mark.parametrize("name", ["absent", "x" * 300, "absent/tokenizer.json"])
def test_a_tokenizer_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tokenizer.locate(tmp_path / name)
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "no such tokenizer")


def test_a_file_under_any_name_can_be_given(tmp_path: Path) -> None:
    file = tiny.tokenizer(tmp_path / "mine.json")
    assert tokenizer.locate(file) == file


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    tiny.describe(tmp_path / "real")
    (tmp_path / "real" / "onnx").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "onnx", target_is_directory=True)
    found = tokenizer.find(tmp_path / "link")
    assert found is not None
    assert found.samefile(tmp_path / "real" / "tokenizer.json")


@pytest.mark.parametrize("model", ["ibert", "roberta", "markuplm", "xlm-roberta-xl", "data2vec-text"])
def test_positions_that_begin_behind_the_pad_id(model: str, tmp_path: Path) -> None:
    """514 positions hold 512 tokens, however long a text the tokenizer would give."""
    tiny.put_json(tmp_path / "config.json", {"model_type": model, "max_position_embeddings": 514})
    assert tokenizer.max_length(tmp_path) == (512, "config.json")


@pytest.mark.parametrize("named", ["tokenizer_config.json", "config.json"])
def test_a_class_that_cuts_words_in_python(named: str, tmp_path: Path) -> None:
    """RoFormer's saves BERT's pre-tokenizer in the place of its own, which is rjieba's."""
    tiny.describe(tmp_path, **({"model_type": "roformer"} if named == "config.json" else {}))
    settings = {"tokenizer_class": "RoFormerTokenizerFast"} if named != "config.json" else {}
    tiny.put_json(tmp_path / "tokenizer_config.json", settings)
    with pytest.raises(TrbError) as caught:
        tokenizer.read(tmp_path / "tokenizer.json")
    assert caught.value.code is Code.SLOW_TOKENIZER
    assert "rjieba" in caught.value.message
    tiny.put_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    assert tokenizer.read(tmp_path / "tokenizer.json").pad_id == 0


@pytest.mark.parametrize(
    ("settings", "noted"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, True),
        ({"tokenizer_class": "EsmTokenizer"}, True),
        ({"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}, True),
        ({"tokenizer_class": "BertTokenizer", "auto_map": {"AutoModel": "mine.Model"}}, False),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, False),
    ],
)
def test_a_class_of_python_code_beside_a_tokenizer_json(
    settings: dict[str, Any], noted: bool, tmp_path: Path
) -> None:
    tiny.describe(tmp_path)
    tiny.put_json(tmp_path / "tokenizer_config.json", settings)
    notes = tokenizer.read(tmp_path / "tokenizer.json").notes
    assert [settings["tokenizer_class"] in note for note in notes] == [True] * noted


@pytest.mark.parametrize(("model", "length"), [("mpnet", 512), ("roberta", None)])
def test_a_padding_id_at_the_end_of_the_vocabulary(model: str, length: int | None, tmp_path: Path) -> None:
    """MPNet's positions begin at 2, whatever pads; no RoBERTa can have such an id."""
    config = {"model_type": model, "max_position_embeddings": 514, "pad_token_id": 700}
    tiny.put_json(tmp_path / "config.json", config)
    assert tokenizer.max_length(tmp_path)[0] == length


def test_a_tokenizer_without_words(tmp_path: Path) -> None:
    """What transformers 5 saves for a folder whose vocabulary is missing."""
    tiny.put_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    error = tokenizer.slow_error(tmp_path, "tokenizer_config.json")
    assert "--from-model" in error.remedy
    assert "save_pretrained" not in error.remedy
    transformers.AutoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    with pytest.raises(TrbError) as caught:
        tokenizer.read(tmp_path / "tokenizer.json")
    assert caught.value.code is Code.TOKENIZER_INVALID
    assert "knows no words" in caught.value.message


@pytest.mark.parametrize("split", [True, False])
def test_special_tokens_in_a_text(split: bool, tmp_path: Path) -> None:
    tiny.describe(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    tiny.put_json(tmp_path / "tokenizer_config.json", {**config, "split_special_tokens": split})
    text = "the [SEP] fox [CLS][PAD]"
    expected = transformers.AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"]
    spec = tokenizer.read(tmp_path / "tokenizer.json")
    assert spec.encode([(text,)], None)[0].ids == expected
    assert (expected.count(3) == 1) == split


def test_the_older_layout_of_sentence_transformers(tmp_path: Path) -> None:
    """The transformer lies in a folder of its own: 0_Transformer."""
    tiny.describe(tmp_path / "0_Transformer")
    modules = [
        {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    ]
    tiny.put_json(tmp_path / "modules.json", modules)
    assert tokenizer.find(tmp_path) == tmp_path / "0_Transformer" / "tokenizer.json"
    assert tokenizer.settings(tmp_path, "config.json")["model_type"] == "bert"
    tiny.put_json(tmp_path / "modules.json", [{**modules[0], "path": "../0_Transformer"}])
    assert tokenizer.find(tmp_path) is None

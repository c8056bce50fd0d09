from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import tiny
import transformers
from tokenizers import Tokenizer

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import slow_tokenizer, tokenizer

SENTENCES = ("This is a photo of a cat.", "Two people at a table, red and green", "A landscape; don't panic!")


def slow_bert(folder: Path, **settings: object) -> Path:
    """vocab.txt and tokenizer_config.json as the slow BertTokenizer saves them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join((*tiny.WORDS, "[MASK]")) + "\n")
    tiny.put_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **settings})
    tiny.put_json(folder / "config.json", {"model_type": "bert"})
    return folder


@pytest.mark.parametrize("name", slow_tokenizer.VOCABULARIES)
def test_a_vocabulary_is_found(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert tokenizer.find(tmp_path) == tmp_path / name
    assert tokenizer.locate(tmp_path) == tmp_path / name


def test_a_fast_one_is_preferred(tmp_path: Path) -> None:
    slow_bert(tmp_path)
    tiny.tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.find(tmp_path) == tmp_path / "tokenizer.json"


def test_a_vocabulary_is_converted(tmp_path: Path) -> None:
    spec = tokenizer.read(slow_bert(tmp_path, model_max_length=24) / "vocab.txt")
    served = Tokenizer.from_str(spec.served.decode())
    assert served.encode("Hello the").tokens == ["[CLS]", "hello", "the", "[SEP]"]
    assert served.encode("fox", "the").type_ids == [0, 0, 0, 1, 1]
    assert (spec.pad_id, spec.max_length, spec.special_tokens) == (0, 24, 2)
    assert json.loads(spec.served)["model"]["type"] == "WordPiece"


def test_its_settings_count(tmp_path: Path) -> None:
    spec = tokenizer.read(slow_bert(tmp_path, do_lower_case=False) / "vocab.txt")
    assert Tokenizer.from_str(spec.served.decode()).encode("Hello").tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_the_same_bytes_again(tmp_path: Path) -> None:
    file = slow_bert(tmp_path) / "vocab.txt"
    assert slow_tokenizer.convert(file) == slow_tokenizer.convert(file)


def test_what_it_was_made_of(tmp_path: Path) -> None:
    names = [file.name for file in slow_tokenizer.sources(slow_bert(tmp_path) / "vocab.txt")]
    assert names == ["vocab.txt", "tokenizer_config.json"]


def test_a_class_without_a_fast_form_is_named(tmp_path: Path) -> None:
    folder = slow_bert(tmp_path, tokenizer_class="CanineTokenizer")
    with pytest.raises(TrbError) as caught:
        tokenizer.read(folder / "vocab.txt")
    assert caught.value.code == Code.SLOW_TOKENIZER
    assert "CanineTokenizer has no fast form" in caught.value.message


@pytest.mark.parametrize("name", ["Roberta", "GPT2", "T5", "XLMRoberta", "Luke", "Deberta"])
def test_a_class_that_reads_other_files(name: str, tmp_path: Path) -> None:
    """transformers 5 makes a tokenizer of five special tokens without a word."""
    folder = slow_bert(tmp_path, tokenizer_class=f"{name}Tokenizer")
    with pytest.raises(TrbError) as caught:
        tokenizer.read(folder / "vocab.txt")
    assert caught.value.code == Code.SLOW_TOKENIZER
    assert f"{name}Tokenizer does not read it" in caught.value.message


@pytest.mark.parametrize("file", ["vocab.json", "spiece.model", "sentencepiece.bpe.model"])
def test_a_bert_whose_vocabulary_is_called_otherwise(file: str, tmp_path: Path) -> None:
    folder = slow_bert(tmp_path)
    words = (folder / "vocab.txt").read_text().split()
    (folder / "vocab.txt").unlink()
    if file == "vocab.json":
        tiny.put_json(folder / file, {word: number for number, word in enumerate(words)})
    else:
        (folder / file).write_bytes(unigram())
    with pytest.raises(TrbError) as caught:
        tokenizer.read(folder / file)
    assert caught.value.code == Code.SLOW_TOKENIZER
    assert "BertTokenizer does not read it" in caught.value.message


@pytest.mark.parametrize(
    ("name", "file", "single"),
    [
        ("RemBert", "sentencepiece.model", ["[CLS]", "▁a", "[SEP]"]),
        ("Barthez", "sentencepiece.bpe.model", ["<s>", "▁a", "</s>"]),
        ("XLNet", "spiece.model", ["▁a", "<sep>", "<cls>"]),
        ("Camembert", "sentencepiece.bpe.model", ["<s>", "▁a", "</s>"]),
        ("MBart", "sentencepiece.bpe.model", ["▁a", "</s>", "en_XX"]),
        ("MBart50", "sentencepiece.bpe.model", ["en_XX", "▁a", "</s>"]),
    ],
)
def test_a_sentencepiece_model_is_converted_as_transformers_4_does(
    name: str, file: str, single: list[str], tmp_path: Path
) -> None:
    """Classes of transformers 5 leave out the space before a text, or the tokens around it."""
    control = "[CLS],[SEP],[MASK]" if name == "RemBert" else "<sep>,<cls>" if name == "XLNet" else ""
    (tmp_path / file).write_bytes(unigram(control))
    tiny.put_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": f"{name}Tokenizer"})
    spec = tokenizer.read(tmp_path / file)
    assert spec.library.encode("a").tokens == single


def test_merges_are_converted_with_the_tokens_around_a_pair(tmp_path: Path) -> None:
    special = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
    letters = dict.fromkeys("abĠ")
    tiny.put_json(tmp_path / "vocab.json", {token: n for n, token in enumerate((*special, *letters, "ab"))})
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    tiny.put_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "DebertaTokenizer"})
    pair = tokenizer.read(tmp_path / "vocab.json").library.encode("ab", "a")
    assert pair.tokens == ["[CLS]", "ab", "[SEP]", "a", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 1, 1]


def unigram(control: str = "") -> bytes:
    """A small SentencePiece model."""
    import io

    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4),
        model_writer=written,
        vocab_size=90,
        hard_vocab_limit=False,
        minloglevel=2,
        **({"control_symbols": control} if control else {}),
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    )
    return written.getvalue()


def test_a_folder_that_says_nothing_of_its_class(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(TrbError) as caught:
        tokenizer.read(tmp_path / "vocab.txt")
    assert caught.value.code == Code.SLOW_TOKENIZER
    assert "has 'vocab.txt' but no tokenizer.json" in caught.value.message


def test_sentencepiece_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spiece.model").write_bytes(b"")
    for module in ("sentencepiece", "sentencepiece.sentencepiece_model_pb2"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TrbError) as caught:
        tokenizer.read(tmp_path / "spiece.model")
    assert caught.value.code == Code.SLOW_TOKENIZER
    assert "needs the package sentencepiece" in caught.value.message
    assert "triton_repo_builder[sentencepiece]" in caught.value.remedy


@pytest.mark.parametrize("name", ["CanineTokenizer", "BertJapaneseTokenizer"])
def test_no_remedy_writes_what_cannot_be_written(name: str, tmp_path: Path) -> None:
    folder = slow_bert(tmp_path, tokenizer_class=name)
    with pytest.raises(TrbError) as caught:
        tokenizer.read(folder / "vocab.txt")
    assert caught.value.code is Code.SLOW_TOKENIZER
    assert f"{name} has no fast form" in caught.value.message
    assert caught.value.remedy == slow_tokenizer.WITHOUT
    (folder / "vocab.txt").unlink()
    error = tokenizer.slow_error(folder, "tokenizer_config.json")
    assert (error.code, error.remedy) == (Code.SLOW_TOKENIZER, slow_tokenizer.WITHOUT)


@pytest.mark.parametrize("name", sorted(slow_tokenizer.NO_FAST_FORM))
def test_transformers_has_no_fast_form_of_it_either(name: str) -> None:
    made = getattr(transformers, name, None)
    assert made is None or not issubclass(made, transformers.PreTrainedTokenizerFast)


def test_siglips_is_made_of_its_rules(tmp_path: Path) -> None:
    """transformers has no fast form of it, and optimum leaves only its spiece.model."""
    (tmp_path / "spiece.model").write_bytes(unigram())
    settings = {
        "tokenizer_class": "SiglipTokenizer",
        "model_max_length": 64,
        "model_input_names": ["input_ids"],
    }
    tiny.put_json(tmp_path / "tokenizer_config.json", settings)
    tiny.put_json(tmp_path / "config.json", {"model_type": "siglip"})
    own = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert not own.is_fast
    served = Tokenizer.from_str(slow_tokenizer.convert(tmp_path / "spiece.model"))
    hard = (
        "",
        " ",
        "This is a photo of a cat.",
        " two  people,\tat\na table!",
        "DON'T",
        "▁x ▁",
        "ÜBER_ß",
        "(:",
        "🗼 é",
    )
    for text in (*SENTENCES, *hard):
        assert served.encode(text).ids == own(text)["input_ids"], text

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import reference as golden
from triton_repo_builder.produce.build import Build

ZERO_SHOT = {"task": "zero-shot-classification", "hypothesis_template": "{}"}
TEXTS = ("hello the fox", "the fox", "fox ☃ hello", "a b c d e f")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.classifier(tmp_path_factory.mktemp("model"))


def texts(folder: Path, *lines: str, name: str = "texts.txt") -> Path:
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def references(built: Build) -> dict[str, Any]:
    return {
        file.path: json.loads(file.content) for file in built.files if file.path.endswith("/reference.json")
    }


# --- texts of a file


def test_formats_of_a_file_of_texts(tmp_path: Path) -> None:
    jsonl = (json.dumps({"text": "one", "id": 1}), json.dumps({"TEXT": "two", "TEXT_PAIR": "three"}))
    assert golden.texts(texts(tmp_path, "one", "", " two ")) == ("one", "two")
    assert golden.texts(texts(tmp_path, *jsonl, name="a.jsonl")) == ("one", jsonl[1])
    assert golden.texts(texts(tmp_path, "id,text", '1,"one, two"', "2,", name="a.csv")) == ("one, two",)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.txt", b"", Code.USAGE),
        ("a.txt", b" \n\n", Code.USAGE),
        ("a.txt", b"\xff\xfe", Code.USAGE),
        ("a.csv", b"id,words\n1,x\n", Code.USAGE),
        ("a.csv", b"", Code.USAGE),
        ("a.csv", b"text\n\n", Code.USAGE),
        ("a.csv", b"text\n" + b"x" * 200_000 + b"\n", Code.USAGE),
        ("a.jsonl", b'{"text": "x"}\nplain\n', Code.USAGE),
        ("a.jsonl", b'{"text": ""}\n', Code.USAGE),
        ("a.jsonl", b'{"text": 3}\n', Code.USAGE),
        ("a.jsonl", b'{"words": "x"}\n', Code.USAGE),
        ("missing.txt", None, Code.NOT_FOUND),
    ],
)
def test_a_broken_file_is_named(name: str, content: bytes | None, code: Code, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TrbError) as caught:
        golden.texts(tmp_path / name)
    assert (caught.value.code, caught.value.where) == (code, str(tmp_path / name))


def test_texts_are_taken_evenly() -> None:
    assert golden.spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert golden.spread(range(3), 5) == [0, 1, 2]


# --- in a build


def test_tokens_and_answers_of_a_file(classifier: Path, tmp_path: Path) -> None:
    built = tiny.make(classifier, tmp_path, golden=True, name="m", reference=texts(tmp_path, *TEXTS))
    found = {
        metric: stored
        for document in references(built).values()
        for metric, stored in document["distributions"].items()
    }
    assert {document["source"] for document in references(built).values()} == {"texts.txt"}
    assert set(found) == {"text_tokens", "unknown_tokens", "answers", "answer_confidence"}
    assert {stored["texts"] for stored in found.values()} == {4}
    # [CLS] and [SEP] besides: 5, 4, 5 and 8 tokens, of which one is unknown.
    lengths = {name: share for name, share in found["text_tokens"]["shares"].items() if share}
    assert lengths == {"4": 0.25, "8": 0.75}
    assert found["unknown_tokens"]["shares"] == {"unknown": round(1 / 22, 6), "known": round(21 / 22, 6)}
    assert list(found["answers"]["shares"]) == ["label 0", "label 1", "label 2"]
    for metric in ("answers", "answer_confidence"):
        assert sum(found[metric]["shares"].values()) == pytest.approx(1)
    assert any("4 texts tokenized, 4 answered" in note for note in built.notes)


def test_the_same_texts_give_the_same_bytes(classifier: Path, tmp_path: Path) -> None:
    file = texts(tmp_path, *TEXTS)
    first, second = (
        {each.path: each.content for each in tiny.make(classifier, tmp_path, name="m", reference=file).files}
        for _ in range(2)
    )
    assert first == second


def test_without_the_original_model_only_tokens_are_measured(classifier: Path, tmp_path: Path) -> None:
    built = tiny.make(classifier, tmp_path, name="m", reference=texts(tmp_path, *TEXTS))
    [document] = references(built).values()
    assert set(document["distributions"]) == {"text_tokens", "unknown_tokens"}
    assert references(tiny.make(classifier, tmp_path, name="m")) == {}


def test_without_a_file_the_golden_cases_are_the_reference(classifier: Path, tmp_path: Path) -> None:
    built = tiny.make(classifier, tmp_path, golden=True, name="m")
    documents = references(built)
    assert {document["source"] for document in documents.values()} == {golden.GOLDEN}
    assert documents["m_tokenizer/1/reference.json"]["distributions"]["text_tokens"]["texts"] == 12


def test_without_metrics_there_is_no_reference(classifier: Path, tmp_path: Path) -> None:
    assert references(tiny.make(classifier, tmp_path, golden=True, name="m", metrics="off")) == {}
    with pytest.raises(TrbError) as caught:
        tiny.make(classifier, tmp_path, name="m", metrics="off", reference=texts(tmp_path, *TEXTS))
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--reference")


def test_tokenizers_are_shared_by_endpoints_with_the_same_reference(classifier: Path, tmp_path: Path) -> None:
    shared = {"golden": True, "share_tokenizer": True}
    one, two, other = (
        references(tiny.make(classifier, tmp_path, name=name, **shared, **more))
        for name, more in (("a", {}), ("b", {}), ("c", {"reference": texts(tmp_path, *TEXTS)}))
    )
    assert list(one) == list(two) != list(other)
    for document in (*one.values(), *other.values()):
        assert set(document["distributions"]) == {"text_tokens", "unknown_tokens"}, "whose answers?"


def test_embeddings_have_no_answers(tmp_path: Path) -> None:
    file = texts(tmp_path, *TEXTS)
    built = tiny.make(tiny.embedder(tmp_path / "model"), tmp_path, golden=True, name="m", reference=file)
    assert list(references(built)) == ["m_tokenizer/1/reference.json"]


def test_labels_of_zero_shot_classification_come_from_the_file_only(classifier: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"TEXT": text, "LABELS": ["hello", "fox"]}) for text in TEXTS]
    stated, plain = (
        references(tiny.make(classifier, tmp_path, golden=True, name="m", reference=file, **ZERO_SHOT))
        for file in (texts(tmp_path, *lines, name="a.jsonl"), texts(tmp_path, *TEXTS))
    )
    answers = stated["m_postprocess/1/reference.json"]["distributions"]["answers"]
    assert (set(answers["shares"]), answers["texts"]) == ({"hello", "fox"} & set(answers["shares"]), 4)
    assert list(plain) == ["m_tokenizer/1/reference.json"]


def test_a_line_with_other_inputs_is_refused(classifier: Path, tmp_path: Path) -> None:
    file = texts(tmp_path, json.dumps({"QUERY": "x"}), name="a.jsonl")
    with pytest.raises(TrbError) as caught:
        tiny.make(classifier, tmp_path, name="m", reference=file)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--reference")


def test_models_without_texts_refuse_a_reference(tmp_path: Path) -> None:
    model = tiny.tensor_model(tmp_path / "model.onnx")
    with pytest.raises(TrbError) as caught:
        tiny.make(model, tmp_path, reference=texts(tmp_path, *TEXTS))
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--reference")

"""``--labels FILE``: forms, counts, and what a build makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from triton_repo_builder.base.errors import Code, TrbError

CLASSIFIER = Path(__file__).parents[3] / "data" / "models" / "embedding" / "classifier"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("labels.txt", "good\nbad\nso so\n\n"),
        ("labels.txt", "\ufeffgood\r\nbad\r\nso so"),
        ("labels.json", '{"2": "so so", "0": "good", "1": "bad"}'),
        ("labels.json", '["good", "bad", "so so"]'),
        ("config.json", '{"model_type": "bert", "id2label": {"0": "good", "1": "bad", "2": "so so"}}'),
    ],
)
def test_forms(name: str, content: str, tmp_path: Path, output: Path) -> None:
    (tmp_path / name).write_text(content)
    made = tiny.make(CLASSIFIER, output, labels=tmp_path / name)
    assert made.entry.served.facts["labels"] == ["good", "bad", "so so"]
    assert name in {source.file for source in made.entry.served.sources}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("labels.txt", "good\nbad\n", "names 2 labels, and no output of the model has so many: logits"),
        ("labels.txt", "good\n\nbad\n", "label 1 is '', not a name"),
        ("labels.txt", "\n", "names no label"),
        ("labels.json", '{"0": "good", "1": "bad"', "is not valid JSON"),
        ("labels.json", '{"1": "good", "2": "bad", "3": "so so"}', 'the keys are not "0", "1" and so on'),
        ("labels.json", '{"good": 0, "bad": 1}', 'the keys are not "0", "1" and so on'),
        ("labels.json", '{"0": ["n1", "good"], "1": "bad", "2": "c"}', "label 0 is ["),
        ("labels.json", "7", 'the keys are not "0", "1" and so on'),
    ],
)
def test_refusals(name: str, content: str, words: str, tmp_path: Path, output: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TrbError) as caught:
        tiny.make(CLASSIFIER, output, labels=tmp_path / name)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--labels")
    assert words in caught.value.message


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_is_no_text(content: bytes | None, tmp_path: Path, output: Path) -> None:
    if content is not None:
        (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(TrbError) as caught:
        tiny.make(CLASSIFIER, output, labels=tmp_path / "labels.txt")
    assert caught.value.code is Code.USAGE


def test_a_model_without_labels_refuses_them(tmp_path: Path, output: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(f"label {number}" for number in range(32)))
    with pytest.raises(TrbError) as caught:
        tiny.make(CLASSIFIER.parent / "minilm_fp32", output, labels=tmp_path / "labels.txt")
    assert caught.value.code is Code.USAGE
    assert caught.value.message.startswith("does not apply to task embedding")

"""``trb optimize --labelled``: what the model reaches on its task, before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny
from cli import call, trb

from triton_repo_builder.measure.optimize import speed
from triton_repo_builder.model.graph import per_row

STEPS = ("--steps", "int8:per-row", "--max-drop", "1")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of 8 × 8 count, and no second is spent on each measurement."""
    monkeypatch.setattr(per_row, "SMALLEST", 16)
    monkeypatch.setattr(speed, "SECONDS", 0.0)


def _file(tmp_path: Path, *lines: Any) -> Path:
    file = tmp_path / "labelled.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def _measured(model: Path, file: Path) -> list[dict[str, float]]:
    out = file.with_name("out")
    report = json.loads(
        trb("optimize", str(model), "-o", str(out), "--labelled", str(file), *STEPS, "--json")
    )
    assert report["labelled"] == {"count": len(file.read_text().splitlines())}
    assert report == json.loads((out / "optimize.json").read_text())
    return [step["labelled"] for step in report["steps"]]


def test_labels(tmp_path: Path) -> None:
    model = tiny.classifier(tmp_path / "model", labels=2)
    texts = ["good film", "bad", "the film is good", "a bad day", "is it"]
    session = onnxruntime.InferenceSession(str(model / "model.onnx"))
    tokenizer = tiny_tokenizer(model)
    names = {value.name for value in session.get_inputs()}
    own = []
    for text in texts:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (logits,) = session.run(None, {name: feeds[name] for name in names})
        own.append(int(logits.argmax()))
    lines: list[Any] = [
        {"TEXT": text, "label": f"label {label}"} for text, label in zip(texts, own, strict=True)
    ]
    lines[0]["label"] = f"label {1 - own[0]}"
    original, _ = _measured(model, _file(tmp_path, *lines))
    assert original["accuracy"] == 0.8 and 0 < original["F1"] < 1


def tiny_tokenizer(model: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(model / "tokenizer.json"))


@pytest.mark.slow
def test_similar_texts_and_documents(exported: Path, tmp_path: Path) -> None:
    model = exported / "minilm_fp32"
    similar = [
        {"TEXT": ["good film", "good film"], "score": 5},
        {"TEXT": ["good film", "bad"], "score": 0.5},
    ]
    original, _ = _measured(model, _file(tmp_path, *similar))
    assert original == {"Spearman": 1.0}
    (tmp_path / "out").rename(tmp_path / "other")
    ranked = {"QUERY": "good film", "DOCUMENTS": ["bad", "good film"], "relevance": [0, 1]}
    original, _ = _measured(model, _file(tmp_path, ranked))
    assert original == {"nDCG@10": 1.0}


def test_the_table_has_a_column_for_each_measure(tmp_path: Path) -> None:
    model = tiny.classifier(tmp_path / "model", labels=2)
    file = _file(tmp_path, {"TEXT": "good", "label": "label 0"})
    output = trb("optimize", str(model), "-o", str(tmp_path / "out"), "--labelled", str(file), *STEPS)
    assert "1 labelled examples" in output and "labelled accuracy" in output and "labelled F1" in output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "example 1 is not a JSON object"),
        ("[1]", "example 1 is not a JSON object"),
        ('{"TEXT": "good"}', "example 1: there is no label"),
        ('{"TEXT": "good", "label": "label 7"}', "example 1: label is not of the form of the example"),
        ('{"label": "label 0"}', "example 1: TEXT must be a text"),
        ('{"TEXT": "good", "label": "label 0", "MORE": 1}', "example 1: 'MORE' is not known"),
        ("", "holds no text"),
    ],
)
def test_what_is_no_example_is_refused(line: str, message: str, tmp_path: Path) -> None:
    model = tiny.classifier(tmp_path / "model", labels=2)
    (tmp_path / "bad.jsonl").write_text(line + "\n")
    done = call("optimize", model, "-o", tmp_path / "out", "--labelled", tmp_path / "bad.jsonl")
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_without_such_a_measure(tmp_path: Path) -> None:
    path = tiny.tensor_model(tmp_path / "model.onnx")
    done = call("optimize", path, "-o", tmp_path / "out", "--labelled", _file(tmp_path, {"x": 1}))
    assert (done.returncode, "knows no measure for the task tensor" in done.stderr) == (2, True)

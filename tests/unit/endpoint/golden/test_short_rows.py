"""A graph with the length of its example text in it: dynamic axes, and wrong at every other length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tiny
from onnx import numpy_helper

from triton_repo_builder.base.errors import Code, TrbError


def reranker(folder: Path, place: int) -> Path:
    """Reads the token at a fixed place: fails on rows that end before it."""
    tiny.classifier(folder, labels=1)
    tiny.describe(
        folder,
        architectures=["BertForSequenceClassification"],
        sentence_transformers={"activation_fn": "torch.nn.modules.activation.Sigmoid"},
    )
    model = onnx.load(folder / "model.onnx")
    for initializer in model.graph.initializer:
        if initializer.name == "first":
            initializer.CopyFrom(numpy_helper.from_array(np.array(place), "first"))
    onnx.save(model, folder / "model.onnx")
    return folder


def test_rows_that_a_request_can_make_must_run(tmp_path: Path, output: Path) -> None:
    """The golden pairs have 9 tokens and more; one word each is 5."""
    with pytest.raises(TrbError) as caught:
        tiny.make(reranker(tmp_path / "r", place=5), output, golden=True, task="rerank")
    assert caught.value.code == Code.GOLDEN_FAILED
    assert "two lengths" in caught.value.remedy
    assert "--no-golden" not in caught.value.remedy


def test_a_graph_that_fails_below_that_is_noted(tmp_path: Path, output: Path) -> None:
    made = tiny.make(reranker(tmp_path / "r", place=3), output, golden=True, task="rerank")
    assert [note for note in made.notes if "fails on 2 and 3 tokens" in note]


def test_nothing_is_said_of_a_graph_that_runs_on_any_length(tmp_path: Path, output: Path) -> None:
    made = tiny.make(reranker(tmp_path / "r", place=0), output, golden=True, task="rerank")
    assert not [note for note in made.notes if "tokens" in note]

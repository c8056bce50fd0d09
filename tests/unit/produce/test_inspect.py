from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce import inspect


def test_a_text_model(tmp_path: Path) -> None:
    found = inspect.inspect(tiny.embedder(tmp_path / "bert"))
    document = inspect.as_json(found)
    assert json.loads(json.dumps(document)) == document
    assert document["task"] == "embedding"
    assert (document["max_length"], document["vocabulary"]) == (24, tiny.ROWS)
    assert (document["batchable"], document["problem"]) == (True, None)
    assert document["releases"] == document["releases_after_build"]
    assert document["tokenizer"] == str(tmp_path / "bert" / "tokenizer.json")


def test_a_graph_of_one_length_cuts_there(tmp_path: Path) -> None:
    found = inspect.inspect(tiny.embedder(tmp_path / "bert", length=16))
    assert (found.max_length, found.max_length_from) == (16, "the graph's second axis")


def test_what_prevents_batching_is_named(tmp_path: Path) -> None:
    document = inspect.as_json(
        inspect.inspect(tiny.tensor_model(tmp_path / "m.onnx", batch=4, out=["n", 32]))
    )
    assert document["batchable"] is False
    assert document["batching_prevented_by"] == "X"
    assert document["batching_reason"] == "the first axis of input 'X' is fixed at 4"


def test_lowering_widens_the_releases(tmp_path: Path) -> None:
    found = inspect.inspect(tiny.tensor_model(tmp_path / "m.onnx", ir_version=11))
    assert "24.10" in found.after_lowering
    assert "24.10" not in found.releases


def test_what_a_build_would_stumble_over_is_shown_not_raised(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(t.model([], [t.tensor("X", ["n"])], [t.sequence("Y")]))
    found = inspect.inspect(tmp_path / "m.onnx")
    assert found.problem is not None
    assert found.problem.code == Code.UNSUPPORTED_TYPE
    problem = inspect.as_json(found)["problem"]
    assert (problem["code"], problem["message"]) == (
        Code.UNSUPPORTED_TYPE.kind,
        "output 'Y' is a sequence; Triton carries only tensors",
    )


def test_what_cannot_be_read_is_raised(tmp_path: Path) -> None:
    with pytest.raises(TrbError):
        inspect.inspect(tmp_path / "absent.onnx")


def test_flat_tokens_are_shown_as_the_file_has_them() -> None:
    static = Path(__file__).resolve().parents[2] / "data" / "models" / "embedding" / "static"
    shown = inspect.inspect(static)
    assert [spec.name for spec in shown.source.signature.inputs] == ["input_ids", "offsets"]
    assert (shown.task, shown.max_length, shown.max_length_from) == ("embedding", 256, "tokenizer.json")

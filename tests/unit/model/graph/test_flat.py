"""Graphs that take the tokens of all rows end to end (StaticEmbedding, Model2Vec)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.golden import original
from triton_repo_builder.endpoint.tasks import embedding
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.options import BuildOptions

STATIC = Path(__file__).resolve().parents[3] / "data" / "models" / "embedding" / "static"
ROWS = ([2, 3], [], [5], [7, 7, 8], [])
"""Empty ones among them."""


def bags(path: Path, ids: str = "input_ids", kind: int = t.INT64, others: Any = ()) -> Path:
    """Vectors [tokens, 1] that are the ids, and their sum in each row by CumSum; [batch, 1]."""
    nodes = [
        t.node("Cast", [ids], ["values"], to=t.FLOAT),
        t.node("CumSum", ["values", "axis"], ["through"]),
        t.node("Concat", ["nothing", "through"], ["before"], axis=0),
        t.node("Shape", [ids], ["length"]),
        t.node("Cast", ["offsets"], ["starts"], to=t.INT64),
        t.node("Slice", ["starts", "second", "most"], ["later"]),
        t.node("Concat", ["later", "length"], ["ends"], axis=0),
        t.node("Gather", ["before", "ends"], ["to"]),
        t.node("Gather", ["before", "starts"], ["from"]),
        t.node("Sub", ["to", "from"], ["sums"]),
        t.node("Reshape", ["sums", "column"], ["embeddings"]),
    ]
    constants = [
        t.constant("axis", t.INT64, [], [0]),
        t.constant("nothing", t.FLOAT, [1], [0.0]),
        t.constant("second", t.INT64, [1], [1]),
        t.constant("most", t.INT64, [1], [2**62]),
        t.constant("column", t.INT64, [2], [-1, 1]),
    ]
    inputs = [t.tensor(ids, ["tokens"], kind), t.tensor("offsets", ["batch"], kind), *others]
    outputs = [t.tensor("embeddings", ["batch", 1])]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(t.model(nodes, inputs, outputs, initializers=constants))
    return path


def folder(place: Path, **graph: Any) -> Path:
    bags(place / "model.onnx", **graph)
    for name in ("tokenizer.json", "modules.json"):
        shutil.copyfile(STATIC / name, place / name)
    return place


def padded(rows: Any, kind: Any = np.int64) -> dict[str, Any]:
    """Rows as others have them; what fills them up is any token."""
    width = max(1, *map(len, rows))
    ids, mask = np.full((len(rows), width), 9, kind), np.zeros((len(rows), width), np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)], mask[number, : len(row)] = row, 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("ids", ["input_ids", "tokens"])
@pytest.mark.parametrize("kind", [t.INT64, t.INT32])
@pytest.mark.parametrize("rows", [ROWS, ROWS[1:2], ROWS[:1], ([], []), ([1] * 3000, [2])])
def test_rows_of_tokens_give_the_answers_of_the_file(ids: str, kind: int, rows: Any, tmp_path: Path) -> None:
    source = reader.read_source(folder(tmp_path, ids=ids, kind=kind))
    assert [str(spec) for spec in source.signature.inputs] == [
        f"input_ids {'int64' if kind == t.INT64 else 'int32'}[batch, tokens]",
        "attention_mask int64[batch, tokens]",
    ]
    feeds = padded(rows, np.int64 if kind == t.INT64 else np.int32)
    model = reader.load(source.skeleton)
    onnx.checker.check_model(model, full_check=True)
    (served,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(served[:, 0], [sum(row) for row in rows])
    (recorded,) = original.load(source).run(None, feeds)
    np.testing.assert_array_equal(recorded, served)


def test_it_is_an_embedding_of_texts_and_tensors_as_it_stands(tmp_path: Path, output: Path) -> None:
    source = reader.read_source(folder(tmp_path / "m"))
    assert tasks.choose(source, None)[0] is embedding
    made = tiny.make(tmp_path / "m", output, golden=True)
    assert made.plan.task == "embedding"
    assert "trb_tokens" in tiny.config(made, "m_model")
    plain = tiny.make(tmp_path / "m", output, golden=True, task="tensor")
    assert 'name: "offsets"' in tiny.config(plain, "m")
    assert reader.as_exported(source).skeleton.flat is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"others": [t.tensor("weights", ["tokens"])]}, "three inputs"),
        ({"ids": "values_of"}, "not called ids"),
    ],
)
def test_other_flat_inputs_are_tensors(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert reader.read_source(folder(tmp_path, **change)).skeleton.flat is None, reason


def test_the_tokenizer_is_tokenizer_json_alone(tmp_path: Path) -> None:
    place = folder(tmp_path)
    tiny.put_json(place / "tokenizer_config.json", {"model_max_length": 5, "do_lower_case": False})
    tiny.put_json(place / "sentence_bert_config.json", {"max_seq_length": 3, "do_lower_case": True})
    spec = reader.read_source(place).tokenizer_spec
    stated = json.loads((place / "tokenizer.json").read_text())
    assert stated["post_processor"] is not None
    assert json.loads(spec.served) == {**stated, "post_processor": None}
    assert (spec.max_length, spec.max_length_from, spec.special_tokens) == (256, "tokenizer.json", 0)
    assert spec.library.encode("hello").ids == spec.library.encode("hello", add_special_tokens=False).ids
    stated["truncation"] = None
    tiny.put_json(place / "tokenizer.json", stated)
    assert reader.read_source(place).tokenizer_spec.max_length is None


def test_a_table_that_is_too_small_for_the_tokenizer(tmp_path: Path, output: Path) -> None:
    shutil.copytree(STATIC, tmp_path / "s")
    assert reader.read_source(tmp_path / "s").signature.vocabulary == 540
    model = onnx.load(tmp_path / "s" / "model.onnx")
    (table,) = (tensor for tensor in model.graph.initializer if len(tensor.dims) == 2)
    table.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(table)[:99], table.name))
    onnx.save(model, tmp_path / "s" / "model.onnx")
    with pytest.raises(TrbError) as caught:
        tiny.make(tmp_path / "s", output)
    assert caught.value.code is Code.TOKENIZER_MISMATCH


@pytest.mark.parametrize(
    ("output", "pooling"), [("last_hidden_state", "mean"), ("embeddings", "in the model")]
)
def test_padded_rows_of_static_embedding(output: str, pooling: str, tmp_path: Path) -> None:
    place = tiny.embedder(tmp_path)
    shutil.copyfile(STATIC / "modules.json", place / "modules.json")
    inputs = [t.tensor(name, ["n", "s"], t.INT64) for name in ("input_ids", "attention_mask")]
    shape = ["n", 8] if output == "embeddings" else ["n", "s", 8]
    (place / "model.onnx").write_bytes(t.model([], inputs, [t.tensor(output, shape)]))
    source = reader.read_source(place)
    assert source.tokenizer_spec.special_tokens == 0
    facts = dict(embedding.plan(source, BuildOptions(model=place)).facts)
    assert facts == {"pooling": pooling, "normalize": True}


def test_what_model2vec_itself_does_otherwise(tmp_path: Path) -> None:
    place = folder(tmp_path)
    options = BuildOptions(model=place)
    assert embedding.UNKNOWN_COUNT not in embedding.plan(reader.read_source(place), options).notes
    tiny.put_json(place / "config.json", {"model_type": "model2vec", "normalize": True})
    assert embedding.UNKNOWN_COUNT in embedding.plan(reader.read_source(place), options).notes


def test_files_of_the_original_without_a_config(tmp_path: Path, output: Path) -> None:
    exported = bags(tmp_path / "exported" / "model.onnx").parent
    original_folder = tmp_path / "original"
    original_folder.mkdir()
    for name in ("tokenizer.json", "modules.json"):
        shutil.copyfile(STATIC / name, original_folder / name)
    made = tiny.make(exported, output, from_model=original_folder)
    assert made.plan.task == "embedding"

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder import source
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.options import BuildOptions
from triton_repo_builder.tasks import embedding
from triton_repo_builder.tasks.base import TaskPlan


def plan(folder: Path, **options: Any) -> TaskPlan:
    return embedding.plan(source.read(folder), BuildOptions(model=folder, **options))


def facts(folder: Path, **options: Any) -> dict[str, Any]:
    return dict(plan(folder, **options).facts)


def refused(folder: Path, code: Exit, message: str, **options: Any) -> TrbError:
    with pytest.raises(TrbError) as caught:
        plan(folder, **options)
    assert (caught.value.code, caught.value.message) == (code, message)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(("flag", "pooling"), embedding.FLAGS.items())
@pytest.mark.parametrize("normalise", [False, True])
def test_what_the_sentence_transformers_files_say(
    flag: str, pooling: str, normalise: bool, tmp_path: Path
) -> None:
    tiny.text_model(tmp_path / "model.onnx")
    tiny.describe(tmp_path)
    tiny.pooling(tmp_path, flag, normalise=normalise)
    assert facts(tmp_path) == {"pooling": pooling, "normalize": normalise}
    assert facts(tmp_path, pooling="max", normalize=not normalise) == {
        "pooling": "max",
        "normalize": not normalise,
    }


def test_the_newer_form_of_the_pooling_file(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    tiny.put_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "cls", "include_prompt": True})
    assert facts(folder)["pooling"] == "cls"


def test_files_beside_the_onnx_folder(tmp_path: Path) -> None:
    tiny.text_model(tmp_path / "onnx" / "model.onnx")
    tiny.describe(tmp_path)
    tiny.pooling(tmp_path)
    assert facts(tmp_path)["pooling"] == "mean"
    assert facts(tmp_path / "onnx" / "model.onnx")["pooling"] == "mean"


def test_somebody_elses_modules_in_the_parent_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    tiny.text_model(folder / "model.onnx")
    tiny.describe(folder)
    tiny.embedder(tmp_path)
    message = "nothing says how to pool the token vectors of output 'last_hidden_state'"
    refused(folder, Exit.TASK_UNCLEAR, message)
    assert facts(folder, pooling="lasttoken") == {"pooling": "lasttoken", "normalize": False}


@pytest.mark.parametrize("name", ["means", "", "CLS"])
def test_a_pooling_that_is_none(name: str, tmp_path: Path) -> None:
    error = refused(tiny.embedder(tmp_path), Exit.USAGE, f"'{name}' is unknown", pooling=name)
    assert error.where == "--pooling"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "pooling by no mode is not supported"),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "pooling by cls and mean is not supported",
        ),
        ({"pooling_mode": "attention"}, "pooling by attention is not supported"),
    ],
)
def test_pooling_files_that_say_something_else(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    tiny.put_json(folder / "1_Pooling" / "config.json", config)
    refused(folder, Exit.UNSUPPORTED_MODEL, message)


@pytest.mark.parametrize("document", [3, ["x"], {"a": 1}])
def test_modules_that_are_no_list(document: Any, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    tiny.put_json(folder / "modules.json", document)
    with pytest.raises(TrbError, match="is no list of modules"):
        plan(folder)


def dense(folder: Path) -> Path:
    """modules.json that names a module which trb does not put into the graph."""
    kinds = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Dense", "2_Dense"),
        ("Normalize", "3_Normalize"),
    ]
    tiny.put_json(
        folder / "modules.json",
        [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds],
    )
    return folder


def test_an_unknown_module_is_refused_unless_it_is_in_the_graph(tmp_path: Path) -> None:
    folder = dense(tiny.embedder(tmp_path / "m"))
    error = refused(
        folder, Exit.UNSUPPORTED_MODEL, "the sentence-transformers module 'Dense' is not supported yet"
    )
    assert "inside the graph" in error.remedy
    content = t.model(
        [
            t.node("Identity", ["input_ids"], ["token_embeddings"]),
            t.node("Cast", ["input_ids"], ["sentence_embedding"], to=t.FLOAT),
        ],
        [t.tensor("input_ids", ["n", "s"], t.INT64)],
        [t.tensor("token_embeddings", ["n", "s", 8]), t.tensor("sentence_embedding", ["n", 8])],
    )
    (folder / "model.onnx").write_bytes(content)
    assert facts(folder) == {"pooling": "in the model", "normalize": True}


@pytest.mark.parametrize(
    ("outputs", "bound", "pooling"),
    [
        ([("last_hidden_state", 3), ("pooler_output", 2)], "last_hidden_state", "mean"),
        ([("x", 3), ("last_hidden_state", 3)], "last_hidden_state", "mean"),
        ([("x", 3)], "x", "mean"),
        ([("x", 2)], "x", "in the model"),
        ([("embeddings", 2), ("last_hidden_state", 3)], "embeddings", "in the model"),
    ],
)
def test_which_output_is_meant(
    outputs: list[tuple[str, int]], bound: str, pooling: str, tmp_path: Path
) -> None:
    folder = tiny.embedder(tmp_path)
    shapes = [t.tensor(name, ["n", "s", 8] if rank == 3 else ["n", 8]) for name, rank in outputs]
    (folder / "model.onnx").write_bytes(t.model([], [t.tensor("input_ids", ["n", "s"], t.INT64)], shapes))
    made = plan(folder)
    assert made.head is not None
    assert (made.head.bind["hidden"], dict(made.facts)["pooling"]) == (bound, pooling)


def test_token_vectors_of_unknown_rank(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    (folder / "model.onnx").write_bytes(
        t.model([], [t.tensor("input_ids", ["n", "s"], t.INT64)], [t.tensor("last_hidden_state", None)])
    )
    refused(folder, Exit.TASK_UNCLEAR, "the model has no output of token vectors [batch, tokens, width]")


def test_the_reference_pools_only_what_the_mask_shows(tmp_path: Path) -> None:
    made = plan(tiny.embedder(tmp_path), normalize=False)
    hidden = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    answer = made.reference({"last_hidden_state": hidden}, np.array([[1, 1, 0]]))
    np.testing.assert_array_equal(answer["embedding"], [[2, 3, 4, 5]])
    assert answer["embedding"].dtype == np.float32

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny
import tiny_onnx as t
from safetensors.numpy import save_file

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import embedding
from triton_repo_builder.endpoint.tasks.support import saved_modules
from triton_repo_builder.endpoint.tasks.task import TaskPlan
from triton_repo_builder.model.graph import compose, reader
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.options import BuildOptions


def plan(folder: Path, **options: Any) -> TaskPlan:
    return embedding.plan(reader.read_source(folder), BuildOptions(model=folder, **options))


def facts(folder: Path, **options: Any) -> dict[str, Any]:
    return dict(plan(folder, **options).facts)


def refused(folder: Path, code: Code, message: str, **options: Any) -> TrbError:
    with pytest.raises(TrbError) as caught:
        plan(folder, **options)
    assert (caught.value.code, caught.value.message) == (code, message)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(("flag", "pooling"), saved_modules.FLAGS.items())
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


def test_the_pooling_file_of_a_model_of_another_width(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    tiny.put_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": 999, "pooling_mode_cls_token": True},
    )
    note = f"1_Pooling/config.json pools vectors of 999 values, and the model's have {tiny.WIDTH}"
    assert any(note in said for said in plan(folder).notes)
    assert not any(note in said for said in plan(folder, pooling="mean").notes)


def test_pooling_is_read_without_the_list_of_modules_and_a_note_says_so(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    (folder / "modules.json").unlink()
    tiny.put_json(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})
    made = plan(folder)
    assert ("pooling", "cls") in made.facts
    (note,) = [note for note in made.notes if "modules.json" in note]
    assert "sentence-transformers would not read 1_Pooling/ without it; it is read here" in note
    assert "which say Dense layers, normalising and prompts" in note


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
    message = "no file says how to pool the token vectors of output 'last_hidden_state'"
    refused(folder, Code.TASK_UNCLEAR, message)
    assert facts(folder, pooling="lasttoken") == {"pooling": "lasttoken", "normalize": False}


@pytest.mark.parametrize("name", ["means", "", "CLS"])
def test_a_pooling_that_is_none(name: str, tmp_path: Path) -> None:
    error = refused(tiny.embedder(tmp_path), Code.USAGE, f"'{name}' is unknown", pooling=name)
    assert error.where == "--pooling"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"pooling_mode": []}, "pooling by no mode is not supported"),
        ({"pooling_mode": ["mean"] * 1000}, "pooling by 1,000 modes is not supported"),
        ({"pooling_mode": "attention"}, "pooling by attention is not supported"),
        ({"pooling_mode": ["cls", "first"]}, "pooling by first is not supported"),
    ],
)
def test_pooling_files_that_say_something_else(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    tiny.put_json(folder / "1_Pooling" / "config.json", config)
    refused(folder, Code.UNSUPPORTED_MODEL, message)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        # Vectors are joined in the order of the flags, whatever that in the file is.
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls+mean"),
        ({"pooling_mode_mean_tokens": False}, "mean"),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, "mean_sqrt_len"),
        ({"pooling_mode": ["max"]}, "max"),
        ({"pooling_mode": ["mean", "cls"], "pooling_mode_max_tokens": True}, "mean+cls"),
    ],
)
def test_pooling_files_of_every_release(config: dict[str, Any], pooling: str, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    tiny.put_json(folder / "1_Pooling" / "config.json", config)
    made = plan(folder)
    assert dict(made.facts)["pooling"] == pooling
    assert made.outputs[0].dims == (tiny.WIDTH * (1 + pooling.count("+")),)
    assert facts(folder, pooling="cls+max")["pooling"] == "cls+max"


@pytest.mark.parametrize("document", [3, ["x"], {"a": 1}])
def test_modules_that_are_no_list(document: Any, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    tiny.put_json(folder / "modules.json", document)
    with pytest.raises(TrbError, match="is not a list of modules"):
        plan(folder)


def with_lstm(folder: Path) -> Path:
    """modules.json that names a module which trb does not put into the graph."""
    kinds = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("LSTM", "2_LSTM"),
        ("Normalize", "3_Normalize"),
    ]
    tiny.put_json(
        folder / "modules.json",
        [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds],
    )
    return folder


def test_an_unknown_module_is_refused_unless_it_is_in_the_graph(tmp_path: Path) -> None:
    folder = with_lstm(tiny.embedder(tmp_path / "m"))
    error = refused(
        folder, Code.UNSUPPORTED_MODEL, "the sentence-transformers module 'LSTM' is not supported"
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
    message = (
        "the model has no output of token vectors [batch, tokens, width]; it has last_hidden_state float[?]"
    )
    refused(folder, Code.TASK_UNCLEAR, message)


def test_the_reference_pools_only_what_the_mask_shows(tmp_path: Path) -> None:
    made = plan(tiny.embedder(tmp_path), normalize=False)
    hidden = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    answer = made.reference({"last_hidden_state": hidden}, np.array([[1, 1, 0]]))
    np.testing.assert_array_equal(answer["embedding"], [[2, 3, 4, 5]])
    assert answer["embedding"].dtype == np.float32


def with_dense(folder: Path, activation: str, *, bias: bool = True) -> tuple[Path, Any, Any]:
    """Pooling, a Dense layer of 8 → 5, Normalize; returns the layer's weight [out, in] and bias too."""
    kinds = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Dense", "2_Dense"),
        ("Normalize", "3_Normalize"),
    ]
    entries = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    tiny.put_json(folder / "modules.json", entries)
    rng = np.random.default_rng(0)
    tensors = {"linear.weight": rng.normal(size=(5, 8)).astype(np.float32)}
    if bias:
        tensors["linear.bias"] = rng.normal(size=5).astype(np.float32)
    (folder / "2_Dense").mkdir()
    save_file(tensors, str(folder / "2_Dense" / "model.safetensors"))
    config = {"in_features": 8, "out_features": 5, "activation_function": f"torch.nn.modules.x.{activation}"}
    tiny.put_json(folder / "2_Dense" / "config.json", config)
    return folder, tensors["linear.weight"], tensors.get("linear.bias", np.zeros(5))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Identity", lambda x: x),
        ("Tanh", np.tanh),
        ("ReLU", lambda x: np.maximum(x, 0)),
        ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("GELU", lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2),
        ("SiLU", lambda x: x / (1 + np.exp(-x))),
        ("Mish", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
        ("LeakyReLU", lambda x: np.where(x > 0, x, x / 100)),
        ("ELU", lambda x: np.where(x > 0, x, np.exp(x) - 1)),
        ("SELU", lambda x: 1.05070098 * np.where(x > 0, x, 1.67326324 * (np.exp(x) - 1))),
        ("Softplus", lambda x: np.log1p(np.exp(x))),
        ("Softsign", lambda x: x / (1 + np.abs(x))),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer_runs_in_the_graph(name: str, function: Any, bias: bool, tmp_path: Path) -> None:
    folder, weight, shift = with_dense(tiny.embedder(tmp_path / "m"), name, bias=bias)
    made = plan(folder)
    assert dict(made.facts) == {"pooling": "mean", "dense": [5], "normalize": True}
    assert made.outputs[0].dims == (5,)
    graph = skeleton.read(folder / "model.onnx")
    content = compose.compose(graph, weights="model.onnx", head=made.head, release=releases.default())
    (folder / "served.onnx").write_bytes(content)
    feeds = {"input_ids": [[2, 5, 3]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}
    arrays = {key: np.array(value) for key, value in feeds.items()}
    hidden = onnxruntime.InferenceSession(str(folder / "model.onnx")).run(["last_hidden_state"], arrays)[0]
    rows = function(hidden.mean(axis=1).astype(np.float64) @ weight.T + shift)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    served = onnxruntime.InferenceSession(str(folder / "served.onnx")).run(["embedding"], arrays)[0]
    np.testing.assert_allclose(served, rows, atol=3e-6)
    recorded = made.reference({"last_hidden_state": hidden}, arrays["attention_mask"])["embedding"]
    np.testing.assert_allclose(recorded, rows, atol=3e-6)


def test_a_dense_layer_that_cannot_be_read(tmp_path: Path) -> None:
    folder, _, _ = with_dense(tiny.embedder(tmp_path / "m"), "GLU")
    error = refused(folder, Code.UNSUPPORTED_MODEL, "the activation GLU of a Dense module is not supported")
    assert "--library sentence_transformers --task sentence-similarity" in error.remedy
    tiny.put_json(folder / "2_Dense" / "config.json", {"activation_function": "own.GELU"})
    message = "the activation own.GELU, which is no class of torch, of a Dense module is not supported"
    refused(folder, Code.UNSUPPORTED_MODEL, message)
    other, _, _ = with_dense(tiny.embedder(tmp_path / "n"), "Tanh")
    (other / "2_Dense" / "model.safetensors").unlink()
    refused(other, Code.UNSUPPORTED_MODEL, "the Dense module has no model.safetensors")


def test_a_dense_layer_of_another_model(tmp_path: Path) -> None:
    folder, _, _ = with_dense(tiny.embedder(tmp_path / "m"), "Tanh")
    save_file({"linear.weight": np.ones((5, 7), np.float32)}, str(folder / "2_Dense" / "model.safetensors"))
    message = "the Dense module takes 7 values, and the vector before it has 8"
    assert refused(folder, Code.UNSUPPORTED_MODEL, message).where.endswith("2_Dense")


def ordered(folder: Path, *kinds: str) -> Path:
    """The Dense model of ``with_dense``, its modules in another order."""
    made, _, _ = with_dense(tiny.embedder(folder), "Tanh")
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    entries = [{"type": f"sentence_transformers.models.{kind}", "path": paths[kind]} for kind in kinds]
    tiny.put_json(made / "modules.json", entries)
    return made


@pytest.mark.parametrize(
    "kinds",
    [
        ("Transformer", "Dense", "Pooling", "Normalize"),
        ("Transformer", "Normalize", "Pooling"),
        ("Transformer", "Pooling", "Pooling"),
    ],
)
def test_modules_in_another_order_give_another_vector(kinds: tuple[str, ...], tmp_path: Path) -> None:
    ran = ", ".join(kinds[1:])
    message = f"the modules run as {ran}; only one Pooling, before all others, is supported"
    error = refused(ordered(tmp_path / "m", *kinds), Code.UNSUPPORTED_MODEL, message)
    assert error.where.endswith("modules.json")


def answers(folder: Path, made: TaskPlan) -> tuple[Any, Any, Any]:
    """(token vectors, served answer, recorded answer) of one text."""
    graph = skeleton.read(folder / "model.onnx")
    content = compose.compose(graph, weights="model.onnx", head=made.head, release=releases.default())
    (folder / "served.onnx").write_bytes(content)
    feeds = {"input_ids": [[2, 5, 3]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}
    arrays = {key: np.array(value) for key, value in feeds.items()}
    hidden = onnxruntime.InferenceSession(str(folder / "model.onnx")).run(["last_hidden_state"], arrays)[0]
    served = onnxruntime.InferenceSession(str(folder / "served.onnx")).run([made.outputs[0].name], arrays)[0]
    recorded = made.reference({"last_hidden_state": hidden}, arrays["attention_mask"])
    return hidden, served, recorded[made.outputs[0].name]


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("opset", [13, 17])
def test_layers_in_any_order_after_pooling(opset: int, tmp_path: Path) -> None:
    """Normalize before a layer, LayerNorm, and modules that do nothing when a model answers."""
    folder, weight, bias = with_dense(tiny.embedder(tmp_path / "m", opset=opset), "Tanh")
    order = [
        *(
            ("Transformer", ""),
            ("Pooling", "1_Pooling"),
            ("Normalize", "3_Normalize"),
            ("Dropout", "9_Dropout"),
        ),
        *(
            ("Dense", "2_Dense"),
            ("LayerNorm", "4_LayerNorm"),
            ("Identity", "5"),
            ("Normalize", "6_Normalize"),
        ),
    ]
    entries = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in order]
    tiny.put_json(folder / "modules.json", entries)
    (folder / "4_LayerNorm").mkdir()
    scale, shift = np.linspace(0.5, 2, 5, dtype=np.float32), np.linspace(-1, 1, 5, dtype=np.float32)
    norm = {"norm.weight": scale, "norm.bias": shift}
    save_file(norm, str(folder / "4_LayerNorm" / "model.safetensors"))
    made = plan(folder)
    assert dict(made.facts) == {
        "pooling": "mean",
        "dense": [5],
        "layers": ["UnitLength", "Dense", "LayerNorm"],
        "normalize": True,
    }
    hidden, served, recorded = answers(folder, made)
    rows = np.tanh(unit(hidden.mean(axis=1).astype(np.float64)) @ weight.T + bias)
    rows = (rows - rows.mean()) / np.sqrt(rows.var() + 1e-5) * scale + shift
    np.testing.assert_allclose(served, unit(rows), atol=1e-6)
    np.testing.assert_allclose(recorded, unit(rows), atol=1e-6)


def test_a_layer_norm_without_weights(tmp_path: Path) -> None:
    folder = ordered(tmp_path / "m", "Transformer", "Pooling", "Dense")
    entries = [{"type": kind, "path": path} for kind, path in (("Pooling", "1_Pooling"), ("LayerNorm", "8"))]
    tiny.put_json(folder / "modules.json", entries)
    error = refused(folder, Code.UNSUPPORTED_MODEL, "the LayerNorm module has no model.safetensors")
    assert 'S("FOLDER").save_pretrained("FOLDER")' in error.remedy


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"module_input_name": "token_embeddings"},
            "a Dense module reads 'token_embeddings'; only 'sentence_embedding', the pooled vector, "
            "is supported",
        ),
        ({"module_output_name": "scores"}, "a Dense module writes 'scores', not 'sentence_embedding'"),
    ],
)
def test_a_dense_layer_of_another_feature(config: dict[str, str], message: str, tmp_path: Path) -> None:
    folder, _, _ = with_dense(tiny.embedder(tmp_path / "m"), "Tanh")
    tiny.put_json(folder / "2_Dense" / "config.json", config)
    refused(folder, Code.UNSUPPORTED_MODEL, message)


def test_a_router_is_refused_with_what_saves_one_route(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "m")
    tiny.put_json(folder / "modules.json", [{"type": "sentence_transformers.models.Router", "path": ""}])
    message = "the sentence-transformers module 'Router' is not supported"
    assert 'sub_modules["document"]' in refused(folder, Code.UNSUPPORTED_MODEL, message).remedy


def test_a_module_that_is_the_models_own_code(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "m")
    tiny.put_json(folder / "modules.json", [{"type": "modeling_own.Pooling", "path": "1_Pooling"}])
    refused(
        folder,
        Code.UNSUPPORTED_MODEL,
        "the sentence-transformers module 'modeling_own.Pooling' is not supported",
    )
    kinds = [("custom_st.Transformer", ""), ("sentence_transformers.models.Pooling", "1_Pooling")]
    tiny.put_json(folder / "modules.json", [{"type": kind, "path": path} for kind, path in kinds])
    assert any("custom_st.Transformer, Python code of the model's own" in note for note in plan(folder).notes)


def test_a_graph_that_ends_in_a_dense_layer_is_not_normalised(tmp_path: Path) -> None:
    """Its vectors were normalised before the layer; normalising after it would change them."""
    folder = ordered(tmp_path / "m", "Transformer", "Pooling", "Normalize", "Dense")
    content = t.model(
        [t.node("Cast", ["input_ids"], ["sentence_embedding"], to=t.FLOAT)],
        [t.tensor("input_ids", ["n", "s"], t.INT64)],
        [t.tensor("sentence_embedding", ["n", 8])],
    )
    (folder / "model.onnx").write_bytes(content)
    assert facts(folder) == {"pooling": "in the model", "normalize": False}


def test_a_pooling_module_that_is_not_there(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path)
    (folder / "1_Pooling" / "config.json").unlink()
    message = "modules.json names it, and it is not there: no file says how to pool"
    refused(folder, Code.TASK_UNCLEAR, message)

"""Chat templates and cross-encoders of modules: what sentence-transformers 5 makes of texts and pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny
from safetensors.numpy import save_file

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks import rerank
from triton_repo_builder.model.graph import compose, reader
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import SourceOverrides

SAVED, FORMS = "config_sentence_transformers.json", "sentence_bert_config.json"
CALL = {"method": "forward", "method_output_name": "last_hidden_state"}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def chosen(folder: Path, task: str | None = None, **options: Any) -> Any:
    """(task, plan) as a build makes them."""
    source = reader.read_source(folder)
    module, _ = tasks.choose(source, task)
    return module.NAME, module.plan(source, BuildOptions(model=folder, **options))


def refused(folder: Path, message: str, task: str | None = None, **options: Any) -> TrbError:
    with pytest.raises(TrbError) as caught:
        chosen(folder, task, **options)
    assert message in caught.value.message
    assert caught.value.remedy
    return caught.value


def forms(folder: Path, *names: str, **more: Any) -> Path:
    """sentence_bert_config.json as releases since 5.4 save it."""
    tiny.put_json(folder / FORMS, {"modality_config": dict.fromkeys(names, CALL), **more})
    return folder


def test_an_embedder_that_renders_texts_is_refused(tmp_path: Path) -> None:
    folder = forms(tiny.embedder(tmp_path / "m"), "text", "message")
    error = refused(folder, "renders each text by the chat template")
    assert error.where.endswith(FORMS)
    assert "remove 'message' from modality_config there" in error.remedy
    assert chosen(folder, "tensor")[0] == "tensor"
    assert chosen(forms(folder, "text"))[0] == "embedding"


def test_a_template_counts_only_if_the_files_say_so(tmp_path: Path) -> None:
    """Models saved before 5.4 list modules and no modalities: their texts are not rendered."""
    folder = tiny.embedder(tmp_path / "m")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert not any("chat template" in note for note in chosen(folder)[1].notes)
    (folder / "modules.json").unlink()
    notes = chosen(folder, pooling="mean")[1].notes
    assert any("has a chat template, which is not used" in note for note in notes)


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_cross_encoder_with_a_template_is_refused(file: str, tmp_path: Path) -> None:
    """Without modules.json CrossEncoder renders each pair by the tokenizer's template."""
    folder = tiny.classifier(tmp_path / "m", labels=1)
    if file.endswith(".json"):
        tiny.put_json(folder / file, {"chat_template": TEMPLATE, "pad_token": "[PAD]"})
    else:
        (folder / file).write_text(TEMPLATE)
    error = refused(folder, "its tokenizer has a chat template", "rerank")
    assert error.where == str(folder / file)
    assert chosen(folder)[0] == "text-classification"
    original = tiny.classifier(tmp_path / "original", labels=1)
    read = reader.read_source(folder, SourceOverrides(original=original))
    assert rerank.plan(read, BuildOptions(model=folder)).name == "rerank"
    assert chosen(forms(folder, "text"), "rerank")[0] == "rerank"
    refused(forms(folder, "text", "message"), "renders each text by the chat template", "rerank")


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ({"text": {"add_special_tokens": False}}, "add_special_tokens"),
        ({"common": {"truncation": False}}, "truncation"),
        ({"text": {"padding": "max_length", "truncation": True, "max_length": 9}}, ""),
    ],
)
def test_arguments_of_the_tokenizers_call(called: Any, words: str, tmp_path: Path) -> None:
    folder = forms(tiny.embedder(tmp_path / "m"), "text", processing_kwargs=called)
    if words:
        refused(folder, f"processing_kwargs calls the tokenizer with {words}")
    else:
        chosen(folder)


def test_arguments_with_which_the_tokenizer_is_loaded(tmp_path: Path) -> None:
    loaded = {"padding_side": "left", "model_max_length": 9, "add_prefix_space": True}
    folder = forms(tiny.embedder(tmp_path / "m"), "text", processor_kwargs=loaded)
    note = f"{FORMS} loads the tokenizer with add_prefix_space, which is not followed"
    assert note in chosen(folder)[1].notes


def test_vectors_of_another_output(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "m")
    stated = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    tiny.put_json(folder / FORMS, {"modality_config": stated})
    refused(folder, "takes 'pooler_output' of the model, and the graph gives 'last_hidden_state'")


def pooled_cross_encoder(folder: Path, values: int = 1) -> tuple[Path, Any]:
    """A transformer, two poolings and a Dense module of scores, as CrossEncoder saves them; its weight."""
    tiny.embedder(folder)
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dropout", "2_Dropout"), ("Dense", "3_Dense")]
    entries = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    tiny.put_json(folder / "modules.json", entries)
    tiny.put_json(folder / "1_Pooling" / "config.json", {"pooling_mode": ["max", "mean"]})
    identity = "torch.nn.modules.linear.Identity"
    config = {"activation_function": identity, "module_output_name": "scores"}
    tiny.put_json(folder / "3_Dense" / "config.json", config)
    weight = np.random.default_rng(0).normal(size=(values, 2 * tiny.WIDTH)).astype(np.float32)
    save_file({"linear.weight": weight}, str(folder / "3_Dense" / "model.safetensors"))
    sigmoid = "torch.nn.modules.activation.Sigmoid"
    tiny.put_json(folder / SAVED, {"model_type": "CrossEncoder", "activation_fn": sigmoid})
    return folder, weight


def test_a_cross_encoder_made_of_modules(tmp_path: Path) -> None:
    folder, weight = pooled_cross_encoder(tmp_path / "m")
    name, made = chosen(folder)
    assert (name, dict(made.facts)) == (
        "rerank",
        {"activation": "sigmoid", "pooling": "max+mean", "dense": [1]},
    )
    graph = skeleton.read(folder / "model.onnx")
    content = compose.compose(graph, weights="model.onnx", head=made.head, release=releases.default())
    (folder / "served.onnx").write_bytes(content)
    feeds = {
        "input_ids": np.array([[2, 5, 3, 6, 3], [2, 7, 3, 0, 0]]),
        "attention_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "token_type_ids": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]),
    }
    (served,) = onnxruntime.InferenceSession(str(folder / "served.onnx")).run(["score"], feeds)
    (hidden,) = onnxruntime.InferenceSession(str(folder / "model.onnx")).run(["last_hidden_state"], feeds)
    rows = [hidden[0], hidden[1, :3]]
    joined = np.stack([np.concatenate([row.max(axis=0), row.mean(axis=0)]) for row in rows])
    expected = 1 / (1 + np.exp(-(joined @ weight.T)))
    np.testing.assert_allclose(served, expected, atol=1e-6)
    recorded = made.reference({"last_hidden_state": hidden}, feeds["attention_mask"])["score"]
    np.testing.assert_allclose(recorded, expected, atol=1e-6)


def test_a_cross_encoder_is_no_embedding(tmp_path: Path) -> None:
    folder, _ = pooled_cross_encoder(tmp_path / "m")
    error = refused(folder, "a cross-encoder, which scores pairs of texts", "embedding")
    assert error.code is Code.TASK_UNCLEAR
    assert "--task rerank" in error.remedy
    made = chosen(folder, "embedding", pooling="cls")[1]
    assert dict(made.facts) == {"pooling": "cls", "normalize": False}


def test_a_cross_encoder_of_several_scores(tmp_path: Path) -> None:
    folder, _ = pooled_cross_encoder(tmp_path / "m", values=3)
    refused(folder, "its last module gives 3 values, and a score is one")


def test_a_cross_encoder_exported_without_its_head(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "m")
    tiny.put_json(folder / "modules.json", [{"type": "sentence_transformers.models.Transformer", "path": ""}])
    tiny.put_json(folder / SAVED, {"model_type": "CrossEncoder"})
    error = refused(folder, "a cross-encoder gives one logit for each pair of texts")
    assert "--task text-classification" in error.remedy


def test_a_classifier_of_pairs_that_renders_them_is_refused(tmp_path: Path) -> None:
    folder = forms(tiny.classifier(tmp_path / "m"), "text", "message")
    assert chosen(folder)[0] == "text-classification"
    tiny.put_json(folder / SAVED, {"model_type": "CrossEncoder"})
    refused(folder, "renders each text by the chat template")


@pytest.mark.parametrize("saved", ["CrossEncoder", "SparseEncoder"])
def test_the_remedy_for_modules_of_other_classes(saved: str, tmp_path: Path) -> None:
    """optimum would export the transformer with a mean of its own."""
    folder, _ = pooled_cross_encoder(tmp_path / "m")
    entries = [
        {"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in ("Transformer", "CNN")
    ]
    tiny.put_json(folder / "modules.json", entries)
    tiny.put_json(folder / SAVED, {"model_type": saved})
    assert "--raw-output" in refused(folder, "the sentence-transformers module 'CNN'").remedy


def test_a_class_that_is_not_known_stays_out_of_the_remedy(tmp_path: Path) -> None:
    """The line is meant to be pasted into a shell."""
    folder = tiny.embedder(tmp_path / "m")
    tiny.put_json(folder / "modules.json", [{"type": "sentence_transformers.models.Router", "path": ""}])
    tiny.put_json(folder / SAVED, {"model_type": "x'; rm -rf ~; '"})
    assert "import SentenceTransformer as M" in refused(folder, "module 'Router'").remedy


def test_a_cross_encoder_with_an_activation_of_its_own(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "m", labels=1)
    tiny.put_json(folder / SAVED, {"model_type": "CrossEncoder", "activation_fn": "own.Sigmoid"})
    refused(folder, "the activation own.Sigmoid of a cross-encoder is not supported")


@pytest.mark.parametrize("listed", [True, False])
def test_a_generative_reranker_is_refused_by_name(listed: bool, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    tiny.text_model(folder / "model.onnx", output="token_logits")
    tiny.describe(folder, architectures=["Qwen3ForCausalLM"])
    if listed:
        kinds = ("Transformer", "LogitScore")
        entries = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in kinds]
        tiny.put_json(folder / "modules.json", entries)
        tiny.put_json(folder / SAVED, {"model_type": "CrossEncoder"})
    refused(folder, "this is a generative reranker", None if listed else "rerank")
    assert chosen(folder, "tensor")[0] == "tensor"

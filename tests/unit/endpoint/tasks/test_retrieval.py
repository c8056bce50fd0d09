"""What makes a model a sparse encoder or a ColBERT, and which of their settings are refused."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from safetensors.numpy import save_file
from tokenizers import Tokenizer, processors

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import sparse_embedding
from triton_repo_builder.endpoint.tasks.task import TokenRules
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import tokenizer, tokenizer_template
from triton_repo_builder.produce import build

PUNCTUATION = (".", "!", "?")


def fill_mask(folder: Path, **module: Any) -> Path:
    """A model with logits per token; with settings of a SpladePooling module where any are given."""
    tiny.text_model(folder / "model.onnx", output="token_logits")
    tiny.describe(folder, architectures=["BertForMaskedLM"])
    if module:
        kinds = [("MLMTransformer", ""), ("SpladePooling", "1_SpladePooling")]
        tiny.put_json(folder / "modules.json", [{"type": f"x.{kind}", "path": path} for kind, path in kinds])
        tiny.put_json(folder / "1_SpladePooling" / "config.json", module)
    return folder


def colbert(folder: Path, **changes: Any) -> Path:
    """Token vectors of 8 numbers, a projection to 4, and PyLate's files."""
    tiny.text_model(folder / "model.onnx", rows=72)
    tiny.describe(folder)
    tiny.tokenizer(folder / "tokenizer.json", extra=("[MASK]", "[Q] ", "[D] ", *PUNCTUATION))
    kinds = [("sentence_transformers.models.Transformer", ""), ("pylate.models.Dense.Dense", "1_Dense")]
    tiny.put_json(folder / "modules.json", [{"type": kind, "path": path} for kind, path in kinds])
    identity = "torch.nn.modules.linear.Identity"
    tiny.put_json(folder / "1_Dense" / "config.json", {"activation_function": identity})
    weight = np.random.default_rng(0).normal(size=(4, tiny.WIDTH)).astype(np.float32)
    save_file({"linear.weight": weight}, str(folder / "1_Dense" / "model.safetensors"))
    tiny.put_json(
        folder / "config_sentence_transformers.json",
        {
            "query_prefix": "[Q] ",
            "document_prefix": "[D] ",
            "query_length": 10,
            "document_length": 16,
            "skiplist_words": list(string.punctuation),
            **changes,
        },
    )
    return folder


def content(made: build.Build, path: str) -> bytes:
    file = next(file for file in made.files if file.path == path)
    return file.source.read_bytes() if file.source else file.content


def facts(made: build.Build) -> tuple[str, dict[str, Any]]:
    return made.entry.served.task, made.entry.served.facts


def test_a_masked_language_model_alone_is_no_sparse_encoder(tmp_path: Path, output: Path) -> None:
    folder = fill_mask(tmp_path / "m")
    assert not sparse_embedding.fits(reader.read_source(folder))
    made = tiny.make(folder, output, task="sparse-embedding")
    assert facts(made) == (
        "sparse-embedding",
        {"pooling": "max", "activation": "relu", "padding": "ragged", "rows": "single"},
    )
    assert "no SpladePooling module found" in made.notes[0]


def test_a_sparse_encoder_says_how_it_pools(tmp_path: Path, output: Path) -> None:
    folder = fill_mask(tmp_path / "m", pooling_strategy="sum", activation_function="log1p_relu")
    made = tiny.make(folder, output, golden=True)
    assert made.notes == ()
    found = {"pooling": "sum", "activation": "log1p_relu", "padding": "ragged", "rows": "groups"}
    assert facts(made)[1] == found
    cases = json.loads(content(made, "m/smoke.json"))["cases"]
    assert [tensor.get("at") for tensor in cases[0]["outputs"]] == [None, "indices"]


def test_pooling_that_is_unknown(tmp_path: Path, output: Path) -> None:
    folder = fill_mask(tmp_path / "m", pooling_strategy="mean")
    with pytest.raises(TrbError, match="SpladePooling with mean and relu") as caught:
        tiny.make(folder, output)
    assert caught.value.code == Code.UNSUPPORTED_MODEL


@pytest.mark.parametrize("task", ["sparse-embedding", "late-interaction"])
def test_a_model_without_such_an_output(task: str, tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.classifier(tmp_path / "m"), output, task=task)
    assert caught.value.code == Code.TASK_UNCLEAR


def test_documents_and_queries(tmp_path: Path, output: Path) -> None:
    folder = colbert(tmp_path / "m")
    documents = tiny.make(folder, output, golden=True)
    found = {"encodes": "documents", "width": 4, "padding": "ragged", "rows": "groups"}
    assert facts(documents) == ("late-interaction", found)
    queries = tiny.make(folder, output, golden=True, query=True)
    assert facts(queries)[1] == {"encodes": "queries", "width": 4, "padding": "fixed:10"}
    assert facts(tiny.make(folder, output, query_length=7))[1]["padding"] == "fixed:7"
    for made, marker, length in ((documents, "[D] ", 16), (queries, "[Q] ", 10)):
        served = Tokenizer.from_str(content(made, "m_tokenizer/1/tokenizer.json").decode())
        served.no_padding()
        served.enable_truncation(length)
        assert served.encode("fox").tokens == ["[CLS]", marker, "fox", "[SEP]"]
        assert len(served.encode("fox " * 50).ids) == length
        config = next(model for model in made.plan.models if model.name == "m_tokenizer")
        assert dict(config.parameters)["max_length"] == str(length)
    # A query is filled up with mask tokens.
    config = next(model for model in queries.plan.models if model.name == "m_tokenizer")
    words = tokenizer.read(folder / "tokenizer.json")
    mask = Tokenizer.from_file(str(words.file)).token_to_id("[MASK]")
    assert dict(config.parameters)["pad_id"] == str(mask)


def test_queries_without_expansion_are_as_long_as_they_are(tmp_path: Path, output: Path) -> None:
    made = tiny.make(colbert(tmp_path / "m", do_query_expansion=False), output, query=True)
    assert facts(made)[1]["padding"] == "ragged"


def test_queries_that_attend_to_what_fills_them(tmp_path: Path, output: Path) -> None:
    folder = colbert(tmp_path / "m", attend_to_expansion_tokens=True)
    with pytest.raises(TrbError, match="mask tokens are attended to") as caught:
        tiny.make(folder, output, query=True)
    assert caught.value.code == Code.UNSUPPORTED_MODEL
    tiny.make(folder, output)


def test_a_marker_that_the_tokenizer_lacks(tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError, match=r"it has no token '\[X\]'") as caught:
        tiny.make(colbert(tmp_path / "m", document_prefix="[X]"), output)
    assert caught.value.code == Code.TOKENIZER_INVALID


@pytest.mark.parametrize(
    ("dense", "message"),
    [
        ({"activation_function": "torch.nn.modules.activation.Tanh"}, "activation, bias or residual"),
        (
            {"activation_function": "torch.nn.modules.linear.Identity", "use_residual": True},
            "activation, bias or residual",
        ),
    ],
)
def test_projections_that_are_more(dense: Any, message: str, tmp_path: Path, output: Path) -> None:
    folder = colbert(tmp_path / "m")
    tiny.put_json(folder / "1_Dense" / "config.json", dense)
    with pytest.raises(TrbError, match=message):
        tiny.make(folder, output)


def test_a_projection_of_another_model(tmp_path: Path, output: Path) -> None:
    folder = colbert(tmp_path / "m")
    weight = np.zeros((4, 5), np.float32)
    save_file({"linear.weight": weight}, str(folder / "1_Dense" / "model.safetensors"))
    with pytest.raises(TrbError, match="takes vectors of 5 numbers, the model gives 8"):
        tiny.make(folder, output)


def test_without_files_nothing_is_marked(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "m"), output, task="late-interaction")
    assert "no marker tokens, documents of up to 180 tokens" in made.notes[0]
    assert facts(made)[1]["width"] == tiny.WIDTH


@pytest.mark.parametrize("options", [{"query": True}, {"query": False}, {"query_length": 5}])
def test_options_of_another_task(options: Any, tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError, match="does not apply to task embedding") as caught:
        tiny.make(tiny.embedder(tmp_path / "m"), output, **options)
    assert caught.value.code == Code.USAGE


def test_a_length_of_queries_for_documents(tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError, match="does not apply to documents"):
        tiny.make(colbert(tmp_path / "m"), output, query=False, query_length=5)


@pytest.mark.parametrize(
    "processor",
    [
        processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
        processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)),
        processors.Sequence([processors.ByteLevel(), processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))]),
    ],
)
def test_markers_in_every_kind_of_template(processor: Any, tmp_path: Path) -> None:
    file = tiny.tokenizer(tmp_path / "tokenizer.json", extra=("[D]",), baked=False)
    library = Tokenizer.from_file(str(file))
    library.post_processor = processor
    library.save(str(file))
    spec = tokenizer_template.apply(tokenizer.read(file), TokenRules(marker="[D]"))
    assert spec.content is not None
    served = Tokenizer.from_str(spec.content.decode())
    assert served.encode("hello fox").tokens == ["[CLS]", "[D]", "hello", "fox", "[SEP]"]
    assert spec.special_tokens == 3


def test_no_template_to_put_a_marker_in(tmp_path: Path) -> None:
    file = tiny.tokenizer(tmp_path / "tokenizer.json", special=False, extra=("[D]",))
    with pytest.raises(TrbError, match="no special token first"):
        tokenizer_template.apply(tokenizer.read(file), TokenRules(marker="[D]"))

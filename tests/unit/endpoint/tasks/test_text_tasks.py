"""What each text task reads from the files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks.task import TaskPlan, token
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.option_checks import check
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import inspect

IDS = [t.tensor(name, ["n", "s"], t.INT64) for name in ("input_ids", "attention_mask")]
NER = [t.tensor("logits", ["n", "s", 3])]
QA = [t.tensor("start_logits", ["n", "s"]), t.tensor("end_logits", ["n", "s"])]
MLM = [t.tensor("logits", ["n", "s", 64])]


def classes(labels: int | str) -> list[Any]:
    return [t.tensor("logits", ["n", labels])]


def folder(path: Path, outputs: list[Any], inputs: list[Any] = IDS, **config: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.onnx").write_bytes(t.model([], inputs, outputs))
    tiny.describe(path, **config)
    tiny.tokenizer(path / "tokenizer.json", extra=["[MASK]"])
    settings = {"pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": {"content": "[UNK]"}}
    tiny.put_json(path / "tokenizer_config.json", settings)
    return path


def plan(path: Path, wanted: str | None = None, **options: Any) -> TaskPlan:
    read = reader.read_source(path)
    module, _ = tasks.choose(read, wanted)
    made: TaskPlan = module.plan(read, check(BuildOptions(model=path, task=wanted, **options)))
    return made


@pytest.mark.parametrize(
    ("architecture", "outputs", "task"),
    [
        ("BertForTokenClassification", NER, "token-classification"),
        ("RobertaForQuestionAnswering", QA, "question-answering"),
        ("DebertaV2ForMaskedLM", MLM, "fill-mask"),
        ("BertForSequenceClassification", classes(3), "text-classification"),
        ("BertForMultipleChoice", classes(1), "tensor"),
    ],
)
def test_the_task_is_that_of_the_architecture(
    architecture: str, outputs: list[Any], task: str, tmp_path: Path
) -> None:
    path = folder(tmp_path / "m", outputs, architectures=[architecture])
    seen = inspect.inspect(path)
    assert (seen.task, seen.problem) == (task, None)
    assert bool(seen.task_reason) is (task == "tensor")


@pytest.mark.parametrize(
    ("outputs", "task"),
    [(QA, "question-answering"), (NER, "token-classification"), (classes(3), "text-classification")],
)
def test_without_an_architecture_the_graph_gives_a_guess(
    outputs: list[Any], task: str, tmp_path: Path
) -> None:
    module, reason = tasks.choose(reader.read_source(folder(tmp_path / "m", outputs)), None)
    assert task == module.NAME
    assert reason == f"task '{task}' is a guess from the model's files; --task overrides it"


def test_a_logit_for_each_row_of_the_vocabulary_is_a_masked_language_model(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", MLM)
    table = tiny.numpy_helper.from_array(tiny.weights(64, 64), "table")
    node = t.node("Gather", ["table", "input_ids"], ["logits"])
    (path / "model.onnx").write_bytes(t.model([node], IDS, MLM, initializers=[table]))
    assert tasks.choose(reader.read_source(path), None)[0].NAME == "fill-mask"


NLI = {"0": "contradiction", "1": "neutral", "2": "ENTAILMENT"}


@pytest.mark.parametrize(
    ("task", "outputs", "config", "inputs", "answers"),
    [
        (
            "text-classification",
            classes(3),
            {"id2label": NLI},
            ["TEXT", "TEXT_PAIR"],
            ["label", "score", "scores"],
        ),
        ("rerank", classes(1), {}, ["QUERY", "DOCUMENT"], ["score"]),
        ("zero-shot-classification", classes(3), {"id2label": NLI}, ["TEXT", "LABELS"], ["labels", "scores"]),
        (
            "token-classification",
            NER,
            {},
            ["TEXT"],
            ["entities", "start", "end", "label", "score", "text"],
        ),
        ("question-answering", QA, {}, ["QUESTION", "CONTEXT"], ["answer", "start", "end", "score"]),
        ("fill-mask", MLM, {}, ["TEXT"], ["tokens", "scores", "ids"]),
    ],
)
def test_inputs_and_answers(
    task: str,
    outputs: list[Any],
    config: dict[str, Any],
    inputs: list[str],
    answers: list[str],
    tmp_path: Path,
) -> None:
    made = plan(folder(tmp_path / "m", outputs, **config), task)
    assert [text.name for text in made.texts] == inputs
    assert [output.name for output in made.answers] == answers
    assert all(set(example) <= set(inputs) for _, example in made.examples)


@pytest.mark.parametrize(
    ("options", "task"),
    [
        ({"aggregation": "average"}, "token-classification"),
        ({"handle_impossible_answer": True}, "question-answering"),
        ({"top_k": 3}, "fill-mask"),
        ({"hypothesis_template": "About {}."}, "zero-shot-classification"),
        ({"multi_label": True}, "zero-shot-classification"),
    ],
)
def test_options_reach_the_facts(options: dict[str, Any], task: str, tmp_path: Path) -> None:
    outputs = {"token-classification": NER, "question-answering": QA, "fill-mask": MLM}.get(task, classes(3))
    made = plan(folder(tmp_path / "m", outputs, id2label=NLI), task, **options)
    ((name, value),) = options.items()
    assert dict(made.facts)[name] == value


@pytest.mark.parametrize(
    ("task", "outputs", "options", "code", "message"),
    [
        ("token-classification", classes(3), {}, Code.TASK_UNCLEAR, "no output of scores [batch, tokens, "),
        ("token-classification", NER, {"aggregation": "all"}, Code.USAGE, "'all' is unknown"),
        ("question-answering", NER, {}, Code.TASK_UNCLEAR, "no start_logits and end_logits"),
        ("fill-mask", classes(3), {}, Code.TASK_UNCLEAR, "no output of scores [batch, tokens, vocabulary]"),
        ("fill-mask", MLM, {"top_k": 0}, Code.USAGE, "must be at least 1"),
        ("rerank", classes(3), {}, Code.TASK_UNCLEAR, "a cross-encoder gives one logit"),
        ("rerank", NER, {}, Code.TASK_UNCLEAR, "a cross-encoder gives one logit"),
        ("zero-shot-classification", NER, {}, Code.TASK_UNCLEAR, "no output of scores"),
        ("zero-shot-classification", classes(1), {}, Code.TASK_UNCLEAR, "a model of one logit"),
        (
            "zero-shot-classification",
            classes(3),
            {"hypothesis_template": "This is it."},
            Code.USAGE,
            "has no place for the label",
        ),
        (
            "zero-shot-classification",
            classes(3),
            {"hypothesis_template": "This is {:.0}."},
            Code.USAGE,
            "has no place for the label",
        ),
        (
            "zero-shot-classification",
            classes(3),
            {"hypothesis_template": "{} or {}"},
            Code.USAGE,
            "has braces besides the place for the label",
        ),
        (
            "zero-shot-classification",
            classes(3),
            {"hypothesis_template": "{:>9999999999} or {}"},
            Code.USAGE,
            "has braces besides the place for the label",
        ),
        (
            "zero-shot-classification",
            classes(3),
            {"hypothesis_template": "a\udcff {}"},
            Code.USAGE,
            "has characters that are not text",
        ),
        (
            "zero-shot-classification",
            classes(3),
            {"hypothesis_template": ""},
            Code.USAGE,
            "has no place for the label",
        ),
        (
            "zero-shot-classification",
            classes(3),
            {"hypothesis_template": "{name}"},
            Code.USAGE,
            "has no place for the label",
        ),
    ],
)
def test_what_cannot_be(
    task: str, outputs: list[Any], options: dict[str, Any], code: Code, message: str, tmp_path: Path
) -> None:
    with pytest.raises(TrbError) as caught:
        plan(folder(tmp_path / "m", outputs), task, **options)
    assert caught.value.code == code
    assert message in caught.value.message


def test_a_tokenizer_without_a_mask(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", MLM)
    tiny.tokenizer(path / "tokenizer.json")
    with pytest.raises(TrbError, match="name no mask_token"):
        plan(path, "fill-mask")


@pytest.mark.parametrize(
    ("named", "columns", "notes"),
    [
        ({"0": "contradiction", "1": "neutral", "2": "Entailment"}, "0, 2", 0),
        ({"0": "entailment", "1": "neutral", "2": "contradiction"}, "2, 0", 0),
        ({"0": "a", "1": "b", "2": "c"}, "0, 2", 1),
    ],
)
def test_which_label_is_entailment(named: dict[str, str], columns: str, notes: int, tmp_path: Path) -> None:
    made = plan(folder(tmp_path / "m", classes(3), id2label=named), "zero-shot-classification")
    assert made.head is not None
    assert f"int64[2] {{{columns}}}" in made.head.text
    assert len(made.notes) == notes


@pytest.mark.parametrize(
    ("config", "saved", "found", "activation"),
    [
        ({}, {}, "text-classification", "sigmoid"),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            {},
            "rerank",
            "none",
        ),
        (
            {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"},
            {},
            "rerank",
            "sigmoid",
        ),
        ({}, {"activation_fn": "torch.nn.modules.linear.Identity"}, "rerank", "none"),
    ],
)
def test_a_cross_encoder_is_known_by_its_activation(
    config: dict[str, Any], saved: dict[str, Any], found: str, activation: str, tmp_path: Path
) -> None:
    path = folder(tmp_path / "m", classes(1), architectures=["BertForSequenceClassification"], **config)
    if saved:
        tiny.put_json(path / "config_sentence_transformers.json", saved)
    assert found == tasks.choose(reader.read_source(path), None)[0].NAME
    made = plan(path, "rerank")
    assert dict(made.facts)["activation"] == activation
    assert bool(made.notes) is (not config and not saved)


def test_an_activation_that_is_not_known(tmp_path: Path) -> None:
    path = folder(
        tmp_path / "m", classes(1), sbert_ce_default_activation_function="torch.nn.modules.activation.Tanh"
    )
    with pytest.raises(TrbError, match="the activation Tanh of a cross-encoder is not supported"):
        plan(path, "rerank")


def test_special_tokens_by_role(tmp_path: Path) -> None:
    read = reader.read_source(folder(tmp_path / "m", MLM))
    assert token(read, "mask_token") == ("[MASK]", len(tiny.WORDS))
    assert token(read, "unk_token") == ("[UNK]", 1)
    assert token(read, "cls_token") == ("[CLS]", 2)  # named by no file, known by its usual name
    assert token(read, "bos_token") == ("", -1)


PAST = [*IDS, t.tensor("past_key_values.0.key", ["n", 2, "p", 4])]


@pytest.mark.parametrize(
    ("inputs", "outputs", "config", "wanted", "refused"),
    [
        (PAST, MLM, {"architectures": ["LlamaForCausalLM"]}, None, True),
        (PAST, MLM, {}, None, True),
        (PAST, MLM, {"architectures": ["LlamaForCausalLM"]}, "fill-mask", True),
        (PAST, MLM, {"architectures": ["LlamaForCausalLM"]}, "tensor", False),
        (IDS, MLM, {"architectures": ["GPT2LMHeadModel"]}, None, True),
        (
            [*IDS, t.tensor("decoder_input_ids", ["n", "d"], t.INT64)],
            MLM,
            {"architectures": ["T5ForConditionalGeneration"]},
            None,
            True,
        ),
        (
            IDS,
            [t.tensor("last_hidden_state", ["n", "s", 8])],
            {"architectures": ["MT5ForConditionalGeneration"]},
            None,
            False,
        ),
        (IDS, MLM, {"architectures": ["BertForMaskedLM"]}, None, False),
    ],
)
def test_a_decoder_is_refused_in_one_sentence(
    inputs: list[Any],
    outputs: list[Any],
    config: dict[str, Any],
    wanted: str | None,
    refused: bool,
    tmp_path: Path,
) -> None:
    read = reader.read_source(folder(tmp_path / "m", outputs, inputs, **config))
    if not refused:
        tasks.choose(read, wanted)
        return
    with pytest.raises(TrbError) as caught:
        tasks.choose(read, wanted)
    assert caught.value.code == Code.UNSUPPORTED_MODEL
    assert caught.value.message.startswith("this is a decoder, which generates text (")
    assert "\n" not in caught.value.message


def test_tokens_are_listed_by_their_ids(tmp_path: Path) -> None:
    made = plan(folder(tmp_path / "m", MLM), "fill-mask")
    assert made.post is not None
    names = json.loads(made.post.files()["tokens.json"])
    assert names[2:6] == ["[CLS]", "[SEP]", "a", "b"]
    assert len(names) == len(tiny.WORDS) + 1


def test_an_added_token_is_spelled_as_in_its_file(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", MLM)
    document = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    added = next(entry for entry in document["added_tokens"] if entry["content"] == "[CLS]")
    added["normalized"] = True
    tiny.put_json(path / "tokenizer.json", {**document, "normalizer": {"type": "Lowercase"}})
    made = plan(path, "fill-mask")
    assert made.post is not None
    assert json.loads(made.post.files()["tokens.json"])[2] == "[CLS]"


@pytest.mark.parametrize("number", [7, -1, "two", None])
def test_a_label_number_that_cannot_be_is_no_entailment(number: Any, tmp_path: Path) -> None:
    path = folder(tmp_path / "m", classes(3), label2id={"entailment": number})
    assert len(plan(path, "zero-shot-classification").notes) == 1


@pytest.mark.parametrize(
    ("outputs", "task"),
    [
        (NER, "token-classification"),
        (QA, "question-answering"),
        (MLM, "fill-mask"),
        (classes(3), "zero-shot-classification"),
    ],
)
def test_a_task_that_needs_logits_is_told_of_probabilities(
    outputs: list[Any], task: str, tmp_path: Path
) -> None:
    made = folder(tmp_path, outputs, id2label={"0": "entailment", "1": "neutral", "2": "contradiction"})
    nodes = [
        t.node("Cast", ["input_ids"], ["numbers"], to=t.FLOAT),
        *(t.node("Softmax", ["numbers"], [output.name]) for output in outputs),
    ]
    (made / "model.onnx").write_bytes(t.model(nodes, IDS, outputs))
    with pytest.raises(TrbError, match=r"needs logits, and output '.*logits' comes from a Softmax") as caught:
        plan(made, task)
    assert caught.value.code == Code.UNSUPPORTED_MODEL


def test_a_cross_encoder_that_ends_in_a_sigmoid(tmp_path: Path) -> None:
    made = folder(tmp_path, classes(1))
    nodes = [t.node("Cast", ["input_ids"], ["x"], to=t.FLOAT), t.node("Sigmoid", ["x"], ["logits"])]
    (made / "model.onnx").write_bytes(t.model(nodes, IDS, classes(1)))
    assert dict(plan(made, "rerank").facts)["activation"] == "none"


def test_a_tokenizer_that_pads_on_the_left_reads_the_context_first(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", QA, architectures=["XLNetForQuestionAnsweringSimple"])
    tiny.put_json(path / "tokenizer_config.json", {"padding_side": "left", "pad_token": "[PAD]"})
    with pytest.raises(TrbError) as caught:
        plan(path, "question-answering")
    assert caught.value.code is Code.UNSUPPORTED_MODEL
    assert "padding_side is left" in caught.value.message


def test_a_tokenizer_class_that_pads_on_the_left_reads_the_context_first(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", QA, architectures=["XLNetForQuestionAnsweringSimple"])
    tiny.tokenizer(path / "tokenizer.json", baked=False)
    tiny.put_json(path / "tokenizer_config.json", {"tokenizer_class": "XLNetTokenizer", "pad_token": "[PAD]"})
    with pytest.raises(TrbError) as caught:
        plan(path, "question-answering")
    assert (
        "padding_side is left, as tokenizer.json's padding or the tokenizer's class" in caught.value.message
    )


@pytest.mark.parametrize("cache", [[], PAST[-1:]])
def test_an_embedder_with_a_cache_is_one(tmp_path: Path, cache: list[Any]) -> None:
    outputs = [t.tensor("last_hidden_state", ["n", "s", 8]), t.tensor("present.0.key", ["n", 2, "p", 4])]
    path = folder(tmp_path / "m", outputs, [*IDS, *cache], architectures=["Qwen3ForCausalLM"])
    read = reader.read_source(path)
    assert tasks.choose(read, None)[0].NAME == "embedding"
    assert [spec.name for spec in read.signature.inputs] == [value.name for value in IDS]


@pytest.mark.parametrize("shape", [["n", "h", "p", 4], [1, 2, "p", 4], ["n", 2, 3, 4]])
def test_a_cache_of_an_unknown_form_is_left(tmp_path: Path, shape: list[Any]) -> None:
    outputs = [t.tensor("last_hidden_state", ["n", "s", 8])]
    inputs = [*IDS, t.tensor("past_key_values.0.key", shape)]
    with pytest.raises(TrbError) as caught:
        tasks.choose(reader.read_source(folder(tmp_path / "m", outputs, inputs)), None)
    assert "this is a decoder, which generates text (by its tensor, 'past_key" in caught.value.message


def test_of_three_embeddings_the_dense_one_is_served(tmp_path: Path) -> None:
    outputs = [
        t.tensor("dense_vecs", ["n", 8]),
        t.tensor("sparse_vecs", ["n", "s", 1]),
        t.tensor("colbert_vecs", ["n", "s", 8]),
    ]
    read = reader.read_source(folder(tmp_path / "m", outputs, IDS))
    task, _ = tasks.choose(read, None)
    planned = task.plan(read, BuildOptions(model=tmp_path))
    assert task.NAME == "embedding"
    assert any("sparse_vecs, colbert_vecs: --raw-output serves them all" in note for note in planned.notes)

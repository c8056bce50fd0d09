"""A task is taken only if the graph has its head; what config.json names and the graph lacks is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_images
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.option_checks import check
from triton_repo_builder.model.read.options import BuildOptions

WIDTH = 48
"""Of the hidden states: as many as a file could have labels."""
IDS = [t.tensor("input_ids", ["n", "t"], t.INT64), t.tensor("attention_mask", ["n", "t"], t.INT64)]
HIDDEN = t.tensor("last_hidden_state", ["n", "t", WIDTH])
POOLED = t.tensor("pooler_output", ["n", WIDTH])
UNNAMED = t.tensor("1234", ["n", "t", WIDTH])


def folder(path: Path, outputs: list[Any], **config: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.onnx").write_bytes(t.model([], IDS, outputs))
    tiny.describe(path, **config)
    tiny.tokenizer(path / "tokenizer.json", extra=["[MASK]"])
    tiny.put_json(path / "tokenizer_config.json", {"pad_token": "[PAD]", "mask_token": "[MASK]"})
    return path


@pytest.mark.parametrize(("hidden", "task"), [(16, "token-classification"), (WIDTH, "embedding")])
def test_scores_of_tokens_under_another_name(hidden: int, task: str, tmp_path: Path) -> None:
    """As wide as there are labels, and not as the hidden states: not pooled as if they were vectors."""
    labels = {str(number): f"L{number}" for number in range(WIDTH)}
    path = folder(tmp_path, [UNNAMED], id2label=labels, hidden_size=hidden)
    assert task == tasks.choose(reader.read_source(path), None)[0].NAME


HEADLESS = pytest.mark.parametrize(
    ("architecture", "outputs", "task"),
    [
        ("BertForMaskedLM", [HIDDEN], "fill-mask"),
        ("BertForMaskedLM", [HIDDEN, POOLED], "fill-mask"),
        ("BertForMaskedLM", [UNNAMED], "fill-mask"),
        ("BertForTokenClassification", [HIDDEN], "token-classification"),
        ("BertForTokenClassification", [UNNAMED], "token-classification"),
        ("BertForSequenceClassification", [HIDDEN, POOLED], "text-classification"),
        ("BertForQuestionAnswering", [HIDDEN, POOLED], "question-answering"),
    ],
)


@HEADLESS
def test_a_checkpoint_exported_for_features_is_an_embedding(
    architecture: str, outputs: list[Any], task: str, tmp_path: Path
) -> None:
    path = folder(tmp_path / "m", outputs, architectures=[architecture])
    module, reason = tasks.choose(reader.read_source(path), None)
    assert module.NAME == "embedding"
    assert architecture in reason
    assert f"--task {task}" in reason


@HEADLESS
def test_its_task_by_name_is_refused_and_embedding_is_named(
    architecture: str, outputs: list[Any], task: str, tmp_path: Path
) -> None:
    path = folder(tmp_path / "m", outputs, architectures=[architecture])
    read = reader.read_source(path)
    module, _ = tasks.choose(read, task)
    with pytest.raises(TrbError) as caught:
        module.plan(read, check(BuildOptions(model=path, task=task)))
    assert caught.value.code is Code.TASK_UNCLEAR
    assert "it has " in caught.value.message
    assert "--task embedding" in caught.value.remedy


def test_labels_decide_about_an_output_of_another_name(tmp_path: Path) -> None:
    labels = {str(number): f"label {number}" for number in range(WIDTH)}
    architecture = ["BertForTokenClassification"]
    path = folder(tmp_path / "m", [UNNAMED], architectures=architecture, id2label=labels)
    assert tasks.choose(reader.read_source(path), None)[0].NAME == "token-classification"
    path = folder(tmp_path / "n", [HIDDEN], architectures=architecture, id2label=labels)
    assert tasks.choose(reader.read_source(path), None)[0].NAME == "embedding"


@pytest.mark.parametrize("architecture", ["BertForTokenClassification", "BertForMaskedLM", ""])
def test_hidden_states_under_the_name_of_logits(architecture: str, tmp_path: Path) -> None:
    """As wide as hidden_size, and neither labels nor vocabulary: no head, whatever it is called."""
    own: dict[str, Any] = {"architectures": [architecture]} if architecture else {}
    logits = [t.tensor("logits", ["n", "t", WIDTH])]
    path = folder(tmp_path / "m", logits, hidden_size=WIDTH, **own)
    module, reason = tasks.choose(reader.read_source(path), None)
    assert module.NAME == "tensor"
    assert architecture in reason
    labels = {str(number): f"label {number}" for number in range(WIDTH)}
    path = folder(tmp_path / "n", logits, hidden_size=WIDTH, id2label=labels, **own)
    wanted = "tensor" if "MaskedLM" in architecture else "token-classification"
    assert wanted == tasks.choose(reader.read_source(path), None)[0].NAME


def test_the_vocabulary_is_no_set_of_labels(tmp_path: Path) -> None:
    """--task token-classification for a masked language model: 45 labels called LABEL_0 to LABEL_44."""
    path = folder(tmp_path / "m", [t.tensor("logits", ["n", "t", tiny.ROWS])])
    read = reader.read_source(path)
    module, _ = tasks.choose(read, "token-classification")
    with pytest.raises(TrbError) as caught:
        module.plan(read, check(BuildOptions(model=path, task="token-classification")))
    assert caught.value.code is Code.TASK_UNCLEAR
    assert "--task fill-mask" in caught.value.remedy
    named = {"id2label": {str(number): f"word {number}" for number in range(tiny.ROWS)}}
    read = reader.read_source(folder(tmp_path / "m", [t.tensor("logits", ["n", "t", tiny.ROWS])], **named))
    assert module.plan(read, check(BuildOptions(model=path, task="token-classification"))).notes == ()


def test_logits_are_no_token_vectors(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", [t.tensor("logits", ["n", "t", WIDTH])], architectures=["BertForMaskedLM"])
    read = reader.read_source(path)
    module, _ = tasks.choose(read, "embedding")
    with pytest.raises(TrbError) as caught:
        module.plan(read, check(BuildOptions(model=path, task="embedding", pooling="mean")))
    assert caught.value.code is Code.TASK_UNCLEAR
    assert "token vectors" in caught.value.message


def test_the_build_says_it(tmp_path: Path, output: Path) -> None:
    path = tiny.embedder(tmp_path / "m")
    (path / "modules.json").unlink()
    (path / "1_Pooling" / "config.json").unlink()
    tiny.put_json(path / "config.json", {"architectures": ["BertForMaskedLM"]})
    made = tiny.make(path, output, pooling="mean")
    assert "config.json names BertForMaskedLM" in made.notes[0]
    with pytest.raises(TrbError) as caught:
        tiny.make(path, output)
    assert "config.json names BertForMaskedLM" in caught.value.message


def test_an_image_classifier_exported_for_features(tmp_path: Path) -> None:
    config = {"architectures": ["ViTForImageClassification"]}
    path = tiny_images.folder(tmp_path / "m", config=config, output="pooler_output")
    module, reason = tasks.choose(reader.read_source(path), None)
    assert module.NAME == "image-embedding"
    assert "ViTForImageClassification" in reason


def planned(path: Path, **options: Any) -> Any:
    read = reader.read_source(path)
    module, _ = tasks.choose(read, options.get("task"))
    return module.plan(read, check(BuildOptions(model=path, **options)))


def test_several_hidden_states_are_not_chosen_among(tmp_path: Path) -> None:
    """The first of them is the embedding layer."""
    states = [t.tensor(f"hidden_states.{n}", ["n", "t", WIDTH]) for n in range(3)]
    path = folder(tmp_path / "m", states, architectures=["BertModel"])
    with pytest.raises(TrbError) as caught:
        planned(path, pooling="mean")
    assert caught.value.code is Code.TASK_UNCLEAR
    assert "hidden_states.0, hidden_states.1, hidden_states.2" in caught.value.message
    path = folder(tmp_path / "n", [*states, HIDDEN], architectures=["BertModel"])
    assert planned(path, pooling="mean").head.bind["hidden"] == "last_hidden_state"
    path = folder(tmp_path / "o", [UNNAMED], architectures=["BertModel"])
    made = planned(path, pooling="mean")
    assert made.head.bind["hidden"] == "1234"
    assert "the token vectors are output '1234'" in made.notes


@pytest.mark.parametrize("name", ["prediction_logits", "prediction_scores"])
def test_scores_of_the_vocabulary_are_no_token_vectors(name: str, tmp_path: Path) -> None:
    scores = t.tensor(name, ["n", "t", 60])
    path = folder(tmp_path / "m", [scores], architectures=["BertForPreTraining"])
    with pytest.raises(TrbError) as caught:
        planned(path, task="embedding", pooling="mean")
    assert "no output of token vectors" in caught.value.message
    assert tasks.choose(reader.read_source(path), None)[0].NAME == "tensor"


@pytest.mark.parametrize(
    ("outputs", "bound"),
    [
        (
            [t.tensor("vectors", ["n", "t", 60]), t.tensor("prediction_scores", ["n", "t", 60])],
            "prediction_scores",
        ),
        ([t.tensor("vectors", ["n", "t", 60])], None),
        ([t.tensor("a", ["n", "t", 64]), t.tensor("b", ["n", "t", 64])], None),
    ],
)
def test_equal_widths_decide_nothing(outputs: list[Any], bound: str | None, tmp_path: Path) -> None:
    path = folder(tmp_path / "m", outputs, architectures=["BertForMaskedLM"], hidden_size=60)
    module, _ = tasks.choose(reader.read_source(path), None)
    if bound is None:
        assert module.NAME != "fill-mask"
    else:
        assert planned(path).head.bind["logits"] == bound


def test_ends_of_a_span_by_their_names(tmp_path: Path) -> None:
    architecture = ["BertForQuestionAnswering"]
    ends = [t.tensor("end", ["n", "t"]), t.tensor("start", ["n", "t"])]
    made = planned(folder(tmp_path / "m", ends, architectures=architecture))
    assert (made.head.bind["start_logits"], made.head.bind["end_logits"], made.notes) == ("start", "end", ())
    other = [t.tensor("output_1", ["n", "t"]), t.tensor("output_0", ["n", "t"])]
    made = planned(folder(tmp_path / "n", other, architectures=architecture))
    assert made.notes == ("output 'output_1' is taken for the start, 'output_0' for the end",)

"""The prompt of sentence-transformers: which one, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import embedding, rerank
from triton_repo_builder.endpoint.tasks.support import prompts, saved_modules
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.options import BuildOptions

SAVED = {"prompts": {"query": "hello ", "passage": "the fox ", "document": ""}}


def folder_of(path: Path, saved: Any, *, include: bool = True) -> Path:
    folder = tiny.embedder(path)
    tiny.put_json(folder / prompts.FILE, saved)
    config = {"pooling_mode": "mean", "include_prompt": include}
    tiny.put_json(folder / "1_Pooling" / "config.json", config)
    return folder


def read(folder: Path, prompt: str | None = None) -> prompts.Prompt:
    return prompts.read(reader.read_source(folder), BuildOptions(model=folder, prompt=prompt))


@pytest.mark.parametrize(
    ("default", "asked", "text"),
    [
        (None, None, ""),
        ("query", None, "hello "),
        ("document", None, ""),
        ("query", "passage", "the fox "),
        ("query", "", ""),
        ("query", "Represent it: ", "Represent it: "),
        (None, "query", "hello "),
    ],
)
def test_which_prompt(default: str | None, asked: str | None, text: str, tmp_path: Path) -> None:
    found = read(folder_of(tmp_path, {**SAVED, "default_prompt_name": default}), asked)
    assert found.text == text
    assert dict(found.encoding.parameters) == ({"prompt": text} if text else {})
    if text:
        assert found.notes == (f"prompt {text!r} goes before every text",)


@pytest.mark.parametrize(
    ("saved", "asked", "include", "facts"),
    [
        ({}, None, True, {}),
        ({"prompts": {}}, None, True, {}),
        (SAVED, None, True, {"prompts": SAVED["prompts"]}),
        (SAVED, "", True, {"prompts": SAVED["prompts"]}),
        (SAVED, "query", True, {"prompt": "hello ", "prompts": SAVED["prompts"]}),
        (SAVED, "x: ", True, {"prompt": "x: ", "prompts": SAVED["prompts"]}),
        (SAVED, None, False, {"prompts": SAVED["prompts"], "include_prompt": False}),
        ({"prompts": {"query": None}}, None, True, {"prompts": {"query": ""}}),
        ({"prompts": {"query": ""}}, None, False, {"prompts": {"query": ""}}),
        ({}, "x: ", False, {"prompt": "x: ", "include_prompt": False}),
    ],
)
def test_prompts_by_name_in_the_manifest(
    saved: Any, asked: str | None, include: bool, facts: dict[str, Any], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, saved, include=include)
    options = BuildOptions(model=folder, prompt=asked, normalize=False)
    every = dict(embedding.plan(reader.read_source(folder), options).facts)
    assert {key: value for key, value in every.items() if key.endswith(("prompt", "prompts"))} == facts


@pytest.mark.parametrize("default", ["query", None])
def test_a_prompt_of_a_megabyte(default: str | None, tmp_path: Path) -> None:
    saved = {"prompts": {"query": "x " * 500_000, "short": "y"}, "default_prompt_name": default}
    folder = folder_of(tmp_path, saved)
    with pytest.raises(
        TrbError, match="the prompt 'query' has 1,000,000 characters: at most 100,000"
    ) as caught:
        read(folder)
    assert caught.value.code is Code.TASK_UNCLEAR
    with pytest.raises(TrbError, match="at most 100,000") as caught:
        read(folder_of(tmp_path / "other", SAVED), "x: " * 50_000)
    assert caught.value.code is Code.USAGE


def test_many_prompts_are_one_short_note(tmp_path: Path) -> None:
    (note,) = read(folder_of(tmp_path, {"prompts": {f"{i}{'x' * 900}": "a" for i in range(900)}})).notes
    assert len(note) < 3000 and "and 880 more" in note


def test_a_list_of_modules_without_measure(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, SAVED)
    (folder / "modules.json").write_text(json.dumps([{"type": "Transformer", "path": ""}] * 1001))
    with pytest.raises(TrbError, match="it has 1,001 entries, and may have 1,000") as caught:
        saved_modules.modules(reader.read_source(folder))
    assert caught.value.code is Code.TASK_UNCLEAR


def test_prompts_of_which_none_is_the_default_are_told(tmp_path: Path) -> None:
    (note,) = read(folder_of(tmp_path, SAVED)).notes
    assert note.startswith("the prompts query, passage of config_sentence_transformers.json are not used")
    assert read(folder_of(tmp_path, {"prompts": {"query": "", "document": None}})).notes == ()


@pytest.mark.parametrize(
    ("saved", "asked", "code", "message"),
    [
        (SAVED, "pasage", Code.USAGE, "lists no prompt 'pasage'"),
        ({**SAVED, "default_prompt_name": "q"}, None, Code.TASK_UNCLEAR, "default_prompt_name is 'q'"),
        ({"prompts": ["a"]}, None, Code.TASK_UNCLEAR, "prompts does not give a text for each name"),
        ({"prompts": {"a": 1}}, None, Code.TASK_UNCLEAR, "prompts does not give a text for each name"),
    ],
)
def test_what_is_no_prompt(saved: Any, asked: str | None, code: Code, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError, match=message) as caught:
        read(folder_of(tmp_path, saved), asked)
    assert caught.value.code == code
    assert caught.value.remedy


def test_a_prompt_that_is_not_pooled_counts_no_last_special_token(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {**SAVED, "default_prompt_name": "passage"}, include=False)
    made = embedding.plan(reader.read_source(folder), BuildOptions(model=folder, normalize=False))
    assert dict(made.facts)["include_prompt"] is False
    # [CLS] the fox; then the text and [SEP].
    hidden = np.arange(20, dtype=np.float32).reshape(1, 5, 4)
    answer = made.reference({"last_hidden_state": hidden}, np.ones((1, 5), np.int64))
    np.testing.assert_array_equal(answer["embedding"], hidden[:, 3:].mean(axis=1))


def test_a_graph_that_pools_the_prompt_although_it_must_not(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {**SAVED, "default_prompt_name": "query"}, include=False)
    shapes = [t.tensor("sentence_embedding", ["n", 8])]
    (folder / "model.onnx").write_bytes(t.model([], [t.tensor("input_ids", ["n", "s"], t.INT64)], shapes))
    with pytest.raises(TrbError, match="pools the prompt's tokens, too"):
        embedding.plan(reader.read_source(folder), BuildOptions(model=folder))
    made = embedding.plan(reader.read_source(folder), BuildOptions(model=folder, prompt=""))
    assert dict(made.facts)["pooling"] == "in the model"


def test_a_task_that_has_no_place_for_it(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path, labels=1)
    tiny.put_json(folder / prompts.FILE, {**SAVED, "default_prompt_name": "query"})
    with pytest.raises(TrbError, match="prompt 'query' is not supported for the task rerank"):
        rerank.plan(reader.read_source(folder), BuildOptions(model=folder))


@pytest.mark.parametrize(("saved", "asked", "width"), [(5, None, 5), (None, 3, 3), (5, 8, 8), (8, None, 8)])
def test_the_first_values_of_the_embedding(
    saved: int | None, asked: int | None, width: int, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, {"truncate_dim": saved})
    made = embedding.plan(reader.read_source(folder), BuildOptions(model=folder, truncate_dim=asked))
    assert made.outputs[0].dims == (width,)
    answer = made.reference({"last_hidden_state": np.ones((1, 2, 8), np.float32)}, np.ones((1, 2), np.int64))
    assert answer["embedding"].shape == (1, width)


@pytest.mark.parametrize(
    ("saved", "asked", "code"),
    [(None, 9, Code.USAGE), (9, None, Code.TASK_UNCLEAR), ("x", None, Code.TASK_UNCLEAR)],
)
def test_more_values_than_there_are(saved: Any, asked: int | None, code: Code, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"truncate_dim": saved})
    with pytest.raises(TrbError, match=r"9|'x'") as caught:
        embedding.plan(reader.read_source(folder), BuildOptions(model=folder, truncate_dim=asked))
    assert caught.value.code == code


def test_a_prompt_that_leaves_no_room(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", SAVED)
    made = tiny.make(folder, tmp_path / "repo", prompt="the fox ", max_length=5)
    assert dict(made.plan.models[1].parameters)["prompt"] == "the fox "
    with pytest.raises(TrbError, match="takes 3 of the 4 tokens of a row") as caught:
        tiny.make(folder, tmp_path / "repo", prompt="the fox ", max_length=4)
    assert caught.value.where == "--prompt"

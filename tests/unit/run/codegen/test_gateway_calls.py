"""Calls through the gateway: the right route, texts and key for each task."""

from __future__ import annotations

import ast
import json
import shlex
from typing import Any

import pytest

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.codegen import gateway_calls, python_client
from triton_repo_builder.run.codegen.example import Example
from triton_repo_builder.run.codegen.gateway_calls import Gateway

OPEN = Gateway("http://127.0.0.1:9000")
KEYED = Gateway("http://127.0.0.1:9000", keyed=True)


def request(outputs: tuple[str, ...], rows: tuple[dict[str, str], ...], **more: Any) -> Example:
    """A request to an endpoint whose inputs are strings."""
    tensors = tuple(Tensor(name=name, datatype="BYTES", shape=(-1, 1)) for name in rows[0])
    answers = tuple(Tensor(name=name, datatype="FP32", shape=(-1, 1)) for name in outputs)
    endpoint = Endpoint(name="my model", inputs=tensors, outputs=answers, max_batch_size=8)
    inputs = tuple({"name": name, "data": [text]} for name, text in rows[0].items())
    return Example(endpoint=endpoint, obstacle="", inputs=inputs, file=None, rows=rows, **more)


EMBEDDING = request(("embedding",), ({"TEXT": "it's"}, {"TEXT": "two"}))
PAIR = {"QUERY": "why", "DOCUMENT": "because"}
RERANK = request(("score",), (PAIR, {**PAIR, "DOCUMENT": "so"}))
SPEECH = request(("text",), ({"AUDIO": ""},), path="talk.flac")


def words(line: str) -> list[str]:
    return shlex.split(line)


def test_embeddings() -> None:
    calls = gateway_calls.calls(EMBEDDING, OPEN)
    assert tuple(calls) == gateway_calls.LANGUAGES
    line = words(calls["openai-curl"])
    assert line[2] == "http://127.0.0.1:9000/v1/embeddings"
    assert json.loads(line[-1]) == {"model": "my model", "input": ["it's", "two"]}
    assert "Authorization" not in calls["openai-curl"]
    assert "base_url='http://127.0.0.1:9000/v1', api_key=\"none\"" in calls["openai-python"]


def test_rerank() -> None:
    calls = gateway_calls.calls(RERANK, OPEN)
    line = words(calls["openai-curl"])
    assert line[2] == "http://127.0.0.1:9000/v2/rerank"
    body = {"model": "my model", "query": "why", "documents": ["because", "so"]}
    assert json.loads(line[-1]) == body
    assert "cohere.ClientV2(base_url='http://127.0.0.1:9000'," in calls["openai-python"]


def test_transcriptions_send_a_file() -> None:
    calls = gateway_calls.calls(SPEECH, OPEN)
    line = words(calls["openai-curl"])
    assert line[2:] == ["http://127.0.0.1:9000/v1/audio/transcriptions", *line[3:]]
    assert {"model=my model", "file=@talk.flac"} < {*line}
    assert "open('talk.flac', \"rb\")" in calls["openai-python"]


@pytest.mark.parametrize(
    ("example", "variable"),
    [(EMBEDDING, "OPENAI_API_KEY"), (RERANK, "CO_API_KEY"), (SPEECH, "OPENAI_API_KEY")],
)
def test_keys_are_read_from_the_environment(example: Example, variable: str) -> None:
    calls = gateway_calls.calls(example, KEYED)
    assert f'-H "Authorization: Bearer ${variable}"' in calls["openai-curl"]
    assert "api_key" not in calls["openai-python"] and "none" not in calls["openai-javascript"]
    for open_or_keyed in (calls, gateway_calls.calls(example, OPEN)):
        ast.parse(open_or_keyed["openai-python"])


def test_no_gateway_and_a_task_without_a_call() -> None:
    assert gateway_calls.calls(EMBEDDING, None) == {}
    assert gateway_calls.calls(request(("label", "score", "scores"), ({"TEXT": "a"},)), OPEN) == {}


def test_nothing_answers_there() -> None:
    assert gateway_calls.reached("http://127.0.0.1:1") is None


def test_a_file_of_a_call_in_python_is_a_program() -> None:
    calls = gateway_calls.calls(EMBEDDING, OPEN)
    text = python_client.file_of(calls, "openai-python", "my model")
    assert text.startswith("# Call of") and ast.parse(text)
    assert python_client.file_of(calls, "openai-curl", "my model").startswith("#!/bin/sh\n")
    script = python_client.file_of(calls, "openai-javascript", "my model")
    assert "async function main()" in script and not any(line.endswith(" ") for line in script.splitlines())

"""OpenAI's fields and errors, each branch, in front of a Triton that is none."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from tests.support.fake_triton import BATCH, WIDTH, FakeGateway, numbers, rules, served
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.catalogue import Routing
from triton_repo_builder.run.gateway.refusal import Refusal

EMBEDDING, CLASSIFICATION = recognition.EMBEDDING, recognition.CLASSIFICATION


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def embedder(tokenizer: Path, **more: Any) -> FakeGateway:
    settings = {
        "max_length": 6,
        "normalized": True,
        "prompts": {"query": "hello ", "passage": "the "},
        **more,
    }
    return FakeGateway(served("minilm", EMBEDDING, rules=rules(tokenizer, **settings)), most_items=100)


def vectors(answer: Any) -> list[Any]:
    return [np.array(row["embedding"], np.float32) for row in answer["data"]]


def error(answer: Any, status: int = 400) -> tuple[str, str | None, str | None]:
    assert answer.status_code == status, answer.text
    body = answer.json()["error"]
    assert body.keys() == {"message", "type", "param", "code"}
    assert body["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return body["message"], body["param"], body["code"]


# --- embeddings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, BATCH, BATCH + 1, 100])
@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_any_number_of_texts_in_order(tokenizer: Path, count: int, encoding: str | None) -> None:
    texts = [f"text {number}" for number in range(count)]
    answer = embedder(tokenizer).post("/v1/embeddings", input=texts, model="minilm", encoding_format=encoding)
    body = answer.json()
    assert (body["object"], body["model"]) == ("list", "minilm")
    assert [row["index"] for row in body["data"]] == list(range(count))
    assert {row["object"] for row in body["data"]} == {"embedding"}
    rows = vectors(body) if encoding != "base64" else []
    for row in body["data"] if encoding == "base64" else ():
        rows.append(np.frombuffer(base64.b64decode(row["embedding"]), "<f4"))
    np.testing.assert_array_equal(rows, [numbers(text.encode()) for text in texts])


def test_a_string_is_a_list_of_one(tokenizer: Path) -> None:
    gateway = embedder(tokenizer)
    alone = gateway.post("/v1/embeddings", input="hello fox").json()
    assert alone["data"] == gateway.post("/v1/embeddings", input=["hello fox"]).json()["data"]
    # [CLS] hello fox [SEP]
    assert alone["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


def test_usage_counts_what_the_model_reads(tokenizer: Path) -> None:
    texts = ["hello", "hello the fox", "the fox " * 50]
    answer = embedder(tokenizer).post("/v1/embeddings", input=texts)
    assert answer.json()["usage"] == {"prompt_tokens": 3 + 5 + 6, "total_tokens": 3 + 5 + 6}


def test_token_ids(tokenizer: Path) -> None:
    hello, fox = (tiny.WORDS.index(word) for word in ("hello", "fox"))
    gateway = embedder(tokenizer)
    gateway.post("/v1/embeddings", input=[hello, fox])
    gateway.post("/v1/embeddings", input=[[hello], [fox, hello]])
    assert [request["TEXT"] for request in gateway.triton.requests] == [
        [b"hello fox"],
        [b"hello", b"fox hello"],
    ]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": {}}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [True]}, "input"),
        ({"input": [1.5]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [10_000]}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": [[1], "a"]}, "input"),
        ({"input": ["\ud800"]}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"encoding_format": ["float"]}, "encoding_format"),
        ({"dimensions": 3}, "dimensions"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": "4"}, "dimensions"),
        ({"user": 3}, "user"),
        ({"model": 3}, "model"),
        ({"embedding_type": "binary"}, "embedding_type"),
        ({"embedding_type": ["float", "base64"]}, "embedding_type"),
        ({"normalized": "yes"}, "normalized"),
        ({"normalized": False}, "normalized"),
        ({"late_chunking": True}, "late_chunking"),
        ({"task": 3}, "task"),
        ({"task": "separation"}, "task"),
        ({"task": "code.query"}, "task"),
        ({"truncate": "MIDDLE"}, "truncate"),
        ({"truncate": 3}, "truncate"),
    ],
)
def test_what_is_refused(tokenizer: Path, fields: dict[str, Any], field: str) -> None:
    gateway = embedder(tokenizer)
    if fields.get("input") == ["\ud800"]:
        body = b'{"input": ["\\ud800"]}'
        answer = gateway.ask("POST", "/v1/embeddings", content=body)
    else:
        known = {} if "input" in fields or not fields else {"input": "a"}
        answer = gateway.post("/v1/embeddings", **{**known, **fields})
    message, param, code = error(answer)
    assert (param, code) == (field, "invalid_value") or "JSON" in message
    assert gateway.triton.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"dimensions": WIDTH},
        {"user": "someone"},
        {"encoding_format": None, "dimensions": None, "user": None},
        {"embedding_type": ["float"]},
        {"encoding_type": "float"},
        {"normalized": True},
        {"late_chunking": False},
        {"truncate": True},
        {"truncate": False},
        {"truncate": "NONE"},
        {"truncate": "START"},
    ],
)
def test_what_changes_nothing(tokenizer: Path, fields: dict[str, Any]) -> None:
    answer = embedder(tokenizer).post("/v1/embeddings", input="hello", **fields)
    assert answer.status_code == 200, answer.text
    np.testing.assert_array_equal(vectors(answer.json())[0], numbers(b"hello"))


def test_a_field_that_nobody_knows(tokenizer: Path) -> None:
    _, param, code = error(embedder(tokenizer).post("/v1/embeddings", input="a", normalise=True))
    assert (param, code) == ("normalise", "unknown_parameter")


@pytest.mark.parametrize(
    ("side", "cut", "words"),
    [
        ("right", False, "reads the first 6"),
        ("right", "NONE", "reads the first 6"),
        ("right", "START", "reads the first 6"),
        ("right", "END", ""),
        ("right", True, ""),
        ("left", False, "reads the last 6"),
        ("left", "NONE", "reads the last 6"),
        ("left", "END", "reads the last 6"),
        ("left", "start", ""),
        ("left", True, ""),
    ],
)
def test_a_text_that_must_not_be_cut_so(tokenizer: Path, side: str, cut: Any, words: str) -> None:
    gateway = embedder(tokenizer, side=side)
    answer = gateway.post("/v1/embeddings", input=["hello", "the fox " * 9], truncate=cut)
    if not words:
        assert answer.status_code == 200, answer.text
        return
    message, param, code = error(answer)
    assert "text 1 has 20 tokens" in message and words in message
    assert (param, code) == ("truncate", "context_length_exceeded")


def test_without_a_tokenizer() -> None:
    gateway = FakeGateway(served("plain", EMBEDDING))
    answer = gateway.post("/v1/embeddings", input=["a b", "c"])
    assert answer.json()["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
    assert "tokenizer" in error(gateway.post("/v1/embeddings", input=[1, 2]))[0]
    assert "tokenizer" in error(gateway.post("/v1/embeddings", input="a", truncate="NONE"))[0]
    assert "not known" in error(gateway.post("/v1/embeddings", input="a", task="query"))[0]
    assert "not known" in error(gateway.post("/v1/embeddings", input="a", normalized=True))[0]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"task": "retrieval.query"}, b"hello fox"),
        ({"task": "retrieval.passage"}, b"the fox"),
        ({"input_type": "query"}, b"hello fox"),
        ({"input_type": "document"}, b"the fox"),
        ({"prompt_name": "passage"}, b"the fox"),
        ({"prompt_name": "PASSAGE"}, b"the fox"),
        ({}, b"fox"),
    ],
)
def test_prompts_by_name(tokenizer: Path, fields: dict[str, str], text: bytes) -> None:
    gateway = embedder(tokenizer)
    answer = gateway.post("/v1/embeddings", input="fox", **fields)
    assert answer.status_code == 200, answer.text
    assert gateway.triton.requests == [{"TEXT": [text]}]
    # [CLS], the prompt's word, fox, [SEP]
    assert answer.json()["usage"]["total_tokens"] == 3 + bool(fields)


@pytest.mark.parametrize(
    ("settings", "task", "sent"),
    [
        ({"prompts": {}}, "query", b"fox"),
        ({"prompts": {}}, "classification", b"fox"),
        ({"prompts": {"query": "", "document": ""}}, "clustering", b"fox"),
        ({"prompts": {"query": "hello "}}, "document", b"fox"),
        ({"prompts": {"query": "hello "}, "prompt": "hello "}, "query", b"fox"),
        ({"prompts": {"query": "hello "}, "prompt": "hello ", "pooled": False}, "query", b"fox"),
        ({"prompts": {"query": "hello "}, "prompt": "hello "}, "document", None),
        ({"prompts": {"query": "hello ", "document": ""}, "prompt": "hello "}, "document", None),
        ({"prompts": {"query": "hello "}, "pooled": False}, "query", None),
        ({"prompts": {"query": "hello ", "document": ""}, "pooled": False}, "document", b"fox"),
        ({"prompts": {"query": "hello "}}, "classification", None),
    ],
)
def test_prompts_as_the_model_files_say(
    tokenizer: Path, settings: dict[str, Any], task: str, sent: bytes | None
) -> None:
    gateway = embedder(tokenizer, **settings)
    answer = gateway.post("/v1/embeddings", input="fox", task=task)
    if sent is None:
        assert error(answer)[1] == "task"
        assert gateway.triton.requests == []
    else:
        assert gateway.triton.requests == [{"TEXT": [sent]}]


def test_a_list_that_is_too_long(tokenizer: Path) -> None:
    _, param, _ = error(embedder(tokenizer).post("/v1/embeddings", input=["a"] * 101), 413)
    assert param == "input"


def test_errors_of_the_server(tokenizer: Path) -> None:
    gateway = embedder(tokenizer)
    gateway.triton.failure = Refusal(503, "the inference server is not available", retry_after=1)
    answer = gateway.post("/v1/embeddings", input="a")
    assert "not available" in error(answer, 503)[0]
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"a"', b"\xff"])
def test_a_body_that_is_no_object(tokenizer: Path, body: bytes) -> None:
    error(embedder(tokenizer).ask("POST", "/v1/embeddings", content=body))


# --- which model --------------------------------------------------------------------------------------


def test_which_model_is_meant() -> None:
    routing = Routing(aliases={"text-embedding-3-small": "b"}, routes={"/v1/embeddings": "a"})
    endpoints = (
        served("a", EMBEDDING),
        served("b", EMBEDDING),
        served("c", CLASSIFICATION),
    )
    gateway = FakeGateway(*endpoints, routing=routing)
    assert gateway.post("/v1/embeddings", input="x").json()["model"] == "a"
    assert gateway.post("/v1/embeddings", input="x", model="text-embedding-3-small").json()["model"] == "b"
    message, param, code = error(gateway.post("/v1/embeddings", input="x", model="gpt"), 404)
    assert (param, code) == ("model", "model_not_found")
    assert message.endswith("a, b; or add an alias (--map)")
    message, param, _ = error(gateway.post("/v1/embeddings", input="x", model="c"))
    assert param == "model"
    assert "does text-classification" in message and message.endswith("a, b")
    assert "one of: a, b" in error(FakeGateway(*endpoints).post("/v1/embeddings", input="x"))[0]
    alone = FakeGateway(endpoints[2])
    assert "no endpoint" in error(alone.post("/v1/embeddings", input="x"))[0]
    assert "alias" not in error(alone.post("/v1/embeddings", input="x", model="a"), 404)[0]


def test_aliases_and_routes_that_lead_nowhere() -> None:
    routes = {"/v1/embeddings": "order", "/v1/classify": "nobody", "/embed": "ada"}
    routing = Routing(aliases={"ada": "minilmm", "order": "rerank"}, routes=routes)
    endpoints = served("minilm", EMBEDDING), served("rerank", "rerank"), served("mood", CLASSIFICATION)
    gateway = FakeGateway(*endpoints, routing=routing)
    message, param, code = error(gateway.post("/v1/embeddings", input="x", model="ada"), 404)
    assert message == "'ada' is an alias of 'minilmm', which the server does not have"
    assert (param, code) == ("model", "model_not_found")
    message = error(gateway.post("/v1/embeddings", input="x"))[0]
    assert "/v1/embeddings to 'rerank', which does rerank" in message and message.endswith(": minilm")
    assert "/v1/classify to 'nobody'" in error(gateway.post("/v1/classify", input="x"), 404)[0]
    assert "/embed to 'ada'" in gateway.post("/embed", inputs="x").json()["error"]
    assert gateway.post("/v1/embeddings", input="x", model="minilm").status_code == 200


def test_models(tokenizer: Path) -> None:
    routing = Routing(aliases={"ada": "minilm"})
    gateway = FakeGateway(served("minilm", EMBEDDING, rules=rules(tokenizer, max_length=6)), routing=routing)
    listed = gateway.ask("GET", "/v1/models").json()
    assert listed["object"] == "list"
    model, alias = listed["data"]
    assert alias == {**model, "id": "ada"}
    assert {key: model[key] for key in ("id", "object", "owned_by", "task", "max_length")} == {
        "id": "minilm",
        "object": "model",
        "owned_by": "trb",
        "task": "embedding",
        "max_length": 6,
    }
    assert isinstance(model["created"], int)
    assert gateway.ask("GET", "/v1/models/minilm").json() == model
    assert gateway.ask("GET", "/v1/models/ada").json() == alias
    _, param, code = error(gateway.ask("GET", "/v1/models/gpt"), 404)
    assert (param, code) == ("model", "model_not_found")


# --- classification -----------------------------------------------------------------------------------


def test_classes_of_texts(tokenizer: Path) -> None:
    labels = ["good", "bad", "ugly"]
    gateway = FakeGateway(served("mood", CLASSIFICATION, rules=rules(tokenizer), facts={"labels": labels}))
    texts = [f"{word} fox" for word in ("a", "b", "c") * 5]
    body = gateway.post("/v1/classify", model="mood", input=texts, user="me").json()
    assert body["id"].startswith("classify-")
    assert (body["object"], body["model"]) == ("list", "mood")
    assert body["usage"] == {
        "prompt_tokens": 60,
        "total_tokens": 60,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
    }
    for index, (row, text) in enumerate(zip(body["data"], texts, strict=True)):
        probabilities = numbers(text.encode())[:3]
        assert (row["index"], row["num_classes"]) == (index, 3)
        np.testing.assert_array_equal(np.array(row["probs"], np.float32), probabilities)
        assert row["label"] == labels[probabilities.argmax()]
    assert error(gateway.post("/v1/classify", input="a", use_activation=False))[2] == "unknown_parameter"
    assert error(gateway.post("/v1/classify", input=[]))[1] == "input"

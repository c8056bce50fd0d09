"""Cohere's and Jina's fields and errors, each branch, in front of a Triton that is none."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import tiny

from tests.support.fake_triton import BATCH, WIDTH, FakeGateway, numbers, rules, served
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.call import Call, Reply, reply
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.routes import cohere

RERANKS = ("/v1/rerank", "/v2/rerank", "/rerank")
EMBEDS = ("/v1/embed", "/v2/embed")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture
def ranker(tokenizer: Path) -> FakeGateway:
    return FakeGateway(
        served("rerank", recognition.RERANK, rules=rules(tokenizer, max_length=8)), most_items=100
    )


@pytest.fixture
def embedder(tokenizer: Path) -> FakeGateway:
    prompts = {"query": "hello ", "passage": "the "}
    return FakeGateway(
        served("minilm", recognition.EMBEDDING, rules=rules(tokenizer, max_length=6, prompts=prompts))
    )


def message(answer: Any, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"message"}
    return str(answer.json()["message"])


# --- rerank -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", RERANKS)
@pytest.mark.parametrize("count", [1, BATCH, BATCH + 1, 100])
def test_documents_by_their_scores(ranker: FakeGateway, path: str, count: int) -> None:
    documents = [f"text {number}" for number in range(count)]
    body = ranker.post(path, model="rerank", query="hello", documents=documents).json()
    scores = [numbers(f"hello|{text}".encode())[0] for text in documents]
    order = sorted(range(count), key=lambda place: -scores[place])
    assert [result["index"] for result in body["results"]] == order
    sent = [np.float32(result["relevance_score"]) for result in body["results"]]
    assert sent == [scores[place] for place in order]
    assert all(result.keys() == {"index", "relevance_score"} for result in body["results"])
    assert body["id"]
    # [CLS] hello [SEP] t e x t and a digit or two, of which the model reads 8
    assert body["meta"]["tokens"] == {"input_tokens": 8 * count}
    assert body["meta"]["api_version"] == {"version": "2" if path.startswith("/v2") else "1"}
    if not path.startswith("/v2"):
        assert (body["model"], body["usage"]["total_tokens"]) == ("rerank", 8 * count)


def test_equal_scores_keep_their_order(ranker: FakeGateway) -> None:
    results = ranker.post("/v1/rerank", query="q", documents=["a"] * 20).json()["results"]
    assert [result["index"] for result in results] == list(range(20))


@pytest.mark.parametrize("path", RERANKS)
def test_the_best_with_their_documents(ranker: FakeGateway, path: str) -> None:
    documents = ["one", {"text": "two", "title": "II"}, {"text": "three"}]
    fields = {"query": "q", "documents": documents, "return_documents": True}
    results = ranker.post(path, **fields, top_n=2).json()["results"]
    assert len(results) == 2
    for result in results:
        document = documents[result["index"]]
        assert result["document"] == ({"text": document} if isinstance(document, str) else document)
    assert len(ranker.post(path, **fields, top_n=50).json()["results"]) == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"query": None},
        {"query": ["q"]},
        {"documents": None},
        {"documents": []},
        {"documents": "text"},
        {"documents": ["a", 1]},
        {"documents": [{"title": "a"}]},
        {"documents": [{"text": 1}]},
        {"top_n": 0},
        {"top_n": 1.5},
        {"top_n": True},
        {"return_documents": 1},
        {"rank_fields": ["title"]},
        {"max_chunks_per_doc": 0},
        {"max_tokens_per_doc": "many"},
        {"model": ["rerank"]},
        {"truncation": True},
    ],
)
@pytest.mark.parametrize("path", RERANKS)
def test_what_is_refused(ranker: FakeGateway, path: str, fields: dict[str, Any]) -> None:
    (name,) = fields
    answer = ranker.post(path, **{"query": "q", "documents": ["a"], **fields})
    assert name in message(answer)
    assert ranker.triton.requests == []


def test_other_failures(ranker: FakeGateway, embedder: FakeGateway) -> None:
    fields: dict[str, Any] = {"query": "q", "documents": ["a"]}
    assert "models that can answer this: rerank" in message(
        ranker.post("/v2/rerank", **fields, model="other"), 404
    )
    assert "at most 100" in message(ranker.post("/v2/rerank", query="q", documents=["a"] * 101), 413)
    assert "does embedding" in message(embedder.post("/v2/rerank", **fields, model="minilm"))
    ranker.triton.failure = Refusal(503, "the inference server is not available", retry_after=1)
    answer = ranker.post("/v1/rerank", **fields)
    assert "not available" in message(answer, 503)
    assert answer.headers["retry-after"] == "1"
    assert "not JSON" in message(ranker.ask("POST", "/rerank", content=b"{"))


LONG = "the fox " * 9


@pytest.mark.parametrize(
    ("fields", "documents", "words"),
    [
        ({"max_chunks_per_doc": 1}, [LONG], ""),
        ({"max_chunks_per_doc": 10}, ["the fox"], ""),
        ({"max_chunks_per_doc": 10}, ["the fox", LONG], "text 1 has 22 tokens"),
        ({"max_tokens_per_doc": 4096}, [LONG], ""),
        ({"max_tokens_per_doc": 8}, [LONG], ""),
        ({"max_tokens_per_doc": 5}, ["the fox"], ""),
        ({"max_tokens_per_doc": 5}, ["the fox", LONG], "`documents[1]` has 20 tokens"),
        ({"priority": 3, "rank_fields": ["text"]}, [LONG], ""),
    ],
)
def test_lengths_of_documents(
    ranker: FakeGateway, fields: dict[str, Any], documents: list[str], words: str
) -> None:
    answer = ranker.post("/v2/rerank", query="hello", documents=documents, **fields)
    if words:
        assert words in message(answer)
    else:
        assert answer.status_code == 200, answer.text


def test_without_a_tokenizer() -> None:
    gateway = FakeGateway(served("rerank", recognition.RERANK))
    fields: dict[str, Any] = {"query": "q", "documents": ["a"]}
    assert gateway.post("/v1/rerank", **fields).json()["usage"]["total_tokens"] == 0
    for field in ("max_chunks_per_doc", "max_tokens_per_doc"):
        assert "tokenizer" in message(gateway.post("/v1/rerank", **fields, **{field: 5}))


def test_the_path_that_two_apis_share(ranker: FakeGateway) -> None:
    async def by_texts(call: Call, document: dict[str, Any]) -> Reply:
        if document["texts"] == []:
            raise Refusal(413, "`texts` is empty", retry_after=2)
        return reply([{"index": 0, "score": 1.0}])

    route = cohere.either(by_texts)
    ranker.app.routes[("POST", "/rerank")] = route
    fields = {"query": "q"}
    assert ranker.post("/rerank", **fields, texts=["a"]).json() == [{"index": 0, "score": 1.0}]
    assert ranker.post("/rerank", **fields, documents=["a"]).json()["results"][0]["index"] == 0
    answer = ranker.post("/rerank", **fields, texts=[])
    assert (answer.status_code, answer.headers["retry-after"]) == (413, "2")
    assert answer.json() == {"error": "`texts` is empty", "error_type": "Validation"}
    assert "`documents`" in message(ranker.post("/rerank", **fields))


# --- embed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EMBEDS)
@pytest.mark.parametrize("count", [1, BATCH, BATCH + 1, 100])
@pytest.mark.parametrize("types", [None, ["float"], ["base64"], ["float", "base64"]])
def test_embeddings(embedder: FakeGateway, path: str, count: int, types: list[str] | None) -> None:
    texts = [f"fox {number}" for number in range(count)]
    body = embedder.post(path, model="minilm", texts=texts, embedding_types=types).json()
    assert body["texts"] == texts
    expected = np.array([numbers(text.encode()) for text in texts])
    embeddings = body["embeddings"]
    if path == "/v1/embed":
        assert body["response_type"] == ("embeddings_by_type" if types else "embeddings_floats")
        embeddings = embeddings if types else {"float": embeddings}
    assert embeddings.keys() == set(types or ["float"])
    for kind, rows in embeddings.items():
        if kind == "base64":
            rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
        np.testing.assert_array_equal(np.array(rows, np.float32), expected)
    assert body["meta"]["api_version"] == {"version": path[2]}
    # [CLS] fox [UNK] [SEP]
    assert body["meta"]["billed_units"]["input_tokens"] == 4 * count


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (None, b"fox"),
        ("search_query", b"hello fox"),
        ("search_document", b"the fox"),
        ("classification", None),
        ("clustering", None),
        ("image", None),
        ("query", None),
        (3, None),
    ],
)
@pytest.mark.parametrize("path", EMBEDS)
def test_prompts_by_input_type(embedder: FakeGateway, path: str, kind: Any, sent: bytes | None) -> None:
    answer = embedder.post(path, texts=["fox"], input_type=kind)
    if sent is None:
        assert "input_type" in message(answer)
    else:
        assert embedder.triton.requests == [{"TEXT": [sent]}]
        assert answer.json()["texts"] == ["fox"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "`texts` must be"),
        ({"texts": "a"}, "`texts` must be"),
        ({"texts": []}, "`texts` is empty"),
        ({"texts": [1]}, "`texts[0]` must be a string"),
        ({"images": ["data:"]}, "`images`"),
        ({"inputs": []}, "`inputs` is empty"),
        ({"inputs": "a"}, "`inputs`"),
        ({"inputs": [{"content": [{"type": "text", "text": "a"}]}], "texts": ["a"]}, "`inputs`"),
        ({"inputs": [{"content": [{"type": "image_url"}]}]}, "`inputs[0]`"),
        ({"inputs": [{"content": []}]}, "`inputs[0]`"),
        ({"inputs": ["a"]}, "`inputs[0]`"),
        ({"texts": ["a"], "embedding_types": ["int8"]}, "`embedding_types`"),
        ({"texts": ["a"], "embedding_types": "float"}, "`embedding_types`"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, "`truncate`"),
        ({"texts": ["a"], "truncate": True}, "`truncate`"),
        ({"texts": [LONG], "truncate": "NONE"}, "text 0 has 20 tokens"),
        ({"texts": [LONG], "truncate": "START"}, "text 0 has 20 tokens"),
        ({"texts": ["a"], "output_dimension": 256}, "4 dimensions"),
        ({"texts": ["a"], "max_tokens": 5}, "`max_tokens`"),
        ({"texts": ["a"], "compress": 1}, "'compress' is not a valid field"),
    ],
)
@pytest.mark.parametrize("path", EMBEDS)
def test_embeddings_that_are_refused(
    embedder: FakeGateway, path: str, fields: dict[str, Any], words: str
) -> None:
    assert words in message(embedder.post(path, **fields))
    assert embedder.triton.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"texts": ["fox"], "truncate": "NONE"},
        {"texts": ["fox"], "truncate": "START"},
        {"texts": ["fox"], "truncate": "END"},
        {"texts": ["fox"], "truncate": None},
        {"texts": ["fox"], "output_dimension": WIDTH, "max_tokens": 512, "priority": 1},
        {"inputs": [{"content": [{"type": "text", "text": "fox"}]}]},
    ],
)
def test_embeddings_with_what_changes_nothing(embedder: FakeGateway, fields: dict[str, Any]) -> None:
    body = embedder.post("/v2/embed", **fields).json()
    np.testing.assert_array_equal(np.float32(body["embeddings"]["float"]), [numbers(b"fox")])


def test_half_of_a_surrogate_pair(embedder: FakeGateway, ranker: FakeGateway) -> None:
    for gateway, path, body in (
        (embedder, "/v2/embed", b'{"texts": ["\\ud800"]}'),
        (ranker, "/v2/rerank", b'{"query": "\\ud800", "documents": ["a"]}'),
        (ranker, "/v2/rerank", b'{"query": "q", "documents": ["\\ud800"]}'),
    ):
        answer = gateway.ask("POST", path, content=body)
        assert answer.status_code == 400, orjson.loads(answer.content)
        assert gateway.triton.requests == []

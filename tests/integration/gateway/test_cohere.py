"""Cohere's and Jina's routes on a real server: answers equal the endpoint's own over gRPC, bit for bit."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from tests.integration.gateway.test_openai import COUNTS, asked, post, texts
from tests.support.gateways import BATCH
from tests.support.rows import column
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = [pytest.mark.server, pytest.mark.gateway]

QUERY = "where did the cat sit?"


def scores(grpc: GrpcClient, documents: list[str]) -> Any:
    parts = [documents[start : start + BATCH] for start in range(0, len(documents), BATCH)]
    answers = [
        grpc.infer(
            "rerank",
            {
                "QUERY": column([QUERY.encode()] * len(part)),
                "DOCUMENT": column([text.encode() for text in part]),
            },
        )
        for part in parts
    ]
    return np.concatenate([answer["score"] for answer in answers])[:, 0]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_rerank(api: httpx.Client, grpc: GrpcClient, path: str, count: int) -> None:
    documents = texts(count)
    body = post(api, path, model="rerank", query=QUERY, documents=documents)
    expected = scores(grpc, documents)
    order = [result["index"] for result in body["results"]]
    assert order == np.argsort(-expected, kind="stable").tolist()
    sent = np.array([result["relevance_score"] for result in body["results"]], np.float32)
    np.testing.assert_array_equal(sent, expected[order])
    assert body["meta"]["tokens"]["input_tokens"] > 2 * count


def test_the_best_documents(api: httpx.Client) -> None:
    documents = [{"text": text} for text in texts(5)]
    body = post(api, "/v1/rerank", query=QUERY, documents=documents, top_n=2, return_documents=True)
    assert [result["document"] for result in body["results"]] == [
        documents[result["index"]] for result in body["results"]
    ]
    assert len(body["results"]) == 2


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("path", ["/v1/embed", "/v2/embed"])
def test_embed(api: httpx.Client, grpc: GrpcClient, path: str, count: int) -> None:
    listed = texts(count)
    fields = {"model": "minilm", "texts": listed, "input_type": "search_document"}
    body = post(api, path, **fields, embedding_types=["float", "base64"])
    expected = asked(grpc, "minilm", listed, "embedding")
    np.testing.assert_array_equal(np.array(body["embeddings"]["float"], np.float32), expected)
    rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in body["embeddings"]["base64"]]
    np.testing.assert_array_equal(rows, expected)
    if path == "/v1/embed":
        floats = post(api, path, **fields)["embeddings"]
        np.testing.assert_array_equal(np.array(floats, np.float32), expected)


def test_prompts_of_the_model(api: httpx.Client, grpc: GrpcClient) -> None:
    """The model's prompt for queries and the one for documents are empty; it has none for classes."""
    for kind in ("search_query", "search_document"):
        body = post(api, "/v2/embed", model="prompted", texts=["hello"], input_type=kind)
        expected = asked(grpc, "prompted", ["hello"], "embedding")
        np.testing.assert_array_equal(np.float32(body["embeddings"]["float"]), expected)
    answer = api.post("/v2/embed", json={"model": "prompted", "texts": ["a"], "input_type": "classification"})
    assert answer.status_code == 400
    assert "document, passage, query, question" in answer.json()["message"]


def test_an_endpoint_of_another_task(api: httpx.Client) -> None:
    answer = api.post("/v2/rerank", json={"model": "minilm", "query": "q", "documents": ["a"]})
    assert answer.status_code == 400
    assert answer.json()["message"].endswith("models that can: rerank")

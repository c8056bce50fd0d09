"""TEI's routes on a real server: each answer is the endpoint's over gRPC, bit for bit."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.rows import column
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = [pytest.mark.server, pytest.mark.gateway]

TEXTS = [f"text {number} {'word ' * (number % 40)}" for number in range(1000)]
FEW = ["a great film", "awful and slow", "", "Zürich 😀"]


def post(api: httpx.Client, path: str, **body: Any) -> Any:
    answer = api.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask(grpc: GrpcClient, name: str, output: str, size: int = 32, **inputs: list[str]) -> Any:
    """One output for lists of any length, in requests of the endpoint's most rows."""
    count = len(next(iter(inputs.values())))
    parts = [
        grpc.infer(name, {key: column(rows[at : at + size]) for key, rows in inputs.items()})[output]
        for at in range(0, count, size)
    ]
    return np.concatenate(parts)


def same(answer: Any, expected: Any) -> bool:
    return bool((np.array(answer, np.float32) == expected).all())


def test_embeddings(api: httpx.Client, grpc: GrpcClient) -> None:
    expected = ask(grpc, "minilm", "embedding", TEXT=TEXTS)
    assert same(post(api, "/models/minilm/embed", inputs=TEXTS), expected)
    assert same(post(api, "/embed", inputs=TEXTS[5], model="minilm"), expected[5:6])


def test_similarities(api: httpx.Client, grpc: GrpcClient) -> None:
    first, *others = ask(grpc, "minilm", "embedding", TEXT=FEW).astype(np.float64)
    inputs = {"source_sentence": FEW[0], "sentences": FEW[1:]}
    answer = post(api, "/models/minilm/similarity", inputs=inputs)
    np.testing.assert_allclose(answer, [first @ other for other in others], atol=1e-6)


def test_vectors_of_tokens(api: httpx.Client, grpc: GrpcClient) -> None:
    for text, rows in zip(FEW, post(api, "/embed_all", inputs=FEW), strict=True):
        alone = grpc.infer("colbert", {"TEXT": column([text])})
        assert same(rows, alone["token_embeddings"][0][alone["mask"][0] == 1])


def test_sparse_embeddings(api: httpx.Client, grpc: GrpcClient) -> None:
    for text, row in zip(FEW, post(api, "/embed_sparse", inputs=FEW), strict=True):
        alone = grpc.infer("splade", {"TEXT": column([text])})
        assert [one["index"] for one in row] == [
            index for index in alone["indices"][0].tolist() if index >= 0
        ]
        assert same([one["value"] for one in row], alone["values"][0][: len(row)])


def test_predictions_of_texts_and_pairs(api: httpx.Client, grpc: GrpcClient) -> None:
    labels = api.get("/models/sentiment/info").json()["model_type"]["classifier"]["label2id"]

    def scores(answer: list[Any]) -> Any:
        assert [one["score"] for one in answer] == sorted((one["score"] for one in answer), reverse=True)
        by_place = sorted(answer, key=lambda one: labels[one["label"]])
        return np.array([one["score"] for one in by_place], np.float32)

    texts = ask(grpc, "sentiment", "scores", TEXT=FEW)
    pairs = ask(grpc, "sentiment", "scores", TEXT=FEW, TEXT_PAIR=FEW[::-1])
    batch = [[text] for text in FEW] + [list(pair) for pair in zip(FEW, FEW[::-1], strict=True)]
    answers = post(api, "/models/sentiment/predict", inputs=batch)
    assert (np.stack([scores(answer) for answer in answers]) == np.concatenate([texts, pairs])).all()
    single = scores(post(api, "/models/sentiment/predict", inputs=FEW[0]))
    assert (single == texts[0]).all()
    pair = scores(post(api, "/predict", inputs=[FEW[0], FEW[3]], model="sentiment"))
    assert (pair == pairs[0]).all()


def test_ranks(api: httpx.Client, grpc: GrpcClient) -> None:
    documents = TEXTS[:100]
    expected = ask(grpc, "rerank", "score", QUERY=["text 7"] * 100, DOCUMENT=documents)[:, 0]
    answer = post(api, "/models/rerank/rerank", query="text 7", texts=documents, return_text=True)
    assert answer == post(api, "/rerank", query="text 7", texts=documents, return_text=True)
    assert same([one["score"] for one in answer], np.sort(expected)[::-1])
    for one in answer:
        assert np.float32(one["score"]) == expected[one["index"]]
        assert one["text"] == documents[one["index"]]


def test_a_prompt_by_name(api: httpx.Client, grpc: GrpcClient) -> None:
    expected = ask(grpc, "prompted", "embedding", TEXT=["passage: Zürich", "passage: "])
    assert same(post(api, "/models/prompted/embed", inputs=["Zürich", ""], prompt_name="passage"), expected)
    refused = api.post("/models/prompted/embed", json={"inputs": "a", "prompt_name": "query: "})
    assert (refused.status_code, refused.json()["error_type"]) == (422, "Validation")


def test_a_text_that_is_too_long_is_refused_unless_it_may_be_cut(api: httpx.Client, grpc: GrpcClient) -> None:
    most = api.get("/models/minilm/info").json()["max_input_length"]
    long = "word " * (most + 10)
    expected = ask(grpc, "minilm", "embedding", TEXT=[long])
    for fields in ({}, {"truncate": True}, {"truncate": None}):
        assert same(post(api, "/models/minilm/embed", inputs=long, **fields), expected)
    refused = api.post("/models/minilm/embed", json={"inputs": long, "truncate": False})
    assert (refused.status_code, refused.json()["error_type"]) == (413, "Validation")
    assert str(most) in refused.json()["error"]
    fits = post(api, "/models/minilm/embed", inputs="word", truncate=False)
    assert same(fits, ask(grpc, "minilm", "embedding", TEXT=["word"]))


def test_tokens_and_texts(api: httpx.Client) -> None:
    answer = api.post("/models/minilm/embed", json={"inputs": "a great film"})
    [tokens] = post(api, "/models/minilm/tokenize", inputs="a great film")
    assert answer.headers["x-compute-tokens"] == str(len(tokens))
    ids = [token["id"] for token in tokens]
    assert post(api, "/models/minilm/decode", ids=ids) == ["a great film"]


def test_health(api: httpx.Client) -> None:
    answer = api.get("/health")
    assert (answer.status_code, answer.content) == (200, b"")
    assert api.get("/models/minilm/health").status_code == 200

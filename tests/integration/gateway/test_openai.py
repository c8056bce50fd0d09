"""OpenAI's routes on a real server: each answer equals the endpoint's own over gRPC, bit for bit."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tiny_sounds
import tokenizers

from tests.support.gateways import BATCH, TOXIC
from tests.support.rows import column
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = [pytest.mark.server, pytest.mark.gateway]

COUNTS = (1, BATCH, BATCH + 1, 1000)
WORDS = ("the", "cat", "sat", "Straße", "東京", "!", "a longer piece of text", "")


def texts(count: int) -> list[str]:
    """Texts of mixed lengths and scripts."""
    return [f"{number} {' '.join(WORDS[: number % 8])}" for number in range(count)]


def asked(grpc: GrpcClient, model: str, listed: list[str], output: str) -> Any:
    """The endpoint's own answer, in requests of max_batch_size rows."""
    parts = [listed[start : start + BATCH] for start in range(0, len(listed), BATCH)]
    answers = [grpc.infer(model, {"TEXT": column([text.encode() for text in part])}) for part in parts]
    return np.concatenate([answer[output] for answer in answers])


def post(api: httpx.Client, path: str, **document: Any) -> Any:
    answer = api.post(path, json=document)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings(api: httpx.Client, grpc: GrpcClient, count: int, encoding: str) -> None:
    listed = texts(count)
    body = post(api, "/v1/embeddings", model="minilm", input=listed, encoding_format=encoding)
    rows = [row["embedding"] for row in body["data"]]
    if encoding == "base64":
        rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
    np.testing.assert_array_equal(np.array(rows, np.float32), asked(grpc, "minilm", listed, "embedding"))
    assert [row["index"] for row in body["data"]] == list(range(count))
    assert body["usage"]["total_tokens"] > 2 * count


def test_one_text_and_token_ids(api: httpx.Client, grpc: GrpcClient, repository: Path) -> None:
    text = "the cat sat on the mat"
    expected = asked(grpc, "minilm", [text], "embedding")[0]
    tokenizer = tokenizers.Tokenizer.from_file(str(repository / "minilm_tokenizer" / "1" / "tokenizer.json"))
    tokenizer.no_padding()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    for given in (text, [text], ids, [ids], [ids, ids]):
        body = post(api, "/v1/embeddings", model="minilm", input=given)
        rows = [row["embedding"] for row in body["data"]]
        assert len(rows) == (2 if given == [ids, ids] else 1)
        for row in rows:
            np.testing.assert_array_equal(np.float32(row), expected)
        assert body["usage"]["prompt_tokens"] == len(rows) * (len(ids) + 2)


@pytest.mark.parametrize(
    ("word", "prompt"),
    [
        ("question", "Represent the Question: "),
        ("passage", "passage: "),
        ("retrieval.passage", ""),
        ("query", ""),
    ],
)
def test_prompts_of_the_model(api: httpx.Client, grpc: GrpcClient, word: str, prompt: str) -> None:
    """The model names document and passage: the first of sentence-transformers' names is taken."""
    body = post(api, "/v1/embeddings", model="prompted", input=["hello"], task=word)
    expected = asked(grpc, "prompted", [f"{prompt}hello"], "embedding")
    np.testing.assert_array_equal(np.float32([body["data"][0]["embedding"]]), expected)


@pytest.mark.parametrize("count", COUNTS)
def test_classes(api: httpx.Client, grpc: GrpcClient, count: int) -> None:
    listed = texts(count)
    body = post(api, "/v1/classify", model="sentiment", input=listed)
    scores = np.array([row["probs"] for row in body["data"]], np.float32)
    np.testing.assert_array_equal(scores, asked(grpc, "sentiment", listed, "scores"))
    labels = [row["label"].encode() for row in body["data"]]
    assert labels == asked(grpc, "sentiment", listed, "label")[:, 0].tolist()


@pytest.mark.parametrize("count", COUNTS)
def test_moderations(api: httpx.Client, grpc: GrpcClient, count: int) -> None:
    listed = texts(count)
    results = post(api, "/v1/moderations", input=listed)["results"]
    scores = asked(grpc, "moderator", listed, "scores")
    sent = [[result["category_scores"][label] for label in TOXIC.values()] for result in results]
    np.testing.assert_array_equal(np.array(sent, np.float32), scores)
    assert [list(result["categories"].values()) for result in results] == (scores >= 0.5).tolist()


def test_a_classifier_that_does_not_moderate(api: httpx.Client) -> None:
    answer = api.post("/v1/moderations", json={"input": "a", "model": "sentiment"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].endswith("models that fit: moderator")


@pytest.mark.parametrize("written", ["json", "text", "verbose_json"])
def test_transcriptions(api: httpx.Client, grpc: GrpcClient, written: str) -> None:
    for seed, count in enumerate((8_000, 33_333)):
        file = tiny_sounds.wav(tiny_sounds.noise(count, seed=seed))
        expected = grpc.infer("speech", {"AUDIO": column([file])})["text"][0, 0].decode()
        data = {"model": "speech", "response_format": written}
        answer = api.post("/v1/audio/transcriptions", files={"file": ("a.wav", file)}, data=data)
        assert answer.status_code == 200, answer.text
        assert (answer.text if written == "text" else answer.json()["text"]) == expected
        if written == "verbose_json":
            assert answer.json()["duration"] == count / tiny_sounds.RATE


def test_a_file_that_is_no_sound(api: httpx.Client) -> None:
    answer = api.post("/v1/audio/transcriptions", files={"file": ("a.wav", b"no sound")})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == ("file", "invalid_request_error")
    assert "is not a WAV, FLAC, OGG, MP3 or AIFF file" in error["message"]


def test_models(api: httpx.Client) -> None:
    listed = {model["id"]: model for model in api.get("/v1/models").json()["data"]}
    assert listed["minilm"]["task"] == "embedding"
    assert listed["speech"] == api.get("/v1/models/speech").json()
    assert not [name for name in listed if name.endswith(("_model", "_tokenizer"))]


def test_an_endpoint_of_another_task(api: httpx.Client) -> None:
    answer = api.post("/v1/embeddings", json={"input": "a", "model": "rerank"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].endswith("models that can: minilm, prompted")

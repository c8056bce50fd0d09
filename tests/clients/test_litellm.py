"""litellm, by the providers that take an ``api_base``."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import numpy as np
import pytest
from kserve import Server
from texts import MANY, QUERY, TEXTS, wav


def numbers(answer: Any) -> np.ndarray:
    return np.array([row["embedding"] for row in answer.data], np.float32)


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_embedding(url: str, server: Server, provider: str) -> None:
    place = {"model": f"{provider}/minilm", "api_base": f"{url}/v1", "api_key": "none"}
    answer = litellm.embedding(input=TEXTS, **place)
    assert np.array_equal(numbers(answer), server.vectors("minilm", TEXTS))
    assert answer.usage.prompt_tokens > len(TEXTS)
    answer = asyncio.run(litellm.aembedding(input=MANY, encoding_format="float", **place))
    assert np.array_equal(numbers(answer), server.vectors("minilm", MANY))


def test_embedding_of_tei(url: str, server: Server) -> None:
    """``input_type`` keeps litellm from asking the hub which task the model has."""
    answer = litellm.embedding(
        model="huggingface/minilm", input=TEXTS, api_base=f"{url}/models/minilm/embed", input_type="embed"
    )
    assert np.array_equal(numbers(answer), server.vectors("minilm", TEXTS))


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("cohere/rerank", "/v1/rerank"),
        ("cohere/rerank", "/v2/rerank"),
        ("jina_ai/rerank", "/v1/rerank"),
        ("hosted_vllm/rerank", "/v1/rerank"),
        ("huggingface/rerank", ""),
    ],
)
def test_rerank(url: str, server: Server, model: str, path: str) -> None:
    answer = litellm.rerank(
        model=model, query=QUERY, documents=TEXTS, api_base=f"{url}{path}", api_key="none", top_n=3
    )
    scores = server.ask("rerank", QUERY=[QUERY] * len(TEXTS), DOCUMENT=TEXTS)["score"].ravel()
    got = [(one["index"], np.float32(one["relevance_score"])) for one in answer.results]
    assert got == sorted(enumerate(scores), key=lambda pair: -pair[1])


def test_transcription(url: str, server: Server) -> None:
    answer = litellm.transcription(
        model="openai/speech", file=("noise.wav", wav()), api_base=f"{url}/v1", api_key="none"
    )
    assert answer.text == server.file("speech", "AUDIO", wav())["text"][0, 0]


def test_errors(url: str) -> None:
    place = {"api_base": f"{url}/v1", "api_key": "none", "max_retries": 0}
    with pytest.raises(litellm.NotFoundError):
        litellm.embedding(model="openai/gpt", input=TEXTS, **place)
    with pytest.raises(litellm.BadRequestError):
        litellm.embedding(model="openai/rerank", input=TEXTS, **place)

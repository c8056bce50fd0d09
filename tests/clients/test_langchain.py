"""LangChain: langchain-openai and langchain-huggingface's endpoint embeddings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import llama_index.core
import numpy as np
import openai
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from kserve import Server
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings
from texts import MANY, QUERY, TEXTS

TIKTOKEN = "_static/tiktoken_cache"


@pytest.fixture(scope="module")
def embeddings(url: str) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        model="minilm", base_url=f"{url}/v1", api_key="none", check_embedding_ctx_length=False
    )


def equal(vectors: list[list[float]], expected: np.ndarray) -> bool:
    return np.array_equal(np.array(vectors, np.float32), expected)


def test_openai_embeddings(embeddings: OpenAIEmbeddings, server: Server) -> None:
    assert equal(embeddings.embed_documents(TEXTS), server.vectors("minilm", TEXTS))
    assert equal([embeddings.embed_query(QUERY)], server.vectors("minilm", [QUERY]))
    assert equal(asyncio.run(embeddings.aembed_documents(TEXTS)), server.vectors("minilm", TEXTS))


def test_openai_embeddings_of_a_thousand_texts(embeddings: OpenAIEmbeddings, server: Server) -> None:
    assert equal(embeddings.embed_documents(MANY), server.vectors("minilm", MANY))


def test_ids_of_another_tokenizer_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default LangChain sends ids of OpenAI's tokenizer; its file is one that LlamaIndex ships."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(Path(llama_index.core.__file__).parent / TIKTOKEN))
    embeddings = OpenAIEmbeddings(model="minilm", base_url=f"{url}/v1", api_key="none")
    with pytest.raises(openai.BadRequestError) as refused:
        embeddings.embed_query("Où est la bibliothèque?")
    assert refused.value.param == "input"


def test_huggingface_endpoint_embeddings(url: str, server: Server) -> None:
    """The constructor of release 1.2.3 refuses URLs, which 1.2.0 took: the clients are set afterwards."""
    embeddings = HuggingFaceEndpointEmbeddings(model="minilm")
    embeddings.client = InferenceClient(f"{url}/models/minilm")
    embeddings.async_client = AsyncInferenceClient(f"{url}/models/minilm")
    assert equal(embeddings.embed_documents(TEXTS), server.vectors("minilm", TEXTS))
    assert equal([embeddings.embed_query(QUERY)], server.vectors("minilm", [QUERY]))
    assert equal(asyncio.run(embeddings.aembed_documents(TEXTS)), server.vectors("minilm", TEXTS))

"""LangChain: langchain-openai and langchain-huggingface's endpoint embeddings."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from kserve import Server
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings
from texts import MANY, QUERY, TEXTS


@pytest.fixture(scope="module")
def openai(url: str) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        model="minilm", base_url=f"{url}/v1", api_key="none", check_embedding_ctx_length=False
    )


def equal(vectors: list[list[float]], expected: np.ndarray) -> bool:
    return np.array_equal(np.array(vectors, np.float32), expected)


def test_openai_embeddings(openai: OpenAIEmbeddings, server: Server) -> None:
    assert equal(openai.embed_documents(TEXTS), server.vectors("minilm", TEXTS))
    assert equal([openai.embed_query(QUERY)], server.vectors("minilm", [QUERY]))
    assert equal(asyncio.run(openai.aembed_documents(TEXTS)), server.vectors("minilm", TEXTS))


def test_openai_embeddings_of_a_thousand_texts(openai: OpenAIEmbeddings, server: Server) -> None:
    assert equal(openai.embed_documents(MANY), server.vectors("minilm", MANY))


def test_huggingface_endpoint_embeddings(url: str, server: Server) -> None:
    """From release 1.2.3 on, the constructor refuses a URL: the clients are set afterwards."""
    embeddings = HuggingFaceEndpointEmbeddings(model="minilm")
    embeddings.client = InferenceClient(f"{url}/models/minilm")
    embeddings.async_client = AsyncInferenceClient(f"{url}/models/minilm")
    assert equal(embeddings.embed_documents(TEXTS), server.vectors("minilm", TEXTS))
    assert equal([embeddings.embed_query(QUERY)], server.vectors("minilm", [QUERY]))
    assert equal(asyncio.run(embeddings.aembed_documents(TEXTS)), server.vectors("minilm", TEXTS))

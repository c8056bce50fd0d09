"""Chroma's embedding functions, alone and in a collection in memory."""

from __future__ import annotations

import chromadb
import numpy as np
from chromadb.utils.embedding_functions import HuggingFaceEmbeddingServer, OpenAIEmbeddingFunction
from kserve import Server
from texts import MANY, TEXTS


def test_openai_embedding_function(url: str, server: Server) -> None:
    function = OpenAIEmbeddingFunction(model_name="minilm", api_base=f"{url}/v1", api_key="none")
    assert np.array_equal(np.array(function(MANY), np.float32), server.vectors("minilm", MANY))


def test_huggingface_embedding_server(url: str, server: Server) -> None:
    function = HuggingFaceEmbeddingServer(url=f"{url}/models/minilm/embed")
    assert np.array_equal(np.array(function(TEXTS), np.float32), server.vectors("minilm", TEXTS))


def test_a_collection_finds_its_texts(url: str) -> None:
    function = OpenAIEmbeddingFunction(model_name="minilm", api_base=f"{url}/v1", api_key="none")
    collection = chromadb.EphemeralClient().create_collection("texts", embedding_function=function)
    collection.add(ids=[str(number) for number in range(len(TEXTS))], documents=TEXTS)
    nearest = collection.query(query_texts=TEXTS, n_results=1)["ids"]
    assert nearest == [["0"], ["1"], ["2"]]

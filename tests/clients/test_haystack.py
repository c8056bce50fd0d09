"""Haystack: embedders by OpenAI's and TEI's routes, also sparse ones, and the ranker of TEI."""

from __future__ import annotations

import numpy as np
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPITextEmbedder,
    HuggingFaceTEISparseTextEmbedder,
)
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from kserve import Server
from texts import QUERY, TEXTS

KEY = Secret.from_token("none")


def test_openai_embedders(url: str, server: Server) -> None:
    place = {"model": "minilm", "api_base_url": f"{url}/v1", "api_key": KEY}
    vector = OpenAITextEmbedder(**place).run(QUERY)["embedding"]
    assert np.array_equal(np.array(vector, np.float32), server.vectors("minilm", [QUERY])[0])
    documents = [Document(content=text) for text in TEXTS]
    embedded = OpenAIDocumentEmbedder(**place, progress_bar=False).run(documents)["documents"]
    vectors = np.array([document.embedding for document in embedded], np.float32)
    assert np.array_equal(vectors, server.vectors("minilm", TEXTS))


def test_tei_embedder(url: str, server: Server) -> None:
    embedder = HuggingFaceAPITextEmbedder(
        api_type="text_embeddings_inference",
        api_params={"url": f"{url}/models/minilm"},
        token=None,
        normalize=True,
    )
    vector = embedder.run(QUERY)["embedding"]
    assert np.array_equal(np.array(vector, np.float32), server.vectors("minilm", [QUERY])[0])


def test_tei_sparse_embedder(url: str, server: Server) -> None:
    embedder = HuggingFaceTEISparseTextEmbedder(api_base_url=f"{url}/models/splade", token=None)
    embedding = embedder.run(QUERY)["sparse_embedding"]
    outputs = server.ask("splade", TEXT=[QUERY])
    indices = [int(index) for index in outputs["indices"][0] if index >= 0]
    assert embedding.indices == indices
    assert np.array_equal(np.array(embedding.values, np.float32), outputs["values"][0, : len(indices)])


def test_tei_ranker(url: str, server: Server) -> None:
    documents = [Document(content=text) for text in TEXTS]
    answer = HuggingFaceTEIRanker(url=url, token=None).run(query=QUERY, documents=documents)["documents"]
    scores = server.ask("rerank", QUERY=[QUERY] * len(TEXTS), DOCUMENT=TEXTS)["score"].ravel()
    ranked = sorted(zip(TEXTS, scores, strict=True), key=lambda pair: -pair[1])
    assert [(document.content, np.float32(document.score)) for document in answer] == ranked

"""LlamaIndex: embeddings by OpenAI's and TEI's routes, and rerankers by Cohere's and TEI's."""

from __future__ import annotations

import numpy as np
from kserve import Server
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TeiRerank
from texts import MANY, QUERY, TEXTS


def equal(vectors: list[list[float]], expected: np.ndarray) -> bool:
    return np.array_equal(np.array(vectors, np.float32), expected)


def nodes() -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]


def ranked(server: Server) -> list[tuple[str, np.float32]]:
    scores = server.ask("rerank", QUERY=[QUERY] * len(TEXTS), DOCUMENT=TEXTS)["score"].ravel()
    return sorted(zip(TEXTS, scores, strict=True), key=lambda pair: -pair[1])


def of(answer: list[NodeWithScore]) -> list[tuple[str, np.float32]]:
    return [(one.node.get_content(), np.float32(one.score or 0)) for one in answer]


def test_openai_embedding(url: str, server: Server) -> None:
    embedding = OpenAIEmbedding(model_name="minilm", api_base=f"{url}/v1", api_key="none")
    assert equal(embedding.get_text_embedding_batch(MANY), server.vectors("minilm", MANY))
    assert equal([embedding.get_query_embedding(QUERY)], server.vectors("minilm", [QUERY]))


def test_text_embeddings_inference(url: str, server: Server) -> None:
    embedding = TextEmbeddingsInference(model_name="minilm", base_url=f"{url}/models/minilm")
    assert equal(embedding.get_text_embedding_batch(TEXTS), server.vectors("minilm", TEXTS))


def test_cohere_rerank(url: str, server: Server) -> None:
    reranker = CohereRerank(model="rerank", api_key="none", base_url=url, top_n=3)
    assert of(reranker.postprocess_nodes(nodes(), query_str=QUERY)) == ranked(server)


def test_tei_rerank(url: str, server: Server) -> None:
    reranker = TeiRerank(model_name="rerank", base_url=url, top_n=3)
    assert of(reranker.postprocess_nodes(nodes(), query_str=QUERY)) == ranked(server)

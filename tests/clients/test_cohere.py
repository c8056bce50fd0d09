"""cohere's clients of version 1 and 2 of its API."""

from __future__ import annotations

import cohere
import numpy as np
import pytest
from cohere.core.api_error import ApiError
from conftest import KEY
from kserve import Server
from texts import QUERY, TEXTS


@pytest.fixture(scope="module")
def v1(url: str) -> cohere.Client:
    return cohere.Client(api_key="none", base_url=url)


@pytest.fixture(scope="module")
def v2(url: str) -> cohere.ClientV2:
    return cohere.ClientV2(api_key="none", base_url=url)


def ranked(server: Server, documents: list[str]) -> list[tuple[int, np.float32]]:
    scores = server.ask("rerank", QUERY=[QUERY] * len(documents), DOCUMENT=documents)["score"].ravel()
    return sorted(enumerate(scores), key=lambda pair: -pair[1])


def test_rerank_of_version_1(v1: cohere.Client, server: Server) -> None:
    answer = v1.rerank(model="rerank", query=QUERY, documents=TEXTS, return_documents=True)
    got = [(one.index, np.float32(one.relevance_score)) for one in answer.results]
    assert got == ranked(server, TEXTS)
    assert [one.document.text for one in answer.results if one.document] == [TEXTS[index] for index, _ in got]


def test_rerank_of_documents_that_are_objects(v1: cohere.Client, server: Server) -> None:
    answer = v1.rerank(model="rerank", query=QUERY, documents=[{"text": text} for text in TEXTS], top_n=2)
    assert [one.index for one in answer.results] == [index for index, _ in ranked(server, TEXTS)[:2]]


def test_rerank_of_version_2(v2: cohere.ClientV2, server: Server) -> None:
    documents = [f"{text} {number}" for number in range(100) for text in TEXTS]
    answer = v2.rerank(model="rerank", query=QUERY, documents=documents)
    got = [(one.index, np.float32(one.relevance_score)) for one in answer.results]
    assert got == ranked(server, documents)
    assert len(v2.rerank(model="rerank", query=QUERY, documents=documents, top_n=3).results) == 3


@pytest.mark.parametrize(("kind", "prompt"), [("search_query", "query: "), ("search_document", "passage: ")])
def test_embed_puts_the_models_prompt_before_each_text(
    v1: cohere.Client, v2: cohere.ClientV2, server: Server, kind: str, prompt: str
) -> None:
    expected = server.vectors("asymmetric", [prompt + text for text in TEXTS])
    first = v1.embed(model="asymmetric", texts=TEXTS, input_type=kind)
    assert np.array_equal(np.array(first.embeddings, np.float32), expected)
    second = v2.embed(model="asymmetric", texts=TEXTS, input_type=kind, embedding_types=["float"])
    assert np.array_equal(np.array(second.embeddings.float_, np.float32), expected)


def test_errors(v2: cohere.ClientV2, closed_url: str) -> None:
    with pytest.raises(cohere.NotFoundError) as unknown:
        v2.rerank(model="rerank-v3.5", query=QUERY, documents=TEXTS)
    assert "rerank" in str(unknown.value.body)
    with pytest.raises(cohere.BadRequestError):
        v2.rerank(model="minilm", query=QUERY, documents=TEXTS)
    with pytest.raises(cohere.BadRequestError):
        v2.embed(model="asymmetric", texts=TEXTS, input_type="search_query", embedding_types=["int8"])
    with pytest.raises(ApiError) as refused:
        cohere.ClientV2(api_key="wrong", base_url=closed_url).rerank(
            model="rerank", query=QUERY, documents=TEXTS
        )
    assert refused.value.status_code == 401
    keyed = cohere.ClientV2(api_key=KEY, base_url=closed_url)
    assert keyed.rerank(model="rerank", query=QUERY, documents=TEXTS).results

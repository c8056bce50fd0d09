"""The openai package for Python, sync and async."""

from __future__ import annotations

import asyncio

import numpy as np
import openai
import pytest
from conftest import KEY, MODELS
from kserve import Server
from texts import MANY, TEXTS, wav
from tokenizers import Tokenizer


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_embeddings(client: openai.OpenAI, server: Server) -> None:
    """The package asks for base64 by itself and decodes it."""
    answer = client.embeddings.create(model="minilm", input=TEXTS)
    vectors = np.array([row.embedding for row in answer.data], np.float32)
    assert np.array_equal(vectors, server.vectors("minilm", TEXTS))
    assert [row.index for row in answer.data] == [0, 1, 2]
    assert answer.model == "minilm"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)


def test_embeddings_in_decimal_numbers(client: openai.OpenAI, server: Server) -> None:
    answer = client.embeddings.create(model="minilm", input=TEXTS[0], encoding_format="float", user="anna")
    assert np.array_equal(
        np.array(answer.data[0].embedding, np.float32), server.vectors("minilm", TEXTS[:1])[0]
    )


def test_embeddings_of_a_thousand_texts(client: openai.OpenAI, server: Server) -> None:
    answer = client.embeddings.create(model="minilm", input=MANY)
    vectors = np.array([row.embedding for row in answer.data], np.float32)
    assert np.array_equal(vectors, server.vectors("minilm", MANY))


def test_embeddings_of_token_ids(client: openai.OpenAI, server: Server) -> None:
    """Ids of the endpoint's own tokenizer, without special tokens: [CLS] and [SEP] are put round them."""
    tokenizer = Tokenizer.from_file(str(MODELS / "embedding" / "minilm_fp32" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    answer = client.embeddings.create(model="minilm", input=ids)
    vectors = np.array([row.embedding for row in answer.data], np.float32)
    assert np.array_equal(vectors, server.vectors("minilm", TEXTS))
    assert answer.usage.prompt_tokens == sum(map(len, ids)) + 2 * len(ids)
    single = client.embeddings.create(model="minilm", input=ids[1])
    assert single.data[0].embedding == pytest.approx(answer.data[1].embedding, abs=1e-6)


def test_embeddings_of_many_clients_at_the_same_time(url: str, server: Server) -> None:
    async def every() -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            calls = [client.embeddings.create(model="minilm", input=text) for text in MANY[:50]]
            return [answer.data[0].embedding for answer in await asyncio.gather(*calls)]

    vectors = np.array(asyncio.run(every()), np.float32)
    expected = np.concatenate([server.vectors("minilm", [text]) for text in MANY[:50]])
    assert np.array_equal(vectors, expected)


def test_other_dimensions_are_refused(client: openai.OpenAI, server: Server) -> None:
    width = server.vectors("minilm", TEXTS[:1]).shape[1]
    assert client.embeddings.create(model="minilm", input="hello", dimensions=width).data
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="minilm", input="hello", dimensions=width - 1)
    assert refused.value.param == "dimensions"
    assert str(width) in refused.value.message


def test_an_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.embeddings.create(model="text-embedding-3-small", input="hello")
    assert refused.value.code == "model_not_found"
    assert "minilm" in refused.value.message


def test_a_model_of_another_task(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="rerank", input="hello")
    assert refused.value.param == "model"
    assert "minilm" in refused.value.message


def test_api_keys(closed_url: str) -> None:
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{closed_url}/v1", api_key="wrong", max_retries=0).models.list()
    client = openai.OpenAI(base_url=f"{closed_url}/v1", api_key=KEY, max_retries=0)
    assert client.embeddings.create(model="minilm", input="hello").data


def test_models(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} >= {"minilm", "rerank", "speech"}
    assert client.models.retrieve("minilm").id == "minilm"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


def test_moderations(client: openai.OpenAI, server: Server) -> None:
    answer = client.moderations.create(model="moderator", input=TEXTS[:2])
    scores = server.ask("moderator", TEXT=TEXTS[:2])["scores"]
    for result, row in zip(answer.results, scores, strict=True):
        listed = result.category_scores.model_dump(by_alias=True, exclude_none=True)
        assert sorted(np.float32(value) for value in listed.values() if value) == sorted(row)


def test_transcriptions(client: openai.OpenAI, server: Server) -> None:
    text = server.file("speech", "AUDIO", wav())["text"][0, 0]
    assert text
    file = ("noise.wav", wav())
    create = client.audio.transcriptions.create
    assert create(model="speech", file=file).text == text
    assert create(model="speech", file=file, response_format="json").text == text
    plain: object = create(model="speech", file=file, response_format="text")
    assert str(plain).strip() == text
    verbose = create(model="speech", file=file, response_format="verbose_json")
    assert verbose.text == text
    assert float(verbose.duration) == pytest.approx(0.5)


def test_subtitles_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(model="speech", file=("a.wav", wav()), response_format="srt")
    assert refused.value.param == "response_format"

"""The API of text-embeddings-inference (TEI).

https://github.com/huggingface/text-embeddings-inference/blob/main/docs/openapi.json (1.9). TEI serves one
model. Of several endpoints a request means the one of its field ``model``, an extension, or of its path:
``/models/NAME/embed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.gateway import embedding_fields, recognition, refusal
from triton_repo_builder.run.gateway.call import (
    Call,
    Handler,
    Reply,
    Route,
    check_count,
    encoded,
    flag,
    reply,
    texts,
    whole,
)
from triton_repo_builder.run.gateway.catalogue import Served, shown
from triton_repo_builder.run.gateway.labels import labels, predictions
from triton_repo_builder.run.gateway.ranking import ranked_pairs
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.routes.tei_fields import (
    Document,
    Task,
    answered,
    check_raw,
    check_truncation,
    empty,
    endpoint,
    inputs,
    prepared,
)
from triton_repo_builder.run.gateway.routes.tei_service import decode, health, info, tokenize
from triton_repo_builder.run.gateway.triton import Answer, rows

PAIR = "TEXT_PAIR"


@answered
async def embed(call: Call, document: Document) -> Reply:
    """``POST /embed``."""
    served = endpoint(call, document, recognition.EMBEDDING)
    listed = inputs(document, served, call.gateway.options.most_items)
    embedding_fields.check_normalized(served, flag(document, "normalize"), "normalize")
    embedding_fields.check_dimensions(served, whole(document, "dimensions"), "dimensions")
    return reply(await _vectors(call, document, served, listed))


async def _vectors(call: Call, document: Document, served: Served, listed: list[str]) -> Array:
    prompted = await prepared(call, document, served, listed)
    return (await embedding_fields.vectors(call, served, prompted, "inputs"))[0]


@answered
async def embed_all(call: Call, document: Document) -> Reply:
    """``POST /embed_all``: the vectors of a text's tokens that count."""
    served = endpoint(call, document, recognition.LATE_INTERACTION)
    listed = inputs(document, served, call.gateway.options.most_items)
    prompted = await prepared(call, document, served, listed)
    columns = {"TEXT": encoded(prompted, "inputs")}
    answers, _ = await call.counted(served, columns, ("token_embeddings", "mask"), prompted)
    return reply([row["token_embeddings"][row["mask"] != 0] for row in rows(answers)])


@answered
async def embed_sparse(call: Call, document: Document) -> Reply:
    """``POST /embed_sparse``."""
    served = endpoint(call, document, recognition.SPARSE)
    listed = inputs(document, served, call.gateway.options.most_items)
    prompted = await prepared(call, document, served, listed)
    columns = {"TEXT": encoded(prompted, "inputs")}
    answers, _ = await call.counted(served, columns, ("indices", "values"), prompted)
    return reply([_weights(row["indices"], row["values"]) for row in rows(answers)])


def _weights(indices: Array, values: Array) -> list[dict[str, Any]]:
    """Pairs of a row, whose rest is filled up with the index -1."""
    end = int((indices >= 0).sum())
    return [
        {"index": index, "value": value}
        for index, value in zip(indices[:end].tolist(), values[:end], strict=True)
    ]


@answered
async def similarity(call: Call, document: Document) -> Reply:
    """``POST /similarity``: the cosine of a sentence and each of several others."""
    served = endpoint(call, document, recognition.EMBEDDING)
    stated, parameters = document.get("inputs"), document.get("parameters") or {}
    if not isinstance(stated, dict) or not isinstance(stated.get("source_sentence"), str):
        raise invalid("`inputs` must have `source_sentence`, a string, and `sentences`, a list", "inputs")
    if not isinstance(parameters, dict):
        raise invalid("`parameters` must be an object", "parameters")
    if stated.get("sentences") == []:
        raise empty("inputs.sentences")
    others = texts(stated.get("sentences"), "inputs.sentences", call.gateway.options.most_items)
    vectors = await _vectors(call, parameters, served, [stated["source_sentence"], *others])
    return reply(cosines(vectors))


def cosines(vectors: Array) -> Array:
    """The cosine of the first row and each of the others, computed in double precision."""
    wide = vectors.astype(np.float64)
    sizes = np.sqrt((wide * wide).sum(axis=1))
    products = (wide[1:] * wide[0]).sum(axis=1)
    scale = sizes[1:] * sizes[0]
    ratios = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    return np.asarray(ratios, dtype=np.float32)


@answered
async def predict(call: Call, document: Document) -> Reply:
    """``POST /predict``: labels of texts, and of pairs of texts."""
    served = endpoint(call, document, recognition.CLASSIFICATION)
    listed, several = _sequences(document.get("inputs"), call.gateway.options.most_items)
    check_raw(document, served)
    await check_truncation(call, document, served, [row if len(row) > 1 else row[0] for row in listed])
    names = labels(call.gateway, served)
    answers = [predictions(row, names) for row in await scores(call, served, listed)]
    return reply(answers if several else answers[0])


def _sequences(value: object, most: int) -> tuple[list[tuple[str, ...]], bool]:
    """Texts and pairs of ``inputs``, and whether they are a list of several. Raises ``Refusal``."""
    if value == []:
        raise empty("inputs")
    if isinstance(value, str):
        return [(value,)], False
    several = isinstance(value, list) and isinstance(value[0], list)
    listed: Any = value if several else [value]
    check_count(len(listed), "inputs", most)
    for row in listed:
        if not isinstance(row, list) or len(row) not in (1, 2) or not all(isinstance(t, str) for t in row):
            raise invalid(
                "`inputs` must be a text, a pair of texts [a, b], or a list of these: [[a], [a, b]]", "inputs"
            )
    return [tuple(row) for row in listed], several


async def scores(call: Call, served: Served, listed: Sequence[tuple[str, ...]]) -> list[Answer]:
    """The classifier's answer to each text or pair of texts, in order. Raises ``Refusal``."""
    answers: list[Answer] = [{}] * len(listed)
    outputs = ("label", "score", "scores")
    for size in sorted({len(row) for row in listed}):
        places = [place for place, row in enumerate(listed) if len(row) == size]
        columns = {"TEXT": encoded([listed[place][0] for place in places], "inputs")}
        if size == 2:
            _check_pairs(call, served)
            columns[PAIR] = encoded([listed[place][1] for place in places], "inputs")
        counted: list[Any] = [listed[place] if size == 2 else listed[place][0] for place in places]
        parts, _ = await call.counted(served, columns, outputs, counted)
        for place, row in zip(places, rows(parts), strict=True):
            answers[place] = row
    return answers


def _check_pairs(call: Call, served: Served) -> None:
    if PAIR not in served.endpoint.optional:
        able = call.gateway.catalogue.doing([recognition.CLASSIFICATION])
        able = [each for each in able if PAIR in each.endpoint.optional]
        raise Refusal(
            424,
            f"the model '{served.name}' takes no pairs of texts; models that do: {shown(able)}",
            field="inputs",
        )


@answered
async def rerank(call: Call, document: Document) -> Reply:
    """``POST /rerank`` with ``texts``."""
    served = endpoint(call, document, recognition.RERANK)
    query = document.get("query")
    if not isinstance(query, str):
        raise invalid("`query` must be a string", "query")
    if document.get("texts") == []:
        raise empty("texts")
    listed = texts(document.get("texts"), "texts", call.gateway.options.most_items)
    check_raw(document, served)
    with_text = flag(document, "return_text", False)
    pairs = [(query, text) for text in listed]
    await check_truncation(call, document, served, pairs)
    ranking = await ranked_pairs(call, served, pairs, "texts")
    return reply(
        [
            {"index": place, **({"text": listed[place]} if with_text else {}), "score": ranking.scores[place]}
            for place in ranking.order
        ]
    )


def _handler(task: Task) -> Handler:
    async def handle(call: Call) -> Reply:
        return await task(call, call.document())

    return handle


def _route(task: Task, summary: str, request: Document, *tasks: str) -> Route:
    path = f"/{task.__name__}"
    return Route(
        path=path,
        handler=_handler(task),
        api="tei",
        errors=refusal.tei,
        tasks=tasks,
        summary=summary,
        request={"model": "MODEL", **request},
    )


TEXTS = {"inputs": ["first text", "second text"]}
POSTED: dict[str, Task] = {
    task.__name__: task
    for task in (embed, embed_all, embed_sparse, predict, rerank, similarity, tokenize, decode)
}
"""Last part of a path → what answers it."""
ROUTES = (
    _route(embed, "Embeddings of texts", TEXTS, recognition.EMBEDDING),
    _route(embed_all, "Vectors of each token (late interaction)", TEXTS, recognition.LATE_INTERACTION),
    _route(embed_sparse, "Sparse embeddings (SPLADE)", TEXTS, recognition.SPARSE),
    _route(predict, "Labels of texts or pairs", {"inputs": [["a great film"]]}, recognition.CLASSIFICATION),
    _route(
        similarity,
        "Cosines of a sentence and others",
        {"inputs": {"source_sentence": "a text", "sentences": ["another text", "a third"]}},
        recognition.EMBEDDING,
    ),
    _route(tokenize, "Tokens of texts", TEXTS),
    _route(decode, "Texts of token ids", {"ids": [[101, 7592, 102]]}),
    Route(path="/info", handler=info, api="tei", method="GET", errors=refusal.tei, summary="The model"),
    Route(
        path="/health",
        handler=health,
        api="tei",
        method="GET",
        errors=refusal.tei,
        summary="Whether the server and its endpoints answer",
        open=True,
    ),
)
"""Without ``/rerank``, whose body says whether it is TEI's or Cohere's."""

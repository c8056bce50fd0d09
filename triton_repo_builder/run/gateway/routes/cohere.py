"""Cohere's rerank and embed, versions 1 and 2; Jina's rerank, which is written as version 1.

https://docs.cohere.com/reference/rerank and /reference/embed; https://api.jina.ai/redoc#tag/rerank
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from triton_repo_builder.run.gateway import embedding_fields, recognition, refusal
from triton_repo_builder.run.gateway.call import (
    JSON,
    Call,
    Reply,
    Route,
    check_count,
    flag,
    reply,
    texts,
    whole,
)
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.ranking import ranked_pairs
from triton_repo_builder.run.gateway.refusal import Refusal, invalid

DocumentHandler = Callable[[Call, dict[str, Any]], Awaitable[Reply]]
"""A handler that gets the body as it was read."""
RERANK = frozenset(
    {
        *("model", "query", "documents", "top_n", "return_documents", "rank_fields", "priority"),
        *("max_chunks_per_doc", "max_tokens_per_doc"),
    }
)
EMBED = frozenset(
    {
        *("model", "texts", "inputs", "images", "input_type", "embedding_types", "truncate", "priority"),
        *("output_dimension", "max_tokens"),
    }
)
TYPES = ("float", "base64")
INPUT_TYPES = ("search_document", "search_query", "classification", "clustering")


def check_fields(document: Collection[str], fields: Collection[str]) -> None:
    """Raises ``Refusal`` for a field that nothing here reads, as Cohere does."""
    for name in document:
        if name not in fields:
            raise invalid(f"unknown field: parameter '{name:.60}' is not a valid field", f"{name:.60}")


def _version(call: Call) -> str:
    return "2" if call.path.startswith("/v2") else "1"


async def rerank(call: Call) -> Reply:
    """``POST /v1/rerank`` and ``/v2/rerank``."""
    return await ranked(call, call.document())


async def ranked(call: Call, document: dict[str, Any]) -> Reply:
    """The documents by their scores, best first; equal scores in the order of the request."""
    check_fields(document, RERANK)
    served = call.find(document.get("model"), recognition.RERANK)
    query, documents = document.get("query"), document.get("documents")
    if not isinstance(query, str):
        raise invalid("`query` must be a string", "query")
    listed = _documents(documents, call.gateway.options.most_items)
    if document.get("rank_fields") not in (None, ["text"]):
        raise invalid("`rank_fields`: documents are ranked by their field text alone", "rank_fields")
    most = whole(document, "top_n")
    shown = flag(document, "return_documents", default=False)
    pairs = [(query, text) for text in listed]
    await _check_lengths(call, served, document, listed, pairs)
    ranking = await ranked_pairs(call, served, pairs, "documents")
    results: list[dict[str, Any]] = []
    for place in ranking.order[:most]:
        result = {"index": place, "relevance_score": ranking.scores[place]}
        if shown:
            sent = documents[place] if isinstance(documents, list) else ""
            result["document"] = {"text": sent} if isinstance(sent, str) else sent
        results.append(result)
    version = _version(call)
    answer = {
        "id": call.id,
        "results": results,
        "meta": _meta(version, tokens={"input_tokens": ranking.tokens}),
    }
    if version == "1":  # Jina's
        answer |= {
            "model": served.name,
            "usage": {"prompt_tokens": ranking.tokens, "total_tokens": ranking.tokens},
        }
    return reply(answer)


def _meta(version: str, **counts: Any) -> dict[str, Any]:
    return {"api_version": {"version": version}, **counts}


def _documents(value: object, most: int) -> list[str]:
    """The texts of documents: strings, or objects with ``text``. Raises ``Refusal``."""
    if not isinstance(value, list) or not value:
        raise invalid("`documents` must be a list of at least one string", "documents")
    check_count(len(value), "documents", most)
    listed: list[Any] = [item.get("text") if isinstance(item, dict) else item for item in value]
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise invalid(
                f"`documents[{number}]` must be a string, or an object with a string `text`", "documents"
            )
    return listed


async def _check_lengths(
    call: Call,
    served: Served,
    document: dict[str, Any],
    listed: Sequence[str],
    pairs: Sequence[tuple[str, str]],
) -> None:
    """Raises ``Refusal`` if a document would be cut otherwise than the request wants."""
    chunks = whole(document, "max_chunks_per_doc")
    if chunks is not None and chunks > 1:
        await embedding_fields.check_whole(call, served, pairs, "max_chunks_per_doc")
    most = whole(document, "max_tokens_per_doc")
    limit = served.rules.max_length
    if most is None or (limit and most >= limit):
        return  # the endpoint itself cuts earlier
    if served.rules.file is None:
        raise invalid("`max_tokens_per_doc`: the gateway has no tokenizer (--repo)", "max_tokens_per_doc")
    for number, length in enumerate(await call.lengths(served, listed)):
        if length > most:
            raise invalid(
                f"`documents[{number}]` has {length} tokens, more than `max_tokens_per_doc`: shorten it, or "
                "leave that out",
                "max_tokens_per_doc",
            )


def either(by_texts: DocumentHandler | None) -> Route:
    """``/rerank``, which TEI (``texts``, by that handler) and Jina (``documents``) share."""

    async def handler(call: Call) -> Reply:
        document = call.document()
        if by_texts is None or "texts" not in document:
            return await ranked(call, document)
        try:
            return await by_texts(call, document)
        except Refusal as error:
            return Reply(refusal.body(error, refusal.tei), JSON, error.status, error.headers)

    return Route(
        path="/rerank",
        handler=handler,
        api="cohere",
        errors=refusal.cohere,
        tasks=(recognition.RERANK,),
        summary="Documents by relevance to a query (Jina's schema; TEI's with texts in place of documents)",
        request=RANKED,
    )


async def embed(call: Call) -> Reply:
    """``POST /v1/embed`` and ``/v2/embed``."""
    document = call.document()
    check_fields(document, EMBED)
    served = call.find(document.get("model"), recognition.EMBEDDING)
    sent = _texts(document, call.gateway.options.most_items)
    types = _types(document)
    embedding_fields.check_dimensions(served, whole(document, "output_dimension"), "output_dimension")
    listed = _prompted(served, sent, document.get("input_type"))
    if document.get("truncate") is not None:
        await embedding_fields.check_cut(call, served, listed, document["truncate"], "truncate")
    most, limit = whole(document, "max_tokens"), served.rules.max_length
    if most is not None and not 0 < limit <= most:
        reads = f"reads {limit} tokens of a text" if limit else "has no limit that is known"
        raise invalid(f"`max_tokens`: '{served.name}' {reads}", "max_tokens")
    vectors, used = await embedding_fields.vectors(call, served, listed, "texts")
    version = _version(call)
    by_type: dict[str, Any] = {
        name: vectors if name == "float" else embedding_fields.as_base64(vectors)
        for name in types or TYPES[:1]
    }
    answer: dict[str, Any] = {"id": call.id, "texts": sent, "embeddings": by_type}
    if version == "1":
        answer["response_type"] = "embeddings_by_type" if types else "embeddings_floats"
        answer["embeddings"] = by_type if types else vectors
    return reply({**answer, "meta": _meta(version, billed_units={"input_tokens": used})})


def _types(document: dict[str, Any]) -> list[str]:
    """``embedding_types``; empty if the request names none. Raises ``Refusal``."""
    types = document.get("embedding_types") or []
    if not isinstance(types, list) or any(name not in TYPES for name in types):
        raise invalid(
            f"`embedding_types` must be a list of {', '.join(TYPES)}: the endpoint gives floats",
            "embedding_types",
        )
    return types


def _texts(document: dict[str, Any], most: int) -> list[str]:
    """``texts``, or ``inputs`` of one text each. Raises ``Refusal``."""
    inputs = document.get("inputs")
    if document.get("images") is not None:
        raise invalid("`images`: the model embeds texts", "images")
    if inputs is None:
        value = document.get("texts")
        return texts(value if isinstance(value, list) else None, "texts", most)
    if document.get("texts") is not None or not isinstance(inputs, list):
        raise invalid("send a list `texts` or a list `inputs`", "inputs")
    check_count(len(inputs), "inputs", most)
    return texts([_content(item, number) for number, item in enumerate(inputs)], "inputs", most)


def _content(item: Any, number: int) -> str:
    content = item.get("content") if isinstance(item, dict) else None
    part = content[0] if isinstance(content, list) and len(content) == 1 else None
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise invalid(f"`inputs[{number}]` must have one part of type text: the model embeds texts", "inputs")


def _prompted(served: Served, listed: Sequence[str], kind: object) -> Sequence[str]:
    if kind is None:
        return listed
    if not isinstance(kind, str) or kind not in INPUT_TYPES:
        raise invalid(f"`input_type` must be one of {', '.join(INPUT_TYPES)}", "input_type")
    return embedding_fields.prompted(served, listed, kind, "input_type")


RANKED = {"model": "MODEL", "query": "a question", "documents": ["first text", "second text"], "top_n": 1}
EMBEDDED = {
    "model": "MODEL",
    "texts": ["first text", "second text"],
    "input_type": "search_document",
    "embedding_types": ["float"],
}
JINA = ("v1", "rerank")
ROUTES = tuple(
    Route(
        path=f"/{version}/{name}",
        handler=handler,
        api="cohere",
        errors=refusal.cohere,
        tasks=(task,),
        summary=f"{summary} ({'Cohere v1, Jina' if (version, name) == JINA else f'Cohere {version}'})",
        request=request,
    )
    for version in ("v1", "v2")
    for name, handler, task, summary, request in (
        ("rerank", rerank, recognition.RERANK, "Documents by relevance to a query", RANKED),
        ("embed", embed, recognition.EMBEDDING, "Embeddings of texts", EMBEDDED),
    )
)

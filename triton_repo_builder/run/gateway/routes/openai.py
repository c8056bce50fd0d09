"""OpenAI's API: embeddings, moderations and models; and vLLM's classification, which is written as they are.

https://platform.openai.com/docs/api-reference/embeddings
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from triton_repo_builder.run.gateway import embedding_fields, recognition
from triton_repo_builder.run.gateway.call import (
    Call,
    Reply,
    Route,
    check_count,
    encoded,
    flag,
    reply,
    texts,
    whole,
)
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.triton import joined

FORMATS = ("float", "base64")
OPENAI = frozenset({"model", "input", "encoding_format", "dimensions", "user"})
ENCODINGS = ("encoding_format", "embedding_type", "encoding_type")
"""Fields of OpenAI, Jina, and Jina by LlamaIndex."""
PROMPTS = ("task", "input_type", "prompt_name")
"""Fields of Jina, NVIDIA, and sentence-transformers with TEI."""
EMBEDDINGS = frozenset({*OPENAI, *ENCODINGS, *PROMPTS, "normalized", "truncate", "late_chunking"})
CLASSIFY = frozenset({"model", "input", "user"})


async def embeddings(call: Call) -> Reply:
    """``POST /v1/embeddings``."""
    document = call.document()
    served = call.find(document.get("model"), recognition.EMBEDDING)
    check_fields(document, EMBEDDINGS)
    check_user(document)
    embedding_fields.check_dimensions(served, whole(document, "dimensions"), "dimensions")
    written = _encoding(document)
    listed: Sequence[str] = _inputs(document.get("input"), served, call.gateway.options.most_items)
    if not OPENAI.issuperset(document):
        listed = await _extras(call, served, document, listed)
    vectors, used = await embedding_fields.vectors(call, served, listed, "input")
    numbers: Any = embedding_fields.as_base64(vectors) if written == "base64" else vectors
    return reply(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(numbers)
            ],
            "model": served.name,
            "usage": {"prompt_tokens": used, "total_tokens": used},
        }
    )


def check_fields(document: Collection[str], fields: Collection[str]) -> None:
    """Raises ``Refusal`` for a field that nothing here reads, as OpenAI does."""
    for name in document:
        if name not in fields:
            raise Refusal(
                400, f"Unknown parameter: '{name:.60}'.", field=f"{name:.60}", code="unknown_parameter"
            )


def check_user(document: dict[str, Any]) -> None:
    """Raises ``Refusal`` if ``user`` is not a string; it is not stored."""
    if not isinstance(document.get("user"), str | None):
        raise invalid("`user` must be a string", "user")


def _encoding(document: dict[str, Any]) -> str:
    """``float`` or ``base64``. Raises ``Refusal``."""
    for name in ENCODINGS:
        value = document.get(name)
        if isinstance(value, list) and len(value) == 1 and name != ENCODINGS[0]:
            value = value[0]
        if value is not None:
            if value not in FORMATS:
                raise invalid(f"`{name}` must be one of {', '.join(FORMATS)}", name)
            return str(value)
    return FORMATS[0]


async def _extras(
    call: Call, served: Served, document: dict[str, Any], listed: Sequence[str]
) -> Sequence[str]:
    """The texts after the fields that others add to OpenAI's. Raises ``Refusal``."""
    embedding_fields.check_normalized(served, flag(document, "normalized"), "normalized")
    if flag(document, "late_chunking"):
        raise invalid("`late_chunking`: an endpoint embeds each text by itself", "late_chunking")
    for name in PROMPTS:
        if document.get(name) is not None:
            listed = embedding_fields.prompted(served, listed, document[name], name)
            break
    cut = document.get("truncate")
    if cut is False:
        await embedding_fields.check_whole(call, served, listed, "truncate")
    elif cut is not None and cut is not True:
        await embedding_fields.check_cut(call, served, listed, cut, "truncate")
    return listed


def _inputs(value: object, served: Served, most: int) -> list[str]:
    """The texts of ``input``: a text, texts, token ids, or lists of token ids."""
    if isinstance(value, list) and value and isinstance(value[0], int):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        check_count(len(value), "input", most)
        if not all(value):
            raise invalid("`input` has an empty list of token ids", "input")
        return served.rules.texts_of_ids(value, "input")
    return texts(value, "input", most)


async def classify(call: Call) -> Reply:
    """``POST /v1/classify``."""
    document = call.document()
    served = call.find(document.get("model"), recognition.CLASSIFICATION)
    check_fields(document, CLASSIFY)
    check_user(document)
    listed = _inputs(document.get("input"), served, call.gateway.options.most_items)
    columns = {"TEXT": encoded(listed, "input")}
    answers, used = await call.counted(served, columns, ("label", "scores"), listed)
    labels = joined(answers, "label").reshape(-1).tolist()
    scores = joined(answers, "scores").reshape(len(listed), -1)
    return reply(
        {
            "id": f"classify-{call.id}",
            "object": "list",
            "created": int(time.time()),
            "model": served.name,
            "data": [
                {"index": index, "label": label.decode(), "probs": row, "num_classes": len(row)}
                for index, (label, row) in enumerate(zip(labels, scores, strict=True))
            ],
            "usage": {
                "prompt_tokens": used,
                "total_tokens": used,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }
    )


async def models(call: Call) -> Reply:
    """``GET /v1/models``."""
    catalogue = call.gateway.catalogue
    names = catalogue.by_name
    aliases = {alias: names[name] for alias, name in catalogue.routing.aliases.items() if name in names}
    listed = [_model(call, served, name) for name, served in {**names, **aliases}.items()]
    return reply({"object": "list", "data": listed})


async def model(call: Call) -> Reply:
    """``GET /v1/models/NAME``."""
    catalogue = call.gateway.catalogue
    name = catalogue.routing.aliases.get(call.parameter, call.parameter)
    if name not in catalogue.by_name:
        raise Refusal(404, f"the model '{name:.80}' does not exist", field="model", code="model_not_found")
    return reply(_model(call, catalogue.by_name[name], call.parameter))


def _model(call: Call, served: Served, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(call.gateway.started),
        "owned_by": "trb",
        "task": served.task or None,
        "max_length": served.rules.max_length or None,
    }


ROUTES = (
    Route(
        path="/v1/embeddings",
        handler=embeddings,
        api="openai",
        tasks=(recognition.EMBEDDING,),
        summary="Embeddings of texts",
        request={"model": "MODEL", "input": ["first text", "second text"]},
    ),
    Route(
        path="/v1/classify",
        handler=classify,
        api="openai",
        tasks=(recognition.CLASSIFICATION,),
        summary="Labels of texts (vLLM's schema)",
        request={"model": "MODEL", "input": ["first text", "second text"]},
    ),
    Route(path="/v1/models", handler=models, api="openai", method="GET", summary="The endpoints"),
    Route(path="/v1/models/*", handler=model, api="openai", method="GET", summary="One endpoint"),
)

"""OpenAI's API: embeddings and models.

https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

import base64
from typing import Any

from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.call import Call, Reply, Route, check_count, encoded, reply, texts, whole
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.triton import joined

FORMATS = ("float", "base64")


async def embeddings(call: Call) -> Reply:
    """``POST /v1/embeddings``."""
    document = call.document()
    served = call.find(document.get("model"), recognition.EMBEDDING)
    listed = _inputs(document.get("input"), served, call.gateway.options.most_items)
    written = document.get("encoding_format") or "float"
    if written not in FORMATS:
        raise invalid(f"`encoding_format` must be one of {', '.join(FORMATS)}", "encoding_format")
    dimensions = whole(document, "dimensions")
    answers, used = await call.counted(served, {"TEXT": encoded(listed, "input")}, ("embedding",), listed)
    vectors = joined(answers, "embedding")
    if dimensions is not None and dimensions != vectors.shape[1]:
        raise invalid(
            f"the model '{served.name}' has {vectors.shape[1]} dimensions: leave `dimensions` out, or "
            "build an endpoint of so many",
            "dimensions",
        )
    numbers: Any = (
        [base64.b64encode(row.tobytes()).decode() for row in vectors] if written == "base64" else vectors
    )
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


def _inputs(value: object, served: Served, most: int) -> list[str]:
    """The texts of ``input``: a text, texts, token ids, or lists of token ids."""
    if isinstance(value, list) and value and isinstance(value[0], int):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        check_count(len(value), "input", most)
        return served.rules.texts_of_ids(value, "input")
    return texts(value, "input", most)


async def models(call: Call) -> Reply:
    """``GET /v1/models``."""
    return reply({"object": "list", "data": [_model(call, one) for one in call.gateway.catalogue]})


async def model(call: Call) -> Reply:
    """``GET /v1/models/NAME``."""
    catalogue = call.gateway.catalogue
    name = catalogue.routing.aliases.get(call.parameter, call.parameter)
    if name not in catalogue.by_name:
        raise Refusal(404, f"the model '{name:.80}' does not exist", field="model", code="model_not_found")
    return reply(_model(call, catalogue.by_name[name]))


def _model(call: Call, served: Served) -> dict[str, Any]:
    return {
        "id": served.name,
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
    Route(path="/v1/models", handler=models, api="openai", method="GET", summary="The endpoints"),
    Route(path="/v1/models/*", handler=model, api="openai", method="GET", summary="One endpoint"),
)

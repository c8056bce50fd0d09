"""Errors instead of a result, and how each API writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

Headers = list[tuple[bytes, bytes]]


class Refusal(Exception):
    """A request that gets an error: HTTP's ``status``, ``field`` of the request, ``code`` for machines."""

    def __init__(
        self, status: int, message: str, *, field: str = "", code: str = "", retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.code = code
        self.retry_after = retry_after
        """Seconds after which another try makes sense; 0: not said."""

    @property
    def headers(self) -> Headers:
        """Headers of the answer besides its content type."""
        return [(b"retry-after", str(self.retry_after).encode())] if self.retry_after else []


def invalid(message: str, field: str = "") -> Refusal:
    """A request that is wrong in itself."""
    return Refusal(400, message, field=field, code="invalid_value")


Writer = Callable[[Refusal], dict[str, Any]]
"""How an API writes an error."""

OPENAI_TYPES = {
    403: "permission_error",
    429: "requests",
}
TEI_TYPES = {
    400: "Validation",
    413: "Validation",
    422: "Tokenizer",
    424: "Backend",
    429: "Overloaded",
    503: "Unhealthy",
}
TEI_CODES = {"empty": "Empty", "invalid_value": "Validation", "model_not_found": "Validation"}


def openai(error: Refusal) -> dict[str, Any]:
    """OpenAI's error object (platform.openai.com/docs/guides/error-codes)."""
    usual = "invalid_request_error" if error.status < 500 else "server_error"
    return {
        "error": {
            "message": error.message,
            "type": OPENAI_TYPES.get(error.status, usual),
            "param": error.field or None,
            "code": error.code or None,
        }
    }


def cohere(error: Refusal) -> dict[str, Any]:
    """Cohere's error object (docs.cohere.com/reference/errors)."""
    return {"message": error.message}


def tei(error: Refusal) -> dict[str, Any]:
    """The error object of text-embeddings-inference (its openapi.json, ``ErrorResponse``)."""
    kind = TEI_CODES.get(error.code) if error.status < 424 else None
    return {"error": error.message, "error_type": kind or TEI_TYPES.get(error.status, "Backend")}


def huggingface(error: Refusal) -> dict[str, Any]:
    """The error object that huggingface_hub reads (``hf_raise_for_status``)."""
    return {"error": error.message}


def body(error: Refusal, writer: Writer) -> bytes:
    """The JSON of an error."""
    return orjson.dumps(writer(error))

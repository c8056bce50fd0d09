"""Fields of requests that Hugging Face's clients send: ``inputs`` and ``parameters``, or a file."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from triton_repo_builder.run.gateway.call import Call, check_count, texts, whole
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.routes.tei_fields import Document, empty

FILES = (b"image/", b"audio/", b"video/", b"application/octet-stream")
"""Content types of a file that is the whole body."""
LINKS = ("http://", "https://")


def body(call: Call) -> Document:
    """The JSON object, or the file of the body as ``inputs``. Raises ``Refusal``.

    A client that sends bytes may leave the content type out, and no image or sound begins with a brace.
    """
    kind = call.headers.get(b"content-type", b"").lower()
    if not kind.startswith(FILES) and (b"json" in kind or call.body.lstrip()[:1] in (b"{", b"[", b"")):
        return call.document()
    return {"inputs": call.body}


def parameters(document: Document, *allowed: str) -> Document:
    """``parameters``, which may have only these. Raises ``Refusal``."""
    value = document.get("parameters") or {}
    if not isinstance(value, dict):
        raise invalid("`parameters` must be an object", "parameters")
    stated = {name: setting for name, setting in value.items() if setting is not None}
    for name in stated:
        if name not in allowed:
            can = ", ".join(allowed) or "nothing"
            raise invalid(f"`parameters.{name:.40}` cannot be set in a request; this can: {can}", name)
    return stated


def check_built(stated: Document, name: str, served: Served, built: Any) -> None:
    """Raises ``Refusal`` if a parameter asks for something else than the endpoint was built with."""
    if name not in stated or stated[name] == built:
        return
    does = "does not say what it was built with" if built is None else f"was built with {built!r}"
    raise invalid(
        f"`parameters.{name}`: the model '{served.name}' {does}: leave the parameter out, or build another",
        name,
    )


def top_k(stated: Document, served: Served, most: int | None = None) -> int | None:
    """The number of answers wanted; the endpoint gives at most ``most``. Raises ``Refusal``."""
    count = whole(stated, "top_k")
    if count is not None and most is not None and count > most:
        raise invalid(
            f"`parameters.top_k`: the model '{served.name}' gives {most}; build one with --top-k {count}",
            "top_k",
        )
    return count


def listed_texts(document: Document, most: int) -> tuple[list[str], bool]:
    """The texts of ``inputs``, and whether they are a list. Raises ``Refusal``."""
    value = document.get("inputs")
    if value == []:
        raise empty("inputs")
    return texts(value, "inputs", most), isinstance(value, list)


def listed_files(document: Document, most: int) -> tuple[list[bytes], bool]:
    """The files of ``inputs``, and whether they are a list. Raises ``Refusal``."""
    value = document.get("inputs")
    if value == []:
        raise empty("inputs")
    several = isinstance(value, list)
    listed: Any = value if several else [value]
    check_count(len(listed), "inputs", most)
    return [_file(item) for item in listed], several


def _file(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise invalid("`inputs` must be a file in base64, or send the file itself as the body", "inputs")
    if value.startswith(LINKS):
        raise invalid("`inputs` is a link, and the gateway fetches none: send the file", "inputs")
    if value.startswith("data:"):
        value = value.partition(",")[2]
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("`inputs` is not a file in base64", "inputs") from None


def candidate_labels(stated: Document) -> list[bytes]:
    """The labels of a request, a list or a text with commas. Raises ``Refusal``."""
    value = stated.get("candidate_labels")
    if isinstance(value, str):
        value = [label.strip() for label in value.split(",") if label.strip()]
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(label, str) and label for label in value)
    ):
        raise Refusal(
            400,
            "`parameters.candidate_labels` must be a list of strings, none of them empty",
            field="candidate_labels",
            code="invalid_value",
        )
    return [label.encode() for label in value]

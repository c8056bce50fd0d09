"""Requests of ``trb demo`` to the endpoint that it built from a small real model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_json

NAME = "minilm"
QUESTION = "How can I change my password?"
ANSWERS = (
    "You reset a forgotten password on the sign-in page, under 'Need help?'.",
    "Our office is open from nine to five on weekdays.",
    "The invoice is sent by e-mail at the end of each month.",
    "Das Wetter wird morgen sonnig und warm.",
)


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """Cosine of the angle between the question and one text: 1 means the same, 0 unrelated."""

    text: str
    cosine: float


def ask(url: str) -> list[Similarity]:
    """The answers by similarity to the question, embedded by the server at ``url`` in one request."""
    texts = np.array([[text] for text in (QUESTION, *ANSWERS)], dtype=object)
    rows = HttpClient(url).infer(NAME, encode_json({"TEXT": texts}))["embedding"]
    cosines = (rows[1:] @ rows[0]).tolist()
    ranked = sorted(zip(ANSWERS, cosines, strict=True), key=lambda pair: -pair[1])
    return [Similarity(text=text, cosine=cosine) for text, cosine in ranked]

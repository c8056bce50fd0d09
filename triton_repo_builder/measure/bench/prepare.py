"""Prepare a variant before its first level: ask its server, make its requests, send one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench import connectivity
from triton_repo_builder.measure.bench.load import repeats, replay, texts
from triton_repo_builder.measure.bench.load import requests as load_requests
from triton_repo_builder.measure.bench.load.requests import Payload
from triton_repo_builder.measure.bench.measure import gpus
from triton_repo_builder.measure.bench.options import Shape, Variant
from triton_repo_builder.measure.bench.target import ASK, Target, find
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.run.client import HttpClient


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A variant with its server's metadata and the texts or tensors to send."""

    target: Target
    inputs: dict[int | None, list[load_requests.Inputs]]
    """Texts by length; None for the corpus as it is."""
    about: dict[str, Any]
    notes: tuple[str, ...]
    texts: Mapping[int | None, Sequence[str]] = field(default_factory=dict)
    """Texts to send, if the endpoint takes texts."""
    log: replay.Log | None = None

    def requests(self, shape: Shape, options: BenchOptions) -> Payload:
        """The encoded requests of this level."""
        inputs = self.inputs[shape.length]
        if options.repeat_share is not None:
            texts = repeats.mixed(self.texts[shape.length], options.repeat_share, shape.title, options.seed)
            inputs = load_requests.text_inputs(self.target, texts, options.rows)
        payload = load_requests.encode(self.target, shape.protocol, inputs)
        if self.log is None:
            return payload
        if len(payload.bodies) < len(self.log.texts):
            raise TrbError(
                Code.USAGE,
                f"--replay: {len(self.log.texts):,} different texts need too much memory in each process",
                remedy="send a part of the log",
            )
        return replace(payload, schedule=self.log.arrivals)

    def check(self, options: BenchOptions) -> list[str]:
        """Check that requests over each protocol reach this server; returns notes, raises ``TrbError``."""
        first = next(iter(self.inputs.values()))[:1]
        notes = (
            connectivity.check(
                self.target, name, load_requests.encode(self.target, name, first), options.timeout
            )
            for name in options.protocols
        )
        return [note for note in notes if note]


def prepare(variant: Variant, options: BenchOptions) -> Prepared:
    """Read the server's metadata and make the inputs; raises ``TrbError`` if the options do not fit."""
    endpoint = find(replace(variant, endpoint=variant.endpoint or options.endpoint))
    load_requests.check_rows(endpoint, options.rows)
    metrics, unknown = gpus.look(endpoint)
    target, notes = replace(endpoint, metrics=metrics), (unknown,) if unknown else ()
    # A slow model may take all the time that its requests are given to answer the one that tries it.
    patient = replace(target, http=HttpClient(target.http.url, max(ASK, options.timeout)))
    log = replay.read(options.replay) if options.replay else None
    if not load_requests.takes_text(patient):
        load_requests.check_kind(target, options)
        pairs = {
            length: load_requests.tensor_inputs(patient, options.rows, length)
            for length in options.lengths or (None,)
        }
        about: dict[str, Any] = {"source": "; ".join(source for _, source in pairs.values())}
        return Prepared(
            target=target,
            inputs={k: pair[0] for k, pair in pairs.items()},
            about=about,
            notes=notes,
            log=None if log is None else replace(log, texts=()),
        )
    measured = texts.measure(variant.repository, target.models)
    if log is not None and not log.texts:
        raise TrbError(
            Code.USAGE,
            "has no texts, which this endpoint takes",
            where=str(options.replay),
            remedy=replay.REMEDY,
        )
    base = (options.fixed,) if options.fixed is not None else texts.corpus(options.corpus)
    base = log.texts if log else base
    by_length: dict[int | None, Sequence[str]] = {None: base}
    if options.lengths:
        by_length = {n: texts.fit(base, n, measured.count, options.seed) for n in options.lengths}
    source = "fixed text" if options.fixed is not None else str(options.corpus or "shipped corpus")
    source = f"{options.replay}: {len(log.arrivals):,} requests" if log else source
    every = [text for group in by_length.values() for text in group]
    return Prepared(
        target=target,
        inputs={n: load_requests.text_inputs(target, group, options.rows) for n, group in by_length.items()},
        about={**texts.describe(every, source, measured), "tokenizer": measured.source},
        notes=(*notes, *_notes(target, measured, by_length)),
        texts=by_length,
        log=log,
    )


def _notes(
    target: Target, measured: texts.LengthMeasure, by_length: dict[int | None, Sequence[str]]
) -> tuple[str, ...]:
    """Notes on the lengths."""
    notes = []
    lengths = [length for length in by_length if length is not None]
    if lengths and measured.unit == "words":
        notes.append("lengths are words: there is no local tokenizer.json to count tokens with")
    for length in lengths:
        counts = [measured.count(text) for text in by_length[length]]
        off = [count for count in counts if count != length]
        if off:
            notes.append(
                f"length {length}: {len(off)} of {len(counts)} texts have {min(off)} to {max(off)} instead"
            )
    if (
        measured.unit == "tokens"
        and target.truncates_at
        and any(length > target.truncates_at for length in lengths)
    ):
        notes.append(
            f"the server truncates texts at {target.truncates_at} tokens: longer ones measure that length"
        )
    return tuple(notes)

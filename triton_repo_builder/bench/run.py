"""Every level on every variant, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from triton_repo_builder.bench import level, machine, payload, reach, texts
from triton_repo_builder.bench.baseline import ratio
from triton_repo_builder.bench.fleet import Fleet
from triton_repo_builder.bench.options import Options, Shape, Urls, Variant, check, shapes
from triton_repo_builder.bench.payload import Payload
from triton_repo_builder.bench.report import BenchReport, Level, Ratio
from triton_repo_builder.bench.target import Target, find
from triton_repo_builder.repository import Repository

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how many levels are done and how many there are."""


def run(
    urls: Urls,
    repository: Repository | None,
    options: Options,
    progress: Progress = lambda stage, done, total: None,
    *,
    pid: int | None = None,
) -> BenchReport:
    """Load one endpoint of a running server; ``repository`` is its local copy, if there is one.

    Raises ``TrbError`` where no server answers or the options do not fit it. Failed requests stop
    nothing: they are in the report.
    """
    variant = Variant(name="", urls=urls, repository=repository, endpoint=options.endpoint, pid=pid)
    return run_variants((variant,), options, progress)


def run_variants(
    variants: Sequence[Variant],
    options: Options,
    progress: Progress = lambda stage, done, total: None,
) -> BenchReport:
    """The same levels on each variant; at each level one after the other, so that drift hits all alike."""
    check(options)
    started, clock = datetime.now(timezone.utc), time.monotonic()
    prepared = [_prepare(variant, options) for variant in variants]
    doubts = [note for one in prepared for note in one.check(options)]
    planned = [(shape, one) for shape in shapes(options) for one in prepared]
    done: list[Level] = []
    gone: set[str] = set()
    left = 0
    with Fleet() as fleet:
        for shape, one in planned:
            name = " ".join(filter(None, [one.target.variant.name, shape.title]))
            if one.target.variant.name in gone and not level.alive(one.target):
                left += 1
                continue
            requests = one.requests(shape, options)

            def tell(stage: str, name: str = name) -> None:
                progress(f"{name}: {stage}", len(done), len(planned))

            done.append(level.run(fleet, one.target, shape, requests, options, tell))
            if done[-1].ended:
                gone.add(one.target.variant.name)
    if left:
        doubts.append(f"{left} of {len(planned)} levels were not measured: the server had stopped answering")
    progress("done", len(planned), len(planned))
    return BenchReport(
        command=options.command,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        client="trb",
        servers=tuple(one.target.server for one in prepared),
        machine=machine.facts(),
        versions=machine.versions(),
        options=_plain(options),
        texts={one.target.variant.name: one.about for one in prepared},
        levels=tuple(done),
        notes=tuple(dict.fromkeys([*(note for one in prepared for note in one.notes), *doubts])),
        ratios=_against_first(done, variants),
    )


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A variant whose server was asked, with the texts or tensors it will be sent."""

    target: Target
    inputs: dict[int | None, list[payload.Inputs]]
    """By length; None for the corpus as it is."""
    about: dict[str, Any]
    notes: tuple[str, ...]

    def requests(self, shape: Shape, options: Options) -> Payload:
        return payload.encode(self.target, shape.protocol, self.inputs[shape.length])

    def check(self, options: Options) -> list[str]:
        """One request over each protocol must reach this server; gives notes, raises ``TrbError``."""
        one = next(iter(self.inputs.values()))[:1]
        found = (
            reach.check(self.target, name, payload.encode(self.target, name, one), options.timeout)
            for name in options.protocols
        )
        return [note for note in found if note]


def _prepare(variant: Variant, options: Options) -> _Prepared:
    wanted = replace(variant, endpoint=variant.endpoint or options.endpoint)
    target = find(wanted, options.timeout)
    payload.check_rows(target, options.rows)
    if not payload.takes_text(target):
        pairs = {
            length: payload.tensor_inputs(target, options.rows, length)
            for length in options.lengths or (None,)
        }
        about: dict[str, Any] = {"source": "; ".join(source for _, source in pairs.values())}
        return _Prepared(
            target=target, inputs={k: pair[0] for k, pair in pairs.items()}, about=about, notes=()
        )
    measured = texts.measure(variant.repository, target.models)
    base = (options.fixed,) if options.fixed is not None else texts.corpus(options.corpus)
    by_length: dict[int | None, Sequence[str]] = {None: base}
    if options.lengths:
        by_length = {n: texts.fit(base, n, measured.count, options.seed) for n in options.lengths}
    source = "fixed text" if options.fixed is not None else str(options.corpus or "shipped corpus")
    every = [text for group in by_length.values() for text in group]
    return _Prepared(
        target=target,
        inputs={n: payload.text_inputs(target, group, options.rows) for n, group in by_length.items()},
        about={**texts.describe(every, source, measured), "tokenizer": measured.source},
        notes=_notes(target, measured, by_length),
    )


def _notes(
    target: Target, measured: texts.Measure, by_length: dict[int | None, Sequence[str]]
) -> tuple[str, ...]:
    """What a reader of the lengths must know."""
    found = []
    lengths = [length for length in by_length if length is not None]
    if lengths and measured.unit == "words":
        found.append("lengths are words: there is no local tokenizer.json to count tokens with")
    for length in lengths:
        counts = [measured.count(text) for text in by_length[length]]
        off = [count for count in counts if count != length]
        if off:
            found.append(
                f"length {length}: {len(off)} of {len(counts)} texts have {min(off)} to {max(off)} instead"
            )
    if measured.unit == "tokens" and target.cut and any(length > target.cut for length in lengths):
        found.append(
            f"the server's tokenizer cuts texts at {target.cut} tokens: longer ones measure that length"
        )
    return tuple(found)


def _plain(options: Options) -> dict[str, Any]:
    plain = asdict(options)
    plain["corpus"] = str(options.corpus) if options.corpus else None
    del plain["command"]
    return plain


def _against_first(levels: Sequence[Level], variants: Sequence[Variant]) -> tuple[Ratio, ...]:
    first = {one.key: one for one in levels if one.variant == variants[0].name}
    others = (one for one in levels if one.variant != variants[0].name)
    return tuple(ratio(one, first[one.key]) for one in others if one.key in first)

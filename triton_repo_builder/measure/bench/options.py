"""Levels of a run, their order and duration, and the options that contradict each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.load import replay, texts
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.client import Urls

PROTOCOLS = ("grpc", "http", "http-binary")
CLOSED, OPEN = "closed", "open"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One endpoint to measure. Several, on one server or on many, share a report with a line each."""

    name: str
    urls: Urls
    repository: Repository | None = None
    """None if no local copy is readable: then there are no golden cases and no tokenizer."""
    endpoint: str = ""
    """Model to call; empty for the only endpoint there is."""
    pid: int | None = None
    """Server process; None to look for the one that listens, if that is on this machine."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One level of load, before it is run."""

    protocol: str
    mode: str
    concurrency: int | None = None
    rate: float | None = None
    length: int | None = None

    @property
    def title(self) -> str:
        """For tables and progress: ``grpc, 16 clients, 64 tokens``."""
        load = f"{self.concurrency} client{'s' * (self.concurrency != 1)}"
        if self.mode == OPEN:
            load = f"{self.rate:g}/s"
        return ", ".join([self.protocol, load, *([f"length {self.length}"] if self.length else [])])


def shapes(options: BenchOptions) -> Iterator[Shape]:
    """Every level, in the order in which they are run."""
    if options.replay:
        rate = round(replay.read(options.replay).rate, 3)
        yield from (Shape(protocol=protocol, mode=OPEN, rate=rate) for protocol in options.protocols)
        return
    for protocol in options.protocols:
        for length in options.lengths or (None,):
            for clients in options.concurrency:
                yield Shape(protocol=protocol, mode=CLOSED, concurrency=clients, length=length)
            for rate in options.rates:
                yield Shape(protocol=protocol, mode=OPEN, rate=rate, length=length)


def limit(options: BenchOptions) -> float:
    """Most seconds that all levels take, but for answers still awaited at the end of each."""
    levels = sum(1 for _ in shapes(options))
    return levels * (options.warmup + options.max_windows * options.window)


def processes(options: BenchOptions, shape: Shape) -> int:
    """How many client processes a level uses: no more than clients, and cores that others need, too."""
    most = options.processes or min(4, os.cpu_count() or 1)
    return min(most, shape.concurrency) if shape.concurrency else most


def check(options: BenchOptions) -> None:
    """Raise ``TrbError`` on options that contradict each other."""
    if options.fixed is not None and (options.corpus or options.lengths):
        raise _usage("--fixed cannot be combined with --corpus or --lengths", "use one of them")
    if options.repeat_share is not None and (options.fixed is not None or options.lengths):
        raise _usage("--repeat-share cannot be combined with --fixed or --lengths", "use one of them")
    if options.corpus:
        texts.corpus(options.corpus)
    if options.max_windows < options.min_windows:
        raise _usage(
            f"--max-windows {options.max_windows} is less than --min-windows {options.min_windows}",
            "raise the one or lower the other",
        )
    if options.replay and (options.concurrency or options.rates or options.corpus or options.lengths):
        raise _usage("--replay has its own times and texts", "leave out the other options of the load")
    if options.replay and (options.fixed is not None or options.rows > 1):
        raise _usage(
            "--replay sends the texts of the log, one in each request", "leave out --fixed and --rows"
        )
    if not options.concurrency and not options.rates and not options.replay:
        raise _usage("there is no level to measure", "give --concurrency 1,4,16 or --rate 50,100")
    unknown = [name for name in options.protocols if name not in PROTOCOLS]
    if unknown or not options.protocols:
        raise _usage(f"unknown protocol '{', '.join(unknown)}'", f"choose from: {', '.join(PROTOCOLS)}")
    numbers = (*options.concurrency, *options.rates, *options.lengths, options.rows, options.window)
    if min(numbers) <= 0 or options.min_windows < 1 or options.timeout <= 0 or options.warmup < 0:
        raise _usage("clients, rates, lengths, rows and times must be above 0", "see trb bench --help")


def _usage(message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, remedy=remedy)

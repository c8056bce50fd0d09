"""Options of ``trb bench``, ``trb tune`` and ``trb optimize``. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.option_values import (
    FilePath,
    InvalidValue,
    Number,
    Numbers,
    Real,
    Seconds,
    Text,
    Value,
    Words,
)
from triton_repo_builder.measure.objective import PERCENTILES, Objective

SETTLED = 3
"""Windows that must agree before a level counts as stable."""


@dataclass(frozen=True)
class Slo(Value):
    """``p99=50ms``: a percentile and its limit."""

    expected: ClassVar[str] = "objective"

    def parse(self, text: str) -> Objective:
        """The objective."""
        percentile, _, limit = text.partition("=")
        if percentile not in PERCENTILES or not limit:
            raise InvalidValue(f"'{text}' is not an objective like p99=50ms ({', '.join(PERCENTILES)})")
        seconds = Seconds().parse(limit)
        if not seconds:
            raise InvalidValue("no answer comes within 0 ms")
        if limit.strip()[-1].isdigit():
            raise InvalidValue(f"'{text:.40}' has no unit", "write ms or s, as in p99=50ms")
        return Objective(percentile=percentile, ms=seconds * 1000)


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The load, and how it is measured."""

    endpoint: str = option(
        "", Text(), Topic.LOAD, "Model to call; needed if there are several.", metavar="NAME"
    )
    protocols: tuple[str, ...] = option(
        ("grpc",),
        Words(),
        Topic.LOAD,
        "grpc, http (JSON, as curl sends) and http-binary, separated by commas.",
        flag="--protocol",
        metavar="PROTOCOLS",
    )
    concurrency: tuple[int, ...] = option(
        (1, 4, 16, 64),
        Numbers(int),
        Topic.LOAD,
        "Closed loop: clients at once.",
        default="1,4,16,64, unless --rate is given",
        metavar="N,N,…",
    )
    """Numbers of clients, each sending as soon as it has its answer."""
    rates: tuple[float, ...] = option(
        (),
        Numbers(float),
        Topic.LOAD,
        "Open loop: requests per second, arriving at random.",
        flag="--rate",
        metavar="R,R,…",
    )
    """Arrivals are Poisson, however slow the answers are."""
    corpus: Path | None = option(None, FilePath(), Topic.LOAD, "Texts to send, one a line.", metavar="FILE")
    lengths: tuple[int, ...] = option(
        (), Numbers(int), Topic.LOAD, "Texts of exactly so many tokens.", metavar="N,N,…"
    )
    """Lengths of texts, instead of the corpus as it is; every length is a level."""
    fixed: str | None = option(None, Text(), Topic.LOAD, "Send this one text.", metavar="TEXT")
    repeat_share: float | None = option(
        None,
        Real(0, 1),
        Topic.LOAD,
        "Share of texts that were sent before, all others are new: what caches gain.",
        metavar="X",
    )
    """None: the corpus, over and over (``load/repeats.py``)."""
    replay: Path | None = option(
        None,
        FilePath(),
        Topic.LOAD,
        "Send a recorded log (JSON lines) with its own times and texts.",
        metavar="LOG",
    )
    slo: Objective | None = option(
        None, Slo(), Topic.MEASUREMENT, "Also print goodput: answers a second within TIME.", metavar="P=TIME"
    )
    rows: int = option(1, Number(), Topic.LOAD, "Rows (texts) in each request.")
    warmup: float = option(2.0, Seconds(), Topic.MEASUREMENT, "Time before measuring.", default="2s")
    window: float = option(2.0, Seconds(), Topic.MEASUREMENT, "Length of one measurement.", default="2s")
    min_windows: int = option(SETTLED, Number(), Topic.MEASUREMENT, "Measurements at least.")
    max_windows: int = option(
        10, Number(), Topic.MEASUREMENT, "Measurements at most; three that agree end a level."
    )
    timeout: float = option(30.0, Seconds(), Topic.LOAD, "Time limit of each request.", default="30s")
    processes: int = option(0, Number(0, 64), Topic.LOAD, "Client processes.", default="up to 4")
    """Number of client processes; 0: as many as fit this machine and the load."""
    in_flight: int = 1024
    """Open loop: requests that may wait for their answers; one more arriving is an ``overrun``."""
    client_limit: float = 0.7
    """Share of a core above which a client process counts as the bottleneck."""
    seed: int = 1
    perf_analyzer: Path | None = option(
        None,
        FilePath(file=False),
        Topic.OUTPUT,
        "Also print the equivalent perf_analyzer commands; their input files are written to DIR.",
        flag="--print-perf-analyzer",
        metavar="DIR",
    )
    command: str = ""
    """The command line, for the report."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The objective, the search and its load."""

    objective: Objective = field(
        metadata=declare(Slo(), Topic.SEARCH, "Objective, e.g. p99=50ms.", flag="--slo", metavar="P=TIME")
    )
    rps: float | None = option(None, Real(1e-6), Topic.SEARCH, "Also say how many replicas this needs.")
    budget: float = option(600.0, Seconds(), Topic.SEARCH, "Time of the run.", default="10m")
    trials: int | None = option(
        None, Number(), Topic.SEARCH, "Settings to measure at most.", default="no limit"
    )
    """Maximum of measured settings; trials of an earlier run also count."""
    endpoint: str = option(
        "", Text(), Topic.LOAD, "Which endpoint; needed if there are several.", metavar="NAME"
    )
    variants: tuple[str, ...] = option(
        (),
        Words(),
        Topic.SEARCH,
        "Other endpoints of the same model, built with another precision or padding.",
        metavar="NAME,NAME",
    )
    corpus: Path | None = option(None, FilePath(), Topic.LOAD, "Texts to send, one a line.", metavar="FILE")
    protocols: tuple[str, ...] = option(
        ("grpc",), Words(), Topic.LOAD, "One of them.", flag="--protocol", metavar="PROTOCOLS"
    )
    window: float = option(1.0, Seconds(), Topic.LOAD, "Shortest measurement.", default="1s")
    seed: int = option(1, Number(0, 2**31), Topic.SEARCH, "Of the sampler and the arrivals.")
    output: Path | None = option(
        None,
        FilePath(file=False),
        Topic.OUTPUT,
        "Write report.json, .csv, .html, front.png and the search's log; the same DIR again goes on.",
        also=("-o",),
        metavar="DIR",
    )
    command: str = ""

    @property
    def bench(self) -> BenchOptions:
        """The load of a trial."""
        return BenchOptions(
            endpoint=self.endpoint,
            protocols=self.protocols,
            concurrency=(1,),
            corpus=self.corpus,
            warmup=self.window * 0.3,
            window=self.window,
            seed=self.seed,
            timeout=max(10.0, self.objective.ms / 250),
        )


@dataclass(frozen=True, kw_only=True)
class OptimizeOptions:
    """Steps, and what they may cost."""

    steps: str | None = option(
        None,
        Text(),
        Topic.SEARCH,
        "prune, fuse, fp16, int8; int8:per-row, :per-channel, :static or :dynamic takes one way.",
        default="int8, after prune if heads or neurons are zero",
        metavar="STEP,STEP",
    )
    recipe: Path | None = option(
        None, FilePath(), Topic.SEARCH, "Repeat the steps of a recipe.json, without a search."
    )
    samples: Path | None = option(
        None, FilePath(), Topic.SEARCH, "Texts to compare on, one per line.", default="shipped ones"
    )
    labelled: Path | None = option(
        None,
        FilePath(),
        Topic.SEARCH,
        "Examples with the right answer: accuracy, F1, Spearman or nDCG of every step.",
        metavar="FILE.jsonl",
    )
    max_drop: float = option(
        0.005,
        Real(0, 1),
        Topic.SEARCH,
        "Most that the mean accuracy may fall; its 1 % quantile may fall three times as far.",
    )
    budget: float = option(
        300.0, Seconds(), Topic.SEARCH, "Time of the search.", default="5m", metavar="TIME"
    )
    """Seconds after which no further candidate is tried."""
    fastest: bool = True
    """Take the fastest way to int8 that passes; else the first."""

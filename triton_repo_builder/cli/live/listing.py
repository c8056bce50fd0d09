"""Rows and columns of ``trb top``: the same for one table on standard output and for the live view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from triton_repo_builder.run.observe.snapshot import READY, Snapshot
from triton_repo_builder.run.observe.window import EndpointWindow, Gpu, ModelWindow, Window

UNKNOWN = "-"
"""Shown for what is not known."""
GIB = 2**30
LOADED = "ready"
TOP_LABELS = 3
"""Labels in a cell of the table."""


class Key(NamedTuple):
    """Identity of a row from one window to the next."""

    server: str
    endpoint: str
    version: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One version of an endpoint, or of a model that is not loaded."""

    key: Key
    state: str
    """``ready``, or the server's word in small letters."""
    reason: str = ""
    """Why it is not ready."""
    rates: EndpointWindow | None = None

    @property
    def itself(self) -> ModelWindow | None:
        """The endpoint's own counters, if it was there for a whole window."""
        return self.rates.itself if self.rates else None


Value = float | str | None


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; it is left out if no row has a value that says something, unless it ``stays``."""

    name: str
    title: str
    value: Callable[[Row], Value]
    show: Callable[[float], str] = str
    stays: bool = False

    def text(self, row: Row) -> str:
        """The cell of a row."""
        value = self.value(row)
        if isinstance(value, str):
            return value or UNKNOWN
        return UNKNOWN if value is None else self.show(value)


def number(value: float | None) -> str:
    """Three digits that count: ``0``, ``0.25``, ``12.3``, ``1,234``."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    if value < 0.01:
        return "<0.01"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    """A part of 1 in per cent."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.001:
        return "<0.1 %"
    return f"{value:.0%}".replace("%", " %") if value >= 0.0995 or value == 0 else f"{value * 100:.1f} %"


def size(value: float | None) -> str:
    """Bytes as GiB."""
    return UNKNOWN if value is None else f"{value / GIB:.2f} GiB"


def reasons(counts: Mapping[str, float]) -> str:
    """Failures per second by reason, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{reason} {number(rate)}" for reason, rate in ordered)


def labels(shares: Mapping[str, float], most: int = TOP_LABELS) -> str:
    """The most frequent answers with their shares."""
    listed = [f"{label} {share(part)}" for label, part in [*shares.items()][:most]]
    return ", ".join(listed) + (" …" if len(shares) > most else "")


def _of_model(name: str) -> Callable[[Row], Value]:
    return lambda row: getattr(row.itself, name) if row.itself else None


def _of_latency(name: str) -> Callable[[Row], Value]:
    return lambda row: getattr(row.itself.latency, name) if row.itself else None


def _of_endpoint(name: str) -> Callable[[Row], Value]:
    return lambda row: getattr(row.rates, name) if row.rates else None


def _ratio(part: str, whole: str) -> Callable[[Row], Value]:
    return lambda row: row.rates.ratio(part, whole) if row.rates else None


def _mean(name: str) -> Callable[[Row], Value]:
    return lambda row: row.rates.mean(name) if row.rates else None


def _failures(row: Row) -> Value:
    return sum(row.itself.failures.values()) if row.itself else None


def _reasons(row: Row) -> Value:
    """The server's reasons; the tokenizer's, which say more, in their place."""
    if row.itself is None or row.rates is None:
        return None
    return reasons(row.rates.refused or row.itself.failures) or None


def _labels(row: Row) -> Value:
    return (labels(row.rates.labels) or None) if row.rates else None


COLUMNS = (
    Column(name="server", title="server", value=lambda row: row.key.server, stays=True),
    Column(name="endpoint", title="endpoint", value=lambda row: row.key.endpoint, stays=True),
    Column(name="version", title="version", value=lambda row: row.key.version, stays=True),
    Column(name="state", title="state", value=lambda row: row.state),
    Column(name="requests_per_s", title="req/s", value=_of_model("requests_per_s"), show=number, stays=True),
    Column(name="rows_per_s", title="rows/s", value=_of_model("rows_per_s"), show=number),
    Column(name="mean_ms", title="mean ms", value=_of_latency("mean"), show=number, stays=True),
    Column(name="p50_ms", title="p50 ms", value=_of_latency("p50"), show=number),
    Column(name="p99_ms", title="p99 ms", value=_of_latency("p99"), show=number),
    Column(name="queue_ms", title="queue ms", value=_of_endpoint("queue_ms"), show=number, stays=True),
    Column(name="pending", title="waiting", value=_of_endpoint("pending"), show="{:,.0f}".format),
    Column(
        name="rows_per_execution",
        title="rows/exec",
        value=_of_endpoint("rows_per_execution"),
        show=number,
        stays=True,
    ),
    Column(name="busy", title="busy", value=_of_endpoint("busy"), show=number),
    Column(name="cores", title="cores", value=_of_endpoint("cores"), show=number),
    Column(name="failures_per_s", title="fail/s", value=_failures, show=number, stays=True),
    Column(name="reasons", title="reasons/s", value=_reasons),
    Column(name="tokens_per_text", title="tokens/text", value=_ratio("tokens", "texts"), show=number),
    Column(name="unknown_share", title="unknown", value=_ratio("unknown_tokens", "tokens"), show=share),
    Column(name="answer_confidence", title="confidence", value=_mean("answer_confidence"), show=number),
    Column(name="labels", title="top labels", value=_labels),
)
BY_NAME = {column.name: column for column in COLUMNS}
TEXTS = frozenset({"server", "endpoint", "version", "state", "reasons", "labels"})
"""Columns that hold texts; the others hold numbers."""


def columns(rows: Sequence[Row], servers: int) -> tuple[Column, ...]:
    """The columns that these rows fill, and the server if there are several."""
    shown = COLUMNS if servers > 1 else COLUMNS[1:]
    return tuple(column for column in shown if column.stays or _filled(column, rows))


def _filled(column: Column, rows: Sequence[Row]) -> bool:
    values = {column.value(row) for row in rows}
    if column.name == "state":
        return bool(values - {LOADED})
    if column.name == "rows_per_s":
        return any(row.itself and row.itself.rows_per_s != row.itself.requests_per_s for row in rows)
    return bool(values - {None})


def rows(windows: Iterable[tuple[str, Window]]) -> list[Row]:
    """A row for each version of an endpoint, and of each model that failed, by the name of its server."""
    listed: dict[Key, Row] = {}
    for server, window in windows:
        loaded = window.after.counters
        for entry in window.failed:  # of several repositories, it may list one twice
            if (entry.name, entry.version) not in loaded:
                key = Key(server, entry.name, entry.version)
                listed[key] = Row(key=key, state=entry.state.lower(), reason=entry.reason)
        for each in window.endpoints:
            key = Key(server, each.endpoint, each.version)
            listed[key] = Row(key=key, state=LOADED, rates=each)
    return [*listed.values()]


def ordered(listed: Iterable[Row], by: str, *, descending: bool) -> list[Row]:
    """Rows by a column; those without a value come last in both directions."""
    column = BY_NAME[by]
    alphabetic = sorted(listed, key=lambda row: (*row.key[:2], len(row.key.version), row.key.version))
    with_value = [row for row in alphabetic if column.value(row) is not None]
    without = [row for row in alphabetic if column.value(row) is None]

    def value(row: Row) -> tuple[float, str]:
        each = column.value(row)
        if isinstance(each, str):
            return (float(each), "") if each.isdigit() else (0.0, each.lower())
        return each or 0.0, ""

    return [*sorted(with_value, key=value, reverse=descending), *without]


def matching(listed: Iterable[Row], words: str) -> list[Row]:
    """Rows that have each of these words in a text, in small or capital letters."""
    terms = words.lower().split()
    return [row for row in listed if all(term in _searched(row) for term in terms)]


def _searched(row: Row) -> str:
    texts = (BY_NAME[name].text(row) for name in TEXTS)
    return " ".join((*texts, row.reason)).lower()


def facts(window: Window) -> list[str]:
    """State, version and resources of a server, each as a few words."""
    after = window.after
    if not after.answers:
        return [f"{after.state}: {after.problem}"]
    words = [after.state, f"Triton {after.version}"]
    if window.cores is not None:
        words.append(f"{number(window.cores)} cores")
    if after.memory_bytes is not None:
        words.append(size(after.memory_bytes))
    if window.machine_cpu is not None:
        words.append(f"machine's CPU {share(window.machine_cpu)}")
    words += [_gpu(place, gpu) for place, gpu in enumerate(window.gpus)]
    if after.state == READY and not after.counters:
        words.append("no model is loaded")
    return words


def _gpu(place: int, gpu: Gpu) -> str:
    memory = f", {size(gpu.used_bytes)} of {size(gpu.total_bytes)}" if gpu.used_bytes is not None else ""
    return f"GPU {place} {share(gpu.utilization)}{memory}"


def problems(after: Snapshot) -> list[str]:
    """Gaps in the table of a server that answers, and what to do."""
    listed = [after.problem] if after.answers and after.problem else []
    if after.answers and after.metrics_problem:
        listed.append(
            f"no metrics, so no reasons, texts and labels: {after.metrics_problem}; name the page with "
            "--metrics-url, and start the server without --allow-metrics=false"
        )
    return listed

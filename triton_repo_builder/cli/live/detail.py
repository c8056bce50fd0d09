"""The selected endpoint of ``trb top`` in detail: versions side by side, steps, phases, failures, labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from triton_repo_builder.cli import console
from triton_repo_builder.cli.live.listing import COLUMNS, UNKNOWN, Row, labels, number, reasons, share

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

    from triton_repo_builder.run.observe.window import ModelWindow

BAR = 24
"""Characters of the bar of a share of 1."""
LABELS = 8
GAP = 2
"""Characters between two columns."""
READABLE = 32
"""Characters of a text that are not cut: the longest step of a usual endpoint has 30."""
BATCHES = 6
"""Batch sizes shown of a step, the most frequent ones."""
STEP = (
    "step",
    "backend",
    "req/s",
    "mean ms",
    "queue ms",
    "infer ms",
    "rows/exec",
    "busy",
    "cores",
    "batch sizes",
)
MEANS = (
    ("answer_confidence", "confidence"),
    ("embedding_norm", "length of the vector"),
    ("transcript_characters", "characters of a transcript"),
)
"""Means of answers, and their titles."""
COMPARED = (
    "requests_per_s",
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "queue_ms",
    "rows_per_execution",
    "failures_per_s",
    "tokens_per_text",
    "unknown_share",
    "answer_confidence",
)
"""Columns in which versions are compared."""


def blocks(row: Row, versions: Sequence[Row]) -> list[tuple[str, Any]]:
    """Titles and rich renderables; what has no content is left out."""
    if row.rates is None:
        return [(f"{row.state}", console.cell(row.reason or "the server gives no reason", "red"))]
    if row.itself is None:
        return [("", console.cell("waiting for a second reading"))]
    listed: list[tuple[str, Any]] = []
    if len(versions) > 1:
        listed.append(("versions", _versions(versions)))
    listed.append(("steps", _steps(row.rates.models[1:] or row.rates.models)))
    phases = [(step, name, times) for step in row.rates.models for name, times in step.phases.items()]
    if phases:
        cells = [
            (step.model, name, number(times.mean), number(times.p50), number(times.p99))
            for step, name, times in phases
        ]
        listed.append(("phases of an execution", _table(("step", "phase", "mean ms", "~p50", "~p99"), cells)))
    failures = _failures(row)
    if failures:
        listed.append(("failures per second", _table(("model", "reasons"), failures)))
    texts = _texts(row)
    if texts:
        listed.append(("texts", _table(("", ""), texts)))
    means = [(title, number(value)) for name, title in MEANS if (value := row.rates.mean(name)) is not None]
    if means:
        listed.append(("answers", _table(("", ""), means)))
    if row.rates.labels:
        listed.append(("" if means else "answers", _bars(row.rates.labels)))
    return listed


def _versions(versions: Sequence[Row]) -> Fitted:
    """A column for each version."""
    names = ("", *(f"version {row.key.version}" for row in versions))
    shown = [column for column in COLUMNS if column.name in COMPARED]
    cells = [(column.title, *(column.text(row) for row in versions)) for column in shown]
    cells = [row for row in cells if {*row[1:]} - {UNKNOWN}]
    answers = [labels(row.rates.labels) if row.rates else "" for row in versions]
    if any(answers):
        cells.append(("top labels", *(answer or UNKNOWN for answer in answers)))
    return _table(names, cells)


def _steps(steps: Iterable[ModelWindow]) -> Fitted:
    return _table(STEP, [_step(step) for step in steps])


def _step(step: ModelWindow) -> tuple[str, ...]:
    shared = f" (also of {', '.join(step.shared_with)})" if step.shared_with else ""
    return (
        f"{step.model} {step.version}{shared}",
        step.backend or UNKNOWN,
        number(step.requests_per_s),
        number(step.latency.mean),
        number(step.queue_ms),
        number(step.infer_ms),
        number(step.rows_per_execution),
        number(step.busy),
        number(step.cores),
        _batches(step.batches),
    )


def _batches(batches: Mapping[int, int]) -> str:
    """The most frequent batch sizes with their share of executions."""
    total = sum(batches.values())
    frequent = sorted(batches.items(), key=lambda pair: -pair[1])[:BATCHES]
    shown = [f"{rows}: {share(count / total)}" for rows, count in sorted(frequent) if count > 0]
    return "  ".join(shown) or UNKNOWN


def _failures(row: Row) -> list[tuple[str, str]]:
    models = row.rates.models if row.rates else ()
    listed = [(f"{each.model} {each.version}", reasons(each.failures)) for each in models if each.failures]
    refused = [(f"refused by {each.model}", reasons(each.refused)) for each in models if each.refused]
    return [*listed, *refused]


def _texts(row: Row) -> list[tuple[str, str]]:
    rates = row.rates
    if rates is None or rates.ratio("tokens", "texts") is None:
        return []
    hits = rates.ratio("token_cache_hits", "texts")
    cells = [
        ("tokens per text", number(rates.ratio("tokens", "texts"))),
        ("unknown tokens", share(rates.ratio("unknown_tokens", "tokens"))),
        ("truncated texts", share(rates.ratio("truncated_texts", "texts"))),
        ("from the token cache", share(hits)),
    ]
    return [(name, value) for name, value in cells if value != UNKNOWN]


def _bars(shares: Mapping[str, float]) -> Fitted:
    """A bar for each of the most frequent labels."""
    cells = [
        (label, "█" * max(1, round(BAR * part)), share(part)) for label, part in [*shares.items()][:LABELS]
    ]
    return _table(("label", "share", ""), cells, bars=1)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A table without lines; its first column is text, a column of numbers is aligned right.

    Columns that do not fit are left out from the right. Titles and numbers are never cut, long texts are.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[Text]]
    bars: int = 0
    """The column that is drawn in colour."""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Table]:
        """The table at a width."""
        from rich.table import Table

        sizes = self._sizes(options.max_width)
        shown = Table(
            box=None, padding=(0, GAP, 0, 0), show_header=any(self.titles), header_style="dim", pad_edge=False
        )
        for place, size in enumerate(sizes):
            style = "cyan" if self.bars and place == self.bars else ""
            justify: Any = "right" if self._numbers(place) else "left"
            title = self.titles[place]
            shown.add_column(
                title, justify=justify, overflow="ellipsis", no_wrap=True, style=style, width=size
            )
        for row in self.rows:
            shown.add_row(*row[: len(sizes)])
        yield shown

    def _sizes(self, width: int) -> list[int]:
        """The widths of the columns that fit, at least one."""
        places = range(len(self.titles))
        widest = [max([len(self.titles[at]), *(row[at].cell_len for row in self.rows)]) for at in places]
        least = [
            size if self._numbers(at) else min(size, max(len(self.titles[at]), READABLE))
            for at, size in enumerate(widest)
        ]
        count = max(1, sum(total <= width for total in accumulate(size + GAP for size in least)))
        sizes, room = least[:count], width - sum(least[:count]) - GAP * count
        for at, size in enumerate(sizes):
            grown = max(0, min(room, widest[at] - size))
            sizes[at], room = size + grown, room - grown
        return sizes

    def _numbers(self, place: int) -> bool:
        return place > 0 and all(_is_number(row[place].plain) for row in self.rows)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, bars: int = 0) -> Fitted:
    return Fitted(titles=titles, rows=[[console.cell(text) for text in row] for row in rows], bars=bars)


def _is_number(text: str) -> bool:
    return text == UNKNOWN or text.lstrip("<").replace(",", "").replace(" %", "").replace(".", "").isdigit()

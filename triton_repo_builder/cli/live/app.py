"""The live view of ``trb top``: a Textual program that reads each server in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any, ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Sparkline, Static

from triton_repo_builder.base.text import visible
from triton_repo_builder.cli import console
from triton_repo_builder.cli.live import detail, listing
from triton_repo_builder.cli.live.listing import Column, Key, Row
from triton_repo_builder.run.observe.snapshot import Observer, Snapshot
from triton_repo_builder.run.observe.window import Window, between

MINUTES = 5
"""Length of the history that sparklines show."""
BLOCKS = "▁▂▃▄▅▆▇█"
TREND = 14
"""Characters of a sparkline in the table."""
FIRST = "requests_per_s"
"""The column that the table is sorted by at first."""
COLOURS = {"ready": "green", "not ready": "yellow"}


class Taken(Message):
    """A snapshot of a server."""

    def __init__(self, server: str, snapshot: Snapshot) -> None:
        super().__init__()
        self.server, self.snapshot = server, snapshot


class Broken(Message):
    """An error that no snapshot reports: a bug."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Reader(threading.Thread):
    """Reads one server until the program ends."""

    def __init__(
        self, server: str, observer: Observer, interval: float, post: Callable[[Message], bool]
    ) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._server, self._observer, self._interval, self._post = server, observer, interval, post

    def run(self) -> None:
        """Take snapshots, one an interval."""
        try:
            while not self.ended.is_set():
                self._post(Taken(self._server, self._observer.take()))
                self.ended.wait(self._interval)
        except Exception as error:
            self._post(Broken(error))


class History:
    """Requests per second and latency of each row during the last minutes."""

    def __init__(self, interval: float) -> None:
        self._most = max(2, round(MINUTES * 60 / interval))
        self._series: dict[Key, deque[tuple[float, float]]] = {}

    def add(self, server: str, rows: list[Row]) -> None:
        """Add the newest numbers of a server; of a row that is missing or has none, 0."""
        current = {row.key: row for row in rows}
        earlier = {key for key in self._series if key.server == server}
        for key in earlier | current.keys():
            itself = current[key].itself if key in current else None
            if itself is None and key not in earlier:
                continue
            rate = itself.requests_per_s if itself else 0.0
            points = self._series.setdefault(key, deque(maxlen=self._most))
            points.append((rate, (latency(current[key])[1] if itself else None) or 0.0))

    def rates(self, key: Key) -> list[float]:
        """Requests per second, the newest last."""
        return [rate for rate, _ in self._series.get(key, ())]

    def times(self, key: Key) -> list[float]:
        """Milliseconds, the newest last."""
        return [time for _, time in self._series.get(key, ())]


def latency(row: Row) -> tuple[str, float | None]:
    """The 99th percentile if the server computes one, else the mean, with its name."""
    times = row.itself.latency if row.itself else None
    if times is not None and times.p99 is not None:
        return "p99 (last minute)", times.p99
    return "mean", times.mean if times else None


def sparkline(values: list[float], width: int = TREND) -> str:
    """The values as blocks from 0 to their maximum; of many, the mean of several in a block."""
    count = min(len(values), width)
    ends = [len(values) * place // count for place in range(count + 1)] if count else []
    means = [fmean(values[start:end]) for start, end in pairwise(ends)]
    top = max(means, default=0.0)
    return "".join(BLOCKS[round(value / top * (len(BLOCKS) - 1))] if top else BLOCKS[0] for value in means)


class TopApp(App[None]):
    """A table of endpoints, the servers above it, the selected endpoint below it."""

    CSS = """
    #servers { height: auto; max-height: 8; padding: 0 1; }
    #table { height: auto; min-height: 3; max-height: 50%; }
    #filter { display: none; border: none; height: 1; padding: 0 1; background: $boost; }
    #filter.open { display: block; }
    #detail { height: 1fr; border-top: solid $primary; padding: 0 1; }
    #detail.closed { display: none; }
    #table.alone { max-height: 100%; }
    #trends { width: 36; padding-right: 2; }
    #trends Sparkline { height: 4; margin-bottom: 1; }
    .-narrow #trends { display: none; }
    #times > .sparkline--max-color { color: $warning; }
    #times > .sparkline--min-color { color: $warning 40%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
        Binding("less_than_sign", "sort(-1)", "Sort ◀"),
        Binding("greater_than_sign", "sort(1)", "Sort ▶"),
        Binding("r", "reverse", "Reverse"),
        Binding("d,enter", "detail", "Details"),
        Binding("p,space", "pause", "Pause"),
    ]
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012  the base class's type
    TITLE = "trb top"

    def __init__(self, servers: Mapping[str, Observer], interval: float) -> None:
        super().__init__()
        self._servers, self._interval = dict(servers), interval
        self._readers: list[Reader] = []
        self.error: Exception | None = None
        self._snapshots: dict[str, Snapshot] = {}
        self.windows: dict[str, Window] = {}
        self.history = History(interval)
        self.sorted_by, self.descending, self.words, self.paused = FIRST, True, "", False
        self.rows: list[Row] = []
        """The rows of the table, in its order."""
        self._all: list[Row] = []
        self._shown: tuple[str, ...] = ()
        self._waiting = set(self._servers)
        """Servers whose first rates are to come: until then the cursor stays on the first row."""
        self._cursor: Key | None = None
        """The row that the cursor was put on."""

    # --- widgets

    def compose(self) -> ComposeResult:
        """The widgets, from top to bottom."""
        yield Static(id="servers")
        yield Input(placeholder="words of endpoint, server, labels, reasons", id="filter")
        yield DataTable[Text](id="table", cursor_type="row", zebra_stripes=True)
        with Horizontal(id="detail"):
            with Vertical(id="trends"):
                yield Static(id="rate")
                yield Sparkline(id="rates")
                yield Static(id="time")
                yield Sparkline(id="times")
            with VerticalScroll(can_focus=False):
                yield Static(id="blocks")
        yield Footer()

    def on_mount(self) -> None:
        """Start to read."""
        self.query_one(DataTable).focus()
        for server, observer in self._servers.items():
            reader = Reader(server, observer, self._interval, self.post_message)
            self._readers.append(reader)
            reader.start()
        self._show()

    def on_unmount(self) -> None:
        """Stop reading; a thread that waits for an answer ends with the program."""
        for reader in self._readers:
            reader.ended.set()

    def on_taken(self, message: Taken) -> None:
        """Take up a snapshot."""
        before = self._snapshots.get(message.server)
        self._snapshots[message.server] = message.snapshot
        window = between(before or message.snapshot, message.snapshot)
        self.windows[message.server] = window
        self.history.add(message.server, listing.rows([(message.server, window)]))
        if not self.paused:
            self._show()
        if before:
            self._waiting.discard(message.server)

    def on_broken(self, message: Broken) -> None:
        """End; the command raises the error."""
        self.error = message.error
        self.exit()

    # --- keys

    def action_sort(self, step: int) -> None:
        """Sort by the next column to the left or right."""
        place = self._shown.index(self.sorted_by) if self.sorted_by in self._shown else 0
        self._sort_by(self._shown[(place + step) % len(self._shown)])

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked; again: the other way round."""
        name = event.column_key.value
        if name == self.sorted_by:
            self.action_reverse()
        elif name in listing.BY_NAME:
            self._sort_by(name)

    def _sort_by(self, name: str) -> None:
        self.sorted_by, self.descending = name, name not in listing.TEXTS
        self._show()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self.descending = not self.descending
        self._show()

    def action_detail(self) -> None:
        """Open or close the lower half."""
        self.query_one("#detail").toggle_class("closed")
        self.query_one("#table").toggle_class("alone")

    def on_data_table_row_selected(self) -> None:
        """Enter, which the table takes for itself."""
        self.action_detail()

    def action_pause(self) -> None:
        """Keep the numbers as they are; reading goes on."""
        self.paused = not self.paused
        self._show()

    def action_filter(self) -> None:
        """Ask for words."""
        field = self.query_one("#filter", Input)
        field.add_class("open")
        field.focus()

    def action_clear_filter(self) -> None:
        """Show all rows again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.remove_class("open")
        self.query_one(DataTable).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter with each letter."""
        self.words = event.value
        self._show()

    def on_input_submitted(self) -> None:
        """Back to the table; the filter stays."""
        if not self.words:
            self.query_one("#filter").remove_class("open")
        self.query_one(DataTable).focus()

    def on_data_table_row_highlighted(self) -> None:
        """Show the endpoint under the cursor."""
        if self.query("#blocks"):
            self._show_detail()

    # --- what is shown

    def _show(self) -> None:
        if not self.query("#blocks"):  # it ends
            return
        self.query_one("#servers", Static).update(self._server_lines())
        selected = self._selected()
        chosen = selected.key if selected else None
        if chosen != self._cursor:  # by the user
            self._waiting.clear()
        self._all = listing.rows(self.windows.items())
        matching = listing.matching(self._all, self.words)
        self.rows = listing.ordered(matching, self.sorted_by, descending=self.descending)
        self._fill(listing.columns(self.rows, len(self._servers)), None if self._waiting else chosen)
        self._show_detail()

    def _fill(self, columns: tuple[Column, ...], selected: Key | None) -> None:
        """Write the table anew; the cursor stays on its endpoint."""
        table: DataTable[Text] = self.query_one("#table", DataTable)
        left, upper = table.scroll_offset
        table.clear(columns=True)
        for column in columns:
            mark = (" ▼" if self.descending else " ▲") if column.name == self.sorted_by else ""
            justify: Any = "left" if column.name in listing.TEXTS else "right"
            title = Text(column.title + mark, style="bold" if mark else "", justify=justify)
            table.add_column(title, key=column.name)
            if column.name == FIRST:
                table.add_column(f"{MINUTES} min", key="trend")
        for row in self.rows:
            cells = [_cell(column, row) for column in columns]
            trend = Text(sparkline(self.history.rates(row.key)).rjust(TREND), style="cyan")
            place = [column.name for column in columns].index(FIRST) + 1
            table.add_row(*cells[:place], trend, *cells[place:], key="\0".join(row.key))
        self._shown = tuple(column.name for column in columns)
        place = next((place for place, row in enumerate(self.rows) if row.key == selected), 0)
        table.move_cursor(row=place, animate=False)
        self._cursor = self.rows[place].key if self.rows else None
        table.scroll_to(left, upper, animate=False)

    def _selected(self) -> Row | None:
        place = self.query_one("#table", DataTable).cursor_row
        return self.rows[place] if 0 <= place < len(self.rows) else None

    def _server_lines(self) -> Text:
        lines = []
        for server in self._servers:
            window = self.windows.get(server)
            if window is None:
                lines.append(console.cell(f"○ {server}  connecting"))
                continue
            lines.append(_server_line(server, window))
            lines += [console.cell(f"  {each}", "dim") for each in listing.problems(window.after)]
        state = " · paused" if self.paused else ""
        words = f" · filter: {visible(self.words)}" if self.words else ""
        lines.append(Text(f"every {self._interval:g} s{state}{words}", style="dim"))
        return Text("\n").join(lines)

    def _show_detail(self) -> None:
        row = self._selected()
        blocks = self.query_one("#blocks", Static)
        if row is None:
            blocks.update("no endpoint matches" if self.words else "")
            self._show_trends(None)
            return
        versions = [each for each in self._all if each.key[:2] == row.key[:2]]
        parts: list[Any] = [Text(visible(" ".join(row.key[1:]), lines=False), style="bold")]
        for title, content in detail.blocks(row, versions):
            parts += [Text(f"\n{title}" if title else "", style="bold cyan"), content]
        blocks.update(Group(*parts))
        self._show_trends(row)

    def _show_trends(self, row: Row | None) -> None:
        rates = self.history.rates(row.key) if row else []
        times = self.history.times(row.key) if row else []
        name, newest = latency(row) if row else ("mean", None)
        last = rates[-1] if rates else None
        self.query_one("#rate", Static).update(_trend_title("req/s", last, rates))
        self.query_one("#time", Static).update(_trend_title(f"{name} ms", newest, times))
        # Of a single value the widget draws full bars, even of 0.
        self.query_one("#rates", Sparkline).data = rates if any(rates) else []
        self.query_one("#times", Sparkline).data = times if any(times) else []


def _server_line(server: str, window: Window) -> Text:
    colour = COLOURS.get(window.after.state, "red")
    state, *facts = (visible(fact, lines=False) for fact in listing.facts(window))
    line = Text("● " if window.after.answers else "○ ", style=colour, no_wrap=True, overflow="ellipsis")
    line.append(visible(server, lines=False), style="bold default")
    line.append(f"  {state}")
    return line.append("".join(f"  {fact}" for fact in facts), style="default")


def _trend_title(name: str, newest: float | None, values: list[float]) -> Text:
    most = listing.number(max(values, default=None))
    title = Text(f"{name} ", style="bold")
    return title.append(f"{listing.number(newest)}", style="").append(f"  max {most}", style="dim")


def _cell(column: Column, row: Row) -> Text:
    text = column.text(row)
    style = ""
    if text in (listing.UNKNOWN, "0"):
        style = "dim"
    elif column.name in ("failures_per_s", "reasons") or (column.name, text) == ("state", row.state):
        style = "" if text == listing.LOADED else "red"
    elif column.name == "endpoint":
        style = "bold"
    cell = console.cell(text.replace("\n", " "), style)
    cell.justify = "left" if column.name in listing.TEXTS else "right"
    return cell

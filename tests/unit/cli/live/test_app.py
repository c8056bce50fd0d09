"""The live view: keys, detail, trends, and a server that goes away and comes back."""

from __future__ import annotations

import asyncio
import io
import re
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Sparkline, Static

from tests.support.counting_server import CountingServer, running, text_endpoint
from triton_repo_builder.cli.live import detail
from triton_repo_builder.cli.live.app import BLOCKS, History, TopApp, sparkline
from triton_repo_builder.cli.live.listing import Key, Row
from triton_repo_builder.run.observe.snapshot import Observer

INTERVAL = 0.2
PATIENCE = 30.0
Steps = Callable[[TopApp, Pilot[None]], Awaitable[None]]


@pytest.fixture
def server() -> Iterator[CountingServer]:
    server = text_endpoint()
    server.add("alpha")
    server.add("zulu", version="1")
    server.add("zulu", version="2")
    with running(server) as each:
        yield each


def view(
    *servers: CountingServer, steps: Steps, size: tuple[int, int] = (160, 50), interval: float = INTERVAL
) -> None:
    """Run the program on these servers, with these steps of a user."""

    async def run() -> None:
        app = TopApp({f"server {place}": Observer(each.urls) for place, each in enumerate(servers)}, interval)
        async with app.run_test(size=size) as pilot:
            await steps(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        await pilot.pause(0.05)


def names(app: TopApp) -> list[str]:
    return [row.key.endpoint for row in app.rows]


def titles(app: TopApp) -> list[str]:
    table: DataTable[Any] = app.query_one(DataTable)
    return [str(column.label) for column in table.ordered_columns]


def text(app: TopApp, identifier: str) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(app.query_one(identifier, Static).content)
    return console.export_text()


@contextmanager
def load(count: Callable[[], None]) -> Iterator[None]:
    """Count every 10 ms."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(0.01):
            count()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def requests(server: CountingServer, **numbers: int) -> Callable[[], None]:
    """Count so many requests of each model."""
    return lambda: [server.count(name, number) for name, number in numbers.items()].clear()


def rated(app: TopApp) -> bool:
    return bool(app.rows) and all(row.itself for row in app.rows)


def test_rows_are_sorted_by_requests_and_by_the_column_that_keys_choose(server: CountingServer) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: rated(app))
        await until(pilot, lambda: names(app)[:2] == ["bert", "alpha"])
        assert "req/s ▼" in titles(app)
        await pilot.press("p")  # the numbers stay
        await pilot.press("r")
        assert "req/s ▲" in titles(app)
        assert names(app)[-1] == "bert"
        for _ in range(2):
            await pilot.press("<")
        assert (app.sorted_by, app.descending) == ("endpoint", False)
        assert names(app) == ["alpha", "bert", "zulu", "zulu"]
        await pilot.press("r")
        assert names(app)[0] == "zulu"
        await pilot.press("<", ">", ">")
        assert app.sorted_by == "version"

    with load(requests(server, bert=9, alpha=2)):
        view(server, steps=steps)


def test_a_filter_shows_the_rows_with_its_words(server: CountingServer) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: rated(app))
        await pilot.press("slash", *"ber")
        assert names(app) == ["bert"]
        await pilot.press("enter")  # back to the table; q is a key again
        assert names(app) == ["bert"]
        assert "filter: ber" in text(app, "#servers")
        await pilot.press("escape")
        assert len(names(app)) == 4
        await pilot.press("slash", *"nothing")
        await pilot.pause()
        assert names(app) == []
        assert "no endpoint matches" in text(app, "#blocks")
        assert app.query_one(Input).has_focus

    view(server, steps=steps)


def test_the_detail_has_the_steps_phases_and_labels_of_the_selected_endpoint(server: CountingServer) -> None:
    tokenizer, model = 'model="bert_tokenizer",version="1"', 'model="bert_model",version="1"'
    rows = 0

    def count() -> None:
        nonlocal rows
        rows += 40
        for name in ("bert", "bert_tokenizer", "bert_model"):
            server.count(name, 40, batch=8)
        server.models["bert"][0].fail += 4
        server.lines = [
            f"trb_texts_total{{{tokenizer}}} {rows}",
            f"trb_tokens_total{{{tokenizer}}} {rows * 12}",
            f'trb_refused_texts_total{{{tokenizer},reason="too_long"}} {rows}',
            f'trb_phase_seconds_count{{{tokenizer},phase="tokenize"}} {rows}',
            f'trb_phase_seconds_sum{{{tokenizer},phase="tokenize"}} {rows / 500}',
            f'trb_answers_total{{{model},label="good"}} {rows}',
        ]

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        def complete() -> bool:
            return names(app)[:1] == ["bert"] and bool(app.rows[0].rates and app.rows[0].rates.labels)

        await until(pilot, complete)
        await pilot.press("p", "ctrl+home")
        shown = text(app, "#blocks")
        expected = (
            "bert_tokenizer 1",
            "tokenize",
            "2.00",
            "OTHER",
            "too_long",
            "tokens per text",
            "12.0",
            "good",
        )
        assert [word for word in expected if word not in shown] == []
        assert "tokens/text" in titles(app)
        rates = app.query_one("#rates", Sparkline).data
        assert rates is not None
        assert max(rates) > 0
        assert app.query_one("#detail").display
        await pilot.press("d")
        assert not app.query_one("#detail").display
        await pilot.press("enter")
        assert app.query_one("#detail").display

    with load(count):
        view(server, steps=steps)


def test_versions_stand_side_by_side(server: CountingServer) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: rated(app))
        await pilot.press("p", "<", "<", "ctrl+end")
        assert app.sorted_by == "endpoint"
        await pilot.press("ctrl+end")
        await pilot.pause()
        shown = text(app, "#blocks")
        assert "version 1" in shown
        assert "version 2" in shown

    view(server, steps=steps)


def test_a_server_goes_away_and_comes_back(server: CountingServer) -> None:
    other = CountingServer()
    other.add("far")

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(app.rows) == 5 and rated(app))
        assert "server" in titles(app)
        await pilot.press("ctrl+end")
        other.status["/v2"] = 503
        await until(pilot, lambda: len(app.rows) == 4)
        assert "○ server 1  not a Triton" in text(app, "#servers")
        other.status.clear()
        await until(pilot, lambda: len(app.rows) == 5 and rated(app))
        assert "● server 1  ready" in text(app, "#servers")

    with running(other):
        view(server, other, steps=steps)


def test_a_model_that_failed_says_why(server: CountingServer) -> None:
    broken = server.add("broken")
    broken.state, broken.reason = "UNAVAILABLE", "Internal: no such [file]"

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "broken" in names(app))
        assert "state" in titles(app)
        await pilot.press("slash", *"no such")
        assert names(app) == ["broken"]
        assert "Internal: no such [file]" in text(app, "#blocks")

    view(server, steps=steps)


def test_the_cursor_stays_on_its_endpoint_while_rows_move(server: CountingServer) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app)[:1] == ["alpha"] and bool(app.history.rates(app.rows[0].key)))
        await pilot.press("ctrl+home")
        with load(requests(server, bert=9)):
            await until(pilot, lambda: names(app)[:2] == ["bert", "alpha"])
        selected = app._selected()
        assert selected is not None
        assert selected.key.endpoint == "alpha"

    with load(requests(server, alpha=2)):
        view(server, steps=steps)


def test_with_several_servers_the_first_row_is_chosen_at_the_start(server: CountingServer) -> None:
    other = CountingServer()
    other.add("far")

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(app.rows) == 5 and rated(app) and not app._waiting)
        assert names(app)[0] == "far"
        assert app._selected() == app.rows[0]

    with running(other), load(requests(other, far=9)):
        view(server, other, steps=steps)


def test_the_choice_of_the_user_stays_at_the_start(server: CountingServer) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(app.rows) == 4)  # and no second reading
        await pilot.press("down", "r")
        selected = app._selected()
        assert selected is not None
        assert selected.key.endpoint == "bert"

    view(server, steps=steps, interval=3600.0)


@pytest.mark.parametrize(("width", "last"), [(170, 10), (130, 9), (80, 7)])
def test_titles_of_the_lower_half_are_whole_at_any_width(
    server: CountingServer, width: int, last: int
) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: rated(app) and names(app)[:1] == ["bert"])
        await pilot.press("p")
        await pilot.pause()
        blocks = app.query_one("#blocks", Static)
        lines = [strip.text for strip in blocks.render_lines(Region(0, 0, *blocks.size))]
        (titles,) = (line for line in lines if line.startswith("step "))
        listed = re.split("  +", titles.strip())
        assert listed == [*detail.STEP[: len(listed)]]
        assert last - 1 <= len(listed) <= last, "numbers have one to five characters"

    with load(requests(server, bert=9, bert_tokenizer=9, bert_model=9)):
        view(server, steps=steps, size=(width, 40))


def test_the_sparklines_of_an_idle_endpoint_are_flat(server: CountingServer) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: rated(app) and not app._waiting)
        for name in ("#rates", "#times"):
            trend = app.query_one(name, Sparkline)
            drawn = "".join(strip.text for strip in trend.render_lines(Region(0, 0, *trend.size)))
            assert set(drawn) <= {" ", BLOCKS[0]}

    view(server, steps=steps)


def test_a_bug_in_a_thread_ends_the_program(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Observer) -> None:
        raise KeyError("bug")

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.error is not None)

    monkeypatch.setattr(Observer, "take", fail)
    view(server, steps=steps)


def test_q_quits(server: CountingServer) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running or app._exit

    view(server, steps=steps)


def test_a_sparkline_goes_from_0_to_the_maximum() -> None:
    assert sparkline([0.0, 1.0, 2.0]) == BLOCKS[0] + BLOCKS[4] + BLOCKS[7]
    assert sparkline([0.0, 0.0]) == BLOCKS[0] * 2
    assert sparkline([]) == ""
    assert sparkline([0.0, 0.0, 1.0, 2.0, 3.0], 2) == BLOCKS[0] + BLOCKS[7]
    assert all(len(sparkline([1.0] * number, 14)) == min(number, 14) for number in range(200))


def test_history_ends_after_some_minutes_and_falls_to_0_for_what_is_gone() -> None:
    history = History(100.0)
    key = Key("s", "bert", "1")
    history._series[key] = deque([(5.0, 1.0)], maxlen=3)
    history.add("other", [])
    assert history.rates(key) == [5.0]
    for _ in range(3):
        history.add("s", [])
    assert history.rates(key) == [0.0, 0.0, 0.0]
    history.add("s", [Row(key=Key("s", "new", "1"), state="ready")])
    assert history.times(Key("s", "new", "1")) == []

"""How much faster a file is: as both are served, and nothing within noise."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from triton_repo_builder.measure.optimize import speed
from triton_repo_builder.measure.optimize.speed import Speed, SpeedGain
from triton_repo_builder.run.serve.processes import cpu


def model(*milliseconds: float) -> Any:
    """A model whose runs take these times by batch size (1 and 16)."""
    by_size = dict(zip(speed.BATCHES, milliseconds, strict=True))
    return SimpleNamespace(seconds=lambda feeds: by_size[feeds["rows"]] / 1000)


SAMPLES = cast(Any, SimpleNamespace(batch=lambda size: {"rows": size}))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SECONDS", 0.0)


def test_a_small_model_served_row_by_row_is_compared_with_its_rows_too() -> None:
    """As reported: 0.2 to 0.4 ms alone, 23.6 to 28.4 in a batch, and 4.05 times as fast."""
    taken = speed.measure(model(0.2, 23.6), model(0.4, 28.4), SAMPLES, batch=True, row_by_row=True)
    assert taken.ratio == pytest.approx(0.5)
    together = speed.measure(model(0.2, 23.6), model(0.4, 28.4), SAMPLES, batch=True)
    assert together.ratio == pytest.approx(23.6 / 28.4)


def test_an_original_that_gains_by_batches_keeps_that_gain() -> None:
    """all-MiniLM: 5.0 ms alone, 39.6 for sixteen; plain int8 is twice as fast alone."""
    taken = speed.measure(model(5.0, 39.6), model(2.2, 30.0), SAMPLES, batch=True, row_by_row=True)
    assert taken.ratio == pytest.approx(39.6 / 16 / 2.2)
    assert speed.measure(model(5.0, 39.6), model(2.0, 17.3), SAMPLES, batch=True).ratio == pytest.approx(
        39.6 / 17.3
    )


@pytest.mark.parametrize(
    ("ratios", "ratio"),
    [
        ([1.9, 2.0, 2.1], 2.0),
        ([0.8, 1.3, 1.4], 1.0),  # one round was the other way
        ([1.02] * 50, 1.0),  # steady, and nothing
        ([0.8] * 9, 0.8),
        ([0.7] * 10 + [1.2] * 90, 1.2),  # some rounds of a busy machine
        ([0.7] * 49 + [1.2] * 51, 1.0),
    ],
)
def test_a_gain_within_noise_is_none(ratios: list[float], ratio: float) -> None:
    assert SpeedGain.of(ratios).ratio == ratio


def test_the_files_take_turns_in_who_is_first() -> None:
    order: list[str] = []

    def noted(name: str) -> Callable[[object], float]:
        return lambda feeds: order.append(name) or 0.001

    both = (SimpleNamespace(seconds=noted(name)) for name in "ab")
    speed._times(*cast(Any, both), {})
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"


def test_the_original_itself_is_no_faster() -> None:
    assert Speed(latency={1: 1.0}, original={1: 1.0}).ratio == 1


def test_programs_beside_it_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([cpu.Busy(busy=0, total=0), cpu.Busy(busy=60, total=100)])
    monkeypatch.setattr(speed, "STEADY", 0.0)
    monkeypatch.setattr(cpu, "machine", lambda: next(readings))
    monkeypatch.setattr(cpu, "tree_seconds", lambda pid: 0.0)
    assert speed.measure(model(1, 1), model(1, 1), SAMPLES, batch=False).others == pytest.approx(0.6)

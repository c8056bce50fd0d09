"""The proof of a search: who goes on after the first round, and who wins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.tune import prove
from triton_repo_builder.measure.tune.capacity import SettingCapacity

BASE = {"instances": 1}


class Server:
    """Takes every setting; what it reaches in each round is given."""

    def __init__(self, rates: dict[int, list[float]]) -> None:
        self.rates, self.loaded, self.asked = rates, 0, []
        self.http = SimpleNamespace(answers_live=lambda: True)

    def apply(self, setting: dict[str, Any], base: dict[str, Any]) -> None:
        self.loaded = setting["instances"]

    def endpoint(self, setting: dict[str, Any]) -> str:
        return "model"

    def variant(self, endpoint: str) -> str:
        return endpoint


def alternate(
    monkeypatch: pytest.MonkeyPatch, rates: dict[int, list[float]]
) -> tuple[Server, tuple[prove.Compared, ...]]:
    server = Server({instances: list(each) for instances, each in rates.items()})

    def find(meter: Any, variant: str, *, finer: bool, **options: Any) -> SettingCapacity:
        assert finer
        server.asked.append(server.loaded)
        return SettingCapacity(rate=server.rates[server.loaded].pop(0), level=None, saturation=0, reason="")

    monkeypatch.setattr(prove, "find", find)
    meter: Any = SimpleNamespace(objective=Objective(percentile="p99", ms=100))
    settings = [({"instances": instances}, 100.0) for instances in rates]
    live: Any = server
    return server, prove.alternate(live, meter, BASE, settings, lambda text: None, 2)


def test_the_two_best_of_the_first_round_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {1: [100, 100, 100], 2: [90], 3: [130, 110, 120], 4: [99], 5: [110, 125, 130]}
    server, compared = alternate(monkeypatch, rates)
    assert server.asked == [1, 2, 3, 4, 5, *(5, 3, 1), *(1, 3, 5)]
    assert len(server.asked) == prove.measurements(4)
    assert [each.setting["instances"] for each in compared] == [1, 3, 5]
    winner = prove.winner(compared)
    assert winner is not None and winner.setting["instances"] == 5
    assert (winner.ratio, winner.lowest, winner.highest) == (1.25, 1.1, 1.3)


@pytest.mark.parametrize("rates", [[120, 99, 120], [101, 101, 101], [0, 200, 200]])
def test_the_default_stays_unless_every_round_is_better(
    monkeypatch: pytest.MonkeyPatch, rates: list[float]
) -> None:
    _, compared = alternate(monkeypatch, {1: [100, 100, 100], 2: rates})
    assert len(compared) == 2
    assert prove.winner(compared) is None

"""Relations between answers of random graphs on a real server; ``make metamorphic`` asks hundreds."""

from pathlib import Path

import pytest

from tests.reliability import metamorphic
from tests.support.zoo import Zoo

pytestmark = pytest.mark.server

GRAPHS = 12
MANY = 120


@pytest.mark.slow
def test_a_dozen_graphs(zoo: Zoo, tmp_path: Path) -> None:
    tally = metamorphic.Tally()
    metamorphic.run(tmp_path, range(GRAPHS), zoo, tally)
    assert tally.differences == []
    assert sum(tally.graphs.values()) == GRAPHS
    assert sum(tally.compared.values()) > 100 * GRAPHS


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_graphs(zoo: Zoo, tmp_path: Path) -> None:
    tally = metamorphic.Tally()
    seeds = range(1000, 1000 + MANY)
    for first in range(0, MANY, metamorphic.AT_ONCE):
        metamorphic.run(tmp_path / str(first), seeds[first : first + metamorphic.AT_ONCE], zoo, tally)
    assert tally.differences == []

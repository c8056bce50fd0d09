"""BenchOptions of ``trb bench``, and the levels they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.options import check, limit, shapes
from triton_repo_builder.measure.options import BenchOptions


def test_every_combination_is_a_level_and_time_is_bounded() -> None:
    options = BenchOptions(
        protocols=("grpc", "http"), concurrency=(1, 4), rates=(9.5,), lengths=(32, 64), warmup=1, window=2
    )
    found = list(shapes(options))
    assert len(found) == len(set(found)) == 12
    assert found[0].title == "grpc, 1 client, length 32"
    assert found[2].title == "grpc, 9.5/s, length 32"
    assert limit(options) == 12 * (1 + 10 * 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fixed": "a", "lengths": (3,)}, "--corpus or --lengths"),
        ({"min_windows": 5, "max_windows": 4}, "less than --min-windows 5"),
        ({"concurrency": ()}, "no level"),
        ({"protocols": ("grpc", "tcp")}, "unknown protocol 'tcp'"),
        ({"window": 0.0}, "above 0"),
        ({"warmup": -1.0}, "above 0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TrbError, match=message) as raised:
        check(BenchOptions(**changes))
    assert raised.value.code == Code.USAGE


def test_a_corpus_is_read_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(TrbError, match=r"absent\.txt: cannot be read") as raised:
        check(BenchOptions(corpus=tmp_path / "absent.txt"))
    assert raised.value.code == Code.NOT_FOUND

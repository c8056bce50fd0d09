"""Values of options: times with their units."""

from __future__ import annotations

import pytest

from triton_repo_builder.base.option_values import InvalidValue, Seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("2s", 2), ("2", 2), ("1m", 60), ("6h", 21_600), ("0.5 h", 1800), ("30d", 2_592_000)],
)
def test_a_time_has_a_unit_from_milliseconds_to_days(text: str, seconds: float) -> None:
    assert Seconds().parse(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "1h30m", "1w", "1H", "31d", "721h"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        Seconds().parse(text)

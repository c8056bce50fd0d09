"""A minute of ``make soak``."""

from pathlib import Path

import pytest

from tests.reliability import checker, soak

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.mark.timeout(400)
def test_hostile_requests_hurt_nobody_else(tmp_path: Path) -> None:
    made, chaos, hostile, memory = soak.run(tmp_path, 0.7, 1)
    assert [found for found in checker.check(made) if soak.JOINED not in found.request.error] == []
    assert not [remark for remark in chaos.remarks if "Traceback" in remark]
    answered = {kind for kind, _ in hostile.answers}
    assert answered >= {*hostile.kinds, *hostile.killers}
    refused = {answer for (kind, answer) in hostile.answers if kind in ("a number for a text", "5,000 rows")}
    assert refused == {"400"}
    assert len(memory.samples) > 2

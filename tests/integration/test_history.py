"""A short history of requests through each kind of disturbance; ``make history`` is the long one."""

from pathlib import Path

import pytest

from tests.reliability import checker, history

pytestmark = [pytest.mark.server, pytest.mark.slow]

REQUESTS = 3000


@pytest.mark.timeout(900)
def test_nothing_is_lost_mixed_wrong_or_stale(tmp_path: Path) -> None:
    made, chaos = history.run(tmp_path, REQUESTS, 1, tuple(dict.fromkeys(history.KINDS)))
    assert checker.check(made) == []
    assert not [remark for remark in chaos.remarks if "Traceback" in remark]
    assert len(made.requests) >= REQUESTS

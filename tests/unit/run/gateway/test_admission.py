"""Back-pressure by requests, rows, bytes and deadline."""

from __future__ import annotations

import pytest

from triton_repo_builder.run.gateway import admission
from triton_repo_builder.run.gateway.access import Access
from triton_repo_builder.run.gateway.admission import Admission
from triton_repo_builder.run.gateway.options import MIB, GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the monotonic clock."""
    now = [100.0]
    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    return now


def test_requests_under_way_are_limited() -> None:
    gate = Admission(GatewayOptions(most_requests=2))
    first, second = Access(id="1"), Access(id="2")
    gate.enter(first)
    gate.enter(second)
    third = Access(id="3")
    with pytest.raises(Refusal) as refused:
        gate.enter(third)
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    gate.leave(third)
    gate.leave(first)
    assert gate.requests == 1
    gate.enter(third)


def test_rows_under_way_are_limited_unless_nothing_else_is() -> None:
    gate = Admission(GatewayOptions(most_rows=100))
    ticket = gate.ticket("m", 1000, 30, 1000)
    with pytest.raises(Refusal) as refused:
        gate.ticket("other", 1, 30, 1)
    assert refused.value.status == 429
    ticket.answered(950)
    other = gate.ticket("other", 50, 30, 50)
    ticket.close()
    other.close()
    assert gate.rows == 0


def test_bytes_of_bodies_are_limited() -> None:
    gate = Admission(GatewayOptions(most_bytes=1))
    holders = [Access(id=str(number)) for number in range(admission.BODIES)]
    for access in holders:
        gate.hold(access, MIB)
    with pytest.raises(Refusal) as refused:
        gate.hold(Access(id="late"), 1)
    assert refused.value.status == 429
    for access in holders:
        gate.leave(access)
    assert gate.bytes == 0


def test_what_cannot_be_answered_in_time_is_refused_at_once(clock: list[float]) -> None:
    gate = Admission(GatewayOptions())
    first = gate.ticket("slow", 10, 30, 10)
    for _ in range(10):
        clock[0] += 1.0
        first.answered(1)
    second = gate.ticket("slow", 20, 30, 20)  # 20 s at a row a second
    with pytest.raises(Refusal) as refused:
        gate.ticket("slow", 20, 30, 20)
    assert refused.value.status == 429
    assert refused.value.retry_after == 10
    gate.ticket("other", 20, 30, 20)
    second.close()
    gate.ticket("slow", 1000, 30, 1000)  # alone, it is tried


def test_idle_time_is_no_part_of_the_rate(clock: list[float]) -> None:
    queue = admission.Queue()
    for _ in range(3):
        queue.enter(100)
        clock[0] += 1.0
        queue.answered(100, 100)
        clock[0] += 1000.0
    assert queue.rate == pytest.approx(100)


def test_a_rate_follows_a_server_that_became_slower(clock: list[float]) -> None:
    queue = admission.Queue()
    queue.enter(10_000)
    for _ in range(10):
        clock[0] += 0.1
        queue.answered(100, 100)
    assert queue.rate == pytest.approx(1000)
    for _ in range(10):
        clock[0] += 2
        queue.answered(2, 2)
    assert 1 <= queue.rate < 20


def test_a_ticket_counts_no_row_twice() -> None:
    gate = Admission(GatewayOptions())
    ticket = gate.ticket("m", 3, 30, 3)
    ticket.answered(2)
    ticket.answered(2)
    ticket.close()
    ticket.close()
    assert (gate.rows, gate.queues["m"].rows) == (0, 0)


def test_a_long_list_makes_no_other_request_wait_for_what_it_has_not_sent(clock: list[float]) -> None:
    gate = Admission(GatewayOptions(timeout=30))
    list_ = gate.ticket("m", 10_000, 600, 128)
    assert gate.queues["m"].rows == 128
    for _ in range(10):
        clock[0] += 1.0
        list_.answered(100)
    assert (gate.queues["m"].rows, list_.left) == (128, 9_000)
    other = gate.ticket("m", 1, 30, 128)  # 129 rows at 100 a second
    other.close()
    list_.answered(8_900)
    assert gate.queues["m"].rows == 100
    list_.close()
    assert (gate.rows, gate.queues["m"].rows) == (0, 0)


def test_the_wait_that_a_refusal_states_is_bounded() -> None:
    assert admission.overloaded("full", 0.1).retry_after == 1
    assert admission.overloaded("full", 2.1).retry_after == 3
    assert admission.overloaded("full", 1e9).retry_after == admission.LONGEST_WAIT

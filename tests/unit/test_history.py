"""The checker of histories: what is right passes, and a planted fault of each kind is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.reliability.checker import Change, History, Kind, Outage, Outcome, Request, check, excused


def asked(sent: float, answered: float, *versions: int, error: str = "", silent: bool = False) -> Request:
    return Request(endpoint="a", sent=sent, answered=answered, rows=versions, error=error, silent=silent)


def change(
    started: float, ended: float, version: int, outcome: Outcome = Outcome.ACKNOWLEDGED, endpoint: str = "a"
) -> Change:
    return Change(endpoint=endpoint, version=version, started=started, ended=ended, outcome=outcome)


def history(requests: Sequence[Request], *changes: Change, outages: Sequence[Outage] = ()) -> History:
    return History(first={"a": 1, "b": 1}, requests=requests, changes=changes, outages=outages)


PROMOTED = change(10, 20, 2)
KILLED = change(10, 20, 2, Outcome.KILLED)
SERVER = Outage(started=4, ended=8, server=True)
STUB = replace(SERVER, server=False)


def test_a_sound_history_has_no_problems() -> None:
    requests = [
        asked(1, 2, 1, 1),
        asked(9, 11, 1),
        asked(12, 13, 1),  # either version while it changes
        asked(13, 15, 2),
        asked(14, 16, 1),  # sent before the new version's first answer had come
        asked(19, 21, 2, 2, 2),
        asked(30, 31, 2),
    ]
    assert check(history(requests, PROMOTED)) == []


def test_an_old_answer_that_was_asked_for_before_the_acknowledgement_may_be_late() -> None:
    assert check(history([asked(12, 60, 1)], PROMOTED)) == []


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (asked(5, 6, error="503"), Kind.LOST),
        (asked(5, 65, error="no answer", silent=True), Kind.LOST),
        (asked(12, 13, 1, 2), Kind.MIXED),
        (asked(12, 13, 1, 0), Kind.WRONG),
        (asked(12, 13), Kind.WRONG),
        (asked(21, 22, 1), Kind.STALE),
        (asked(5, 6, 2), Kind.STALE),  # nobody had asked for it yet
        (asked(12, 13, 3), Kind.STALE),
        (asked(17, 18, 1), Kind.BACK),
    ],
)
def test_a_planted_fault_is_found(fault: Request, kind: Kind) -> None:
    sound = [asked(1, 2, 1), asked(15, 16, 2), asked(30, 31, 2)]
    (problem,) = check(history([*sound, fault], PROMOTED))
    assert (problem.kind, problem.request) == (kind, fault)


def test_a_refused_change_leaves_the_old_version() -> None:
    refused = change(10, 20, 2, Outcome.REFUSED)
    requests = [asked(12, 13, 2), asked(14, 15, 1), asked(21, 22, 1), asked(23, 24, 2)]
    assert [p.request for p in check(history(requests, refused))] == [requests[3]]


def test_a_killed_change_leaves_both_until_one_is_acknowledged() -> None:
    requests = [asked(21, 22, 2), asked(23, 24, 1), asked(25, 26, 2), asked(41, 42, 2)]
    assert check(history(requests[:3], KILLED)) == []
    settled = history(requests, KILLED, change(30, 40, 1))
    assert [p.request for p in check(settled)] == [requests[3]]


def test_a_refusal_does_not_settle_what_a_kill_left_open() -> None:
    requests = [asked(41, 42, 2), asked(43, 44, 1), asked(45, 46, 3)]
    found = check(history(requests, KILLED, change(30, 40, 3, Outcome.REFUSED)))
    assert [p.request for p in found] == [requests[2]]


def test_endpoints_change_each_for_itself() -> None:
    other = change(10, 20, 2, endpoint="b")
    assert [p.kind for p in check(history([asked(21, 22, 2)], other))] == [Kind.STALE]
    assert check(history([asked(21, 22, 1)], other)) == []


@pytest.mark.parametrize(
    ("outage", "error", "lost"),
    [
        (SERVER, asked(5, 6, error="refused", silent=True), False),
        (SERVER, asked(3, 5, error="reset", silent=True), False),
        (SERVER, asked(7, 9, error="503"), False),
        (SERVER, asked(9, 10, error="refused", silent=True), True),
        (STUB, asked(5, 6, error="the process is gone"), False),
        (STUB, asked(5, 65, error="no answer", silent=True), True),
    ],
)
def test_errors_in_an_outage(outage: Outage, error: Request, lost: bool) -> None:
    made = history([error], outages=[outage])
    assert bool(check(made)) == lost
    assert excused(made) == (not lost)


def test_a_wrong_answer_is_never_excused() -> None:
    assert [p.kind for p in check(history([asked(5, 6, 0)], outages=[SERVER]))] == [Kind.WRONG]
    assert [p.kind for p in check(history([asked(5, 6, 1, 2)], KILLED, outages=[SERVER]))] == [Kind.MIXED]

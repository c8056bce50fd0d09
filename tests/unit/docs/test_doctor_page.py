"""docs/doctor.md lists every thread with the cause that the tests require."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.doctor_threads import THREADS
from triton_repo_builder.measure.doctor.cause import QUESTIONS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "doctor.md").read_text()


def test_the_table_has_every_thread() -> None:
    rows = re.findall(r"^\| (\S+#\d+) \| (\S+) \| `(\S+)` \| (.+) \|$", PAGE, re.MULTILINE)
    assert [row[:3] for row in rows] == [(name, each.question, each.code) for name, each in THREADS.items()]
    lefts = [match[1] if (match := re.search(r"Left: `(\S+)`", row[3])) else "" for row in rows]
    assert lefts == [each.left for each in THREADS.values()]


def test_the_questions_are_those_of_the_command() -> None:
    rows = re.findall(r"^\| (.+\?) \| `(\S+)` \|", PAGE, re.MULTILINE)
    assert {key: question for question, key in rows} == QUESTIONS

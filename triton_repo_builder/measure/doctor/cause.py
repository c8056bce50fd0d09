"""Cause of a symptom: its place, its evidence, its remedy, and the repairs that remove it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

QUESTIONS = {
    "batching": "Why does it not batch?",
    "first-request": "Why is the first request slow?",
    "shared-memory": "Why is it out of shared memory?",
    "gpu": "Why is the GPU idle?",
    "answers": "Why do answers differ?",
    "ready": "Why is it not ready?",
    "requests": "Why is a request refused?",
}


@dataclass(frozen=True, kw_only=True)
class Repair:
    """One change of files in a copy of the repository."""

    about: str
    """The change in words, with the file."""
    apply: Callable[[Path], bool] = field(compare=False)
    """Makes the change below the copy's folder; whether anything changed."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A fact that explains a symptom."""

    questions: tuple[str, ...]
    """Keys of ``QUESTIONS`` that it answers, the nearest first."""
    code: str
    """Short and stable: a code of ``trb check``, or one of the doctor's own."""
    model: str
    where: str
    message: str
    evidence: tuple[str, ...] = ()
    remedy: str
    repairs: tuple[Repair, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "questions": list(self.questions),
            "code": self.code,
            "model": self.model,
            "where": self.where,
            "message": self.message,
            "evidence": list(self.evidence),
            "remedy": self.remedy,
            "repairs": [repair.about for repair in self.repairs],
        }


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Causes of one question, and what could not be known."""

    question: str
    causes: tuple[Cause, ...] = ()
    unknown: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    """Figures that were measured, also if none is a cause."""

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "question": self.question,
            "causes": [cause.to_json() for cause in self.causes],
            "unknown": list(self.unknown),
            "measured": list(self.measured),
        }

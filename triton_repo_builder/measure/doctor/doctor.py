"""Diagnosis: every cause by question; and the repaired copy of a repository."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import new_folder
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.doctor import (
    answers,
    batching,
    first_request,
    gpu,
    ready,
    requests,
    shared_memory,
)
from triton_repo_builder.measure.doctor.cause import QUESTIONS, Answer, Cause
from triton_repo_builder.measure.doctor.facts import Facts
from triton_repo_builder.repository import MANIFEST

MODULES = (batching, first_request, shared_memory, gpu, answers, ready, requests)
ROUNDS = 6
"""A repair may reveal what an error hid; each round diagnoses the copy again."""


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A repaired copy."""

    path: Path
    done: tuple[str, ...]
    """The changes, in order."""
    left: tuple[Cause, ...]
    """Causes that its files still have."""


def diagnose(facts: Facts, questions: Collection[str] = tuple(QUESTIONS)) -> tuple[Answer, ...]:
    """The causes that the facts have for each question."""
    causes = tuple(_causes(facts))
    return tuple(
        Answer(
            question=module.QUESTION,
            causes=tuple(cause for cause in causes if module.QUESTION in cause.questions),
            unknown=tuple(module.unknown(facts)),
            measured=tuple(answers.measured(facts)) if module is answers else (),
        )
        for module in MODULES
        if module.QUESTION in questions
    )


def _causes(facts: Facts) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for module in MODULES:
        for cause in module.causes(facts):
            if (cause.code, cause.model) not in seen:
                seen.add((cause.code, cause.model))
                yield cause


def found(answers: Collection[Answer]) -> tuple[Cause, ...]:
    """The causes of all answers, each once."""
    return tuple(dict.fromkeys(cause for answer in answers for cause in answer.causes))


def repair(facts: Facts, target: Path, questions: Collection[str] = tuple(QUESTIONS)) -> Repaired:
    """Write a copy of the repository with every repair of these questions. Raises ``TrbError``.

    What the first diagnosis knew from a server or a log counts once; then the copy's own files decide.
    """
    source = facts.repository
    assert source is not None
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            "the repaired copy goes into a folder of its own, and this one is not empty",
            where=str(target),
            remedy="name a new folder with -o",
        )
    with new_folder.staging(target) as scratch:
        copy = scratch / "copy"
        shutil.copytree(source.path, copy, symlinks=True)
        done, facts = _rounds(facts, copy, questions)
        left = _left(facts, questions)
        if target.exists():
            target.rmdir()
        copy.rename(target)
    return Repaired(path=target, done=done, left=tuple(_moved(cause, copy, target) for cause in left))


def _rounds(facts: Facts, copy: Path, questions: Collection[str]) -> tuple[tuple[str, ...], Facts]:
    """Apply repairs until none changes anything. Returns the changes, and the facts of the copy."""
    done: list[str] = []
    for _ in range(ROUNDS):
        causes = found(diagnose(facts, questions))
        changed = [
            repair.about
            for cause in causes
            for repair in cause.repairs
            if repair.apply(copy) and repair.about not in done
        ]
        done += changed
        facts = replace(
            facts, repository=repository.read(copy, lenient=True), snapshot=None, log="", unready=frozenset()
        )
        if not changed:
            break
    if done and (copy / MANIFEST).is_file():
        done.append(f"{MANIFEST}: unchanged; record the edits with trb accept, which later builds keep")
    return tuple(done), facts


def _left(facts: Facts, questions: Collection[str]) -> tuple[Cause, ...]:
    """Causes that the copy still has."""
    # An error that a repair caused would keep the model from loading, whatever was asked.
    causes = found(diagnose(facts, {*questions, ready.QUESTION}))
    return tuple(cause for cause in causes if not cause.code.startswith("manifest-"))


def _moved(cause: Cause, copy: Path, target: Path) -> Cause:
    """The cause with paths below ``target``, where the copy is now."""

    def path(text: str) -> str:
        return text.replace(str(copy), str(target))

    return replace(
        cause,
        where=path(cause.where),
        message=path(cause.message),
        remedy=path(cause.remedy),
        evidence=tuple(map(path, cause.evidence)),
    )

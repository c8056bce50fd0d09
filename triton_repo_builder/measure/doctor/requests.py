"""Why is a request refused? Messages that the server gives to clients, from a log or a client's output."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.measure.doctor.cause import Cause
from triton_repo_builder.measure.doctor.facts import Facts
from triton_repo_builder.measure.doctor.messages import REFUSED, explained

QUESTION = "requests"


def causes(facts: Facts) -> Iterator[Cause]:
    """Causes that the messages name."""
    for each in explained(facts.log) if facts.log else ():
        if each.code in REFUSED:
            yield Cause(
                questions=(QUESTION,),
                code=each.code,
                model=each.model,
                where=f"log line {each.line}",
                message=each.cause,
                evidence=(each.text,),
                remedy=each.remedy,
            )


def unknown(facts: Facts) -> Iterator[str]:
    """Facts that are missing for this question."""
    if not facts.log:
        yield "the message that the client got: put it into a file, and name that with --log"

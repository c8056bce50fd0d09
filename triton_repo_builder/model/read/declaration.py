"""How an option of ``trb build`` is declared: ``options.py`` has the declarations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from triton_repo_builder.model.read.option_values import Value

T = TypeVar("T")


class Topic(Enum):
    """A section of ``trb build --help`` and of docs/options.md."""

    MODEL = "The model"
    REPOSITORY = "The repository"
    BATCHING = "Batching and hardware"
    TEXT = "Text models"
    ANSWER = "What a task answers"
    PROVENANCE = "Provenance"
    REPORT = "Preview and report"
    SERVER = "The server"


@dataclass(frozen=True, kw_only=True)
class Option:
    """How an option is declared."""

    value: Value
    topic: Topic
    help: str
    default: str = ""
    """The default in words."""
    metavar: str = ""
    rare: bool = False
    """Listed last."""
    recorded: bool = True
    """Part of the recorded options: it changes what is built."""


def declare(value: Value, topic: Topic, help: str, **more: Any) -> dict[str, Option]:
    """Metadata of a field of ``BuildOptions``."""
    return {"option": Option(value=value, topic=topic, help=help, **more)}


def option(unset: T, value: Value, topic: Topic, help: str, **more: Any) -> T:
    """A field of ``BuildOptions`` that holds ``unset`` without the option."""
    return field(default=unset, metadata=declare(value, topic, help, **more))

"""Declaration of options: a field of a frozen dataclass with its flag, help, kind of value and topic.

Flags of the command line, trb.toml, checks and docs follow from it. ``cli/declared.py`` makes click's flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, replace
from enum import Enum
from typing import Any, TypeVar

from triton_repo_builder.base.option_values import Value

T = TypeVar("T")


class Topic(Enum):
    """A section of a command's help and of docs/options.md."""

    MODEL = "The model"
    REPOSITORY = "The repository"
    BATCHING = "Batching and hardware"
    TEXT = "Text models"
    ANSWER = "What a task answers"
    PROVENANCE = "Provenance"
    WEIGHTS = "Large files"
    STORE = "Revisions at the URL"
    SEARCH = "Objective and search"
    LOAD = "Requests to send"
    MEASUREMENT = "Measurement"
    CHECKS = "Checks"
    RUNNING = "A running server"
    SERVER = "The server"
    GATEWAY = "The gateway (--openai)"
    ENGINE = "Where the server runs"
    DEPLOYMENT = "The deployment (deploy.toml)"
    REPORT = "Preview and report"
    OUTPUT = "Output"


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
    """Part of the recorded options of a build: it changes what is built."""
    flag: str = ""
    """Empty: the name of the field."""
    also: tuple[str, ...] = ()
    """Other spellings of the flag, such as ``-o``."""
    envvar: str = ""
    hidden: bool = False
    keeps_topic: bool = False
    """The topic is the same in a command that lists the other options under another one."""


def declare(value: Value, topic: Topic, help: str, **attributes: Any) -> dict[str, Option]:
    """Metadata of a field without a default."""
    return {"option": Option(value=value, topic=topic, help=help, **attributes)}


def option(unset: T, value: Value, topic: Topic, help: str, **attributes: Any) -> T:
    """A field that holds ``unset`` without the option."""
    return field(default=unset, metadata=declare(value, topic, help, **attributes))


def nested(options: type[T], topic: Topic | None = None) -> T:
    """A field that holds the options of another dataclass, all under one topic if there is one."""
    return field(default_factory=options, metadata={"nested": options, "topic": topic})


def flag(name: str) -> str:
    """``--max-length`` for ``max_length``."""
    return "--" + name.replace("_", "-")


def declared(options: type[Any]) -> Iterator[tuple[str, Field[Any], Option]]:
    """Flag, field and declaration of each option of a dataclass, in their order."""
    for each in fields(options):
        if inner := each.metadata.get("nested"):
            topic = each.metadata["topic"]
            for name, inner_field, declaration in declared(inner):
                moved = topic if topic and not declaration.keeps_topic else declaration.topic
                yield name, inner_field, replace(declaration, topic=moved)
        elif entry := each.metadata.get("option"):
            yield entry.flag or flag(each.name), each, entry


def changed(options: Any) -> Iterator[tuple[str, Any]]:
    """Flag and value of each option that is not at its default."""
    for each in fields(options):
        value, entry = getattr(options, each.name), each.metadata.get("option")
        if "nested" in each.metadata:
            yield from changed(value)
        elif entry is not None and value != each.default:
            yield entry.flag or flag(each.name), value

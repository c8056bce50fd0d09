"""The flags of ``trb build``, made from the declarations in ``model.read.options``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.base import option_values as values
from triton_repo_builder.base.declaration import Option, Topic, flag, option
from triton_repo_builder.base.option_values import FilePath, Number, Switch
from triton_repo_builder.cli import declared
from triton_repo_builder.cli.options import Place
from triton_repo_builder.model.read.hub_name import ModelPath
from triton_repo_builder.model.read.options import OPTIONS, parse

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

NEXT = "next"


class Parsed(ParamType):
    """A click type that reads a text as the declared value."""

    name = "text"

    def __init__(self, option: str) -> None:
        self._option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value. Raises ``TrbError`` USAGE."""
        return parse(self._option, value) if isinstance(value, str) else value


class VersionNumber(ParamType):
    """A number, or ``next``."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or ``NEXT``."""
        if isinstance(value, int) or value == NEXT:
            return value
        if not str(value).isdecimal():
            self.fail(f"'{value}' is neither a number nor next", param, ctx)
        return int(value)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the command line that trb.toml cannot have."""

    folder: Path | None = option(
        None, FilePath(), Topic.MODEL, "Build every model below this folder.", flag="--all"
    )
    config: Path | None = option(
        None,
        FilePath(),
        Topic.REPOSITORY,
        "File with a [build] table of options; flags override it.",
        default="trb.toml, if it exists",
    )
    force: bool = option(
        False, Switch(), Topic.REPOSITORY, "Replace files that were edited since trb wrote them."
    )
    keep: int | None = option(
        None,
        Number(),
        Topic.REPOSITORY,
        "With --version: delete all but the newest N versions, the served one and the one before.",
        metavar="N",
        rare=True,
    )
    convert: bool = option(
        False,
        Switch(),
        Topic.MODEL,
        "If it has no ONNX file: convert its PyTorch weights first, as trb convert.",
    )
    fail_fast: bool = option(
        False, Switch(), Topic.MODEL, "With --all: stop at the first model that fails.", rare=True
    )
    dry_run: bool = option(False, Switch(), Topic.REPORT, "List what would change; write nothing.")
    diff: bool = option(False, Switch(), Topic.REPORT, "Show the change as a diff; write nothing.")
    explain: bool = option(False, Switch(), Topic.REPORT, "Print why each setting has its value.")
    as_json: bool = option(False, Switch(), Topic.REPORT, "Print the result as JSON.", flag="--json")

    @property
    def writes(self) -> bool:
        """Whether the build writes to the repository."""
        return not (self.dry_run or self.diff)

    @property
    def overwrites(self) -> bool:
        """Whether edited files may be replaced."""
        return self.force or not self.writes


def build_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add a flag for every field of ``BuildOptions``; None if it was not given."""
    for name, entry in reversed(OPTIONS.items()):
        value = entry.value
        off = f"/--{value.off}" if isinstance(value, values.Switch) and value.off else ""
        command = click.option(
            flag(name) + off,
            *entry.also,
            name,
            cls=declared.TopicOption,
            topic=entry.topic,
            rare=entry.rare,
            **_attributes(name, entry),
        )(command)
    return command


def _attributes(name: str, entry: Option) -> dict[str, Any]:
    kind = type(entry.value)
    attributes = TYPES.get(kind) or declared.TYPES.get(kind) or (lambda value: {"type": Parsed(name)})
    result: dict[str, Any] = {"default": None, **attributes(entry.value), "help": declared.help_of(entry)}
    if entry.value.repeatable:
        callback = {"callback": lambda context, parameter, texts: parse(name, texts) or None}
        result |= {"multiple": True, **callback}
    return {**result, "metavar": entry.metavar} if entry.metavar else result


TYPES: Mapping[type[values.Value], Callable[[Any], Mapping[str, Any]]] = {
    values.Line: lambda value: {"type": str},
    values.Number: lambda value: {"type": int, "metavar": "N"},
    values.Version: lambda value: {"type": VersionNumber()},
    values.Labels: lambda value: {"type": str},
    values.Constants: lambda value: {"type": str},
    ModelPath: lambda value: {"type": Place(), "metavar": "PATH|NAME"},
}
"""click attributes specific to ``trb build``, which also checks the values of trb.toml."""

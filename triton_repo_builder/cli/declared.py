"""click's flags for the options that dataclasses declare (``base.declaration``), and help by topic."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import click

from triton_repo_builder.base import option_values as values
from triton_repo_builder.base.declaration import Option, Topic, changed, declared
from triton_repo_builder.base.declaration import flag as flag_of
from triton_repo_builder.cli.options import Parsed, Place, Real

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

R = TypeVar("R")
RARE = "Rarely needed"


class TopicOption(click.Option):
    """An option that knows its section of the help."""

    def __init__(self, *args: Any, topic: Topic, rare: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = RARE if rare else topic.value


class TopicCommand(click.Command):
    """Lists its options by topic, the rare ones last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each topic."""
        sections: dict[str, list[tuple[str, str]]] = {topic.value: [] for topic in Topic}
        sections[RARE] = []
        parameters = [each for each in self.get_params(ctx) if not isinstance(each, click.Argument)]
        last = [each.section for each in parameters if isinstance(each, TopicOption)][-1]
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[getattr(parameter, "section", last)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class TopicGroup(TopicCommand, click.Group):
    """A command by itself, with further commands below it."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the topics, then the further commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class Suggested(ParamType):
    """Any text; tab completion offers the usual ones."""

    name = "text"

    def __init__(self, suggestions: tuple[str, ...]) -> None:
        self._suggestions = suggestions

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The suggestions with this prefix."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(text) for text in self._suggestions if text.startswith(incomplete)]


@runtime_checkable
class Checked(Protocol):
    """Options that contradict each other in some combinations."""

    def checked(self) -> Any:
        """The options, completed. Raises ``UsageError``."""


def options(**groups: type[Any]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add a flag for each option that these dataclasses declare; the command gets an object of each."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def collected(*args: Any, **parameters: Any) -> R:
            objects = {name: _object(group, parameters) for name, group in groups.items()}
            return command(*args, **parameters, **objects)

        decorated: Callable[..., R] = collected
        listed = [entry for group in groups.values() for entry in declared(group)]
        for flag, each, entry in reversed(listed):
            decorated = _flag(flag, each, entry)(decorated)
        return decorated

    return decorate


def _object(options: type[Any], parameters: dict[str, Any]) -> Any:
    """An object of the dataclass, from click's parameters, which are removed from the mapping."""
    arguments = {}
    for each in fields(options):
        if inner := each.metadata.get("nested"):
            arguments[each.name] = _object(inner, parameters)
        elif entry := each.metadata.get("option"):
            arguments[each.name] = parameters.pop(_parameter(entry.flag or flag_of(each.name)))
    result = options(**arguments)
    return result.checked() if isinstance(result, Checked) else result


def _parameter(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _flag(flag: str, each: Field[Any], entry: Option) -> Callable[[Callable[..., R]], Callable[..., R]]:
    value = entry.value
    attributes = {"help": help_of(entry), "hidden": entry.hidden, **TYPES.get(type(value), _parsed)(value)}
    if entry.metavar:
        attributes["metavar"] = entry.metavar
    if entry.envvar:
        attributes |= {"envvar": entry.envvar, "show_envvar": True}
    if each.default is MISSING:
        attributes["required"] = True
    else:
        unset = not each.default if isinstance(value, values.Off) else each.default
        shown = not entry.default and not isinstance(unset, bool) and unset not in (None, "", ())
        attributes |= {"default": unset, "show_default": shown}
    off = f"/--{value.off}" if isinstance(value, values.Switch) and value.off else ""
    return click.option(
        flag + off,
        *entry.also,
        _parameter(flag),
        cls=TopicOption,
        topic=entry.topic,
        rare=entry.rare,
        **attributes,
    )


def _range(value: Any) -> Mapping[str, Any]:
    return {"type": click.IntRange(value.least, None if value.most == values.INT32 else value.most)}


def _parsed(value: Any) -> Mapping[str, Any]:
    return {"type": Parsed(value)}


TYPES: Mapping[type[values.Value], Callable[[Any], Mapping[str, Any]]] = {
    values.Text: lambda value: {"type": Suggested(value.suggestions)},
    values.Names: lambda value: {"type": str, "multiple": True},
    values.Choice: lambda value: {"type": click.Choice(value.words)},
    values.Number: _range,
    values.Real: lambda value: {"type": Real(value.least, value.most, min_open=value.above)},
    values.Switch: lambda value: {"is_flag": True},
    values.Off: lambda value: {"is_flag": True, "callback": lambda context, option, off: not off},
    values.FilePath: lambda value: {
        "type": Place(file_okay=value.file, dir_okay=value.folder, exists=value.exists)
    },
    values.FilePaths: lambda value: {"type": Place(), "multiple": True},
}
"""click attributes of each kind of value; other kinds parse their text."""


def help_of(entry: Option) -> str:
    """Help of an option: its effect, its values and its default."""
    value = entry.value
    words = value.suggestions if isinstance(value, values.Text) else ()
    usual = f" One of {', '.join(words)}." if words else ""
    default = f"  [default: {entry.default}]" if entry.default else ""
    return entry.help + usual + default


def arguments(*options: Any) -> Iterator[str]:
    """Flags that repeat these options, also in a process with another current folder."""
    for group in options:
        for flag, value in changed(group):
            if isinstance(value, bool):
                yield flag
                continue
            for each in value if isinstance(value, tuple) else (value,):
                yield f"{flag}={each.absolute() if isinstance(each, Path) else each}"


def command_line() -> str:
    """The command line of this process, for a report."""
    return shlex.join(["trb", *sys.argv[1:]])


def is_default(parameter: str) -> bool:
    """Whether neither the command line nor the environment has this parameter."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.DEFAULT

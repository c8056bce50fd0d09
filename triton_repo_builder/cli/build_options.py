"""The flags of ``trb build``, made from the declarations in ``read.options``, and its help by topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.cli.options import Place
from triton_repo_builder.model.read import option_values as values
from triton_repo_builder.model.read.declaration import Option, Topic
from triton_repo_builder.model.read.options import OPTIONS, flag, parse

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

RARE = "Rarely needed"
NEXT = "next"


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
        rare: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            section = getattr(parameter, "section", Topic.REPORT.value)
            if record is not None:
                (rare if section == RARE else sections[section]).append(record)
        for title, records in [*sections.items(), (RARE, rare)]:
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Suggested(ParamType):
    """Any text; tab completion offers the usual ones."""

    name = "text"

    def __init__(self, suggestions: tuple[str, ...]) -> None:
        self._suggestions = suggestions

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The suggestions that begin like this."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(text) for text in self._suggestions if text.startswith(incomplete)]


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


SHORT: Mapping[str, tuple[str, ...]] = {"output": ("-o",)}
"""One letter, as every command with such an option has it."""


def option(*names: str, topic: Topic, rare: bool = False, **attributes: Any) -> Callable[[Any], Any]:
    """A flag that is of the command line only."""
    return click.option(*names, cls=TopicOption, topic=topic, rare=rare, **attributes)


def build_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add a flag for every field of ``BuildOptions``; None if it was not given."""
    for name, declared in reversed(OPTIONS.items()):
        attributes = _click_attributes(name, declared)
        flags = attributes.pop("flags", flag(name))
        command = option(
            flags, *SHORT.get(name, ()), name, topic=declared.topic, rare=declared.rare, **attributes
        )(command)
    return command


def _click_attributes(name: str, declared: Option) -> dict[str, Any]:
    attributes_of = TYPES.get(type(declared.value))
    own = attributes_of(name, declared.value) if attributes_of else {"type": Parsed(name)}
    if declared.value.repeatable:
        own |= {"multiple": True, "callback": lambda context, parameter, texts: parse(name, texts) or None}
    return {"help": help_of(declared), **own, **({"metavar": declared.metavar} if declared.metavar else {})}


def _switch(name: str, value: Any) -> dict[str, Any]:
    off = f"/--{value.off}" if value.off else ""
    return {"flags": flag(name) + off, "is_flag": True, "default": None}


TYPES: Mapping[type[values.Value], Callable[[str, Any], dict[str, Any]]] = {
    values.Text: lambda name, value: {"type": Suggested(value.suggestions)},
    values.Line: lambda name, value: {"type": str},
    values.Choice: lambda name, value: {"type": click.Choice(value.words)},
    values.Number: lambda name, value: {"type": int, "metavar": "N"},
    values.Version: lambda name, value: {"type": VersionNumber()},
    values.Switch: _switch,
    values.FilePath: lambda name, value: {"type": Place()},
    values.FilePaths: lambda name, value: {"type": Place()},
    values.Labels: lambda name, value: {"type": str},
    values.Constants: lambda name, value: {"type": str},
}
"""click's attributes of each kind of value; others parse their text."""


def help_of(declared: Option) -> str:
    """Help of an option: its effect, its values and its default."""
    value = declared.value
    words = value.suggestions if isinstance(value, values.Text) else ()
    usual = f" One of {', '.join(words)}." if words else ""
    default = f"  [default: {declared.default}]" if declared.default else ""
    return declared.help + usual + default

"""click's errors about a command line in the form of all others: what is wrong, where, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from triton_repo_builder.base.errors import Code, TrbError

_OPTION = re.compile(r"^(?:Option )?'?(--?[\w-]+)'?(?::|(?= (?:requires|does not take))) (.*)$")
"""An option that a message names first: ``--protocol: the search needs one protocol``."""
_ADVICE = re.compile(r"^(.*?)[:;] (.*)$")
"""A message that ends with what to do: ``… both choose the image: use one of them``."""

_EXTRA = re.compile(r"^got unexpected extra arguments? \((.*)\)$")
_NUMBER = re.compile(r"\ba valid (integer|float)( range)?\b")


class Misuse(click.BadParameter):
    """A command line that cannot be followed, with its place and its remedy."""

    def __init__(
        self,
        message: str,
        *,
        where: str = "",
        remedy: str = "",
        ctx: click.Context | None = None,
        param: click.Parameter | None = None,
    ) -> None:
        super().__init__(message, ctx, param, where or None)
        self.remedy = remedy


def explained(error: click.ClickException, command: str) -> TrbError:
    """The error of kind USAGE that says the same; ``command`` has the help, if the error knows no other."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = " ".join(error.message.split()).removesuffix(".")
    text = text[:1].lower() + text[1:] if text[1:2].islower() else text
    where, message, remedy = _parts(error, text)
    remedy = remedy or f"see {context.command_path if context else command} --help"
    return TrbError(Code.USAGE, message, where=where, remedy=remedy)


def _parts(error: click.ClickException, text: str) -> tuple[str, str, str]:
    """Place, message and remedy; the remedy may be empty."""
    if isinstance(error, click.NoSuchOption):
        near = [*(error.possibilities or ())]
        return error.option_name, "no such option", f"did you mean {near[0]}?" if near else ""
    if isinstance(error, click.MissingParameter):
        choices = (
            error.param.type.choices if error.param and isinstance(error.param.type, click.Choice) else ()
        )
        return _place(error), "is missing", f"choose from {', '.join(map(str, choices))}" if choices else ""
    if isinstance(error, click.BadParameter):
        return _place(error), _plain(text), error.remedy if isinstance(error, Misuse) else ""
    if isinstance(error, click.BadOptionUsage):
        match = _OPTION.match(error.message.removesuffix("."))
        return error.option_name, match[2] if match else text, ""
    if match := _EXTRA.match(text):
        return match[1], "is one argument too many", ""
    match = _OPTION.match(text)
    where, message = (match[1], match[2]) if match else ("", text)
    advice = _ADVICE.match(message)
    return (where, advice[1], advice[2]) if advice else (where, message, "")


def _place(error: click.BadParameter) -> str:
    """The option or argument; empty if it is unknown."""
    if error.param_hint is not None:
        hints: Sequence[str] = [error.param_hint] if isinstance(error.param_hint, str) else error.param_hint
        return " / ".join(hints)
    if isinstance(error.param, click.Option):
        return max(error.param.opts, key=len)
    return error.param.human_readable_name.rstrip(".") if error.param else ""


def _plain(text: str) -> str:
    """A message of click's without names of Python's types."""
    return _NUMBER.sub(lambda match: "a whole number" if match[1] == "integer" else "a number", text)

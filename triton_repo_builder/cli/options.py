"""Kinds of option values that click does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}


class Place(click.Path):
    """A path. That of an unset shell variable is refused: click would take it for the folder one is in."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A ``Path``."""
        if not str(value):
            self.fail("the path is empty (a shell variable that is not set?)", param, ctx)
        return super().convert(value, param, ctx)


class Filled(ParamType):
    """Any text but none: that of an unset shell variable."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text."""
        if not value:
            self.fail("it is empty (a shell variable that is not set?)", param, ctx)
        return str(value)


LIMIT = 1_000_000_000


class Numbers(ParamType):
    """``1,4,16``: one or more numbers above 0 and below ``LIMIT``."""

    name = "numbers"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A tuple, in the order given, each number once."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(dict.fromkeys(self._kind(part) for part in str(value).split(",")))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 < number < LIMIT for number in numbers):
            self.fail(f"'{value}' is no list of numbers above 0 and below {LIMIT:,}, like 1,4,16", param, ctx)
        return numbers


class Duration(ParamType):
    """``2s``, ``500ms``, ``1m``; a bare number is seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|)", str(value).strip())
        if not match:
            self.fail(f"'{value}' is no time like 2s or 500ms", param, ctx)
        return float(match[1]) * UNITS[match[2]]


class Protocols(ParamType):
    """``grpc,http``."""

    name = "protocols"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A tuple; what each may be, the library checks."""
        return value if isinstance(value, tuple) else tuple(dict.fromkeys(str(value).split(",")))


class Repo(Place):
    """A folder, or the URL of a pushed repository."""

    name = "repo"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A ``Path`` or a ``Location``."""
        if not isinstance(value, str) or "://" not in value:
            return super().convert(value, param, ctx) if isinstance(value, (str, Path)) else value
        from triton_repo_builder import stores

        return stores.parse(value)

"""Kinds of values of an option: each class reads a flag's text or a value of trb.toml, and checks it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

INT32 = 2**31 - 1
LONGEST_DELAY = 10_000_000
"""Ten seconds: no client waits longer for a batch to fill."""
LONGEST_TEXT = 1000
"""Characters of a number: no decimal holds any length."""
_UNITS = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000}
RECEIVER = re.compile(r"[!-~]+")
LIMIT = 1_000_000_000
_BINARY = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
LONGEST = 30 * 86_400
"""Seconds. A longer time is a typing error."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}


class InvalidValue(ValueError):
    """An invalid value, with a remedy; the caller adds the option's name."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True)
class Value:
    """One kind of value. Methods raise ``InvalidValue``; ``from_toml`` TypeError for a wrong type."""

    expected: ClassVar[str] = "text"
    """Noun for messages and the documentation."""
    repeatable: ClassVar[bool] = False
    """The flag may be given several times; ``parse`` gets all of them."""

    def parse(self, text: Any) -> Any:
        """The value of a flag."""
        return text

    def from_toml(self, value: Any, folder: Path) -> Any:
        """The value of a key of trb.toml in ``folder``."""
        if not isinstance(value, str):
            raise TypeError
        return self.parse(value)

    def check(self, value: Any) -> None:
        """Refuse a value out of range."""


@dataclass(frozen=True)
class Text(Value):
    """Any text."""

    suggestions: tuple[str, ...] = ()
    """Offered by tab completion; which of them fit the model, its task checks."""


@dataclass(frozen=True)
class Filled(Value):
    """Text that is not empty, as an unset shell variable would be."""

    def parse(self, text: str) -> str:
        """The text."""
        if not text:
            raise InvalidValue("it is empty (a shell variable that is not set?)")
        return text


@dataclass(frozen=True)
class Receiver(Value):
    """Address of an OpenTelemetry receiver; its value is the URL for traces (OTLP over HTTP)."""

    expected: ClassVar[str] = "URL"
    schemes: ClassVar[dict[str, str]] = {"otlp": "http", "otlps": "https", "http": "http", "https": "https"}

    def parse(self, text: str) -> str:
        """``http://HOST:4318/v1/traces`` of ``otlp://HOST``, https of otlps."""
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(text)
            scheme, host = self.schemes[parts.scheme], parts.hostname
            port = 4318 if parts.port is None else parts.port
        except (ValueError, KeyError):
            scheme, host, port = "", None, 0
        if (
            not host
            or not port
            or parts.fragment
            or parts.username is not None
            or not RECEIVER.fullmatch(text)
        ):
            raise InvalidValue(
                f"'{text:.80}' is not the address of a receiver",
                "write otlp://HOST:4318, or otlps:// for TLS; a path only if it is not /v1/traces",
            )
        place = f"[{host}]" if ":" in host else host
        path = parts.path if parts.path not in ("", "/") else "/v1/traces"
        return f"{scheme}://{place}:{port}{path}{f'?{parts.query}' if parts.query else ''}"


@dataclass(frozen=True)
class Line(Value):
    """One line of text: it becomes a trailer of a commit and a parameter of a config.pbtxt."""

    def check(self, value: str) -> None:
        """Refuse control characters and blank text."""
        if not value.strip() or not value.isprintable():
            raise InvalidValue(
                f"{value!r} is not one line of text", "give it as one line, without control characters"
            )


@dataclass(frozen=True)
class Choice(Value):
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, value: str) -> None:
        """Refuse other words."""
        if value not in self.words:
            raise InvalidValue(f"'{value}' is unknown", f"use one of {', '.join(self.words)}")


@dataclass(frozen=True)
class Number(Value):
    """A whole number."""

    least: int = 1
    most: int = INT32
    """The limit of ModelConfig's integer fields, or of integers that a backend parses."""
    expected: ClassVar[str] = "whole number"

    def parse(self, text: str) -> int:
        """The number."""
        return int(text)

    def from_toml(self, value: Any, folder: Path) -> int:
        """The number."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError
        return value

    def check(self, value: int) -> None:
        """Refuse a value out of range."""
        if value < self.least:
            raise InvalidValue(f"must be at least {self.least}, not {value}", "leave it out for the default")
        if value > self.most:
            raise InvalidValue(f"must be at most {self.most}, not {value}", "give a smaller number")


@dataclass(frozen=True)
class Real(Value):
    """A number in a range."""

    least: float | None = None
    most: float | None = None
    above: bool = False
    """``least`` itself is not in the range."""
    expected: ClassVar[str] = "number"

    def from_toml(self, value: Any, folder: Path) -> float:
        """The number."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError
        return float(value)

    def check(self, value: float) -> None:
        """Refuse a value out of range."""
        least = -LIMIT if self.least is None else self.least
        most = LIMIT if self.most is None else self.most
        if not least <= value <= most or (self.above and value == least):
            bound = f"above {least:g}" if self.above else f"from {least:g}"
            raise InvalidValue(f"must be {bound} to {most:g}, not {value:g}", "leave it out for the default")


@dataclass(frozen=True)
class Numbers(Value):
    """One or more numbers above 0 and below ``LIMIT``, such as ``1,4,16``."""

    kind: type[int] | type[float]
    expected: ClassVar[str] = "numbers"

    def parse(self, text: str) -> tuple[float, ...]:
        """The numbers in their order, each once."""
        try:
            numbers = tuple(dict.fromkeys(self.kind(part) for part in text.split(",")))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 < number < LIMIT for number in numbers):
            raise InvalidValue(f"'{text}' is not a list of numbers above 0 and below {LIMIT:,}, like 1,4,16")
        return numbers

    def from_toml(self, value: Any, folder: Path) -> tuple[float, ...]:
        """The numbers of a list, or of a text."""
        if value == []:
            raise InvalidValue("is empty", "write for example [10, 50, 100]")
        return self.parse(",".join(map(str, value)) if isinstance(value, list) else str(value))


@dataclass(frozen=True)
class Words(Value):
    """Words separated by commas."""

    expected: ClassVar[str] = "words"

    def parse(self, text: str) -> tuple[str, ...]:
        """The words in their order, each once."""
        return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


@dataclass(frozen=True)
class Names(Value):
    """A text for each time that the flag is there."""

    expected: ClassVar[str] = "texts"
    repeatable: ClassVar[bool] = True

    def from_toml(self, value: Any, folder: Path) -> tuple[str, ...]:
        """The texts of a list, or the one."""
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        return tuple(texts)


@dataclass(frozen=True)
class Seconds(Value):
    """``2s``, ``500ms``, ``1m``, ``6h``, ``7d``; a bare number is seconds."""

    expected: ClassVar[str] = "time"

    def parse(self, text: str) -> float:
        """Seconds."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", text.strip())
        if not match:
            raise InvalidValue(f"'{text}' is not a time like 2s, 500ms or 6h")
        seconds = float(match[1]) * _SECONDS[match[2]]
        if seconds > LONGEST:
            raise InvalidValue(f"'{text:.40}' is longer than 30 days")
        return seconds


@dataclass(frozen=True)
class Bytes(Value):
    """``512MiB``, ``4GiB``: bytes with a binary unit."""

    expected: ClassVar[str] = "size"

    def parse(self, text: str) -> int:
        """Bytes."""
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)\s*(KiB|MiB|GiB|TiB)", text.strip())
        if not match:
            raise InvalidValue(f"'{text:.40}' is not a size", "write for example 512MiB or 4GiB")
        return int(Decimal(match[1]) * _BINARY[match[2]])


@dataclass(frozen=True)
class Share(Value):
    """A number from 0 to 1, or a percentage such as ``5%``."""

    expected: ClassVar[str] = "number"

    def parse(self, text: str) -> float:
        """The number."""
        try:
            return float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            raise InvalidValue(f"'{text:.40}' is not a number", "write a number from 0 to 1") from None

    def from_toml(self, value: Any, folder: Path) -> float:
        """The number."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError
        return float(value)

    def check(self, value: float) -> None:
        """Refuse a value that is not between 0 and 1."""
        if not 0 <= value <= 1:
            raise InvalidValue(f"must be from 0 to 1, not {value:g}", "leave it out for the default")


@dataclass(frozen=True)
class Version(Number):
    """The number of a version folder: a larger one than Triton's signed 64-bit integer aborts the server."""

    most: int = 2**63 - 1


@dataclass(frozen=True)
class Switch(Value):
    """Yes or no."""

    off: str = ""
    """The flag for no; empty: there is none."""
    expected: ClassVar[str] = "true or false"

    def from_toml(self, value: Any, folder: Path) -> bool:
        """The boolean."""
        if not isinstance(value, bool):
            raise TypeError
        return value


@dataclass(frozen=True)
class Off(Switch):
    """Yes, unless the flag is there: ``--no-cases``."""


@dataclass(frozen=True)
class FilePath(Value):
    """A path; in trb.toml relative to that file."""

    file: bool = True
    folder: bool = True
    exists: bool = False
    expected: ClassVar[str] = "path"

    def from_toml(self, value: Any, folder: Path) -> Path:
        """The path."""
        if not isinstance(value, str):
            raise TypeError
        return folder / value


@dataclass(frozen=True)
class FilePaths(Value):
    """Paths; in trb.toml one or a list, relative to that file."""

    expected: ClassVar[str] = "paths"
    repeatable: ClassVar[bool] = True

    def from_toml(self, value: Any, folder: Path) -> tuple[Path, ...]:
        """The paths."""
        return tuple(folder / str(path) for path in (value if isinstance(value, list) else [value]))


@dataclass(frozen=True)
class Duration(Value):
    """A time such as ``200us``, in whole microseconds."""

    expected: ClassVar[str] = "time"

    def parse(self, text: str) -> int:
        """Microseconds in ``200us``, ``5ms``, ``0.1s`` or ``200``."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s)?\s*", text)
        if not match or len(text) > LONGEST_TEXT:
            raise InvalidValue(
                f"'{text[:LONGEST_TEXT]}' is not a duration", "write a number and a unit: 200us, 5ms, 0.1s"
            )
        value = Decimal(match[1]) * _UNITS[match[2] or "us"]
        if value != int(value) or value > LONGEST_DELAY:
            reason = "longer than 10 s" if value > LONGEST_DELAY else "finer than a microsecond"
            raise InvalidValue(f"'{text}' is {reason}", "give at most 10s, in whole microseconds")
        return int(value)

    def from_toml(self, value: Any, folder: Path) -> int:
        """Microseconds."""
        return self.parse(str(value))


@dataclass(frozen=True)
class Sizes(Value):
    """Batch sizes such as ``8,16``."""

    expected: ClassVar[str] = "batch sizes"

    def parse(self, text: str) -> tuple[int, ...]:
        """The sizes, sorted, each once."""
        try:
            return tuple(sorted({int(part) for part in text.split(",")}))
        except ValueError:
            raise InvalidValue(f"'{text}' is not a list of sizes", "write for example 8,16") from None

    def from_toml(self, value: Any, folder: Path) -> tuple[int, ...]:
        """The sizes of a list, a text or a number."""
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        return self.parse(text) if text else ()

    def check(self, value: tuple[int, ...]) -> None:
        """Refuse sizes below 1."""
        for size in value:
            if size < 1:
                raise InvalidValue(f"{size} is not a batch size", "sizes start at 1")


@dataclass(frozen=True)
class Labels(Value):
    """Pairs ``key=value``."""

    expected: ClassVar[str] = "key=value"
    repeatable: ClassVar[bool] = True
    key: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
    example: ClassVar[str] = "team=search"

    def parse(self, text: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """(key, value) of each text, sorted."""
        labels: dict[str, str] = {}
        for pair in text:
            key, sign, value = pair.partition("=")
            if not sign or not self.key.fullmatch(key) or key in labels:
                reason = (
                    "has a key that occurs twice" if key in labels else f"is not of the form {self.expected}"
                )
                raise InvalidValue(f"'{pair}' {reason}", f"write for example {self.example}, each key once")
            labels[key] = value
        return tuple(sorted(labels.items()))

    def from_toml(self, value: Any, folder: Path) -> tuple[tuple[str, str], ...]:
        """The labels of a table, a list of ``key=value``, or one such text."""
        if isinstance(value, dict):
            return self.parse(f"{key}={text}" for key, text in value.items())
        if isinstance(value, list) and not all(isinstance(pair, str) for pair in value):
            raise TypeError
        return self.parse(value if isinstance(value, list) else [str(value)])

    def check(self, value: tuple[tuple[str, str], ...]) -> None:
        """Refuse control characters and blank values."""
        for _, text in value:
            Line().check(text)


@dataclass(frozen=True)
class Constants(Labels):
    """Pairs ``input=value``; names of a graph's inputs may have any character."""

    expected: ClassVar[str] = "input=value"
    key: ClassVar[re.Pattern[str]] = re.compile(r"[^\x00-\x1f=]+")
    example: ClassVar[str] = "task_id=1"


@dataclass(frozen=True)
class Padding(Value):
    """``ragged``, ``batch``, ``rows`` or ``fixed:N``."""

    expected: ClassVar[str] = "ragged, batch, rows or fixed:N"

    def check(self, value: str) -> None:
        """Refuse other ways."""
        self.width(value)

    def width(self, value: str) -> int:
        """N of ``fixed:N``, 0 for the other ways."""
        if value in ("ragged", "batch", "rows"):
            return 0
        match = re.fullmatch(r"fixed:([1-9]\d{0,6})", value)
        if not match:
            raise InvalidValue(f"'{value}' is unknown", "use ragged, batch, rows or fixed:N, e.g. fixed:128")
        return int(match[1])

"""A team's own rules as data: ``[policy.NAME]`` in a TOML file, with a field and its allowed values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from triton_repo_builder.base import deadline
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import cut
from triton_repo_builder.check import backends
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding, Severity
from triton_repo_builder.check.selection import POLICY
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.pbtxt_document import Key

_STEP = re.compile(r'"([^"]*)"|([^."]+)')
_FIELD = re.compile(r'(?:"[^"]*"|[^."]+)(?:\.(?:"[^"]*"|[^."]+))*')
_TEXTS = ("parameters", "metric_tags")
"""Maps whose values are texts."""
LARGEST = 2**64
"""The largest value of any field. NaN and infinity are not limits either."""
SECONDS = 1.0
"""Time limit for matching one value with a pattern."""
NO_END = "write a pattern without repetitions inside of repetitions"
_NAME = re.compile(r"[\w.-]+")
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "required": (bool, "true or false"),
    "allowed": (list, "a list"),
    "forbidden": (list, "a list"),
    "minimum": ((int, float), "a number"),
    "maximum": ((int, float), "a number"),
}
"""Types of the keys in TOML; all other keys are texts."""
_WRITE: dict[type, str] = {str: "write a text", bool: "write true or false", int: "write a number"}
FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Unset:
    """A field that the text does not state, and its default; None for a list, a message, the top."""

    default: Any = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One rule; an empty limit is not checked."""

    name: str
    field: str
    """``instance_group.kind``, ``parameters."trb.model_sha256"``: fields of config.pbtxt, keys of a map."""
    required: bool = False
    allowed: tuple[Any, ...] = ()
    forbidden: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    pattern: str = ""
    """A regular expression that the whole value must match."""
    backend: str = "*"
    models: str = "*"
    severity: Severity = "error"
    message: str = ""
    fix: str = ""
    steps: tuple[str, ...] = ()

    def check(self, context: ModelContext) -> Iterator[Finding]:
        """The findings on one model."""
        if not fnmatchcase(context.backend, self.backend) or not fnmatchcase(context.name, self.models):
            return
        for place, value in _values(context.config.raw, self.steps, (), "ModelConfig"):
            if not isinstance(value, Unset):
                if wrong := self._wrong(value):
                    yield self._finding(context, place, f"{self.field} is {_shown(value)}: {wrong}")
            elif self.required and not context.states(*place):
                yield self._finding(context, place, f"{self.field} is not given")
            elif value.default is not None and (wrong := self._wrong(value.default)):
                yield self._finding(context, place, f"{self.field} is {_shown(value.default)}: {wrong}")

    def _wrong(self, value: Any) -> str:
        if self.allowed and value not in self.allowed:
            return f"allowed: {', '.join(map(_shown, self.allowed))}"
        if value in self.forbidden:
            return "forbidden"
        if self.pattern and not self._matches(_text(value)):
            return f"it must match {self.pattern}"
        if self.minimum is None and self.maximum is None:
            return ""
        number = _number(value)
        if number is None:
            return "a number is required"
        if self.maximum is not None and number > self.maximum:
            return f"at most {self.maximum:g}"
        if self.minimum is not None and number < self.minimum:
            return f"at least {self.minimum:g}"
        return ""

    def _matches(self, text: str) -> bool:
        try:
            with deadline.interrupted(SECONDS):
                return re.fullmatch(self.pattern, text) is not None
        except deadline.Exceeded:
            message = f"pattern = {cut(self.pattern)} takes more than {SECONDS:g} s on {cut(text)}"
            raise _refused(f"[policy.{self.name}]", message, NO_END) from None

    def _finding(self, context: ModelContext, path: FieldPath, message: str) -> Finding:
        return Finding.at(
            context.at(*path),
            severity=self.severity,
            code=f"{POLICY}{self.name}",
            message=f"{self.message} ({message})" if self.message else message,
            remedy=self.fix or "follow the policy, or ask who wrote it",
        )


def read(document: Mapping[str, Any], where: str) -> tuple[Policy, ...]:
    """The policies of a TOML document's ``policy`` table. Raises USAGE for an invalid one."""
    table = document.get("policy", {})
    if not isinstance(table, Mapping) or not all(isinstance(entry, Mapping) for entry in table.values()):
        raise _refused(where, "policy must hold tables", "write [policy.NAME]")
    return tuple(_policy(str(name), entry, where) for name, entry in table.items())


def _policy(name: str, entry: Mapping[str, Any], where: str) -> Policy:
    keys = {item.name for item in fields(Policy)} - {"name", "steps"}
    place = f"{where} [policy.{name}]"
    if unknown := sorted(set(entry) - keys):
        raise _refused(place, f"unknown key {cut(unknown[0])}", f"keys: {', '.join(sorted(keys))}")
    if not isinstance(entry.get("field"), str) or not _STEP.findall(entry["field"]):
        raise _refused(place, "field is missing", 'name a field of config.pbtxt: field = "max_batch_size"')
    if not set(entry) & {"required", "allowed", "forbidden", "minimum", "maximum", "pattern"}:
        raise _refused(
            place, "it forbids nothing", "add required, allowed, forbidden, minimum, maximum or pattern"
        )
    if not _FIELD.fullmatch(entry["field"]):
        message = f"field = {cut(entry['field'])} is not a path"
        raise _refused(place, message, 'fields with dots between them: parameters."trb.model_sha256"')
    steps = tuple(quoted or plain for quoted, plain in _STEP.findall(entry["field"]))
    if steps[0] in _TEXTS and len(steps) > 2:
        text = steps[-1] == "string_value"
        key = steps[1] if text else ".".join(steps[1:])
        message = f"'{entry['field']}' leads behind the value of '{steps[0]}'"
        raise _refused(place, message, f'write {steps[0]}."{key}", which is the text')
    if step := pbtxt.unknown(steps):
        message = f"config.pbtxt has no field '{entry['field']}': '{step}' is none"
        raise _refused(place, message, "see Triton's model_config.proto")
    if not _NAME.fullmatch(name):
        raise _refused(place, "its name is part of a code", "letters, digits, '_', '-' and '.' only")
    for key, value in entry.items():
        kind, expected = _KINDS.get(key, (str, "a text"))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _refused(place, f"{key} = {cut(value)}", f"{key} is {expected}")
    _check_limits(entry, place)
    _check_values(steps, entry, place)
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    try:
        with deadline.interrupted(SECONDS):
            re.compile(str(entry.get("pattern", "")))
        policy = Policy(name=name, steps=steps, **values)
    except deadline.Exceeded:
        raise _refused(place, f"pattern takes more than {SECONDS:g} s to read", NO_END) from None
    except (re.error, RecursionError, OverflowError) as error:
        raise _refused(place, f"pattern is no regular expression: {error}", "correct it") from None
    if meant := backends.meant(policy.backend):
        raise _refused(place, f"no backend is named '{policy.backend}'", f'write backend = "{meant}"')
    if policy.severity not in ("error", "warning"):
        raise _refused(place, f"severity '{policy.severity}'", "error or warning")
    return policy


def _check_limits(entry: Mapping[str, Any], place: str) -> None:
    """Raise USAGE for limits that every value satisfies, or none, whatever the field."""
    for key in ("allowed", "forbidden", "pattern"):
        if key in entry and not entry[key]:
            raise _refused(
                place, f"{key} is empty", f"write what is {'forbidden' if key == 'forbidden' else 'allowed'}"
            )
    if not {key for key, value in entry.items() if key in (*_KINDS, "pattern") and value is not False}:
        raise _refused(place, "it forbids nothing", "write required = true, or another limit")
    limits = [entry.get(key, 0) for key in ("minimum", "maximum")]
    if not all(-LARGEST <= limit <= LARGEST for limit in limits):
        raise _refused(place, "a limit that is no number", "leave it out, or write a number")
    if {"minimum", "maximum"} <= {*entry} and limits[0] > limits[1]:
        raise _refused(place, f"minimum {limits[0]:g} is above maximum {limits[1]:g}", "exchange the two")


def _check_values(steps: Sequence[str], entry: Mapping[str, Any], place: str) -> None:
    """Raise USAGE for a rule that every value of the field satisfies, or none."""
    kind = pbtxt.kind(steps)
    if kind is object:
        return
    if kind is dict and (wrong := sorted({*entry} & {*_KINDS, "pattern"} - {"required"})):
        raise _refused(
            place, f"{wrong[0]} needs a value, and '{entry['field']}' is a message", "name a field in it"
        )
    text = kind is str and steps[0] != "parameters"
    if (text or isinstance(kind, tuple) or kind is bool) and (
        wrong := sorted({*entry} & {"minimum", "maximum"})
    ):
        raise _refused(
            place, f"{wrong[0]} needs a number, and '{entry['field']}' is none", "use allowed or pattern"
        )
    for value in (*entry.get("allowed", ()), *entry.get("forbidden", ())):
        if isinstance(kind, tuple) and value not in kind:
            near = difflib.get_close_matches(str(value), kind, 1)
            remedy = f"did you mean '{near[0]}'?" if near else f"one of: {', '.join(kind)}"
            raise _refused(place, f"'{entry['field']}' is never {cut(value)}", remedy)
        if isinstance(kind, type) and kind is not dict and not _is(kind, value):
            raise _refused(place, f"'{entry['field']}' is never {cut(value)}", _WRITE[kind])


def _is(kind: type, value: Any) -> bool:
    if kind is int:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind)


def _refused(where: str, message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=where, remedy=remedy)


def _values(
    value: Any, steps: Sequence[str], place: FieldPath, message: str
) -> Iterator[tuple[FieldPath, Any]]:
    """Every value that the path leads to, with its place, and each place that could hold one (``Unset``)."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _values(item, steps, (*place, index), message)
    elif not steps:
        if isinstance(value, Mapping) and place[:1] == ("parameters",) and len(place) == 2:
            value = value.get("string_value", "")
        yield place, value
    elif isinstance(value, Mapping):
        name, inner = steps[0], pbtxt.inner(message, steps[0])
        step: str = name if message else Key(name)  # a field, or the key of a map
        if name in value:
            yield from _values(value[name], steps[1:], (*place, step), inner)
        elif not message or len(steps) > 1 or not place:
            yield (*place, step), Unset()
        else:
            yield (*place, step), Unset(default=pbtxt.default(message, name))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any) -> float | None:
    """A number, also of a parameter, which is text."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else _text(value)

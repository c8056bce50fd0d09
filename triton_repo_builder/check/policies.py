"""A team's own rules, as data: ``[policy.NAME]`` in a TOML file, with a field and what its values may be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding, Severity
from triton_repo_builder.check.line_numbers import Key
from triton_repo_builder.check.selection import POLICY
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import pbtxt

_STEP = re.compile(r'"([^"]*)"|([^."]+)')
_NAME = re.compile(r"[\w.-]+")
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "required": (bool, "true or false"),
    "allowed": (list, "a list"),
    "forbidden": (list, "a list"),
    "minimum": ((int, float), "a number"),
    "maximum": ((int, float), "a number"),
}
"""What a value in TOML must be; all others are texts."""
Place = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One rule; what is not given does not count."""

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
        values = list(_values(context.config.raw, self.steps, (), "ModelConfig"))
        if not values and self.required:
            yield self._finding(context, (self.steps[0],), f"{self.field} is not given")
        for place, value in values:
            if wrong := self._wrong(value):
                yield self._finding(context, place, f"{self.field} is {_shown(value)}: {wrong}")

    def _wrong(self, value: Any) -> str:
        if self.allowed and value not in self.allowed:
            return f"allowed: {', '.join(map(_shown, self.allowed))}"
        if value in self.forbidden:
            return "forbidden"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.maximum is not None and number and value > self.maximum:
            return f"at most {self.maximum:g}"
        if self.minimum is not None and number and value < self.minimum:
            return f"at least {self.minimum:g}"
        if self.pattern and not re.fullmatch(self.pattern, str(value)):
            return f"it must match {self.pattern}"
        return ""

    def _finding(self, context: ModelContext, place: Place, message: str) -> Finding:
        at = context.at(*place)
        return Finding(
            severity=self.severity,
            code=f"{POLICY}{self.name}",
            where=str(at),
            file=at.file,
            line=at.line,
            column=at.column,
            message=f"{self.message} ({message})" if self.message else message,
            remedy=self.fix or "follow the policy, or ask who wrote it",
        )


def read(document: Mapping[str, Any], where: str) -> tuple[Policy, ...]:
    """The policies of a TOML document's ``policy`` table. Raises USAGE for what is none."""
    table = document.get("policy", {})
    if not isinstance(table, Mapping) or not all(isinstance(entry, Mapping) for entry in table.values()):
        raise _refused(where, "policy must hold tables", "write [policy.NAME]")
    return tuple(_policy(str(name), entry, where) for name, entry in table.items())


def _policy(name: str, entry: Mapping[str, Any], where: str) -> Policy:
    known = {item.name for item in fields(Policy)} - {"name", "steps"}
    place = f"{where} [policy.{name}]"
    if unknown := sorted(set(entry) - known):
        raise _refused(place, f"unknown key '{unknown[0]}'", f"keys: {', '.join(sorted(known))}")
    if not isinstance(entry.get("field"), str) or not _STEP.findall(entry["field"]):
        raise _refused(place, "field is missing", 'name a field of config.pbtxt: field = "max_batch_size"')
    if not set(entry) & {"required", "allowed", "forbidden", "minimum", "maximum", "pattern"}:
        raise _refused(
            place, "it forbids nothing", "add required, allowed, forbidden, minimum, maximum or pattern"
        )
    steps = tuple(quoted or plain for quoted, plain in _STEP.findall(entry["field"]))
    if step := pbtxt.unknown(steps):
        message = f"config.pbtxt has no field '{entry['field']}': '{step}' is none"
        raise _refused(place, message, "see Triton's model_config.proto")
    if not _NAME.fullmatch(name):
        raise _refused(place, "its name is part of a code", "letters, digits, '_', '-' and '.' only")
    for key, value in entry.items():
        kind, expected = _KINDS.get(key, (str, "a text"))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _refused(place, f"{key} = {value!r}", f"{key} is {expected}")
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    try:
        re.compile(str(entry.get("pattern", "")))
        policy = Policy(name=name, steps=steps, **values)
    except re.error as error:
        raise _refused(place, f"pattern is no regular expression: {error}", "correct it") from None
    if policy.severity not in ("error", "warning"):
        raise _refused(place, f"severity '{policy.severity}'", "error or warning")
    return policy


def _refused(where: str, message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=where, remedy=remedy)


def _values(value: Any, steps: Sequence[str], place: Place, message: str) -> Iterator[tuple[Place, Any]]:
    """Every value that the path leads to, with its place; a field that is not set has the proto's default."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _values(item, steps, (*place, index), message)
    elif not steps:
        if isinstance(value, Mapping) and set(value) == {"string_value"}:
            value = value["string_value"]
        yield place, value
    elif isinstance(value, Mapping):
        name, inner = steps[0], pbtxt.inner(message, steps[0])
        if not message:  # the entries of a map
            if name in value:
                yield from _values(value[name], steps[1:], (*place, Key(name)), inner)
        elif name in value:
            yield from _values(value[name], steps[1:], (*place, name), inner)
        elif len(steps) == 1 and place and (default := pbtxt.default(message, name)) is not None:
            yield (*place, name), default


def _shown(value: Any) -> str:
    return (
        f"'{value}'"
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )

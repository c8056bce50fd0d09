"""config.pbtxt: print Triton's message, read one back. The only importer of google.protobuf.

The message is ``inference.ModelConfig`` of Triton's model_config.proto, as ``tritonclient`` ships it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_repo_builder.repository.pbtxt_document import Document

if TYPE_CHECKING:
    from triton_repo_builder.repository.pbtxt_syntax import Normalized

_VERSIONS = "# Of the version folders "
"""First words of the comment on a version policy, which comes and goes with it."""


# Not frozen, although a value: Python sets __traceback__ on an exception that leaves a context manager.
@dataclass(unsafe_hash=True)
class PbtxtError(Exception):
    """A text that does not parse as ModelConfig: 1-based position and protobuf's reason."""

    line: int
    column: int
    reason: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.reason}"


LONGEST = 2000
"""Maximum of characters of a reason, which may quote a value."""


@cache
def messages() -> Any:
    """Triton's model_config_pb2 without the package that it is in, which imports numpy and grpc."""
    package = importlib.util.find_spec("tritonclient")
    folders = package.submodule_search_locations if package else None
    spec = importlib.util.spec_from_file_location(
        "model_config_pb2", Path((folders or [""])[0]) / "grpc" / "model_config_pb2.py"
    )
    assert spec is not None and spec.loader is not None  # tritonclient is a dependency
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fields(message: str) -> list[str]:
    """Names of the fields of one of Triton's messages, which may be inside another; empty for any other."""
    descriptor = _descriptor(message)
    return [field.name for field in descriptor.fields] if descriptor else []


def _descriptor(message: str) -> Any:
    waiting = list(messages().DESCRIPTOR.message_types_by_name.values())
    for descriptor in waiting:
        if descriptor.name == message:
            return descriptor
        waiting += descriptor.nested_types
    return None


def _entry(message: str, field: str) -> Any:
    descriptor = _descriptor(message)
    return descriptor.fields_by_name.get(field) if descriptor else None


def _is_map(entry: Any) -> bool:
    return entry.message_type is not None and bool(entry.message_type.GetOptions().map_entry)


def inner(message: str, field: str) -> str:
    """The message type of a field; empty for a map, a plain value or an unknown field."""
    entry = _entry(message, field)
    held = entry.message_type if entry else None
    return "" if held is None or _is_map(entry) else str(held.name)


def unknown(path: Sequence[str]) -> str:
    """The first step of a path that is unknown; empty if each is a field or a key."""
    message = "ModelConfig"
    for index, step in enumerate(path):
        entry = _entry(message, step)
        if entry is None:
            return step
        if _is_map(entry):
            return ""  # keys are anyone's, and what is behind them is short
        message = inner(message, step)
        if not message and path[index + 1 :]:
            return path[index + 1]
    return ""


def kind(path: Sequence[str]) -> type | tuple[str, ...]:
    """Type of a field's values: a type, the names of an enum, or ``dict`` for a message or a map.

    ``object`` if it is unknown, as inside a map. A parameter is its text.
    """
    message = "ModelConfig"
    for index, step in enumerate(path):
        entry = _entry(message, step)
        if entry is None:
            return object
        if entry.message_type is None:
            return _plain(entry)
        if _is_map(entry):
            text = step in ("parameters", "metric_tags") and len(path) == index + 2
            return dict if len(path) == index + 1 else str if text else object
        message = inner(message, step)
    return dict


def _plain(entry: Any) -> type | tuple[str, ...]:
    if entry.enum_type is not None:
        return tuple(entry.enum_type.values_by_name)
    if entry.type in (entry.TYPE_STRING, entry.TYPE_BYTES):
        return str
    return bool if entry.type == entry.TYPE_BOOL else int


def default(message: str, field: str) -> Any:
    """Default of a plain field; None for a list, a message and an unknown field."""
    entry = _entry(message, field)
    if entry is None or entry.message_type is not None or isinstance(entry.default_value, list):
        return None
    return (
        entry.enum_type.values_by_number[entry.default_value].name if entry.enum_type else entry.default_value
    )


def parse(text: str) -> dict[str, Any]:
    """Read a config.pbtxt as plain values: field names as in the proto, enums as names, integers as int.

    Fields that are not set are absent, except that an explicit ``max_batch_size: 0`` cannot be told apart
    from none (proto3). Raises ``PbtxtError`` with line and column.
    """
    from google.protobuf import json_format

    from triton_repo_builder.repository.pbtxt_syntax import Normalized, Refusal, is_plain, normalized

    descriptor = messages().ModelConfig.DESCRIPTOR
    if is_plain(text):
        with contextlib.suppress(PbtxtError):  # what is wrong is said below, as the server says it
            message = _parsed(Normalized(text, "", ()))
            whole = json_format.MessageToDict(message, preserving_proto_field_name=True)
            return _integers(whole, descriptor)
    try:
        read = normalized(text, descriptor)
    except Refusal as refusal:
        line, column = Document(text).place(refusal.offset)
        try:
            _parsed(normalized(text[: refusal.offset], descriptor))
        except Refusal:
            pass  # a string that is cut off there
        except PbtxtError as error:
            if error.line < line:  # the server stops there
                raise error from None
        raise PbtxtError(line, column, refusal.reason) from None
    whole = json_format.MessageToDict(_parsed(read), preserving_proto_field_name=True)
    return _integers(read.restored_in(whole) if read.strings else whole, descriptor)


def _parsed(read: Normalized) -> Any:
    from google.protobuf import text_format

    try:
        return text_format.Parse(read.text, messages().ModelConfig())
    except text_format.ParseError as error:
        position = re.match(r"(\d+):(\d+) : ", str(error))
        reason = str(error)[position.end() :] if position else str(error)
        # With an excerpt, protobuf prints 'source line': reason; the reason is the last part.
        row = (error.GetLine() or 1) - 1
        lines = read.text.split("\n", row + 1)
        excerpt = lines[row] if row < len(lines) else ""
        reason = reason.removeprefix(f"'{excerpt}': ").removeprefix("'': ")
        raise PbtxtError(row + 1, error.GetColumn() or 1, read.restored(reason)[:LONGEST]) from None
    except (ValueError, RecursionError) as error:  # a number that no field holds, a text nested without end
        raise PbtxtError(1, 1, str(error)) from None


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a configuration, from ``parse`` or a server's JSON, as ``parse`` gives it: without defaults.

    Raises ``PbtxtError`` if it is invalid.
    """
    from google.protobuf import json_format

    model_config = messages().ModelConfig
    try:
        message = json_format.ParseDict(_finite(dict(config)), model_config(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise PbtxtError(1, 1, str(error)) from None
    whole = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return _integers(whole, model_config.DESCRIPTOR)


def of_message(message: Any) -> dict[str, Any]:
    """A server's ``ModelConfig`` message as ``parse`` gives config.pbtxt."""
    from google.protobuf import json_format

    whole = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return _integers(whole, message.DESCRIPTOR)


def _finite(value: Any) -> Any:
    """Plain values with infinity and NaN as protobuf's JSON has them: as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return {key: _finite(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def serve_versions(text: str, versions: Iterable[int]) -> str:
    """The text of a config.pbtxt with a policy that serves these versions, in place of the one it had."""
    listed = ", ".join(map(str, versions))
    return (
        f"{without_policy(text)}"
        f"{_VERSIONS}this one is served; 'trb promote' and 'trb rollback' change it.\n"
        f"version_policy {{ specific {{ versions: [ {listed} ] }} }}\n"
    )


def without_policy(text: str) -> str:
    """The text of a config.pbtxt without version policy; all else is unchanged, comments included."""
    document = Document(text)
    edits = []
    for start, end in document.statements("version_policy"):
        comment = text.find(_VERSIONS, text.rfind("\n", 0, max(start - 1, 0)) + 1, start)
        edits.append((start if comment < 0 else comment, document.line_end(end), ""))
    return document.edited(edits)


def pin_steps(text: str, version: int | Mapping[str, int]) -> str:
    """The text of an ensemble's config.pbtxt with that version of each step, or of each model that is named.

    Only the statements of versions change.
    """
    document = Document(text)
    edits = []
    for step in document.fields.each("ensemble_scheduling", "step"):
        model = next((item.value for item in step.fields.each("model_name")), "")
        number = version if isinstance(version, int) else version.get(model)
        if number is not None:
            stated = step.fields.each("model_version")
            edits += [(item.value_start, item.end, str(number)) for item in stated]
    return document.edited(edits)


def elements(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Print a ModelConfig given as plain values: (field, text) of each value and list item, in order.

    An entry of ``parameters`` comes with its key in place of the field.
    """
    from google.protobuf import json_format

    model_config = messages().ModelConfig
    message = json_format.ParseDict(dict(config), model_config())
    for field, value in config.items():
        whole = getattr(message, field)
        if field == "parameters":
            for key in value:
                part = model_config(parameters={key: whole[key]})
                yield key, _text(part, one_line=True)
        elif isinstance(value, (list, Mapping)):
            for item in whole if isinstance(value, list) else [whole]:
                part = model_config(**{field: [item] if isinstance(value, list) else item})
                nested = any(inner.message_type for inner, _ in item.ListFields())
                yield field, _text(part, one_line=not nested)
        else:
            text = _text(model_config(**{field: whole}), one_line=True)
            # The printer leaves out what is 0 or empty; "max_batch_size: 0" is worth reading.
            yield field, text or (f'{field}: ""' if whole == "" else f"{field}: {whole}")


def _text(message: Any, *, one_line: bool) -> str:
    """A message in protobuf's text format; invisible characters are escaped."""
    from google.protobuf import text_format

    text = text_format.MessageToString(
        message, as_utf8=True, as_one_line=one_line, use_short_repeated_primitives=True
    ).rstrip()
    # They can only be inside of a quoted string.
    return "".join(
        char if char.isprintable() or char == "\n" else "".join(f"\\{byte:03o}" for byte in char.encode())
        for char in text
    )


def _integers(value: Mapping[str, Any], descriptor: Any) -> dict[str, Any]:
    """The JSON mapping of protobuf writes 64-bit integers and NaN as strings; make them numbers again."""
    result: dict[str, Any] = {}
    for name, item in value.items():
        field = descriptor.fields_by_name[name]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"].message_type
            result[name] = {k: _integers(v, inner) if inner else v for k, v in item.items()}
        elif field.message_type is not None:
            many = isinstance(item, list)
            items = [_integers(element, field.message_type) for element in (item if many else [item])]
            result[name] = items if many else items[0]
        elif field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            result[name] = [int(element) for element in item] if isinstance(item, list) else int(item)
        elif field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):  # "NaN", "-Infinity"
            result[name] = [float(element) for element in item] if isinstance(item, list) else float(item)
        else:
            result[name] = item
    return result

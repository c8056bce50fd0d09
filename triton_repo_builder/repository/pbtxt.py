"""config.pbtxt: quote what goes in, read back what came out.

The message is ``inference.ModelConfig`` of Triton's model_config.proto, as ``tritonclient`` ships it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    """A string literal of the protobuf text format, quotes included."""
    body = "".join(
        _ESCAPES.get(char) or (char if char.isprintable() else "".join(f"\\{b:03o}" for b in char.encode()))
        for char in text
    )
    return f'"{body}"'


# Not frozen, although a value: Python sets __traceback__ on an exception that leaves a context manager.
@dataclass(unsafe_hash=True)
class PbtxtError(Exception):
    """A text that is no ModelConfig: 1-based position and protobuf's reason."""

    line: int
    column: int
    reason: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.reason}"


def parse(text: str) -> dict[str, Any]:
    """Read a config.pbtxt as plain values: field names as in the proto, enums as names, integers as int.

    Fields that are not set are absent, except that an explicit ``max_batch_size: 0`` cannot be told from
    none (proto3). Raises ``PbtxtError`` with line and column.
    """
    from google.protobuf import json_format, text_format
    from tritonclient.grpc import model_config_pb2

    try:
        message = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        position = re.match(r"(\d+):(\d+) : ", str(error))
        reason = str(error)[position.end() :] if position else str(error)
        # With an excerpt, protobuf prints 'source line': reason; the reason is the last part.
        raise PbtxtError(error.GetLine() or 1, error.GetColumn() or 1, reason) from None
    plain = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return _integers(plain, model_config_pb2.ModelConfig.DESCRIPTOR)


def _integers(value: Mapping[str, Any], descriptor: Any) -> dict[str, Any]:
    """The JSON mapping of protobuf writes 64-bit integers as strings; make them integers again."""
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
        else:
            result[name] = item
    return result

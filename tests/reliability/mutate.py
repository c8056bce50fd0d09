"""Damage to real files, repeatable: of bytes, words, JSON values, protobuf fields, members of archives."""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""(random numbers, an input, all seeds of the reader) → a damaged input."""

LONG = "x" * 5000
PATHS = (
    "../outside",
    "../../../outside",
    "/outside",
    "/proc/self/mem",
    "a/../../outside",
    "a\0b",
    "..",
    ".",
    "a//b",
)
TEXTS = ("", " ", "x", "\0", "\n", "é漢🎉", "\u2028", LONG, "NaN", "null", "-1", "{}", "[MASK]", "%s", *PATHS)
HALF = "\ud800"
"""Half of a surrogate pair: JSON can hold it, UTF-8 cannot."""
NUMBERS = (
    0,
    -1,
    1,
    2,
    255,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**30,
    0.5,
    -0.0,
    1e308,
)
RAW = ("1e999", "-1e999", "NaN", "Infinity", "9" * 5000, "[" * 90 + "]" * 90, "[" * 5000 + "]" * 5000)
RAW_DEEP = '{"a":' * 3000 + "1" + "}" * 3000
KEYS = ("", "type", "id", "name", "path", "files", "data", "x", HALF, "../outside", "__class__", "9" * 30)
_MARK = "\ue000raw{}\ue000"
_WORD = re.compile(rb"\s+|\w+|[^\w\s]")


def damaged_bytes(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Bits, bytes and stretches: flipped, removed, repeated, cut off, or taken from another seed."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(changed) + 1)
        size = min(len(changed) - at, rng.choice((1, 1, 2, 4, 8, 64, 1024)))
        kind = rng.randrange(8)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = changed[at : at + size] * rng.choice((1, 1, 2, 30))
        elif kind == 4:
            changed[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif kind == 5:
            changed[at : at + size] = bytes([rng.choice((0, 0xFF, 0x80))]) * size
        elif kind == 6:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            changed[at : at + size] = other[start : start + size]
        elif rng.random() < 0.3:
            del changed[at:]
    return bytes(changed)


def damaged_words(*words: str) -> Mutate:
    """Words and marks of a text removed, repeated, swapped, replaced; ``words`` are those of the format."""
    known = [
        word.encode()
        for word in (
            *words,
            *PATHS,
            *map(str, NUMBERS),
            "9" * 5000,
            "a{" * 2000,
            LONG,
            '"',
            "{",
            "}",
            "[",
            "]",
        )
    ]

    def mutate(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
        if rng.random() < 0.1:
            return damaged_bytes(rng, data, seeds)
        parts = _WORD.findall(data)
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            at = rng.randrange(len(parts) + 1)
            kind = rng.randrange(7)
            size = rng.choice((1, 1, 2, 5, 20))
            if kind == 0:
                del parts[at : at + size]
            elif kind == 1:
                parts[at:at] = parts[at : at + size] * rng.choice((1, 1, 2, 300))
            elif kind == 2 and parts:
                other = rng.randrange(len(parts))
                at = min(at, len(parts) - 1)
                parts[at], parts[other] = parts[other], parts[at]
            elif kind in (3, 4):
                parts[at : at + 1] = [rng.choice(known)]
            elif kind == 5:
                others = _WORD.findall(rng.choice(seeds)[:20_000]) or [b""]
                start = rng.randrange(len(others))
                parts[at:at] = others[start : start + size]
            else:
                parts[at:at] = [
                    rng.choice((b"\xff\xfe", b"\xc3", b"\0", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r"))
                ]
        return b"".join(parts)

    return mutate


def damaged_json(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Values of another type or size; missing, renamed and double keys; deep nesting; or only bytes."""
    if rng.random() < 0.1:
        return damaged_bytes(rng, data, seeds)
    try:
        box = [json.loads(data)]
    except (ValueError, RecursionError):
        return damaged_bytes(rng, data, seeds)
    raw: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        container, key = _place(rng, box)
        _change(rng, container, key, raw)
    text = json.dumps(box[0], ensure_ascii=rng.random() < 0.5)
    for number, value in enumerate(raw):
        mark = _MARK.format(number)
        text = text.replace(json.dumps(mark), value).replace(f'"{mark}"', value)
    if rng.random() < 0.03:
        # A key that occurs twice.
        match = rng.choice(list(re.finditer(r'"(\w+)": ', text)) or [None])
        if match:
            double = f"{match[0]}{rng.choice(('null', '[]', '-1'))}, "
            text = text[: match.start()] + double + text[match.start() :]
    return text.encode("utf-8", "surrogatepass")


def _place(rng: Random, box: list[Any]) -> tuple[Any, Any]:
    """A container and one of its keys, near the top as often as at the bottom."""
    container: Any = box
    key: Any = 0
    while True:
        inner = container[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.25:
            return container, key
        container = inner
        key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))


def _change(rng: Random, container: Any, key: Any, raw: list[str]) -> None:
    kind = rng.randrange(12)
    value = container[key]
    if kind == 0 and isinstance(container, dict):
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[rng.choice((*KEYS, str(key) + "x"))] = container.pop(key)
    elif kind == 2:
        container[key] = [value] if rng.random() < 0.5 else {rng.choice(KEYS): value}
    elif kind == 3 and isinstance(value, list) and value:
        container[key] = value * rng.choice((0, 2, 2, 50))
    elif kind == 4 and isinstance(value, (list, dict)) and value:
        container[key] = rng.choice(list(value.values() if isinstance(value, dict) else value))
    elif kind == 5 and isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        container[key] = value[:at] + rng.choice((*TEXTS, HALF)) + value[at:]
    elif kind == 6:
        raw.append(rng.choice((*RAW, RAW_DEEP)))
        container[key] = _MARK.format(len(raw) - 1)
    elif kind == 7 and isinstance(container, dict):
        container[rng.choice(KEYS)] = rng.choice((None, [], {}, "x", 1))
    elif kind == 8 and isinstance(value, (int, float)):
        container[key] = rng.choice(
            (value + 1, value - 1, -value, value * 2**31, str(value), float(value), value == 1)
        )
    else:
        container[key] = rng.choice(
            (None, True, False, [], {}, [[]], rng.choice(NUMBERS), rng.choice((*TEXTS, HALF)))
        )


def named(mutate: Mutate) -> Mutate:
    """Of inputs ``NAME\\nCONTENT`` the content is damaged, by another file's now and then."""

    def inner(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
        name, _, content = data.partition(b"\n")
        if rng.random() < 0.03:
            content = rng.choice(seeds).partition(b"\n")[2]
        return name + b"\n" + mutate(rng, content, [seed.partition(b"\n")[2] for seed in seeds[:4]])

    return inner


def damaged_onnx(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Fields of messages anywhere in a model: set, cleared, repeated, removed, nested; or only bytes."""
    import onnx

    if rng.random() < 0.25:
        return damaged_bytes(rng, data, seeds)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        return damaged_bytes(rng, data, seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        message: Any = model
        while True:
            inner = [value for field, value in message.ListFields() if field.message_type]
            nested = [one for value in inner for one in (value if hasattr(value, "add") else [value])]
            if not nested or rng.random() < 0.15:
                break
            # Initializers and nodes are many: one kind of field is as likely as another.
            group = rng.choice(inner)
            message = rng.choice(list(group)) if hasattr(group, "add") else group
        _change_message(rng, message)
    if rng.random() < 0.01:
        _nest(rng, model)
    out: bytes = model.SerializeToString()
    return damaged_bytes(rng, out, seeds) if rng.random() < 0.05 else out


def _change_message(rng: Random, message: Any) -> None:
    descriptor = message.DESCRIPTOR
    stated = [field for field, _ in message.ListFields()]
    field = rng.choice(stated) if stated and rng.random() < 0.7 else rng.choice(list(descriptor.fields))
    many = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    if many:
        values = getattr(message, field.name)
        kind = rng.randrange(5)
        if kind == 0:
            message.ClearField(field.name)
        elif kind == 1 and len(values):
            del values[rng.randrange(len(values))]
        elif kind == 2 and len(values):
            values.append(rng.choice(list(values)))
        elif field.message_type:
            values.add()
        elif len(values) and rng.random() < 0.7:
            values[rng.randrange(len(values))] = _scalar(rng, field)
        else:
            values.append(_scalar(rng, field))
    elif rng.random() < 0.25:
        message.ClearField(field.name)
    elif field.message_type:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _scalar(rng, field))


def _scalar(rng: Random, field: Any) -> Any:
    kinds = field
    if field.cpp_type == kinds.CPPTYPE_STRING:
        if field.type == kinds.TYPE_BYTES:
            return rng.choice((b"", b"\0", b"\xff" * 9, b"x" * 3000, b"input_ids"))
        return rng.choice(
            (*TEXTS, "input_ids", "attention_mask", "logits", "ai.onnx", "location", "offset", "length")
        )
    if field.cpp_type in (kinds.CPPTYPE_FLOAT, kinds.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if field.cpp_type == kinds.CPPTYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    low, high = {
        kinds.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
        kinds.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
        kinds.CPPTYPE_UINT32: (0, 2**32 - 1),
        kinds.CPPTYPE_UINT64: (0, 2**64 - 1),
        kinds.CPPTYPE_BOOL: (0, 1),
    }[field.cpp_type]
    return min(max(rng.choice((0, -1, 1, 2, 7, 10, 16, 1000, 2**31, low, high)), low), high)


def _nest(rng: Random, model: Any) -> None:
    """If in If in If …"""
    import onnx

    inner = onnx.GraphProto()
    inner.CopyFrom(model.graph)
    del inner.initializer[:]
    for _ in range(rng.choice((5, 20, 30))):
        outer = onnx.GraphProto()
        attribute = outer.node.add(op_type="If").attribute.add(
            name="then_branch", type=onnx.AttributeProto.GRAPH
        )
        attribute.g.CopyFrom(inner)
        inner = outer
    model.graph.node.add(op_type="If").attribute.add(name="then_branch", type=5).g.CopyFrom(inner)


def damaged_tar(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Members with names that lead out, links, devices, wrong sizes; sometimes only bytes."""
    if rng.random() < 0.4:
        return damaged_bytes(rng, data, seeds)
    out = io.BytesIO()
    mode = rng.choice(("w", "w", "w", "w:gz", "w:bz2", "w:xz"))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive, tarfile.open(fileobj=out, mode=mode) as changed:
        for member in archive:
            content = archive.extractfile(member)
            if rng.random() < 0.3:
                _change_member(rng, member)
            body = content.read() if content and member.isreg() else b""
            member.size = len(body)
            try:
                changed.addfile(member, io.BytesIO(body))
            except (ValueError, OverflowError):
                continue
    return out.getvalue()


def _change_member(rng: Random, member: tarfile.TarInfo) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        member.name = "models/" + rng.choice(PATHS)
    elif kind == 1:
        member.name = rng.choice((*PATHS, "models", "models/", LONG, "models/" + LONG, "models/a/b"))
    elif kind == 2:
        member.type = rng.choice(
            (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, b"Z")
        )
        member.linkname = rng.choice((*PATHS, "../../outside"))
    elif kind == 3:
        member.pax_headers = {"path": "models/" + rng.choice(PATHS).replace("\0", ""), "size": "x"}
    else:
        member.name = member.name.rsplit("/", 1)[0]


def damaged_zip(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Members with names that lead out, double, encrypted or of other methods; sometimes only bytes."""
    if rng.random() < 0.6:
        return damaged_bytes(rng, data, seeds)
    out = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w", method) as changed:
        for name in archive.namelist():
            body = archive.read(name)
            if rng.random() < 0.3:
                name = rng.choice(
                    (name.replace("/", "/../", 1), "tokenizers/../../outside.py", *PATHS, name + "x")
                )
            changed.writestr(name, body)
    flagged = bytearray(out.getvalue())
    at = flagged.find(b"PK\x01\x02")
    if at >= 0 and rng.random() < 0.2:
        flagged[at + 8] |= 1  # said to be encrypted
    return bytes(flagged)

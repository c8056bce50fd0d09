"""Requests that are wrong, or strange, on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from triton_repo_builder.run.client import JSON as HEADERS
from triton_repo_builder.run.client import Body
from triton_repo_builder.run.client.codec import Array, encode_json, wire_type
from triton_repo_builder.run.smoke.session import (
    BINARY,
    GRPC,
    JSON,
    ServedEndpoint,
    SmokeSession,
)

LONG = 100_000
"""Bytes of the long text."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One request. ``strange`` ones may be answered; the others must be refused."""

    name: str
    protocol: str
    send: Callable[[], object]
    strange: bool = False
    excused: tuple[str, ...] = ()
    """Server errors with one of these texts are refusals too, in words that a model cannot change."""


NOT_TEXT = ("not UTF-8", "onnx runtime error")


def probes(session: SmokeSession, endpoint: ServedEndpoint) -> Iterator[Probe]:
    """Every probe that fits the endpoint."""
    inputs = endpoint.example
    yield from _wrong_tensors(session, endpoint, inputs)
    if endpoint.http_protocol == JSON:
        yield from _wrong_json(session, endpoint, inputs)
    yield from _wrong_bodies(session, endpoint, inputs)
    if endpoint.text:
        yield from _strange_texts(session, endpoint, inputs)
    if endpoint.binary:
        yield from _bad_files(session, endpoint, inputs)


def _wrong_tensors(
    session: SmokeSession, endpoint: ServedEndpoint, inputs: Mapping[str, Array]
) -> Iterator[Probe]:
    """Valid requests, but for another model."""
    first = next((name for name in inputs if name not in endpoint.interface.optional), next(iter(inputs)))
    array = inputs[first]
    other = np.zeros(array.shape, dtype=np.int32 if wire_type(array) != "INT32" else np.float32)
    variants: list[tuple[str, dict[str, Array]]] = [
        (f"{first} of a wrong datatype", {**inputs, first: other}),
        (f"{first} with an axis too many", {**inputs, first: array[..., np.newaxis]}),
        (f"{first} missing", {name: value for name, value in inputs.items() if name != first}),
        ("an unknown input", {**inputs, "no_such_input": np.zeros(array.shape[:1] or (1,), np.int32)}),
    ]
    if endpoint.max_batch_size:
        variants.append(
            (f"{first} without the batch axis", {**inputs, first: array.reshape(array.shape[1:])})
        )
    for name, tensors in variants:
        for protocol in endpoint.protocols:
            yield Probe(name=name, protocol=protocol, send=session.sender(endpoint.name, protocol, tensors))
    for protocol in endpoint.protocols:
        send = session.sender(f"{endpoint.name}-no-such-model", protocol, inputs)
        yield Probe(name="an unknown model", protocol=protocol, send=send)


def _wrong_json(
    session: SmokeSession, endpoint: ServedEndpoint, inputs: Mapping[str, Array]
) -> Iterator[Probe]:
    """Invalid JSON, and JSON that contradicts itself."""
    sound = json.loads(encode_json(inputs).data)

    def changed(**fields: Any) -> bytes:
        first = {**sound["inputs"][0], **fields}
        return json.dumps({"inputs": [first, *sound["inputs"][1:]]}).encode()

    first = sound["inputs"][0]
    element: Any = 5 if first["datatype"] == "BYTES" else "not a number"
    for name, data in (
        ("data shorter than the shape", changed(data=first["data"][:-1])),
        ("elements of a wrong JSON type", changed(data=[element] * len(first["data"]))),
        ("a negative size in the shape", changed(shape=[-1, *first["shape"][1:]])),
        ("an unknown datatype", changed(datatype="STRING")),
        ("an unknown output", json.dumps({**sound, "outputs": [{"name": "no_such_output"}]}).encode()),
        ("no field 'inputs'", b"{}"),
    ):
        yield Probe(name=name, protocol=JSON, send=_post(session, endpoint, Body(data=data, headers=HEADERS)))


def _wrong_bodies(
    session: SmokeSession, endpoint: ServedEndpoint, inputs: Mapping[str, Array]
) -> Iterator[Probe]:
    broken = Body(data=b'{"inputs":[{"name":', headers=HEADERS)
    yield Probe(name="JSON cut short", protocol=JSON, send=_post(session, endpoint, broken))
    # Triton takes a body without a header for the raw data of a model's only input: it may answer.
    empty = Body(data=b"", headers=HEADERS)
    # An error of the graph on such data is a refusal, too.
    yield Probe(
        name="an empty body",
        protocol=JSON,
        send=_post(session, endpoint, empty),
        strange=True,
        excused=("onnx runtime error",),
    )
    yield Probe(
        name="binary data shorter than the shape",
        protocol=BINARY,
        send=_post(session, endpoint, _cut_short(inputs)),
    )


def _cut_short(inputs: Mapping[str, Array]) -> Body:
    """A binary request whose sizes agree with its body, but not with the shape."""
    # Three bytes are not even the length of a string.
    sizes = {name: 3 if array.dtype.kind == "O" else array.nbytes - 1 for name, array in inputs.items()}
    tensors = [
        {
            "name": name,
            "datatype": wire_type(array),
            "shape": list(array.shape),
            "parameters": {"binary_data_size": sizes[name]},
        }
        for name, array in inputs.items()
    ]
    header = json.dumps({"inputs": tensors}).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }
    return Body(data=header + bytes(sum(sizes.values())), headers=headers)


def _strange_texts(
    session: SmokeSession, endpoint: ServedEndpoint, inputs: Mapping[str, Array]
) -> Iterator[Probe]:
    """Texts that a user may well send."""
    name = next(key for key, array in inputs.items() if array.dtype.kind == "O")

    def filled(text: bytes) -> dict[str, Array]:
        array = inputs[name].copy()
        array.fill(text)
        return {**inputs, name: array}

    long = (b"lorem ipsum dolor sit amet " * (LONG // 27 + 1))[:LONG]
    for label, text in (
        ("an empty text", b""),
        ("a text of blanks", b" \t\n "),
        ("a text with a NUL", b"one\x00two"),
        ("a text of 100 kB", long),
    ):
        for protocol in endpoint.protocols:
            send = session.sender(endpoint.name, protocol, filled(text))
            yield Probe(name=label, protocol=protocol, send=send, strange=True)
    label, bad = "a text that is not UTF-8", b"caf\xe9 \xff\xfe \xc3("
    for protocol in (GRPC, BINARY):
        send = session.sender(endpoint.name, protocol, filled(bad))
        yield Probe(name=label, protocol=protocol, send=send, strange=True, excused=NOT_TEXT)
    marker = b"@@text@@"
    raw = encode_json(filled(marker)) if endpoint.http_protocol == JSON else None
    if raw:
        body = Body(data=raw.data.replace(marker, bad), headers=raw.headers)
        post = _post(session, endpoint, body)
        yield Probe(name=label, protocol=JSON, send=post, strange=True, excused=NOT_TEXT)


def _bad_files(
    session: SmokeSession, endpoint: ServedEndpoint, inputs: Mapping[str, Array]
) -> Iterator[Probe]:
    """Damaged files, and bytes that are not a file: to be refused."""
    name = next(key for key, array in inputs.items() if array.dtype.kind == "O")
    sound = inputs[name].reshape(-1)[0]
    for label, data in (
        ("an empty file", b""),
        ("a text in place of a file", b"not a file of that kind"),
        ("a file cut short", sound[: len(sound) // 2]),
        ("a file of zeros", bytes(len(sound))),
    ):
        array = inputs[name].copy()
        array.fill(data)
        for protocol in endpoint.protocols:
            send = session.sender(endpoint.name, protocol, {**inputs, name: array})
            yield Probe(name=label, protocol=protocol, send=send)


def _post(session: SmokeSession, endpoint: ServedEndpoint, body: Body) -> Callable[[], object]:
    return partial(session.http.infer, endpoint.name, body)

"""Requests made ready before the clock starts: bytes that clients only have to send."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import numpy as np

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import counted
from triton_repo_builder.measure.bench.target import Target
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.repository import cases
from triton_repo_builder.run.client import NOT_IN_JSON, RequestFailed, sample_inputs
from triton_repo_builder.run.client.codec import Array, encode_binary, encode_json
from triton_repo_builder.run.client.grpc import encode_request

MADE = 8
"""Different requests made for an endpoint without golden cases."""
LONG = 3000
"""Words of the text that probes whether the endpoint takes any length."""
ROOM = 64 * 2**20
"""Most bytes of ready requests that a client process keeps."""

Inputs = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Payload:
    """Encoded requests of one endpoint."""

    address: str
    bodies: tuple[bytes, ...]
    headers: tuple[Mapping[str, str], ...]
    sent: str = ""
    """Digest of the inputs."""
    schedule: tuple[tuple[float, int], ...] = ()
    """When each request is due, and its body; empty for arrivals by chance."""


def takes_text(target: Target) -> bool:
    """Whether this endpoint takes any text, alone or in each of its inputs, and so the corpus.

    Some take only certain texts (with a mask, as short as a question), or files instead of texts: they are
    sent their golden cases.
    """
    texts = [tensor for tensor in target.endpoint.needed if tensor.datatype == "BYTES"]
    golden = target.golden.cases if target.golden else ()
    if not texts or any(tensor.binary for case in golden for tensor in case.inputs):
        return False
    probe = "word" if len(texts) == 1 else "word " * LONG
    if target.golden is None and not sample_inputs.takes_files(texts):
        return True
    return _accepted(target, text_inputs(target, (probe,), 1)[0])


def check_kind(target: Target, options: BenchOptions) -> None:
    """Raise ``TrbError`` on options that choose texts if none of them would be sent."""
    chosen = {
        "--corpus": options.corpus is not None,
        "--fixed": options.fixed is not None,
        "--repeat-share": options.repeat_share is not None,
    }
    sent = "its golden cases" if target.golden else "tensors made from its metadata"
    for option in (option for option, is_chosen in chosen.items() if is_chosen):
        raise TrbError(
            Code.USAGE,
            f"{option} has no effect: this endpoint is benchmarked with {sent}",
            where=target.name,
            remedy=f"leave {option} out",
        )
    if options.lengths and not open_axes(target):
        raise TrbError(
            Code.USAGE,
            f"--lengths has no effect: this endpoint is benchmarked with {sent}, and has no open axis",
            where=target.name,
            remedy="leave --lengths out",
        )


def open_axes(target: Target) -> bool:
    """Whether a length can be chosen: tensors alone, of which one has an open axis beside the batch."""
    inputs = target.endpoint.needed
    if any(tensor.datatype == "BYTES" for tensor in inputs):
        return False
    skip = 1 if target.endpoint.max_batch_size else 0
    return any(dim < 0 for tensor in inputs for dim in tensor.shape[skip:])


def check_rows(target: Target, rows: int) -> None:
    """Raise ``TrbError`` if a request cannot have so many rows."""
    most = target.endpoint.max_batch_size or 1
    if rows > most:
        raise TrbError(
            Code.USAGE,
            f"takes at most {counted(most, 'row')} in a request, not {rows}",
            where=target.name,
            remedy="lower --rows, or build with a larger --max-batch-size",
        )


def text_inputs(target: Target, texts: Sequence[str], rows: int) -> list[Inputs]:
    """Requests of ``rows`` neighbouring texts, from every text on; inputs that are not texts are made.

    Each begins where the one before ended, so that a short measurement has sent texts of the whole corpus.
    """
    batched, count = bool(target.endpoint.max_batch_size), len(texts)
    rounds = math.gcd(rows, count)
    starts = [(first + rows * number) % count for first in range(rounds) for number in range(count // rounds)]
    rounds_of_texts = ([texts[(start + number) % count] for number in range(rows)] for start in starts)
    return _requests(
        target,
        (
            partial(sample_inputs.request, target.endpoint.needed, start, batched=batched, texts=row)
            for start, row in zip(starts, rounds_of_texts, strict=True)
        ),
    )


def _requests(target: Target, requests: Iterable[Callable[[], Inputs]]) -> list[Inputs]:
    """Requests, as many as ``encode`` may have room for. Raises ``TrbError`` if one is too large."""
    inputs: list[Inputs] = []
    size = 0
    try:
        for request in requests:
            inputs.append(request())
            size += sum(array.nbytes for array in inputs[-1].values())
            if size > 8 * ROOM:
                break
    except sample_inputs.TooLarge as error:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            str(error),
            where=target.name,
            remedy="state smaller dims in its config.pbtxt, lower --rows or --lengths, or choose another "
            "endpoint with --endpoint",
        ) from None
    return inputs


def tensor_inputs(target: Target, rows: int, length: int | None) -> tuple[list[Inputs], str]:
    """Requests from golden cases, or made from the metadata, with a description of the source."""
    if length is None and target.golden is not None:
        golden = _golden(target.golden, rows, bool(target.endpoint.max_batch_size))
        names = {tensor.name for tensor in target.endpoint.needed}
        if golden and all(names <= inputs.keys() for inputs in golden):
            return golden, f"{len(golden)} golden cases"
    unknown = sample_inputs.unknown_type(target.endpoint.needed)
    if unknown:
        raise TrbError(
            Code.UNSUPPORTED_TYPE,
            f"input {unknown.name} has type {unknown.datatype}, which bench cannot make",
            where=target.name,
            remedy="choose another endpoint with --endpoint",
        )
    batched = bool(target.endpoint.max_batch_size)
    sizes = (length,) if length else sample_inputs.OPEN_AXES
    for size in sizes:
        make = partial(
            sample_inputs.request, target.endpoint.needed, batched=batched, size=size, rows=rows, files=True
        )
        requests = _requests(target, (partial(make, number) for number in range(MADE)))
        if size == sizes[-1] or _accepted(target, requests[0]):
            break
    return requests, f"{len(requests)} inputs made from the metadata, open axes {size}"


def _golden(file: cases.CaseFile, rows: int, batched: bool) -> list[Inputs]:
    singles = [{tensor.name: tensor.array() for tensor in case.inputs} for case in file.cases]
    if not batched or rows == 1:
        return list(singles)
    # Rows of one request must be of one shape, so a case is repeated rather than mixed with others.
    return [
        {name: np.repeat(array[:1], rows, axis=0) for name, array in single.items()} for single in singles
    ]


def _accepted(target: Target, inputs: Inputs) -> bool:
    try:
        target.http.infer(target.name, encode_binary(inputs))
    except RequestFailed:
        return False
    return True


def encode(target: Target, protocol: str, requests: Sequence[Inputs]) -> Payload:
    """Encode each request; fewer of them if they would need too much memory."""
    bodies: list[bytes] = []
    headers: list[Mapping[str, str]] = []
    for inputs in requests:
        body, head = _encode_one(target, protocol, inputs)
        if bodies and sum(map(len, bodies)) + len(body) > ROOM:
            break
        bodies.append(body)
        headers.append(head)
    path = f"/v2/models/{quote(target.name, safe='')}/infer"
    address = target.variant.urls.grpc if protocol == "grpc" else target.http.url + path
    return Payload(
        address=address,
        bodies=tuple(bodies),
        headers=tuple(headers),
        sent=digest(requests[: len(bodies)], bool(target.endpoint.max_batch_size)),
    )


def digest(requests: Sequence[Inputs], batched: bool) -> str:
    """Digest of the first row of each request, whatever the encoding and the order."""
    sent = []
    for inputs in requests:
        state = hashlib.sha256()
        for array in inputs.values():
            row = array[:1] if batched else array
            texts = row.dtype.kind == "O"
            values = row.reshape(-1).tolist() if texts else [row.tobytes()]
            kind = [len(value) for value in values] if texts else f"{row.dtype.str} {row.shape}"
            state.update(b"".join([f"{kind}\n".encode(), *values]))
        sent.append(state.digest())
    return hashlib.sha256(b"".join(sorted(sent))).hexdigest()[:16]


def _encode_one(target: Target, protocol: str, inputs: Inputs) -> tuple[bytes, Mapping[str, str]]:
    if protocol == "grpc":
        return encode_request(target.name, inputs), {}
    types = {tensor.datatype for tensor in target.endpoint.inputs + target.endpoint.outputs}
    # Neither half floats nor the bytes of a file can travel as JSON.
    no_json = types & NOT_IN_JSON or any(_no_text(array) for array in inputs.values())
    encoder = encode_binary if protocol == "http-binary" or no_json else encode_json
    body = encoder(inputs)
    return body.data, body.headers


def _no_text(array: Array) -> bool:
    try:
        for value in array.reshape(-1) if array.dtype.kind == "O" else ():
            value.decode()
    except UnicodeDecodeError:
        return True
    return False

"""Inference over one gRPC channel: rows of texts or files in, arrays out, in parts of any size.

Texts go from the request's bytes into the message and numbers from the message into arrays without a Python
object for each.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np

from triton_repo_builder.run.client.codec import Array, from_raw
from triton_repo_builder.run.client.grpc import QUEUE_REFUSALS, SERVICE, service_pb2
from triton_repo_builder.run.gateway.addresses import DNS
from triton_repo_builder.run.gateway.balanced import BalancedChannel
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.http2 import CallFailed, Channel
from triton_repo_builder.run.gateway.refusal import Refusal

Columns = Mapping[str, Sequence[bytes] | Sequence[Sequence[bytes]]]
"""Input → one string for each row, or several for each (labels), as many for every row."""
Answer = dict[str, Array]
Metadata = tuple[tuple[str, str], ...]

PROGRESS: ContextVar[Callable[[int], None] | None] = ContextVar("progress", default=None)
"""Called with the rows of each part that was answered, in the context of ``Triton.infer``."""
ID, RAW_INPUT_CONTENTS = 3, 7
"""Fields of ModelInferRequest by their number."""
UNDER_WAY = 4
"""Parts of one request that wait at Triton at a time: enough to fill batches, few enough to be fair."""
STATUS = {
    "INVALID_ARGUMENT": 400,
    "OUT_OF_RANGE": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "DEADLINE_EXCEEDED": 504,
    "UNAVAILABLE": 503,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
}
"""HTTP status of Triton's gRPC status; any other is 502."""


def packed(strings: Sequence[bytes]) -> bytes:
    """The protocol's raw form of strings: each after its length in four bytes."""
    return b"".join([part for text in strings for part in (struct.pack("<I", len(text)), text)])


class Triton:
    """The channel to a server (``host:port``, ``grpcs://host:port`` for TLS), or to all of a name (``dns:///``)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.messages: Any = service_pb2()
        self.trouble = ""
        """Why the last call could not reach the server; empty if it did."""

    def open(self) -> None:
        """Make the channel; it connects at the first call."""
        self.channel = BalancedChannel(self.url) if self.url.startswith(DNS) else Channel(self.url)

    async def close(self) -> None:
        """Close the channel."""
        await self.channel.close()

    async def call(self, name: str, /, timeout: float, **fields: Any) -> Any:
        """One of the protocol's calls without metadata, such as ``ModelConfig``. Raises ``Refusal``."""
        request = getattr(self.messages, f"{name}Request")(**fields)
        return await self.ask(name, request.SerializeToString(), timeout)

    async def ask(self, name: str, request: bytes, timeout: float, metadata: Metadata = ()) -> Any:
        """The answer to one message. Raises ``Refusal``."""
        try:
            answer = await self.channel.call(f"{SERVICE}/{name}", request, timeout, metadata)
        except CallFailed as error:
            refused = refusal(error)
            self.trouble = refused.message if error.status == "UNAVAILABLE" else ""
            raise refused from None
        self.trouble = ""
        try:
            return getattr(self.messages, f"{name}Response").FromString(answer)
        except ValueError:  # protobuf's DecodeError
            raise Refusal(502, "the inference server's answer is not understood", code="backend") from None

    async def infer(
        self,
        served: Served,
        columns: Columns,
        outputs: Sequence[str],
        *,
        timeout: float,
        id: str = "",
        metadata: Metadata = (),
    ) -> list[Answer]:
        """The outputs for all rows, in order: one ``Answer`` for each part of ``served.rows`` rows."""
        total = len(next(iter(columns.values())))
        if total <= served.rows:
            return [await self.one(served, columns, outputs, timeout, id, metadata)]
        ends = range(0, total, served.rows)
        parts = [
            {name: values[start : start + served.rows] for name, values in columns.items()} for start in ends
        ]
        places = asyncio.Semaphore(UNDER_WAY)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout

        async def part(columns: Columns) -> Answer:
            async with places:
                left = deadline - loop.time()
                if left <= 0:
                    raise Refusal(504, f"no answer within {timeout:g} s", code="timeout")
                return await self.one(served, columns, outputs, left, id, metadata)

        tasks = [asyncio.ensure_future(part(each)) for each in parts]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            # After the first failure, or when the client has gone, the rest is for nobody.
            for task in tasks:
                task.cancel()

    async def one(
        self,
        served: Served,
        columns: Columns,
        outputs: Sequence[str],
        timeout: float,
        id: str = "",
        metadata: Metadata = (),
    ) -> Answer:
        """The outputs for rows that fit one request, by the task's names. Raises ``Refusal``."""
        tensors, contents = [], [delimited(ID, id.encode())]
        for name, values in columns.items():
            several = isinstance(values[0], (list, tuple))
            shape = (len(values), len(values[0]) if several else 1)
            tensors.append((served.inputs.get(name, name), shape[not served.endpoint.max_batch_size :]))
            flat: Any = [text for row in values for text in row] if several else values
            contents.append(delimited(RAW_INPUT_CONTENTS, packed(flat)))
        names = tuple([served.outputs.get(name, name) for name in outputs])
        head = self._head(served.model, served.version, tuple(tensors), names)
        response = await self.ask("ModelInfer", b"".join((head, *contents)), timeout, metadata)
        if progress := PROGRESS.get():
            progress(len(next(iter(columns.values()))))
        arrays = {
            tensor.name: from_raw(tensor.datatype, tensor.shape, raw)
            for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        }
        try:
            return {name: arrays[theirs] for name, theirs in zip(outputs, names, strict=True)}
        except KeyError as missing:
            raise Refusal(502, f"'{served.model}' gave no output {missing}", code="backend") from None

    @lru_cache(maxsize=1024)  # noqa: B019
    def _head(
        self,
        model: str,
        version: str,
        tensors: tuple[tuple[str, tuple[int, ...]], ...],
        outputs: tuple[str, ...],
    ) -> bytes:
        """All of a request that many have in common, encoded: all but its id and contents."""
        request = self.messages.ModelInferRequest(model_name=model, model_version=version)
        for name, shape in tensors:
            request.inputs.add(name=name, datatype="BYTES", shape=shape)
        for name in outputs:
            request.outputs.add(name=name)
        encoded: bytes = request.SerializeToString()
        return encoded


def delimited(number: int, content: bytes) -> bytes:
    """A field of a message, of any bytes; a message is its fields one after the other.

    https://protobuf.dev/programming-guides/encoding/
    """
    size, head = len(content), bytearray((number << 3 | 2,))
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + content


def refusal(error: CallFailed) -> Refusal:
    """The refusal that a failed call means for the gateway's client."""
    message = error.details or error.status
    if error.status == "UNAVAILABLE" and message.endswith(QUEUE_REFUSALS):
        return Refusal(429, f"{message}: try again later", code="overloaded", retry_after=1)
    if error.status == "UNAVAILABLE":
        # Triton says so of a model that is not loaded, the channel of a server that does not answer.
        message = f"the inference server is not available: {message}"
    number = STATUS.get(error.status, 502)
    return Refusal(number, message, code=error.status.lower(), retry_after=1 if number in (429, 503) else 0)


def joined(answers: Sequence[Answer], name: str) -> Array:
    """One output of all parts, whose rows have one shape."""
    if len(answers) == 1:
        return answers[0][name]
    return np.concatenate([answer[name] for answer in answers])


def rows(answers: Sequence[Answer]) -> list[Answer]:
    """The outputs of each row; outputs of open length keep the padding of their part."""
    return [
        {name: array[number] for name, array in answer.items()}
        for answer in answers
        for number in range(len(next(iter(answer.values()))))
    ]

"""One request to the gateway while it is answered, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from triton_repo_builder.run.gateway import refusal
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.refusal import Headers, Refusal, invalid
from triton_repo_builder.run.gateway.text_rules import TextRules, characters, parts
from triton_repo_builder.run.gateway.triton import Answer, Columns, Metadata, Triton

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
QUICK = 20_000
"""Characters whose tokens are counted in about a millisecond."""
MANY = 256
"""Texts, or pairs of texts, whose length in characters is not looked at one by one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: body, content type, status."""

    body: bytes
    type: bytes = JSON
    status: int = 200
    headers: Headers = field(default_factory=list)


def reply(document: Any) -> Reply:
    """A JSON answer; float32 arrays are written with the digits that give the same float32 again."""
    return Reply(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY))


class Host(Protocol):
    """The gateway, as handlers use it."""

    catalogue: Catalogue
    options: GatewayOptions
    triton: Triton
    discovery: Any
    shadow: Any
    started: float
    ready: bool

    def look_again(self) -> None:
        """Read the server's endpoints soon."""

    async def infer(
        self, call: Call, served: Served, columns: Columns, outputs: Sequence[str]
    ) -> list[Answer]:
        """``Triton.infer`` for a call. Raises ``Refusal``."""


@dataclass(slots=True)
class Call:
    """A request: its body has been read, and it has been let in."""

    gateway: Host
    path: str
    body: bytes
    headers: dict[bytes, bytes]
    """Names in lower case."""
    id: str
    metadata: Metadata = ()
    """For Triton: the trace that the request belongs to."""
    parameter: str = ""
    """The rest after the route's path: the model of ``/v1/models/…``."""
    model: str = ""
    """Name of the endpoint that answers, for logs and metrics."""
    texts: int = 0
    tokens: int = 0
    rows: int = 0
    """Rows that Triton was asked for."""
    inferred: float = 0.0
    """Seconds that Triton took, waiting included."""
    timeout: float = 30.0

    def document(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ``Refusal``."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise invalid(f"the body is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise invalid("the body must be a JSON object")
        return value

    def find(self, name: object, *tasks: str) -> Served:
        """The endpoint that the request means. Raises ``Refusal``."""
        try:
            served = self.gateway.catalogue.find(name, tasks, self.path)
        except Refusal as error:
            if error.status == 404:
                self.gateway.look_again()
                if not self.gateway.ready:
                    message = f"{error.message}; the server is not ready: it may be loading it"
                    raise Refusal(503, message, code="unavailable", retry_after=1) from None
            raise
        self.model = served.name
        return served

    async def infer(self, served: Served, columns: Columns, outputs: Sequence[str]) -> list[Answer]:
        """``Triton.infer`` within the request's deadline, counted. Raises ``Refusal``."""
        return await self.gateway.infer(self, served, columns, outputs)

    async def counted(
        self, served: Served, columns: Columns, outputs: Sequence[str], listed: Sequence[Any]
    ) -> tuple[list[Answer], int]:
        """``infer``, and meanwhile the tokens of the texts or pairs that it is given. Raises ``Refusal``."""
        counting: asyncio.Future[list[int]]
        if self.quick(listed):
            counting = asyncio.get_running_loop().create_future()
            after_writes(count, served.rules, listed, counting)
            try:
                answers = await self.infer(served, columns, outputs)
                counts = await counting
            finally:
                counting.cancel()
        else:  # what fails first ends the other
            work = asyncio.ensure_future(self.infer(served, columns, outputs))
            counting = asyncio.ensure_future(self.lengths(served, listed))
            try:
                answers, counts = await asyncio.gather(work, counting)
            finally:
                work.cancel()
                counting.cancel()
        used = served.rules.used(counts)
        self.texts += len(listed)
        self.tokens += used
        return answers, used

    async def lengths(self, served: Served, listed: Sequence[Any]) -> list[int]:
        """``TextRules.lengths``, in a thread if it takes long: other requests go on."""
        if self.quick(listed):
            return served.rules.lengths(listed)
        counts: list[int] = []
        for part in parts(listed):  # one after the other: a client that goes away ends it
            counts += await asyncio.to_thread(served.rules.lengths, part)
        return counts

    @staticmethod
    def quick(listed: Sequence[Any]) -> bool:
        """Whether tokens of texts, or of pairs of texts, are counted in about a millisecond."""
        return len(listed) < MANY and sum(map(characters, listed)) < QUICK


def after_writes(function: Callable[..., object], *arguments: object) -> None:
    """Call a function once what is written now has been sent: the loop sends at the end of its next turn."""
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, function, *arguments)


def count(rules: TextRules, listed: Sequence[Any], counting: asyncio.Future[list[int]]) -> None:
    """Count tokens, if the request still waits for them."""
    if counting.done():
        return
    try:
        counting.set_result(rules.lengths(listed))
    except Exception as error:
        counting.set_exception(error)


Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """A path and what answers it."""

    path: str
    """With ``*`` at its end for any rest."""
    handler: Handler
    api: str
    """Whose schema it has: openai, cohere, tei, huggingface, gateway."""
    method: str = "POST"
    errors: refusal.Writer = refusal.openai
    tasks: tuple[str, ...] = ()
    """Tasks of endpoints that can answer it; empty: needs none."""
    summary: str = ""
    request: Any = None
    """An example of the JSON body, for the documentation."""
    open: bool = False
    """Whether it needs no API key."""


def texts(value: object, name: str, most: int) -> list[str]:
    """A text or a list of texts. Raises ``Refusal``."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise invalid(f"`{name}` must be a string or a list of strings", name)
    if not listed:
        raise invalid(f"`{name}` is empty", name)
    check_count(len(listed), name, most)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise invalid(f"`{name}[{number}]` must be a string", name)
    return listed


def check_count(count: int, name: str, most: int) -> None:
    """Raises ``Refusal`` 413 for a list of more than ``most`` items."""
    if count > most:
        raise Refusal(413, f"`{name}` has {count} items; at most {most} are allowed", field=name)


def encoded(listed: Sequence[str], name: str) -> list[bytes]:
    """The texts in UTF-8. Raises ``Refusal`` for half a surrogate pair, which JSON can escape."""
    try:
        return [text.encode() for text in listed]
    except UnicodeEncodeError:
        raise invalid(f"`{name}` has half of a surrogate pair, which is no character", name) from None


def flag(document: dict[str, Any], name: str, default: Any = None) -> Any:
    """A boolean of the request, or ``default`` if it is missing or null. Raises ``Refusal``."""
    value = document.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(f"`{name}` must be true or false", name)
    return value


def whole(document: dict[str, Any], name: str, least: int = 1) -> int | None:
    """A whole number of the request, or None if it is missing or null. Raises ``Refusal``."""
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise invalid(f"`{name}` must be a whole number from {least}", name)
    return value

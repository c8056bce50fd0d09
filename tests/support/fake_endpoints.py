"""A gateway without a server: endpoints whose answers depend on nothing but each row."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.app import App
from triton_repo_builder.run.gateway.catalogue import Catalogue, Routing, Served
from triton_repo_builder.run.gateway.discovery import Discovery
from triton_repo_builder.run.gateway.gateway import Gateway
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.triton import Triton

ROWS = 3
"""max_batch_size, so that short lists are split already."""
WIDTH = 4
Columns = Mapping[str, Sequence[Any]]
Outputs = Callable[[Columns], dict[str, Any]]


def numbers(*values: Any, count: int = WIDTH) -> np.ndarray[Any, Any]:
    """Numbers of a row, by its content."""
    seed = zlib.crc32(repr(values).encode())
    return np.random.default_rng(seed).random(count, dtype=np.float32)


def served(
    name: str, task: str, facts: Mapping[str, Any] | None = None, more: Sequence[str] = (), **fields: Any
) -> Served:
    """An endpoint with the inputs and outputs of its task, and more outputs."""
    signature = recognition.BY_TASK[task]
    inputs = [Tensor(name=one, datatype="BYTES", shape=(-1, 1)) for one in signature.inputs]
    if task == recognition.CLASSIFICATION:
        inputs.append(Tensor(name="TEXT_PAIR", datatype="BYTES", shape=(-1, 1), optional=True))
    names = dict.fromkeys((*signature.outputs, *more))
    outputs = [Tensor(name=one, datatype="FP32", shape=(-1, WIDTH)) for one in names]
    return Served(
        name=name,
        model=name,
        task=task,
        endpoint=Endpoint(name=name, inputs=tuple(inputs), outputs=tuple(outputs), max_batch_size=ROWS),
        facts=facts or {},
        **fields,
    )


class FakeTriton(Triton):
    """Answers of ``answers``, and what it was asked."""

    def __init__(self, answers: Mapping[str, Outputs]) -> None:
        self.answers = answers
        self.asked: list[Columns] = []
        self.index: Any = None
        """The server's list of models; None: it does not answer."""
        self.restricted = False
        """Whether that list needs the admin key."""

    def open(self) -> None:
        """No channel."""

    async def close(self) -> None:
        """No channel."""

    async def call(self, name: str, /, timeout: float, **fields: Any) -> Any:
        if self.index is None:
            raise Refusal(504, "no answer within 5 s", code="deadline_exceeded")
        if self.restricted and name == "RepositoryIndex":
            raise Refusal(503, "This protocol is restricted, expecting header 'admin-key'")
        if name == "ModelReady":
            states = {model: state for model, state, _ in self.index}
            return SimpleNamespace(ready=states.get(fields["name"]) == "READY")
        rows = [SimpleNamespace(name=name, state=state, reason=reason) for name, state, reason in self.index]
        return SimpleNamespace(models=rows)

    async def one(self, served: Served, columns: Any, outputs: Sequence[str], *rest: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        assert len({len(rows) for rows in columns.values()}) == 1
        assert len(next(iter(columns.values()))) <= served.rows
        self.asked.append(columns)
        answer = self.answers[served.name](columns)
        return {name: answer[name] for name in outputs}


@dataclass
class Fake:
    """A gateway of these endpoints."""

    endpoints: Sequence[Served]
    answers: Mapping[str, Outputs]
    routes: Mapping[str, str] = field(default_factory=dict)
    options: GatewayOptions = field(default_factory=GatewayOptions)
    repo: Path | None = None

    def __post_init__(self) -> None:
        self.triton = FakeTriton(self.answers)
        gateway = Gateway(self.triton, Discovery(repo=self.repo), self.options)
        gateway.catalogue = Catalogue(self.endpoints, Routing(routes=self.routes))
        gateway.ready = True
        self.app = App(gateway)

    def only(self, name: str, **fields: Any) -> Fake:
        """The gateway of one of the endpoints, with other fields."""
        chosen = [replace(one, **fields) for one in self.endpoints if one.name == name]
        return Fake(chosen, self.answers, options=self.options, repo=self.repo)

    def ask(self, path: str, body: Any = None, kind: str = "application/json") -> Response:
        """POST of a body, bytes as they are and anything else as JSON; GET without one."""
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        sent: list[dict[str, Any]] = []

        async def run() -> None:
            pending = [{"type": "http.request", "body": data}]

            async def receive() -> dict[str, Any]:
                if pending:
                    return pending.pop()
                await asyncio.sleep(60)
                return {"type": "http.disconnect"}

            async def send(message: dict[str, Any]) -> None:
                sent.append(message)

            headers = [(b"content-type", kind.encode())] if kind else []
            method = "GET" if body is None else "POST"
            scope = {"type": "http", "method": method, "path": path, "headers": headers}
            await self.app(scope, receive, send)

        asyncio.run(run())
        return Response(sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"])

    def json(self, path: str, body: Any, kind: str = "application/json") -> Any:
        """The answer of a request that succeeds."""
        answer = self.ask(path, body, kind)
        assert answer.status == 200, answer.body
        return answer.json


@dataclass
class Response:
    """A response."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


def floats(value: Any) -> Any:
    """Numbers of JSON as the float32 that they were."""
    return np.array(value, dtype=np.float32)

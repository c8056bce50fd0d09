"""The gateway's application in front of a Triton that computes answers from the bytes that it gets."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.app import App
from triton_repo_builder.run.gateway.catalogue import Catalogue, Routing, Served
from triton_repo_builder.run.gateway.discovery import Discovery
from triton_repo_builder.run.gateway.gateway import Gateway
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.text_rules import TextRules
from triton_repo_builder.run.gateway.triton import Answer, Columns

WIDTH = 4
BATCH = 8


def numbers(text: bytes, width: int = WIDTH) -> Any:
    """Float32 numbers from 0 to 1 that depend on every byte."""
    digest = hashlib.sha256(text).digest()[: width * 4]
    return (np.frombuffer(digest, "<u4") / 2**32).astype(np.float32)


def served(name: str, task: str, **more: Any) -> Served:
    """An endpoint of a task, without a server."""
    signature = recognition.BY_TASK[task]
    inputs = tuple(Tensor(name=each, datatype="BYTES", shape=(-1, 1)) for each in signature.inputs)
    outputs = tuple(Tensor(name=each, datatype="FP32", shape=(-1, WIDTH)) for each in signature.outputs)
    endpoint = Endpoint(name=name, inputs=inputs, outputs=outputs, max_batch_size=BATCH)
    return Served(name=name, model=name, task=task, endpoint=endpoint, **more)


class FakeTriton:
    """Answers of known form; ``requests`` are the columns of each call."""

    def __init__(self) -> None:
        self.requests: list[Columns] = []
        self.failure: Refusal | None = None

    def open(self) -> None:
        """No channel."""

    async def infer(self, served: Served, columns: Columns, outputs: Sequence[str], **_: Any) -> list[Answer]:
        """One answer for each part of ``served.rows`` rows."""
        self.requests.append(columns)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        listed = [b"|".join(row) for row in zip(*columns.values(), strict=True)]
        parts = [listed[start : start + served.rows] for start in range(0, len(listed), served.rows)]
        return [{name: self._output(served, name, part) for name in outputs} for part in parts]

    @staticmethod
    def _output(served: Served, name: str, part: Sequence[bytes]) -> Any:
        rows = np.array([numbers(text) for text in part])
        labels = served.facts.get("labels", [f"label {number}" for number in range(WIDTH)])
        columns: dict[str, Callable[[], Any]] = {
            "embedding": lambda: rows,
            "scores": lambda: rows[:, : len(labels)],
            "score": lambda: rows[:, :1],
            "label": lambda: np.array(
                [[labels[place].encode()] for place in rows[:, : len(labels)].argmax(axis=1)], dtype=object
            ),
            "text": lambda: np.array([[b"heard " + text[:4]] for text in part], dtype=object),
        }
        return columns[name]()


class FakeGateway:
    """The application, asked without a socket."""

    def __init__(self, *endpoints: Served, routing: Routing | None = None, **options: Any) -> None:
        self.triton = FakeTriton()
        gateway = Gateway(self.triton, Discovery(), GatewayOptions(**options))  # type: ignore[arg-type]
        gateway.catalogue = Catalogue(endpoints, routing or Routing())
        gateway.ready = True
        self.app = App(gateway)

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One request."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                return await client.request(method, path, **request)

        return asyncio.run(send())

    def post(self, path: str, **document: Any) -> httpx.Response:
        """A JSON body of these fields."""
        return self.ask("POST", path, json=document)


def rules(tokenizer: Path, **more: Any) -> TextRules:
    """Rules with a tokenizer of tests (``tiny.tokenizer``): a token for each word, [CLS] and [SEP]."""
    return TextRules(file=tokenizer, **more)

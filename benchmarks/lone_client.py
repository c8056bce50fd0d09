"""What a server in between adds for a lone client: each text goes every way, one after the other.

Two p50s, each of texts and moments of its own, swing by more than what is looked for; the times of one text
right after each other differ by less.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from typing import Any

import common
import numpy as np

from triton_repo_builder.measure.bench.load.messages import WorkerLoad
from triton_repo_builder.measure.bench.load.senders import GrpcSender, HttpSender
from triton_repo_builder.run.client.grpc import encode_request

TEXTS = 500
FIRST = 20
"""Texts before those that count."""


def texts() -> list[str]:
    """Texts of the corpus, of all lengths."""
    corpus = common.corpus()
    return list(corpus[:: max(1, len(corpus) // TEXTS)][:TEXTS])


def _load(protocol: str, address: str, bodies: list[Any]) -> WorkerLoad:
    kind = {"Content-Type": "application/json"}
    return WorkerLoad(
        protocol=protocol,
        address=address,
        bodies=tuple(bodies),
        headers=tuple(kind for _ in bodies),
        first=0,
        clients=1,
        rate=None,
        in_flight=1,
        timeout=30.0,
        seed=0,
    )


def over_grpc(address: str, name: str) -> GrpcSender:
    """The texts straight to Triton."""
    rows = [np.array([[text.encode()]], dtype=object) for text in texts()]
    return GrpcSender(_load("grpc", address, [encode_request(name, {"TEXT": row}) for row in rows]))


def over_http(url: str, model: str, form: str) -> HttpSender:
    """The texts to /v1/embeddings."""
    documents = [{"model": model, "input": text, "encoding_format": form} for text in texts()]
    return HttpSender(_load("http", url, [json.dumps(each).encode() for each in documents]))


async def _times(ways: Mapping[str, GrpcSender | HttpSender]) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {label: [] for label in ways}
    for sender in ways.values():
        await sender.open()
    labels, count = list(ways), len(texts())
    for number in range(-FIRST, count):
        for label in (labels * 2)[number % len(labels) :][: len(labels)]:
            begun = time.perf_counter()
            failure = await ways[label].send(number % count)
            if failure is not None:
                raise SystemExit(f"{label}: {failure}")
            if number >= 0:
                taken[label].append(1000 * (time.perf_counter() - begun))
    for sender in ways.values():
        await sender.close()
    return taken


def table(ways: Mapping[str, GrpcSender | HttpSender]) -> str:
    """Median milliseconds of each way, and what it adds to the first: quartiles over the texts."""
    taken = asyncio.run(_times(ways))
    first, *others = ways
    rows = [[first, f"{statistics.median(taken[first]):.2f}", "", ""]]
    for label in others:
        added = [mine - direct for mine, direct in zip(taken[label], taken[first], strict=True)]
        low, middle, high = statistics.quantiles(added, n=4)
        between = f"{low:+.2f} to {high:+.2f}"
        rows.append([label, f"{statistics.median(taken[label]):.2f}", f"{middle:+.2f}", between])
    return common.table(("a lone client", "p50 ms", "added, ms: median", "quartiles"), rows)

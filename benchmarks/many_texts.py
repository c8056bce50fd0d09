"""How fast 1,000 texts are embedded, by five ways to call one endpoint of a running server.

    trb serve .demo/model_repository                  what trb demo built
    python benchmarks/many_texts.py minilm            in another terminal

Every round takes all ways in turn on the same texts; the table has medians, and ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from triton_repo_builder.measure.bench.load import texts as load
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.codegen import example, python_client

Vectors = list[list[float]]
Way = Callable[[Sequence[str]], Vectors]


def post(url: str, body: dict[str, Any]) -> Any:
    """The JSON answer to a JSON request, on a connection of its own."""
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)


def one_by_one(url: str, field: str, output: str, under_way: int) -> Way:
    """One text a request, by Triton's generate extension."""

    def way(texts: Sequence[str]) -> Vectors:
        with ThreadPoolExecutor(under_way) as pool:
            return list(pool.map(lambda text: post(f"{url}/generate", {field: text})[output], texts))

    return way


def batches(url: str, field: str, size: int, under_way: int) -> Way:
    """Many texts a request, by infer with JSON."""

    def ask(part: Sequence[str]) -> Vectors:
        tensor = {"name": field, "datatype": "BYTES", "shape": [len(part), 1], "data": part}
        data = post(f"{url}/infer", {"inputs": [tensor]})["outputs"][0]["data"]
        width = len(data) // len(part)
        return [data[row * width : (row + 1) * width] for row in range(len(part))]

    def way(texts: Sequence[str]) -> Vectors:
        parts = [texts[start : start + size] for start in range(0, len(texts), size)]
        with ThreadPoolExecutor(under_way) as pool:
            return [vector for vectors in pool.map(ask, parts) for vector in vectors]

    return way


def ways(base: str, name: str) -> dict[str, Way]:
    """All ways, the slowest as one would expect first."""
    endpoint = HttpClient(base).describe(name)
    module = ModuleType("client")
    sys.modules["client"] = module  # where its dataclass looks for it
    exec(python_client.typed(example.example(endpoint, Path()), base), module.__dict__)
    if not hasattr(module, "embed"):
        raise SystemExit(f"{name} is not an endpoint of one text and one vector")
    field, output, most = endpoint.needed[0].name, endpoint.outputs[0].name, endpoint.max_batch_size
    url = f"{base}/v2/models/{name}"
    return {
        "`/generate`, one text a request, one after another": one_by_one(url, field, output, 1),
        "`/generate`, one text a request, 16 under way": one_by_one(url, field, output, 16),
        f"`/infer`, {most} texts a request, one after another": batches(url, field, most, 1),
        f"`/infer`, {most} texts a request, 4 under way": batches(url, field, most, 4),
        "`embed(texts)` of the Python client": module.embed,
    }


def measured(chosen: dict[str, Way], texts: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round. Raises ``AssertionError`` if two ways answer differently."""
    seconds: dict[str, list[float]] = {title: [] for title in chosen}
    expected: Any = None
    for _ in range(rounds):
        for title, way in chosen.items():
            start = time.monotonic()
            answer = way(texts)
            seconds[title].append(time.monotonic() - start)
            expected = answer if expected is None else expected
            np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-4, err_msg=title)
    return seconds


def table(seconds: dict[str, list[float]], count: int) -> str:
    """Markdown: texts per second, and the median ratio to the first way within a round."""
    first = next(iter(seconds.values()))
    lines = ["| way | texts/s | × the first |", "|---|---|---|"]
    for title, taken in seconds.items():
        ratio = statistics.median(base / own for base, own in zip(first, taken, strict=True))
        lines.append(f"| {title} | {count / statistics.median(taken):.0f} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", default="minilm", help="endpoint of the server")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="HTTP address of the server")
    parser.add_argument("--texts", type=int, default=1000, help="number of texts (1000)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    corpus = load.corpus(None)
    texts = [corpus[number % len(corpus)] for number in range(options.texts)]
    chosen = ways(options.url.rstrip("/"), options.name)
    chosen["`embed(texts)` of the Python client"](texts[:64])
    print(table(measured(chosen, texts, options.rounds), len(texts)))


if __name__ == "__main__":
    main()

"""What metrics cost: an endpoint built with ``--metrics on`` over the same one with ``off``, on one server.

    .venv/bin/python benchmarks/metrics_cost.py [--models fp32,int8,classifier] [--server COMMAND]

``off`` is there twice: how far the two differ is noise. The answers of all must be equal, bit for bit.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import Result, Sample, number, of, ratio, spread

from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client import statistics as server_statistics
from triton_repo_builder.run.client.codec import encode_binary

OFF, AGAIN, ON = "off", "off, again", "on"
VARIANTS = {OFF: ("off", "off"), AGAIN: ("again", "off"), ON: ("on", "on")}
"""Endpoint's name and ``--metrics``, by the label in the tables."""
CHECKED = 48


def build(name: str, folder: Path) -> None:
    """The endpoints of one model."""
    source = common.model("fp32" if name == "int8" else name)
    precision = {"precision": "int8"} if name == "int8" else {}
    for endpoint, metrics in VARIANTS.values():
        common.ours(source, folder, endpoint, metrics=metrics, **precision)


def check(server: common.Server) -> None:
    """All endpoints give the same answers."""
    client = HttpClient(server.urls.http, 60.0)
    for text in common.corpus()[:: len(common.corpus()) // CHECKED]:
        row = encode_binary({"TEXT": np.array([[text.encode()]], dtype=object)})
        answers = [client.infer(endpoint, row) for endpoint, _ in VARIANTS.values()]
        for other in answers[1:]:
            if any(not np.array_equal(other[key], value) for key, value in answers[0].items()):
                raise SystemExit(f"metrics change the answer to {text!r}")


def counted(server: common.Server) -> dict[str, float]:
    """Families of our metrics that the server has, and their sum over all series."""
    page, _ = server_statistics.read_metrics(server.urls.metrics)
    sums: dict[str, float] = {}
    for line in page.splitlines():
        if line.startswith("trb_") and 'model="off' not in line and 'model="again' not in line:
            series, value = line.rsplit(" ", 1)
            family = series.partition("{")[0]
            sums[family] = sums.get(family, 0.0) + float(value)
    return sums


def table(taken: list[Sample]) -> str:
    """Every variant at every load, over metrics that are off."""
    head = ("clients", "metrics", "requests/s", "p50 ms", "p99 ms", "server CPU ms/request")
    rows = []
    for load in dict.fromkeys(one.clients for one in taken):
        for label in VARIANTS:
            mine = of(taken, label, load)
            cells = [number(common.median(mine, field), 2) for field in ("p50", "p99", "cpu_ms")]
            over = [
                "1" if label == OFF else exact(ratio(taken, label, OFF, load, field))
                for field in ("throughput", "p50")
            ]
            rows.append([str(load), label, number(common.median(mine, "throughput")), *cells, *over])
    return common.table((*head, "throughput over off", "p50 over off"), rows)


def exact(values: list[float]) -> str:
    """``0.994 (0.981 to 1.003)``: ``spread`` has a digit too few for these."""
    if not values:
        return spread(values)
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def measured(name: str, arguments: Any) -> tuple[list[Sample], dict[str, float]]:
    """All variants of a model at all loads, and what the server counted meanwhile."""
    with common.scratch() as folder:
        build(name, folder)
        with common.served(folder, arguments.server) as server:
            check(server)
            variants = {
                label: common.triton(label, server, folder, endpoint, f"{endpoint}_model", arguments)
                for label, (endpoint, _) in VARIANTS.items()
            }
            return common.interleave(variants, arguments.clients, arguments.rounds), counted(server)


def main() -> None:
    parser = common.parser(__doc__, rounds=8)
    parser.add_argument("--models", default="fp32,int8,classifier")
    parser.add_argument("--clients", type=common.loads, default=(1, 16))
    arguments = parser.parse_args()
    suffix, engine = common.engine(arguments)
    result = Result(f"metrics_cost{suffix}", f"What metrics cost, {engine}", arguments.output)
    result.add(
        "all-MiniLM-L6-v2, texts of mixed lengths; `classifier` has a linear head. Medians of "
        f"{arguments.rounds} turns of {arguments.window:g} s; ratios turn by turn, with the smallest and "
        f"largest. The endpoints answer {CHECKED} texts alike, bit for bit. Two endpoints without metrics "
        "differ by noise alone."
    )
    samples: list[Sample] = []
    for name in arguments.models.split(","):
        taken, sums = measured(name, arguments)
        result.add(f"## {name}", table(taken))
        common.plot(taken, result.image(f"_{name}"), name)
        result.data.setdefault("metrics", {})[name] = sums
        samples += common.labelled(taken, name)
    result.write(samples)


if __name__ == "__main__":
    main()

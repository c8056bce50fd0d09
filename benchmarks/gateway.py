"""What the gateway costs: /v1/embeddings beside gRPC straight to Triton, infinity and FastAPI, in one run.

    .venv/bin/python benchmarks/gateway.py [--models fp32,fp32_tuned,int8] [--server COMMAND]

All share the cores with the clients. Texts of mixed lengths, one a request; then lists of 64 and of 1,000.
fp32 has trb build's default, one instance of all threads, which answers a lone client sooner; fp32_tuned has
an instance of one thread for each core, as trb tune sets for throughput. FastAPI + ONNX Runtime and infinity
(``make .venv-peers/.ready``; left out with ``--no-peers``) answer the same route in fp32, at 1 and 32
clients. All answers are compared first: the gateway's must be Triton's, bit for bit.
"""

from __future__ import annotations

import base64
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import common
import fastapi_baseline
import lone_client
import numpy as np
import peers
from common import Measure, Result, Sample, ratio, spread

from triton_repo_builder.base import hardware
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_binary

DIRECT, FLOATS, PACKED = "gRPC to Triton", "gateway, floats", "gateway, base64"
FASTAPI, INFINITY = "FastAPI + ONNX Runtime", "infinity"
ROUTE = "/v1/embeddings"
LISTS = (64, 1000)
CHECKED = 48
TOLERANCE = 1e-5
"""Between ours and other servers; the gateway's answers must be equal."""
PEER_CLIENTS = (1, 32)
CORES = hardware.here().cores
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp32": ("fp32, as trb build makes it", {}),
    "fp32_tuned": ("fp32, an instance of one thread for each core", {"instances": CORES, "threads": 1}),
    "int8": ("int8", {"precision": "int8"}),
}
"""Title, and options of trb build."""


@contextmanager
def gateway(repo: Path, grpc: str) -> Iterator[tuple[str, int]]:
    """A running gateway: its url and process id."""
    argv = [sys.executable, "-m", "triton_repo_builder", "gateway", "--json", "--port", "0"]
    argv += ["--url", grpc, "--repo", str(repo), "--deadline", "120"]
    with subprocess.Popen(argv, cwd=common.ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()


def post(url: str, body: Any) -> Any:
    """The JSON answer to a JSON request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + ROUTE, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def bodies(model: str, form: str) -> tuple[bytes, ...]:
    """The corpus, one text a request."""
    return tuple(
        json.dumps({"model": model, "input": text, "encoding_format": form}).encode()
        for text in common.corpus()
    )


def vectors(url: str, model: str, texts: list[str], form: str) -> Any:
    """Vectors of a list by the gateway."""
    data = post(url, {"model": model, "input": texts, "encoding_format": form})["data"]
    rows = [one["embedding"] for one in data]
    if form == "base64":
        return np.stack([np.frombuffer(base64.b64decode(row), np.float32) for row in rows])
    return np.array(rows, np.float32)


def check(server: common.Server, url: str, name: str, others: dict[str, str]) -> dict[str, float]:
    """Answers of all, compared; the largest difference of each other server to ours."""
    texts = list(common.corpus()[:: len(common.corpus()) // CHECKED][:CHECKED])
    client = HttpClient(server.urls.http, 60.0)

    def direct(text: str) -> Any:
        row = np.array([[text.encode()]], dtype=object)
        return client.infer(name, encode_binary({"TEXT": row}))["embedding"][0]

    mine = np.stack([direct(text) for text in texts])
    for form in ("float", "base64"):
        one_by_one = np.stack([vectors(url, name, [text], form)[0] for text in texts])
        if not np.array_equal(one_by_one, mine):
            raise SystemExit(f"{form}: the gateway's answers are not Triton's")
    listed = vectors(url, name, texts, "float")
    apart = {"a list": float(np.abs(listed - mine).max())}
    for label, other in others.items():
        rows = [post(other, {"model": "encoder", "input": text})["data"][0]["embedding"] for text in texts]
        apart[label] = float(np.abs(np.array(rows, np.float32) - mine).max())
    if max(apart.values()) > TOLERANCE:
        raise SystemExit(f"they do not give the same answers: {apart}")
    return apart


def lists(urls: dict[str, tuple[str, str]], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Texts a second of one client that sends lists, in turns."""
    taken: dict[str, dict[int, list[float]]] = {label: {size: [] for size in LISTS} for label in urls}
    for size in LISTS:
        texts = [common.corpus()[number % len(common.corpus())] for number in range(size)]
        for _ in range(rounds):
            for label, (url, model) in urls.items():
                begun = time.monotonic()
                post(url, {"model": model, "input": texts})
                taken[label][size].append(size / (time.monotonic() - begun))
                common.say(f"list of {size}, {label}: {taken[label][size][-1]:.0f} texts/s")
    return taken


def overhead(taken: list[Sample], clients: tuple[int, ...]) -> str:
    """The gateway over gRPC: share of the throughput."""
    rows = [
        [str(load), label, spread(ratio(taken, label, DIRECT, load, "throughput"))]
        for load in clients
        for label in (FLOATS, PACKED)
    ]
    return common.table(("clients", "", "throughput over gRPC"), rows)


def measured(name: str, arguments: Any, result: Result) -> list[Sample]:
    """One model: the gateway beside gRPC, at all loads, and in fp32 beside the peers."""
    source = common.model("fp32")
    title, options = MODELS[name]
    with ExitStack() as stack:
        folder, pool = stack.enter_context(common.scratch()), stack.enter_context(WorkerPool())
        common.ours(source, folder, name, **options)
        server = stack.enter_context(common.served(folder, arguments.server))
        url, pid = stack.enter_context(gateway(folder, server.urls.grpc))
        others: dict[str, tuple[str, int]] = {}
        if name != "int8" and arguments.peers:
            plain = common.model("plain")
            others[FASTAPI] = stack.enter_context(fastapi_baseline.fastapi(source, 1))
            found, other_pid = stack.enter_context(peers.infinity(plain, {"INFINITY_URL_PREFIX": "/v1"}))
            others[INFINITY] = (found, other_pid)
        apart = check(server, url, name, {label: other for label, (other, _) in others.items()})

        def over_http(label: str, base: str, process: int, requests: tuple[bytes, ...]) -> Measure:
            return fastapi_baseline.measure(label, base + ROUTE, process, pool, arguments, requests)

        variants = {
            DIRECT: common.triton(DIRECT, server, folder, name, f"{name}_model", arguments),
            FLOATS: over_http(FLOATS, url, pid, bodies(name, "float")),
            PACKED: over_http(PACKED, url, pid, bodies(name, "base64")),
        }
        taken = common.interleave(variants, arguments.clients, arguments.rounds)
        result.add(
            f"## {title}",
            "The gateway's own CPU is in its column; Triton's is in that of gRPC.",
            common.load_table(taken, DIRECT),
            overhead(taken, arguments.clients),
            f"A lone client that sends each of {lone_client.TEXTS} texts every way, one after the other:",
            lone_client.table(
                {
                    DIRECT: lone_client.over_grpc(server.urls.grpc, name),
                    FLOATS: lone_client.over_http(url + ROUTE, name, "float"),
                    PACKED: lone_client.over_http(url + ROUTE, name, "base64"),
                }
            ),
        )
        common.plot(taken, result.image(f"_{name}"), name)
        beside: list[Sample] = []
        if others:
            compared = {FLOATS: variants[FLOATS]} | {
                label: over_http(label, other, process, bodies("encoder", "float"))
                for label, (other, process) in others.items()
            }
            beside = common.interleave(compared, PEER_CLIENTS, arguments.rounds)
            urls = {FLOATS: (url, name)} | {label: (other, "encoder") for label, (other, _) in others.items()}
            by_list = lists(urls, arguments.rounds)
            result.add(
                f"## Beside other servers of the same route: {title}",
                f"Largest difference to our answers: {apart}.",
                common.load_table(beside, FLOATS),
                "Lists, one client, texts/s:",
                common.table(
                    ("", *(f"list of {size}" for size in LISTS)),
                    [
                        [label, *(f"{statistics.median(rates[size]):.0f}" for size in LISTS)]
                        for label, rates in by_list.items()
                    ],
                ),
            )
            result.data[f"lists_{name}"] = by_list
        return common.labelled([*taken, *beside], name)


def main() -> None:
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--models", default="fp32,fp32_tuned,int8")
    parser.add_argument("--clients", type=common.loads, default=(1, 16, 64))
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="ours and Triton only")
    arguments = parser.parse_args()
    suffix, engine = common.engine(arguments)
    result = Result(f"gateway{suffix}", f"The gateway beside gRPC, {engine}", arguments.output)
    result.add(
        "all-MiniLM-L6-v2, texts of mixed lengths; clients, gateway and server share the cores. Medians of "
        f"{arguments.rounds} turns of {arguments.window:g} s; ratios turn by turn, with the smallest and "
        f"largest. The gateway's answers to {CHECKED} texts are Triton's, bit for bit, also in base64."
    )
    samples: list[Sample] = []
    for name in arguments.models.split(","):
        samples += measured(name, arguments, result)
    result.write(samples)


if __name__ == "__main__":
    main()

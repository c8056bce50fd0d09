"""The seeds' baseline, FastAPI + ONNX Runtime + transformers tokenizer, against ours, over HTTP with JSON.

    .venv/bin/python benchmarks/fastapi_baseline.py [--model fp32] [--clients 1,4,16,64] [--rounds 3]

One uvicorn worker per core, with ONNX Runtime's default threads and with one thread. All servers run all the
time and are loaded in turns, by the same client processes with the same texts. The baseline's sockets get
TCP_NODELAY, without which uvicorn's workers answer 40 ms late (fastapi_app.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np
import speed_of_light
from common import Measure, Result, Sample, median, of, ratio, spread

from triton_repo_builder.measure.bench.load.messages import OK, Chunk, WorkerLoad
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_json
from triton_repo_builder.run.serve import ServeOptions
from triton_repo_builder.run.serve.processes import cpu, ports

OURS = {
    "on": ("ours, batching on", {"batching": "on", "instances": 2, "threads": 1}),
    "default": ("ours, trb build's defaults", {}),
}
FASTAPI = {"FastAPI, default threads": 0, "FastAPI, 1 thread": 1}
READY = 90.0
CHECKED = 12
TOLERANCE = {"fp32": 1e-5, "int8": 5e-2}


@contextmanager
def fastapi(source: Path, threads: int) -> Iterator[tuple[str, int]]:
    """A running baseline: its url and process id."""
    port = ports.choose(ServeOptions(http_port=0, grpc_port=0, metrics_port=0)).http
    cores = os.cpu_count() or 1
    argv = [sys.executable, "fastapi_app.py", str(port), str(cores)]
    environment = {**os.environ, "TRB_MODEL": str(source), "TRB_THREADS": str(threads)}
    with tempfile.TemporaryFile() as log:
        here = Path(__file__).parent
        server = subprocess.Popen(argv, cwd=here, env=environment, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, server)
            yield url, server.pid
        finally:
            server.terminate()
            server.wait()


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the FastAPI server did not start")


def ask(url: str, text: str) -> list[float]:
    """One request to the baseline."""
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(f"{url}/predict", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return list(json.loads(answer.read())["embedding"])


def measure(
    name: str, url: str, pid: int, pool: WorkerPool, arguments: Any, bodies: tuple[bytes, ...] = ()
) -> Measure:
    """Loads a server as ``trb bench`` loads Triton: the same client processes, the same windows."""
    bodies = bodies or tuple(json.dumps({"text": text}).encode() for text in common.corpus())
    headers = tuple({"Content-Type": "application/json"} for _ in bodies)

    def one(clients: int) -> Sample:
        count = min(4, cpu.count(), clients)
        loads = [
            WorkerLoad(
                protocol="http",
                address=url,
                bodies=bodies,
                headers=headers,
                first=each * len(bodies) // count,
                clients=clients // count + (each < clients % count),
                rate=None,
                in_flight=1024,
                timeout=30.0,
                seed=each,
            )
            for each in range(count)
        ]
        pool.prepare(loads)
        begin = time.monotonic() + 0.05
        pool.begin(begin)
        time.sleep(max(0.0, begin + arguments.warmup - time.monotonic()))
        start = _reading(pool, pid)
        time.sleep(arguments.window)
        end = _reading(pool, pid)
        pool.stop(30.0)
        return _sample(name, clients, start, end)

    return one


Reading = tuple[float, float, list[Chunk]]


def _reading(pool: WorkerPool, pid: int) -> Reading:
    used = cpu.tree_seconds(pid) or 0.0
    return time.monotonic(), used, pool.take()


def _sample(name: str, clients: int, start: Reading, end: Reading) -> Sample:
    seconds = end[0] - start[0]
    answered = [e - d for c in end[2] for d, e, k in zip(c.due, c.ended, c.kind, strict=True) if k == OK]
    failed = sum(kind != OK for chunk in end[2] for kind in chunk.kind)
    used = end[1] - start[1]
    half, most = np.percentile(answered, (50, 99)) * 1000 if answered else (None, None)
    return Sample(
        variant=name,
        clients=clients,
        throughput=len(answered) / seconds,
        p50=half,
        p99=most,
        cpu_ms=used * 1000 / len(answered) if answered else None,
        rows=1.0,
        failed=failed,
        others=0.0,
        bottleneck="",
        split={},
    )


def check(triton: str, urls: list[str], tolerance: float) -> float:
    """Largest difference between the answers."""
    client, apart = HttpClient(triton, 60.0), 0.0
    for text in common.corpus()[:: len(common.corpus()) // CHECKED]:
        given = np.array([[text.encode()]], dtype=object)
        mine = np.asarray(client.infer("default", encode_json({"TEXT": given}))["embedding"]).reshape(-1)
        apart = max(apart, *(float(np.abs(mine - np.array(ask(url, text))).max()) for url in urls))
    if apart > tolerance:
        raise SystemExit(f"ours and the baseline do not give the same answers: {apart} apart")
    return apart


def main() -> None:
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--model", default="fp32", choices=("fp32", "int8"))
    parser.add_argument("--clients", type=common.loads, default=(1, 4, 16, 64))
    parser.set_defaults(protocol="http")
    arguments = parser.parse_args()
    source = common.model(arguments.model)
    result = Result("fastapi_baseline", "Ours against FastAPI + ONNX Runtime", arguments.output)
    plain, single = FASTAPI
    with common.scratch() as folder, WorkerPool() as pool:
        for name, (_, options) in OURS.items():
            common.ours(source, folder, name, **options)
        with (
            fastapi(source, FASTAPI[plain]) as first,
            fastapi(source, FASTAPI[single]) as second,
            common.served(folder, arguments.server) as server,
        ):
            apart = check(server.urls.http, [first[0], second[0]], TOLERANCE[arguments.model])
            variants = {
                plain: measure(plain, f"{first[0]}/predict", first[1], pool, arguments),
                single: measure(single, f"{second[0]}/predict", second[1], pool, arguments),
            }
            for name, (label, _) in OURS.items():
                variants[label] = common.triton(label, server, folder, name, f"{name}_model", arguments)
            samples = common.interleave(variants, arguments.clients, arguments.rounds)
    result.add(
        f"all-MiniLM-L6-v2 {arguments.model}, mixed-length texts, {os.cpu_count()} uvicorn workers; ours "
        f"over {arguments.protocol}. Median of {arguments.rounds} turns of {arguments.window:g} s. Largest "
        f"difference between the answers: {apart:.1e}. The baseline's sockets are given TCP_NODELAY, which "
        "`uvicorn --workers` leaves out: with it a lone client waits 4 ms, without it 48 ms.",
        common.load_table(samples, plain),
    )
    common.plot(samples, result.image(), f"FastAPI + ONNX Runtime, all-MiniLM-L6-v2 {arguments.model}")
    load = arguments.clients[-1]
    best = max((plain, single), key=lambda label: median(of(samples, label, load), "throughput") or 0.0)
    for label, _ in OURS.values():
        over = spread(ratio(samples, label, best, load, "throughput"))
        result.add(f"{label}, {load} clients: {over} × the throughput of the better baseline ({best}).")
    if arguments.model == "fp32":
        result.add(speed_of_light.best(source, samples, OURS["default"][0]))
    result.write(samples)


if __name__ == "__main__":
    main()

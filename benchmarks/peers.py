"""Ours beside other ways to serve the same ONNX file: infinity, fastembed, FastAPI, the usual template.

    .venv/bin/python benchmarks/peers.py [--clients 1,16,32] [--rounds 3] [--server COMMAND]

All servers run all the time and are loaded in turns over HTTP with JSON, by the same client processes with
the same texts; all answers are compared first. infinity (its ``optimum`` engine) and fastembed come from
their own packages, in .venv-peers: ``make .venv-peers/.ready``. What is a library or ONNX Runtime itself has
no clients: one process on each core, text by text and in batches.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import common
import fastapi_baseline
import limit
import numpy as np
import speed_of_light
import template_repository
from common import Measure, Result, Sample, median, of, ratio, spread
from template_repository import Template

from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_json

PEERS = common.ROOT / ".venv-peers" / "bin"
OURS = "trb build's defaults"
TEMPLATES = {
    "usual": ("usual template", Template()),
    "usual_threads": ("usual template, 2 one-thread instances", Template(instances=2, threads=1)),
}
FASTAPI = {"FastAPI + ONNX Runtime": 0, "FastAPI + ONNX Runtime, 1 thread": 1}
INFINITY = {
    "infinity": {},
    "infinity, batches of 4": {"INFINITY_BATCH_SIZE": "4"},
}
READY = 120.0
CHECKED = 24
TOLERANCE = 1e-5
CUT = 128
"""Tokens that fastembed keeps of a text."""
LIBRARY_BATCHES = (1, 32)


@contextmanager
def infinity(model: Path, environment: dict[str, str]) -> Iterator[tuple[str, int]]:
    """A running infinity of one model: its url and process id."""
    (port,) = common.free_ports(1)
    argv = [str(PEERS / "infinity_emb"), "v2", "--model-id", ".", "--served-model-name", "encoder"]
    argv += ["--engine", "optimum", "--device", "cpu", "--pooling-method", "mean"]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--no-model-warmup"]
    quiet = {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0", "INFINITY_LOG_LEVEL": "warning"}
    with tempfile.TemporaryFile() as log:
        # Given a path it looks for a file of that whole name inside it (optimum 2), so it starts there.
        server = subprocess.Popen(
            argv, cwd=model, env={**os.environ, **quiet, **environment}, stdout=log, stderr=log
        )
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + READY
            while not _answers(f"{url}/health"):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"infinity did not start:\n{log.read().decode()[-2000:]}")
                time.sleep(0.5)
            yield url, server.pid
        finally:
            server.terminate()
            server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def infinity_bodies() -> tuple[bytes, ...]:
    """The corpus as requests to it, one text each."""
    return tuple(json.dumps({"model": "encoder", "input": [text]}).encode() for text in common.corpus())


def ask_infinity(url: str, body: bytes) -> list[float]:
    """One request."""
    request = urllib.request.Request(f"{url}/embeddings", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return list(json.loads(answer.read())["data"][0]["embedding"])


def fastembed(model: Path, batch: int, seconds: float) -> dict[str, float]:
    """One process on each core: their texts a second together, and CPU ms of a text."""
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps(common.corpus()))
        argv = [*_fastembed(model, texts), str(batch), str(seconds)]
        count = os.cpu_count() or 1
        started = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        answers = [json.loads(process.communicate()[0]) for process in started]
    return {
        "throughput": sum(answer["throughput"] for answer in answers),
        "cpu_ms": statistics.mean(answer["cpu_ms"] for answer in answers),
    }


def _fastembed(model: Path, texts: Path) -> list[str]:
    script = Path(__file__).with_name("fastembed_alone.py")
    return [str(PEERS / "python"), str(script), str(model), str(texts)]


def check(triton: str, endpoints: Sequence[str], urls: dict[str, str], model: Path) -> dict[str, float]:
    """Largest difference of a number to ours, of each."""
    chosen = common.corpus()[:: len(common.corpus()) // CHECKED][:CHECKED]
    bodies = infinity_bodies()[:: len(common.corpus()) // CHECKED][:CHECKED]
    client = HttpClient(triton, 60.0)

    def served(endpoint: str, text: str) -> Any:
        tensors = encode_json({"TEXT": np.array([[text.encode()]], dtype=object)})
        return np.asarray(client.infer(endpoint, tensors)["embedding"]).reshape(-1)

    mine = np.stack([served("ours", text) for text in chosen])
    answers = {name: [served(name, text) for text in chosen] for name in endpoints}
    for name, url in urls.items():
        if name in INFINITY:
            answers[name] = [ask_infinity(url, body) for body in bodies]
        else:
            answers[name] = [fastapi_baseline.ask(url, text) for text in chosen]
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps(chosen))
        argv = [*_fastembed(model, texts), "32", "1", "--check"]
        answers["fastembed"] = json.loads(subprocess.check_output(argv, text=True))
    whole = np.array([length <= CUT for length in common.lengths(model, chosen)])
    answers["fastembed"] = np.where(whole[:, None], answers["fastembed"], mine)
    apart = {name: float(np.abs(np.asarray(values) - mine).max()) for name, values in answers.items()}
    if max(apart.values()) > TOLERANCE:
        raise SystemExit(f"they do not give the same answers: {apart}")
    return apart


def alone(model: Path, arguments: Any) -> dict[str, dict[str, list[float]]]:
    """Without server and clients, one process on each core, in turns."""
    measured: dict[str, dict[str, list[float]]] = {}
    cores = os.cpu_count() or 1
    for _ in range(arguments.rounds):
        parts = limit.processes(model, "single", cores, arguments.window)
        texts = sum(1000 / each["wall_ms"] for each in parts)
        _note(measured, "ONNX Runtime, text by text", texts, statistics.mean(p["cpu_ms"] for p in parts))
        for batch in LIBRARY_BATCHES:
            found = fastembed(model, batch, arguments.window)
            way = "text by text" if batch == 1 else f"batches of {batch}"
            _note(measured, f"fastembed, {way}", found["throughput"], found["cpu_ms"])
    return measured


def _note(measured: dict[str, dict[str, list[float]]], name: str, throughput: float, cpu_ms: float) -> None:
    entry = measured.setdefault(name, {"throughput": [], "cpu_ms": []})
    entry["throughput"].append(throughput)
    entry["cpu_ms"].append(cpu_ms)
    common.say(f"{name}: {throughput:.0f}/s, {cpu_ms:.2f} ms CPU")


def main() -> None:
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--clients", type=common.loads, default=(1, 16, 32))
    parser.set_defaults(protocol="http")
    arguments = parser.parse_args()
    if not (PEERS / "infinity_emb").exists():
        raise SystemExit("the other packages are not there: run 'make .venv-peers/.ready'")
    model = common.model("plain")
    _, engine = common.engine(arguments)
    result = Result("peers", f"Ours beside other servers of the same ONNX file, {engine}", arguments.output)
    with ExitStack() as stack:
        folder, pool = stack.enter_context(common.scratch()), stack.enter_context(WorkerPool())
        common.ours(model, folder, "ours")
        for name, (_, template) in TEMPLATES.items():
            template_repository.write(model, folder, name, template)
        server = stack.enter_context(common.served(folder, arguments.server))
        running = {
            label: stack.enter_context(fastapi_baseline.fastapi(model, threads))
            for label, threads in FASTAPI.items()
        } | {label: stack.enter_context(infinity(model, given)) for label, given in INFINITY.items()}
        urls = {label: url for label, (url, _) in running.items()}
        apart = check(server.urls.http, tuple(TEMPLATES), urls, model)
        variants: dict[str, Measure] = {
            OURS: common.triton(OURS, server, folder, "ours", "ours_model", arguments)
        }
        for name, (label, _) in TEMPLATES.items():
            variants[label] = common.triton(label, server, folder, name, f"{name}_model", arguments)
        for label, (url, pid) in running.items():
            path, bodies = ("/embeddings", infinity_bodies()) if label in INFINITY else ("/predict", ())
            variants[label] = fastapi_baseline.measure(label, url + path, pid, pool, arguments, bodies)
        samples = common.interleave(variants, arguments.clients, arguments.rounds)
    report(result, model, samples, alone(model, arguments), apart, arguments)
    result.write(samples)


def report(
    result: Result,
    model: Path,
    samples: list[Sample],
    libraries: dict[str, dict[str, list[float]]],
    apart: dict[str, float],
    arguments: Any,
) -> None:
    """The page."""
    load = arguments.clients[-1]
    result.add(
        "all-MiniLM-L6-v2 fp32, token vectors out of the graph, mixed-length texts, HTTP with JSON. Each "
        f"number is the median of {arguments.rounds} turns of {arguments.window:g} s; a ratio is the median "
        "of the turns' ratios, with the smallest and largest. Largest difference to our answers: "
        f"{max(apart.values()):.1e} ({CHECKED} texts; fastembed cuts texts at {CUT} tokens, which is what "
        "tokenizer_config.json names `max_length`: longer ones are left out for it).",
        common.load_table(samples, TEMPLATES["usual"][0]),
    )
    rows = [
        [
            name,
            *(
                f"{statistics.median(entry[field]):.{digits}f}"
                for field, digits in (("throughput", 1), ("cpu_ms", 2))
            ),
        ]
        for name, entry in libraries.items()
    ]
    result.add(
        f"Without server and clients, one process on each of {os.cpu_count()} cores:",
        common.table(("", "texts/s", "CPU ms/text"), rows),
    )
    shown = {
        name: median(of(samples, name, load), "throughput") or 0.0
        for name in dict.fromkeys(s.variant for s in samples)
    }
    shown |= {
        f"{name} (no server)": statistics.median(entry["throughput"]) for name, entry in libraries.items()
    }
    title = f"texts/s, {load} clients, mixed lengths, all-MiniLM-L6-v2 fp32, {os.cpu_count()} cores"
    common.bars(dict(sorted(shown.items(), key=lambda item: -item[1])), result.image(), title, "texts/s")
    lines = [
        f"- {name}: {spread(ratio(samples, OURS, name, load, 'throughput'))} × its throughput, "
        f"{spread(ratio(samples, OURS, name, load, 'p99'))} × its p99"
        for name in dict.fromkeys(s.variant for s in samples)
        if name != OURS
    ]
    result.add(f"{OURS} at {load} clients, over\n\n" + "\n".join(lines))
    result.add(speed_of_light.best(model, samples, OURS))
    result.data |= {"differences": apart, "libraries": libraries}


if __name__ == "__main__":
    main()

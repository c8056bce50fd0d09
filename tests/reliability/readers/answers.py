"""Answers of a server, and files that trb keeps for itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.reliability import mutate
from tests.reliability.readers.reader import (
    Reader,
    write,
)
from triton_repo_builder.base.errors import TrbError

ANSWERS: dict[str, Any] = {
    "index": [
        {"name": "a", "version": "1", "state": "READY", "reason": ""},
        {"name": "b", "version": "2", "state": "UNAVAILABLE", "reason": "x"},
    ],
    "metadata": {
        "name": "a",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}],
        "outputs": [{"name": "S", "datatype": "FP32", "shape": ["-1", "3"]}],
    },
    "config": {
        "name": "a",
        "backend": "onnxruntime",
        "max_batch_size": 8,
        "input": [{"name": "TEXT", "data_type": "TYPE_STRING", "dims": ["1"], "optional": True}],
        "output": [{"name": "S", "data_type": "TYPE_FP32", "dims": [3]}],
        "ensemble_scheduling": {
            "step": [{"model_name": "b", "model_version": "-1", "input_map": {"a": "b"}}]
        },
        "instance_group": [{"name": "a", "count": 2, "kind": "KIND_CPU"}],
        "parameters": {
            "trb.version": {"string_value": "1"},
            "trb.source_sha256": {"string_value": "a:b c:d"},
        },
        "version_policy": {"specific": {"versions": ["1"]}},
        "model_transaction_policy": {"decoupled": False},
        "dynamic_batching": {"preferred_batch_size": [8]},
    },
    "stats": {
        "model_stats": [
            {
                "name": "a",
                "version": "1",
                "inference_count": "5",
                "execution_count": 3,
                "inference_stats": {"success": {"count": "5", "ns": "100"}, "queue": {"count": 5, "ns": 1}},
                "batch_stats": [{"batch_size": "2", "compute_infer": {"count": "1", "ns": "2"}}],
            }
        ]
    },
    "server": {"name": "triton", "version": "2.51.0", "extensions": ["classification"]},
    "refusal": {"error": "no such model"},
    "infer": {
        "model_name": "a",
        "outputs": [
            {"name": "S", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.2, 0.7]},
            {"name": "L", "datatype": "BYTES", "shape": [2], "data": ["é", "b"]},
            {"name": "I", "datatype": "INT64", "shape": [2, 2], "data": [[1, 2], [3, 4]]},
        ],
    },
}
BINARY = {
    "outputs": [
        {"name": "L", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 12}},
        {"name": "S", "datatype": "FP32", "shape": [2, 1], "parameters": {"binary_data_size": 8}},
    ]
}
METRICS = 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\nnv_gpu_utilization{a="b",gpu_uuid="GPU-2"} nan\n'


def _answer_seeds() -> list[bytes]:
    plain = [f"{kind}\n{json.dumps(document)}".encode() for kind, document in ANSWERS.items()]
    header = json.dumps(BINARY).encode()
    raw = b"\x02\0\0\0ab\x02\0\0\0cd" + bytes(8)
    return [*plain, f"binary {len(header)}\n".encode() + header + raw, f"metrics\n{METRICS}".encode()]


def _damaged_answer(rng: Any, data: bytes, seeds: Any) -> bytes:
    kind = data.partition(b"\n")[0]
    if kind.startswith(b"binary"):
        size = int(kind.split()[1])
        head, rest = data.partition(b"\n")[2][:size], data.partition(b"\n")[2][size:]
        if rng.random() < 0.7:
            head = mutate.damaged_json(rng, head, [head])
        else:
            rest = mutate.damaged_bytes(rng, rest, [rest])
        length = rng.choice((len(head),) * 8 + (0, len(head) + 5, -1, "x", 10**30))
        return f"binary {length}\n".encode() + head + rest
    if kind == b"metrics":
        return mutate.named(mutate.damaged_words("nan", "1e999", "gpu_uuid", "nv_gpu_utilization", "{", '"'))(
            rng, data, seeds
        )
    return mutate.named(mutate.damaged_json)(rng, data, seeds)


def _answers(case: Path) -> None:
    from triton_repo_builder.repository.provenance import Facts
    from triton_repo_builder.run.client import HttpClient, statistics
    from triton_repo_builder.run.client.http import HEADER_LENGTH, Answer
    from triton_repo_builder.run.client.values import Body, RequestFailed
    from triton_repo_builder.run.smoke import target

    kind, _, data = (case / "input").read_bytes().partition(b"\n")
    if kind == b"metrics":
        statistics.gpu_utilization(data.decode("utf-8", "replace"))
        return
    headers = {HEADER_LENGTH: kind.split()[1].decode()} if kind.startswith(b"binary") else {}
    answer = Answer(status=400 if kind == b"refusal" else 200, headers=headers, data=data)

    class Client(HttpClient):
        def send(self, method: str, path: str, body: Body | None = None) -> Answer:
            return answer

    http = Client("http://127.0.0.1:1")
    body = Body(data=b"{}", headers={})

    def configured() -> None:
        config = http.config("a")
        _ = (
            config.steps,
            config.instance_groups,
            config.optional_inputs,
            config.runs_on,
            config.dynamic_batching,
        )
        config.select((1, 2))
        Facts.of_config("a", config)

    calls: dict[bytes, tuple[Callable[[], Any], ...]] = {
        b"index": (http.index, http.states, http.ready_models, lambda: http.wait_until_settled("a", 0)),
        b"metadata": (
            lambda: http.endpoint("a"),
            lambda: http.served_versions("a"),
            lambda: http.describe("a"),
        ),
        b"config": (configured, lambda: http.steps_of("a"), lambda: target._on_server(http)),
        b"stats": (
            lambda: statistics.split({}, statistics.read(http), ("a",)),
            lambda: statistics.read_or_empty(http),
        ),
        b"server": (http.version,),
        b"refusal": (lambda: http.load("a"), http.version),
        b"infer": (lambda: http.infer("a", body),),
    }
    for call in calls.get(kind, (lambda: http.infer("a", body),)):
        try:
            call()
        except (TrbError, RequestFailed):
            continue


def _report_seeds() -> list[bytes]:
    level = {
        "variant": "default", "protocol": "grpc", "mode": "closed", "concurrency": 8, "rate": None,
        "length": None, "rows": 1, "throughput": 100.5, "server_cpu_ms": 2.5,
        "latency": {"p50": 1.0, "p99": 2.0},
        "sent": "abc",
    }  # fmt: skip
    from triton_repo_builder.measure.bench.report import comparison

    machine = dict.fromkeys(comparison.MACHINE, "x")
    document = {
        "schema": comparison.SCHEMA,
        "client": "trb",
        "machine": machine,
        "levels": [level, {**level, "rows": 2}],
    }
    return [json.dumps(document).encode()]


def _report(case: Path) -> None:
    from triton_repo_builder.measure.bench.report import comparison

    comparison.load(case / "report.json")


def _background_seeds() -> list[bytes]:
    entry = {
        "pid": 2**22 + 5, "born": "1", "name": "x", "repository": "/r", "engine": "embedded",
        "server_pid": None,
        "urls": {"http": "http://127.0.0.1:1"}, "log": "/l", "started": 1.5, "endpoints": [{"name": "a"}],
    }  # fmt: skip
    return [json.dumps(entry).encode()]


def _background(case: Path) -> None:
    from triton_repo_builder.run.serve.background import registry

    os.environ["XDG_STATE_HOME"] = str(case)
    entries, _ = registry.sweep()
    for entry in entries:
        registry.about(entry)


def _lay_background(data: bytes, case: Path) -> None:
    (case / "trb").mkdir(exist_ok=True)
    (case / "trb" / "1.json").write_bytes(data)


READERS = (
    Reader(
        name="answers",
        about="HTTP answers and metrics of a server",
        seeds=_answer_seeds,
        damage=_damaged_answer,
        lay=write("input"),
        read=_answers,
        share=2.0,
    ),
    Reader(
        name="report",
        about="an earlier report of `trb bench`",
        seeds=_report_seeds,
        damage=mutate.damaged_json,
        lay=write("report.json"),
        read=_report,
        share=2.0,
    ),
    Reader(
        name="background",
        about="the file of a server in the background",
        seeds=_background_seeds,
        damage=mutate.damaged_json,
        lay=_lay_background,
        read=_background,
        fresh=True,
        writes=("trb",),
        share=0.5,
    ),
)

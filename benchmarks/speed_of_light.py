"""How near a figure is to what the cores could do: multiplications of matrices, as fast as they go here.

    .venv/bin/python benchmarks/speed_of_light.py [MODEL_FOLDER]

The peak is ONNX Runtime's own on matrices of 1,024 × 1,024, one thread on each core at the same time. What a
text needs is counted in the graph: two operations for each weight that its tokens are multiplied with, and
those of the attention. The share that is reached says what is left to gain, whatever the machine is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common import Sample

SIZE = 1024
SECONDS = 1.0


def peak() -> float:
    """Operations a second of all cores together, the median of three turns."""
    return statistics.median(_all_cores() for _ in range(3))


def _all_cores() -> float:
    argv = [sys.executable, __file__, "--core"]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(os.cpu_count() or 1)]
    return sum(float(process.communicate()[0]) for process in started)


def one_core() -> float:
    """Operations a second of one thread."""
    import numpy as np
    import onnx
    import onnxruntime

    text = f"product (float[{SIZE}, {SIZE}] a, float[{SIZE}, {SIZE}] b) => (float[{SIZE}, {SIZE}] c)"
    graph = onnx.parser.parse_graph(f"{text} {{ c = MatMul (a, b) }}")
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {name: np.ones((SIZE, SIZE), dtype=np.float32) for name in ("a", "b")}
    session.run(None, feed)
    runs, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        session.run(None, feed)
        runs += 1
    return 2 * SIZE**3 * runs / (time.perf_counter() - begun)


def operations(model: Path, lengths: Sequence[int]) -> float:
    """Of a text, on average: products with the encoder's weights, and of the attention."""
    import json

    import onnx

    graph = onnx.load(str(model / "model.onnx"), load_external_data=False).graph
    shapes = {each.name: list(each.dims) for each in graph.initializer}
    weights = sum(
        shapes[name][0] * shapes[name][1]
        for node in graph.node
        if node.op_type in ("MatMul", "Gemm")
        for name in node.input
        if len(shapes.get(name, ())) == 2
    )
    config = json.loads((model / "config.json").read_text())
    attention = 4 * config["hidden_size"] * config["num_hidden_layers"]
    return float(statistics.mean(length * (2 * weights + attention * length) for length in lengths))


def best(model: Path, samples: Sequence[Sample], variant: str) -> str:
    """What a page says of its variant's highest throughput."""
    import common

    found = {load: common.median(common.of(samples, variant, load), "throughput") for load in _loads(samples)}
    clients, throughput = max(
        ((load, value or 0.0) for load, value in found.items()), key=lambda item: item[1]
    )
    return line(model, throughput, peak(), f"of {variant} with {clients} clients ")


def _loads(samples: Sequence[Sample]) -> list[int]:
    return list(dict.fromkeys(sample.clients for sample in samples))


def line(model: Path, throughput: float, most: float, whose: str = "") -> str:
    """The share of ``most``, the peak, that so many texts of the corpus a second are."""
    import common

    each = operations(model, common.lengths(model, common.corpus()))
    return (
        f"Speed of light: a text is {each / 1e9:.2f} billion operations; the {throughput:.0f} texts a second "
        f"{whose}are {throughput * each / 1e9:.0f} billion of the {most / 1e9:.0f} billion that "
        f"{os.cpu_count()} cores reach at multiplying large matrices: {throughput * each / most:.0%}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL_FOLDER", help="an exported encoder")
    parser.add_argument("--core", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.core:
        print(one_core())
        return
    print(f"{peak() / 1e9:.1f} billion operations a second on {os.cpu_count()} cores")
    if arguments.model:
        print(line(arguments.model, 1, peak()))


if __name__ == "__main__":
    main()

"""Memory and time of one long text: attention as exported, in blocks of queries, and without padding.

    .venv/bin/python benchmarks/long_attention.py [--tokens 512 2048 4096 8192] [--layers 2]

The graph is one of BERT's shape with random weights, 16 heads of 64. Each number is of a process of its own
with one thread: CPU seconds of the faster of two runs, and what the process grew by while it ran. Writes
docs/benchmarks/long_attention.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import parser

from triton_repo_builder.model.graph import query_blocks, reader
from triton_repo_builder.model.graph.packing import rewrite
from triton_repo_builder.model.graph.peak import Peak
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.repository.tensor_names import ROW_LENGTHS

HEADS, WIDTH, WORDS = 16, 64, 100
HIDDEN = HEADS * WIDTH
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "long_attention.md"
VARIANTS = ("as exported", "in blocks", "without padding")
LAYER = """
    q{n} = MatMul (h{n}, wq)
    k{n} = MatMul (h{n}, wk)
    v{n} = MatMul (h{n}, wv)
    q4{n} = Reshape (q{n}, heads)
    k4{n} = Reshape (k{n}, heads)
    v4{n} = Reshape (v{n}, heads)
    qt{n} = Transpose <perm = [0, 2, 1, 3]> (q4{n})
    kt{n} = Transpose <perm = [0, 2, 3, 1]> (k4{n})
    vt{n} = Transpose <perm = [0, 2, 1, 3]> (v4{n})
    scores{n} = MatMul (qt{n}, kt{n})
    scaled{n} = Div (scores{n}, eight)
    masked{n} = Add (scaled{n}, bias)
    weights{n} = Softmax <axis = -1> (masked{n})
    context{n} = MatMul (weights{n}, vt{n})
    by_token{n} = Transpose <perm = [0, 2, 1, 3]> (context{n})
    joined{n} = Reshape (by_token{n}, hidden)
    attended{n} = MatMul (joined{n}, wo)
    sum{n} = Add (attended{n}, h{n})
    normed{n} = LayerNormalization <axis = -1> (sum{n}, scale)
    wide{n} = MatMul (normed{n}, wi)
    active{n} = Relu (wide{n})
    back{n} = MatMul (active{n}, wp)
    sum2{n} = Add (back{n}, normed{n})
    h{next} = LayerNormalization <axis = -1> (sum2{n}, scale)
"""


def exported(path: Path, layers: int) -> None:
    """The plain graph, its weights in it; all layers share theirs."""
    body = "".join(LAYER.format(n=n, next=n + 1) for n in range(layers))
    model = parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 17]>
bert (int64[B, T] input_ids, int64[B, T] attention_mask) => (float[B, T, {HIDDEN}] last_hidden_state) {{
    eight = Constant <value = float {{8}}> ()
    one = Constant <value = float {{1}}> ()
    low = Constant <value = float {{-10000}}> ()
    axes = Constant <value = int64[2] {{1, 2}}> ()
    heads = Constant <value = int64[4] {{0, 0, {HEADS}, {WIDTH}}}> ()
    hidden = Constant <value = int64[3] {{0, 0, {HIDDEN}}}> ()
    mask4 = Unsqueeze (attention_mask, axes)
    mask = Cast <to = 1> (mask4)
    none = Sub (one, mask)
    bias = Mul (none, low)
    h0 = Gather (table, input_ids)
{body}
    last_hidden_state = Identity (h{layers})
}}""")
    random = np.random.default_rng(0)
    shapes = {"table": (WORDS, HIDDEN), **dict.fromkeys(("wq", "wk", "wv", "wo"), (HIDDEN, HIDDEN))}
    shapes |= {"wi": (HIDDEN, 4 * HIDDEN), "wp": (4 * HIDDEN, HIDDEN), "scale": (HIDDEN,)}
    for name, shape in shapes.items():
        values = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, path)


def written(source: Path, variant: str, path: Path) -> None:
    """The variant's graph."""
    model = reader.load(skeleton.read(source))
    model = onnx.load(source) if variant == VARIANTS[0] else model
    if variant == VARIANTS[1]:
        query_blocks.write(model)
    elif variant == VARIANTS[2]:
        rewrite.pack(model)
    # Weights go with the graph: a skeleton leaves them in the source.
    weights = {tensor.name: tensor for tensor in onnx.load(source).graph.initializer}
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(weights[tensor.name])
    onnx.save(model, path)


def run(path: Path, tokens: int) -> dict[str, float]:
    """In this process: CPU seconds, and what its peak of memory grew by, in GiB."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, disabled_optimizers=["SkipLayerNormFusion"])
    ids = np.random.default_rng(1).integers(1, WORDS, (1, tokens))
    tensors = {"input_ids": ids, "attention_mask": np.ones_like(ids), ROW_LENGTHS: np.array([tokens])}
    feed = {item.name: tensors[item.name] for item in session.get_inputs()}
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc_pid_clear_refs(5)
    before = kilobytes("VmRSS")
    seconds = []
    for _ in range(2):
        begun = time.process_time()
        session.run(None, feed)
        seconds.append(time.process_time() - begun)
    return {"seconds": min(seconds), "grown": (kilobytes("VmHWM") - before) / (1 << 20)}


def kilobytes(name: str) -> int:
    """Of this process, by proc_pid_status(5)."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(name)))


def table(source: Path, folder: Path, lengths: list[int]) -> Iterator[str]:
    """Rows of the page."""
    plain = Peak(onnx.load(source), blocks=False)
    for tokens in lengths:
        found: list[dict[str, float]] = []
        for variant in VARIANTS:
            path = folder / f"{variant.replace(' ', '_')}.onnx"
            if not path.exists():
                written(source, variant, path)
            argv = [sys.executable, __file__, "--run", str(path), str(tokens)]
            made = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
            found.append(json.loads(made))
            grown, seconds = found[-1]["grown"], found[-1]["seconds"]
            share, ratio = grown / max(found[0]["grown"], 1e-9), seconds / found[0]["seconds"]
            stated = "" if len(found) > 1 else f"{plain.bytes(1, tokens) / (1 << 30):.2f}"
            cells = (variant, f"{grown:.2f}", f"{share:.2f}", stated, f"{seconds:.2f}", f"{ratio:.2f}")
            yield f"| {tokens} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, and write the page."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 4096, 8192])
    asked.add_argument("--layers", type=int, default=2)
    asked.add_argument("--run", nargs=2, metavar=("PATH", "TOKENS"), help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.run:
        print(json.dumps(run(Path(options.run[0]), int(options.run[1]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "model.onnx"
        exported(source, options.layers)
        rows = list(table(source, Path(folder), options.tokens))
    PAGE.write_text(
        f"""# Memory of one long text

Written by `benchmarks/long_attention.py`: {options.layers} layers of BERT's shape with random weights,
{HEADS} heads of {WIDTH}, one thread, ONNX Runtime {onnxruntime.__version__}. GiB is what the process grew by
in the runs, beside the weights; ratios are to the graph as exported. What `trb build` computes is what is
needed at once: ONNX Runtime's arena grows by doubling, so the build states twice as much.

| tokens | attention | GiB | ratio | computed | CPU seconds | ratio |
|---|---|---|---|---|---|---|
"""
        + "\n".join(rows)
        + "\n"
    )


if __name__ == "__main__":
    main()

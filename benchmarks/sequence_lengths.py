"""Latency by the length of the text, one request after the other (Tryolabs' table).

    .venv/bin/python benchmarks/sequence_lengths.py [--model fp32] [--rounds 3]

The same texts of exactly 32, 64, 128 and 256 tokens, to ours and to the usual template, in turn; the mean and
the deviation of sequential requests, as the post has them.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import common
import template_repository
from common import Result, number, say
from template_repository import Template

from triton_repo_builder import repository
from triton_repo_builder.measure import bench
from triton_repo_builder.measure.bench.options import Variant
from triton_repo_builder.run.demo import samples

LENGTHS = (32, 64, 128, 256)
SEED = {
    "FastAPI, optimised model": (3.47, 3.84, 4.66, 6.15),
    "Triton, optimised model": (2.08, 2.48, 3.21, 4.46),
    "Triton with IOBinding": (1.43, 1.45, 1.49, 1.54),
}
"""Milliseconds in the post: a pruned BERT large in fp16 on a T4."""


def main() -> None:
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--model", default="sample", choices=("sample", *common.MODELS))
    arguments = parser.parse_args()
    result = Result("sequence_lengths", "Latency by length, sequential requests", arguments.output)
    with common.scratch() as folder:
        path = folder / "repository"
        source = (
            samples.minilm_int8(folder / "model")
            if arguments.model == "sample"
            else common.model(arguments.model)
        )
        common.ours(source, path, "ours")
        template_repository.write(source, path, "usual", Template(instances=2, threads=1))
        with common.served(path, arguments.server) as server:
            measured = measure(server, path, arguments)
    rows = []
    for name in ("ours", "usual"):
        means = [statistics.mean(mean for mean, _ in measured[name, length]) for length in LENGTHS]
        cells = [
            f"{mean:.2f} ± {statistics.mean(std for _, std in measured[name, length]):.2f}"
            for mean, length in zip(means, LENGTHS, strict=True)
        ]
        rows.append([name, *cells, number(means[-1] / means[0], 2)])
    result.add(
        f"all-MiniLM-L6-v2 ({arguments.model}), one client, mean and deviation in ms, "
        f"{arguments.rounds} turns of {arguments.window:g} s.",
        common.table(["", *(f"{length} tokens" for length in LENGTHS), "256 over 32"], rows),
        "The post, on a T4 GPU, another model: what compares is the last column, how much a longer "
        "text costs, and not a time. On a CPU the work grows with the tokens; a GPU that is far "
        "from full hides that.",
        common.table(
            ["post", *(f"{length} tokens" for length in LENGTHS), "256 over 32"],
            [
                [name, *(number(value, 2) for value in values), number(values[-1] / values[0], 2)]
                for name, values in SEED.items()
            ],
        ),
    )
    result.data["measured"] = {f"{name} {length}": values for (name, length), values in measured.items()}
    result.write()


def measure(
    server: common.Server, path: Path, arguments: object
) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Mean and deviation of each turn."""
    window, rounds = getattr(arguments, "window"), getattr(arguments, "rounds")  # noqa: B009
    measured: dict[tuple[str, int], list[tuple[float, float]]] = {}
    local = repository.read(path)
    options = bench.BenchOptions(
        concurrency=(1,), lengths=LENGTHS, warmup=0.5, window=window, min_windows=1, max_windows=1
    )
    variants = [
        Variant(name=name, urls=server.urls, repository=local, endpoint=name, pid=server.pid)
        for name in ("ours", "usual")
    ]
    for turn in range(rounds):
        begun = time.monotonic()
        for level in bench.run_variants(variants[:: 1 if turn % 2 == 0 else -1], options).levels:
            assert level.latency is not None and level.length is not None
            measured.setdefault((level.variant, level.length), []).append(
                (level.latency.mean, level.latency.std)
            )
        say(f"turn {turn + 1}: {time.monotonic() - begun:.0f} s")
    return measured


if __name__ == "__main__":
    main()

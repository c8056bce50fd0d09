"""What ``--tokenizer-cache`` and ``--response-cache`` give where most texts come again.

    .venv/bin/python benchmarks/caches.py [--clients 1,32] [--rounds 3] [--share 0.8]

``trb bench --repeat-share 0.8``: 64 popular texts in 80 % of the requests, new ones in the others. Every
measurement starts a server: the texts of the one before would be in its caches.
"""

from __future__ import annotations

from pathlib import Path

import common
from common import Measure, Result, Sample, spread

from triton_repo_builder import repository
from triton_repo_builder.measure import bench

NONE, TOKENS, ANSWERS, BOTH = "no cache", "tokenizer cache", "response cache", "both"
TEXTS = 1000
"""That a tokenizer keeps."""
VARIANTS = {NONE: (0, False), TOKENS: (TEXTS, False), ANSWERS: (0, True), BOTH: (TEXTS, True)}

Found = dict[str, dict[str, list[float]]]
"""Shares of texts or requests by variant and kind of cache."""


def measure(name: str, path: Path, repeats: float, window: float, found: Found) -> Measure:
    """Starts a server for each measurement; ``found`` gets what ``trb bench`` says of its caches."""

    def one(clients: int) -> Sample:
        with common.served(path) as server:
            options = bench.BenchOptions(
                endpoint="minilm",
                concurrency=(clients,),
                warmup=1.0,
                window=window,
                min_windows=1,
                max_windows=1,
                repeat_share=repeats,
            )
            report = bench.run(server.urls, repository.read(path), options, pid=server.pid)
        level = report.levels[0]
        shares = found.setdefault(name, {})
        for kind, share in (("tokens", level.tokenizer_cache), ("answers", level.response_cache)):
            if share is not None:
                shares.setdefault(kind, []).append(share)
        return common.sample(name, level, "minilm_model")

    return one


def main() -> None:
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--clients", type=common.loads, default=(1, 32))
    parser.add_argument("--share", type=float, default=0.8, help="of requests with a popular text")
    arguments = parser.parse_args()
    result = Result("caches", "The caches where most texts come again, embedded engine", arguments.output)
    result.add(
        f"all-MiniLM-L6-v2, fp32; 64 popular texts in {arguments.share:.0%} of the requests. Every number is "
        f"the median over {arguments.rounds} rounds of {arguments.window:g} s, each on a new server; a ratio "
        "is the median of the rounds' ratios, with the smallest and largest."
    )
    found: Found = {}
    with common.scratch() as folder:
        variants = {}
        for number, (name, (texts, answers)) in enumerate(VARIANTS.items()):
            path = folder / str(number)
            common.ours(common.model("fp32"), path, "minilm", tokenizer_cache=texts, response_cache=answers)
            variants[name] = measure(name, path, arguments.share, arguments.window, found)
        samples = common.interleave(variants, arguments.clients, arguments.rounds)
    result.add(common.load_table(samples, NONE))
    common.plot(samples, result.image(), "all-MiniLM-L6-v2, texts that come again")
    head = ("variant", "texts found", "requests found")
    rows = [
        [name, *(spread(shares[kind]) if kind in shares else "" for kind in ("tokens", "answers"))]
        for name, shares in found.items()
    ]
    result.add(common.table(head, rows))
    result.data["found"] = found
    result.write(samples)


if __name__ == "__main__":
    main()

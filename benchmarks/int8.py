"""``trb build --precision int8`` against the usual template of fp32 and of a plain int8 file, on one server.

    .venv/bin/python benchmarks/int8.py [--server SCRIPT] [--clients 32] [--rounds 3]

The plain int8 file is ``quantize_dynamic`` with its defaults. Ours is the default of ``trb optimize``: one
scale per row. Its answers are compared with the original's, and with its own in other batches.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
import numpy as np
import template_repository
from common import Result, of, ratio, spread
from template_repository import Template

from triton_repo_builder.client import HttpClient
from triton_repo_builder.client.codec import encode_binary

USUAL, BEST, PLAIN, OURS = (
    "usual template, fp32",
    "usual, fp32, 2 one-thread instances",
    "usual template, plain int8",
    "ours, int8 per row",
)
PLAIN_BEST, FP32 = "usual, plain int8, 2 one-thread instances", "ours, fp32"
NAMES = {
    "usual": USUAL,
    "usual_best": BEST,
    "plain": PLAIN,
    "plain_best": PLAIN_BEST,
    "fp32": FP32,
    "ours": OURS,
}
TARGETS = ((USUAL, 3.8), (BEST, 3.0), (PLAIN, 2.0))
"""Throughput of ours over theirs that the project promises."""
CHECKED = 96
"""Texts whose answers are compared: alone, and 8 and 32 at once so that they meet in batches."""


def make(target: Path) -> None:
    """All variants as one repository."""
    fp32, plain = common.model("fp32"), common.model("int8")
    common.ours(fp32, target, "fp32")
    common.ours(fp32, target, "ours", precision="int8")
    best = Template(instances=2, threads=1)
    for name, source, template in (
        ("usual", fp32, Template()),
        ("usual_best", fp32, best),
        ("plain", plain, Template()),
        ("plain_best", plain, best),
    ):
        template_repository.write(source, target, name, template)


def answers(server: common.Server, name: str, at_once: int) -> np.ndarray[Any, Any]:
    """Embeddings of the texts, so many requests at the same time."""
    texts = common.corpus()[:: len(common.corpus()) // CHECKED]

    def ask(text: str) -> np.ndarray[Any, Any]:
        given = np.array([[text.encode()]], dtype=object)
        found = HttpClient(server.urls.http, 60.0).infer(name, encode_binary({"TEXT": given}))
        return np.asarray(found["embedding"]).reshape(-1)

    with ThreadPoolExecutor(at_once) as pool:
        return np.stack(list(pool.map(ask, texts)))


def compared(server: common.Server) -> dict[str, dict[str, float]]:
    """Of both int8 variants: cosine to fp32, and the largest difference between batch mixes."""
    fp32, found = answers(server, "usual", 1), {}
    for name in ("plain", "ours"):
        alone = answers(server, name, 1)
        cosines = (alone * fp32).sum(1) / np.linalg.norm(alone, axis=1) / np.linalg.norm(fp32, axis=1)
        mixes = [float(np.abs(answers(server, name, size) - alone).max()) for size in (8, 32, 32)]
        found[NAMES[name]] = {
            "mean cosine": float(cosines.mean()),
            "least cosine": float(cosines.min()),
            "difference between batch mixes": max(mixes),
        }
    return found


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--clients", type=common.loads, default=(1, 32))
    parser.add_argument("--variants", default=",".join(NAMES))
    arguments = parser.parse_args()
    suffix, engine = (
        ("_cpp", "Triton's C++ onnxruntime backend") if arguments.server else ("", "embedded engine")
    )
    result = Result(
        f"int8{suffix}", f"int8 of trb build against the usual template, {engine}", arguments.output
    )
    result.add(
        "all-MiniLM-L6-v2. One server holds all variants; they are loaded in turns. Every number is the "
        f"median over {arguments.rounds} rounds of {arguments.window:g} s; a ratio is the median of the "
        "rounds' ratios, with the smallest and largest. Texts: the mixed-length corpus of `trb bench`."
    )
    chosen = arguments.variants.split(",")
    with common.scratch() as folder:
        make(folder)
        with common.served(folder, arguments.server) as server:
            accuracy = compared(server)
            variants = {
                NAMES[name]: common.triton(NAMES[name], server, folder, name, f"{name}_model", arguments)
                for name in chosen
            }
            samples = common.interleave(variants, arguments.clients, arguments.rounds)
    result.add(common.load_table(samples, USUAL))
    common.plot(samples, result.image(), "all-MiniLM-L6-v2, mixed-length texts")
    last = arguments.clients[-1]
    rows = [
        (f"throughput over: {base}", f"≥ {least:g}", spread(ratio(samples, OURS, base, last, "throughput")))
        for base, least in TARGETS
        if of(samples, base, last)
    ]
    result.add(common.table((f"{OURS}, {last} clients", "target", "measured"), rows))
    head = ("answers", *next(iter(accuracy.values())))
    numbers = [
        [name, *(f"{value:.3g}" if "diff" in key else f"{value:.4f}" for key, value in found.items())]
        for name, found in accuracy.items()
    ]
    result.add(common.table(head, numbers))
    result.data["answers"] = accuracy
    result.write(samples)


if __name__ == "__main__":
    main()

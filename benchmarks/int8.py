"""``trb build --precision int8`` against the usual template of fp32 and of a plain int8 file, on one server.

    .venv/bin/python benchmarks/int8.py [--model classifier|demo] [--server SCRIPT] [--clients 32]

The plain int8 file is ``quantize_dynamic`` with its defaults. Ours is the default of ``trb optimize``: one
scale per row. Its answers are compared with the original's, and with its own in other batches: vectors by
their cosine, those of the classifier (classifier.py) by their label. The model of ``trb demo`` stores its
weights as int8 and computes in float: ``quantize_dynamic`` finds nothing to do in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
import numpy as np
import template_repository
from common import Result, of, ratio, spread
from template_repository import Template

from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_binary

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
TARGETS: dict[str, tuple[tuple[str, float], ...]] = {
    "embedding": ((USUAL, 3.8), (BEST, 3.0), (PLAIN, 2.0)),
    "classifier": ((USUAL, 3.0),),
    "demo": (),
}
"""Throughput of ours over theirs that the project promises."""
MODELS = {
    "embedding": ("fp32", "int8"),
    "classifier": ("classifier", "classifier_int8"),
    "demo": ("demo", ""),
}
"""The model, and the plain int8 file of it if there is one."""
ABOUT = {
    "embedding": "all-MiniLM-L6-v2.",
    "classifier": "A BERT classifier: all-MiniLM-L6-v2 with a linear head of four classes (classifier.py).",
    "demo": "The model of `trb demo`, all-MiniLM-L6-v2 with weights stored as int8 and computed in float.",
}
CHECKED = 96
"""Texts whose answers are compared: alone, and 8 and 32 at once so that they meet in batches."""


def make(target: Path, kind: str) -> None:
    """All variants as one repository."""
    fp32, plain = (common.model(name) if name else None for name in MODELS[kind])
    assert fp32 is not None
    common.ours(fp32, target, "fp32")
    common.ours(fp32, target, "ours", precision="int8")
    best = Template(instances=2, threads=1)
    for name, source, template in (
        ("usual", fp32, Template()),
        ("usual_best", fp32, best),
        ("plain", plain, Template()),
        ("plain_best", plain, best),
    ):
        if source is not None:
            template_repository.write(source, target, name, template)


def megabytes(repository: Path, name: str) -> float:
    """Size of the files that belong to a variant's model, which are its weights but for some KB."""
    files = (file for file in (repository / f"{name}_model").rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files) / 1e6


def answers(server: common.Server, name: str, at_once: int, texts: Sequence[str]) -> np.ndarray[Any, Any]:
    """Embeddings or scores of the classes, so many requests at the same time."""

    def ask(text: str) -> np.ndarray[Any, Any]:
        given = np.array([[text.encode()]], dtype=object)
        found = HttpClient(server.urls.http, 60.0).infer(name, encode_binary({"TEXT": given}))
        tensor = next(key for key in ("embedding", "logits", "scores") if key in found)
        return np.asarray(found[tensor]).reshape(-1)

    with ThreadPoolExecutor(at_once) as pool:
        return np.stack(list(pool.map(ask, texts)))


def compared(server: common.Server, kind: str) -> dict[str, dict[str, float]]:
    """Of both int8 variants: likeness to fp32, and the largest difference between batch mixes."""
    texts = common.corpus()
    if kind != "classifier":
        texts = texts[:: len(texts) // CHECKED]
    fp32, found = answers(server, "usual", 1, texts), {}
    for name in ("plain", "ours") if MODELS[kind][1] else ("ours",):
        alone = answers(server, name, 1, texts)
        if kind == "classifier":
            like = {"same label": float((alone.argmax(1) == fp32.argmax(1)).mean())}
        else:
            cosines = (alone * fp32).sum(1) / np.linalg.norm(alone, axis=1) / np.linalg.norm(fp32, axis=1)
            like = {"mean cosine": float(cosines.mean()), "least cosine": float(cosines.min())}
        mixes = [float(np.abs(answers(server, name, size, texts) - alone).max()) for size in (8, 32, 32)]
        found[NAMES[name]] = {**like, "difference between batch mixes": max(mixes)}
    return found


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--clients", type=common.loads, default=(1, 32))
    parser.add_argument("--variants", default="")
    parser.add_argument("--model", choices=MODELS, default="embedding")
    arguments = parser.parse_args()
    kind = arguments.model
    suffix, engine = (
        ("_cpp", "Triton's C++ onnxruntime backend") if arguments.server else ("", "embedded engine")
    )
    if arguments.protocol != "grpc":
        suffix += f"_{arguments.protocol}"
    page = "int8" if kind == "embedding" else f"int8_{kind}"
    result = Result(
        f"{page}{suffix}", f"int8 of trb build against the usual template, {engine}", arguments.output
    )
    result.add(
        f"{ABOUT[kind]} One server holds all variants; they are loaded in turns. Every number is the "
        f"median over {arguments.rounds} rounds of {arguments.window:g} s; a ratio is the median of the "
        "rounds' ratios, with the smallest and largest. Texts: the mixed-length corpus of `trb bench`, by "
        f"{arguments.protocol}."
    )
    possible = [name for name in NAMES if MODELS[kind][1] or "plain" not in name]
    chosen = arguments.variants.split(",") if arguments.variants else possible
    with common.scratch() as folder:
        make(folder, kind)
        sizes = [(NAMES[name], f"{megabytes(folder, name):.1f}") for name in chosen]
        with common.served(folder, arguments.server) as server:
            accuracy = compared(server, kind)
            variants = {
                NAMES[name]: common.triton(NAMES[name], server, folder, name, f"{name}_model", arguments)
                for name in chosen
            }
            samples = common.interleave(variants, arguments.clients, arguments.rounds)
    result.add(common.load_table(samples, USUAL))
    common.plot(samples, result.image(), f"{ABOUT[kind]} Mixed-length texts")
    result.add(common.table(("variant", "MB on disk"), sizes))
    last = arguments.clients[-1]
    rows = [
        (f"throughput over: {base}", f"≥ {least:g}", spread(ratio(samples, OURS, base, last, "throughput")))
        for base, least in TARGETS[kind]
        if of(samples, base, last)
    ]
    if rows:
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

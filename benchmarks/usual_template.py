"""Ours against the usual template, on the same server in the same run.

    .venv/bin/python benchmarks/usual_template.py [--models fp32,int8] [--clients 1,4,16,32,64] [--rounds 4]

The template (template_repository.py) has Triton's and ONNX Runtime's defaults; two more lines give it other
settings, so that what is due to settings alone can be seen. All give the same embeddings, which is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

import common
import numpy as np
import speed_of_light
import template_repository
from common import Result, Sample, of, ratio, spread
from template_repository import Template

from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_binary

USUAL = "usual template"
DEFAULT = "ours, trb build's defaults"
TEMPLATES = {
    "usual": (USUAL, Template()),
    "usual_one": ("usual, 1 instance", Template(instances=1)),
    "usual_threads": ("usual, 2 one-thread instances", Template(instances=2, threads=1)),
}
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours_on": ("ours, ragged, batching on", {"batching": "on"}),
    "ours_off": ("ours, ragged, batching off", {"batching": "off"}),
    "ours_rows": ("ours, rows", {"padding": "rows"}),
    "ours_default": (DEFAULT, {}),
}
CHECKED = 48
"""Texts whose answers are compared, 16 at once so that they meet in batches."""
TOLERANCE = {"fp32": 1e-5, "int8": 5e-2}
"""Dynamic quantisation takes its scale from all rows of a run: a text's neighbours show in its answer."""


def make(source: Path, target: Path, chosen: Sequence[str]) -> None:
    """The chosen variants as one repository."""
    for name, (_, options) in OURS.items():
        if name not in chosen:
            continue
        fixed = {} if name == "ours_default" else {"instances": 2, "threads": 1}
        common.ours(source, target, name, **options, **fixed)
    for name, (_, template) in TEMPLATES.items():
        if name in chosen:
            template_repository.write(source, target, name, template)


def differences(server: common.Server, tolerance: float, chosen: Sequence[str]) -> dict[str, float]:
    """Largest difference of a number of an embedding to the template's; ours while texts arrive at once."""
    texts = common.corpus()[:: len(common.corpus()) // CHECKED]

    def answer(name: str, text: str) -> np.ndarray[Any, Any]:
        http = HttpClient(server.urls.http, 60.0)
        # One that is not batched has no axis of rows.
        shape = (1, 1) if http.config(name).max_batch_size else (1,)
        given = np.array([text.encode()], dtype=object).reshape(shape)
        return np.asarray(http.infer(name, encode_binary({"TEXT": given}))["embedding"]).reshape(-1)

    def answers(name: str, at_once: int) -> np.ndarray[Any, Any]:
        with ThreadPoolExecutor(at_once) as pool:
            return np.stack(list(pool.map(lambda text: answer(name, text), texts)))

    usual = answers("usual", 1)
    closest = min(np.abs(a - b).max() for a, b in combinations(usual, 2))
    if closest <= tolerance:
        raise SystemExit(
            f"two different texts have embeddings only {closest} apart: nothing would be checked"
        )
    apart = {name: float(np.abs(answers(name, 16) - usual).max()) for name in chosen}
    worst = max(apart.values())
    if worst > tolerance:
        raise SystemExit(f"the variants do not give the same answers: {apart}")
    return apart


def settings(server: common.Server, names: list[str]) -> dict[str, int]:
    """Instances of each model as the server made them."""
    client = HttpClient(server.urls.http, 60.0)
    configs = {name: client.config(f"{name}_model") for name in names}
    return {name: sum(group.count for group in config.instance_groups) for name, config in configs.items()}


def targets(samples: list[Sample], ours: str) -> list[tuple[str, str, str]]:
    """What the project promises of fp32, and what was measured; then the same against better settings."""
    found = []
    loads = {one.clients for one in samples}
    present = {one.variant for one in samples}
    others = [label for label, _ in TEMPLATES.values() if label in present and label != USUAL]
    for load, least in ((16, "≥ 1.35"), (32, "≥ 1.5")):
        if load not in loads:
            continue
        for base in (USUAL, *others):
            target = least if base == USUAL else ("≥ 1.25" if load == 32 else "")
            measured = spread(ratio(samples, ours, base, load, "throughput"))
            found.append((f"throughput over: {base}, {load} clients", target, measured))
    if 32 in loads:
        measured = spread(ratio(samples, ours, USUAL, 32, "p99"))
        found.append((f"p99 over: {USUAL}, 32 clients", "≤ 1", measured))
    off = OURS["ours_off"][0]
    if 1 in loads and off in present:
        for field in ("p50", "p99"):
            measured = spread(ratio(samples, ours, off, 1, field))
            found.append((f"{field} over: {off}, 1 client", "≤ 1.02", measured))
    if 1 in loads:
        for base in (USUAL, *others):
            measured = spread(ratio(samples, ours, base, 1, "p99"))
            found.append((f"p99 over: {base}, 1 client", "≤ 1" if base == USUAL else "", measured))
    if 32 in loads:
        rows = [one.rows for one in of(samples, ours, 32) if one.rows is not None]
        found.append(("rows per execution, 32 clients", "≥ 8", spread(rows)))
    return found


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--models", default="fp32,int8")
    parser.add_argument("--clients", type=common.loads, default=(1, 4, 16, 32, 64))
    parser.add_argument("--variants", default=",".join((*TEMPLATES, *OURS)))
    parser.add_argument("--headline", default="ours_default", choices=tuple(OURS), help="held to the targets")
    arguments = parser.parse_args()
    chosen = arguments.variants.split(",")
    suffix, engine = common.engine(arguments)
    result = Result(f"usual_template{suffix}", f"Ours against the usual template, {engine}", arguments.output)
    result.add(
        "One server holds all variants; they are loaded in turns. Every number is the median over "
        f"{arguments.rounds} rounds of {arguments.window:g} s; a ratio is the median of the rounds' "
        "ratios, with the smallest and largest. Texts: the mixed-length corpus of `trb bench`."
    )
    everything: list[Sample] = []
    for name in arguments.models.split(","):
        with common.scratch() as folder:
            make(common.model(name), folder, chosen)
            with common.served(folder, arguments.server) as server:
                apart, counts = differences(server, TOLERANCE[name], chosen), settings(server, chosen)
                labels = {key: label for key, (label, _) in {**TEMPLATES, **OURS}.items()}
                variants = {
                    labels[key]: common.triton(labels[key], server, folder, key, f"{key}_model", arguments)
                    for key in labels
                    if key in chosen
                }
                samples = common.interleave(variants, arguments.clients, arguments.rounds)
        counts = {labels[key]: count for key, count in counts.items()}
        report(result, name, samples, apart, counts, OURS[arguments.headline][0])
        if name == "fp32":
            result.add(speed_of_light.best(common.model(name), samples, OURS[arguments.headline][0]))
        everything += common.labelled(samples, name)
    result.write(everything)


def report(
    result: Result,
    name: str,
    samples: list[Sample],
    apart: dict[str, float],
    counts: dict[str, int],
    ours: str,
) -> None:
    """One model's part of the page."""
    result.add(f"## all-MiniLM-L6-v2, {name}", common.load_table(samples, USUAL))
    common.plot(samples, result.image(f"_{name}"), f"all-MiniLM-L6-v2 {name}, mixed-length texts")
    if name == "fp32":
        result.add(common.table((f"fp32, {ours}", "target", "measured"), targets(samples, ours)))
    largest = max(apart.values())
    result.add(
        f"Largest difference of an embedding's number to the template's: {largest:.1e} ({CHECKED} texts, "
        "16 at once). Model instances as the server made them: "
        + ", ".join(f"{label} {count}" for label, count in counts.items())
        + "."
    )
    failed = sum(one.failed for one in samples)
    if failed:
        result.add(f"**{failed} requests failed.**")
    result.data[name] = {"differences": apart, "instances": counts}


if __name__ == "__main__":
    main()

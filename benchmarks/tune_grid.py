"""An exhaustive grid of settings against what ``trb tune`` chooses, twice, with two seeds.

    .venv/bin/python benchmarks/tune_grid.py STEP [--model sample|fp32|int8] [--slo 100] [--budget 600]

Steps, each under ten minutes, each kept in .cache/tune_grid: `grid` (again and again until it says that all
points are there), `tune --seed 1`, `tune --seed 2`, `compare` (the best of the grid and both choices, in
alternation) and `page`, which writes docs/benchmarks/tune_grid_MODEL.md.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
from common import Result, number, say

from triton_repo_builder import repository
from triton_repo_builder.base import hardware
from triton_repo_builder.measure import bench
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.options import TuneOptions
from triton_repo_builder.measure.tune import factors, prove, run
from triton_repo_builder.measure.tune.capacity import Meter, find
from triton_repo_builder.measure.tune.live import Live
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.demo import samples

NAME = "minilm"
GRID = {
    "instances": (1, 2, 3, 4),
    "threads": (1, 2),
    "batching": ("off", 0, 1000),
    "max batch": (8, 32),
    "tokenizer instances": (1, 2),
}
"""4 × 2 × (1 + 2 × 2) × 2 = 80 different settings."""
STEP = 540.0
"""Seconds of a step."""


def points() -> list[dict[str, Any]]:
    """Every different setting, the same order each time."""
    all_ = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    return list({factors.key(setting): setting for setting in all_}.values())


def store(arguments: Any) -> Path:
    folder = common.ROOT / ".cache" / "tune_grid" / arguments.model
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def session(folder: Path, arguments: Any) -> Live:
    path = folder / "repository"
    if not path.is_dir():
        source = (
            samples.minilm_int8(folder / "model")
            if arguments.model == "sample"
            else common.model(arguments.model)
        )
        common.ours(source, path, NAME)

    @contextmanager
    def opened() -> Iterator[tuple[Urls, int | None]]:
        with serve.start(path, common.FREE) as server:
            yield server.urls, server.pid

    return Live(opened, repository.read(path), own=True)


def load(arguments: Any) -> bench.BenchOptions:
    return bench.BenchOptions(endpoint=NAME, warmup=0.3, window=arguments.window, concurrency=(1,))


def grid(folder: Path, arguments: Any) -> None:
    file = folder / "grid.json"
    done = json.loads(file.read_text()) if file.is_file() else {}
    begun, objective = time.monotonic(), Objective(percentile="p99", ms=arguments.slo)
    with session(folder, arguments) as live, WorkerPool() as pool:
        meter = Meter(pool=pool, options=load(arguments), objective=objective)
        base = factors.default(factors.space(live.add(NAME), hardware.here().cores))
        for setting in points():
            if factors.key(setting) in done:
                continue
            if time.monotonic() - begun > STEP - 45:
                break
            live.apply(setting, base)
            found = find(meter, live.variant(NAME), clients=factors.clients(setting))
            done[factors.key(setting)] = {"setting": setting, "capacity": found.rate}
            file.write_text(json.dumps(done, indent=1))
            say(f"{len(done)} of {len(points())}: {factors.describe(setting, base)}: {found.rate:.1f}/s")
    say("all points are there" if len(done) == len(points()) else "run this step again")


def tune(folder: Path, arguments: Any) -> None:
    objective = Objective(percentile="p99", ms=arguments.slo)
    options = TuneOptions(
        objective=objective,
        endpoint=NAME,
        window=arguments.window,
        budget=arguments.budget,
        seed=arguments.seed,
    )
    report = run.tune(session(folder, arguments), options, lambda text, done, total: say(f"{done} s {text}"))
    (folder / f"tune{arguments.seed}.json").write_text(json.dumps(report.to_json(), indent=1))
    say(f"chosen: {report.chosen}")


def compare(folder: Path, arguments: Any) -> None:
    done = json.loads((folder / "grid.json").read_text())
    best = max(done.values(), key=lambda each: each["capacity"])
    runs = [json.loads((folder / f"tune{seed}.json").read_text()) for seed in (1, 2)]
    objective = Objective(percentile="p99", ms=arguments.slo)
    with session(folder, arguments) as live, WorkerPool() as pool:
        meter = Meter(pool=pool, options=load(arguments), objective=objective)
        base = factors.default(factors.space(live.add(NAME), hardware.here().cores))
        # The first is what the others are divided by.
        settings = [
            (best["setting"], best["capacity"]),
            *((each["setting"], best["capacity"]) for each in runs),
        ]
        compared = prove.alternate(live, meter, base, settings, say, 2, kept=len(runs))
    (folder / "compared.json").write_text(json.dumps([vars(each) for each in compared], indent=1))


def page(folder: Path, arguments: Any) -> None:
    done = json.loads((folder / "grid.json").read_text())
    compared = json.loads((folder / "compared.json").read_text())
    title = f"trb tune against an exhaustive grid, {arguments.model}"
    result = Result(f"tune_grid_{arguments.model}", title, arguments.output)
    names = ["best of the grid", "tune, seed 1", "tune, seed 2"]
    rows = [
        [
            name,
            each["name"],
            number(each["capacity"]),
            f"{each['ratio']:.2f} ({each['lowest']:.2f} to {each['highest']:.2f})",
        ]
        for name, each in zip(names, compared, strict=True)
    ]
    result.add(
        f"all-MiniLM-L6-v2 ({arguments.model}), p99 within {arguments.slo:g} ms. {len(done)} settings one "
        f"after the other; tune with {arguments.budget:g} s. Then these three in alternation:",
        common.table(["", "setting", "requests/s", "over the best of the grid"], rows),
    )
    ordered = sorted(done.values(), key=lambda each: -each["capacity"])
    cells = [[*(str(each["setting"][name]) for name in GRID), number(each["capacity"])] for each in ordered]
    result.add("## The grid", common.table([*GRID, "requests/s"], cells))
    result.data |= {"grid": ordered, "compared": compared}
    result.write()


STEPS = {"grid": grid, "tune": tune, "compare": compare, "page": page}


def main() -> None:
    parser = common.parser(__doc__)
    parser.set_defaults(window=1.0)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--model", default="sample", choices=("sample", *common.MODELS))
    parser.add_argument("--slo", type=float, default=100.0, help="milliseconds of p99")
    parser.add_argument("--budget", type=float, default=540.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    STEPS[arguments.step](store(arguments), arguments)


if __name__ == "__main__":
    main()

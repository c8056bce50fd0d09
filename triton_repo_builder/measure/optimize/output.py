"""The folder of an optimised model: model.onnx, the recipe, the report, and the files beside the original."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.report import png
from triton_repo_builder.measure.optimize import recipe
from triton_repo_builder.measure.optimize.run import Measured, Outcome
from triton_repo_builder.model.read import conversion
from triton_repo_builder.model.read.source import Source

MODEL, REPORT, PLOT = "model.onnx", "optimize.json", "optimize.png"
WEIGHTS = (".onnx", ".bin", ".safetensors", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".data", ".onnx_data")
"""Suffixes of weights, of the original or of other frameworks: never copied."""

NOT_COPIED = (recipe.FILE, REPORT, PLOT, conversion.FILE, conversion.ANSWERS)
"""Files about the original, and PyTorch's answers: the new file answers a little otherwise."""


def check(output: Path) -> None:
    """``TrbError`` OUTPUT_FOREIGN if there is something already."""
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists() or output.is_symlink():
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            "this exists already, and trb optimize replaces nothing",
            where=str(output),
            remedy="name another folder with -o, or delete it",
        )


def write(outcome: Outcome, output: Path, folder: Path) -> None:
    """Put the folder together in ``folder``, beside ``output``, and move it there as a whole."""
    whole = folder / "whole"
    whole.mkdir()
    data = outcome.path.with_name(outcome.path.name + ".data")
    outcome.path.rename(whole / MODEL)
    if data.exists():
        data.rename(whole / data.name)
    for file, name in companion_files(outcome.source):
        (whole / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, whole / name)
    (whole / recipe.FILE).write_text(_text({"steps": [step.as_json() for step in outcome.steps]}))
    (whole / REPORT).write_text(_text(as_json(outcome)))
    if importlib.util.find_spec(png.NEEDS):
        (whole / PLOT).write_bytes(plot(outcome))
    files.sync_all(whole)
    check(output)
    if output.exists():
        output.rmdir()
    whole.rename(output)


def companion_files(source: Source) -> list[tuple[Path, str]]:
    """The files beside the model, but weights, and their names in the new folder."""
    weights = {path.resolve() for path in source.weights}
    beside_by_name: dict[str, Path] = {}
    for home in dict.fromkeys((source.folder, *_parents(source), source.path.parent)):
        for file in (*home.glob("*"), *home.glob("*_*/*")):
            if not file.is_file() or not containment.is_within(home, file):
                continue
            if file.resolve() in weights or file.name.startswith("."):
                continue
            if file.suffix in WEIGHTS or file.name in NOT_COPIED:
                continue
            beside_by_name[str(file.relative_to(home))] = file
    return [(file, name) for name, file in sorted(beside_by_name.items())]


def _parents(source: Source) -> tuple[Path, ...]:
    return tuple(file.parent for file in (source.tokenizer, source.preprocessor) if file)


def plot(outcome: Outcome) -> bytes:
    """A PNG of size, speed and accuracy by step."""
    lines = outcome.lines
    return png.bars(
        {
            "MB": {line.step: line.bytes / 1e6 for line in lines},
            "times as fast": {line.step: line.speed.ratio for line in lines},
            lines[-1].accuracy.measure: {line.step: line.accuracy.mean for line in lines},
        }
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The report as plain values: sizes in bytes, latencies in milliseconds of one thread."""
    lines = outcome.lines
    return {
        "model": outcome.source.path.name,
        "task": outcome.task,
        "samples": {"count": outcome.samples.count, "about": outcome.samples.about},
        **({"labelled": {"count": outcome.labelled}} if outcome.labelled else {}),
        "max_drop": outcome.max_drop,
        "passed": not outcome.failure,
        "failure": outcome.failure or None,
        "steps": [_line(line, lines[0], lines[max(0, number - 1)]) for number, line in enumerate(lines)],
    }


def _line(line: Measured, first: Measured, before: Measured) -> dict[str, Any]:
    accuracy = line.accuracy
    return {
        "step": line.step,
        "bytes": line.bytes,
        "size_ratio": round(line.bytes / first.bytes, 4),
        "latency_ms": {str(size): round(value, 3) for size, value in line.speed.latency.items()},
        "rows_per_second": round(line.speed.throughput, 2),
        "speed_ratio": round(line.speed.ratio, 3),
        "speed_interval": [round(line.speed.gain.low, 3), round(line.speed.gain.high, 3)],
        "other_programs": round(line.speed.others, 3),
        "speed_ratio_to_step_before": round(line.speed.ratio / before.speed.ratio, 3),
        "accuracy": {
            "measure": accuracy.measure or None,
            "mean": round(accuracy.mean, 6),
            "quantile_1_percent": None if accuracy.lowest is None else round(accuracy.lowest, 6),
            "largest_change": None if accuracy.change is None else round(accuracy.change, 6),
            "difference": round(accuracy.difference, 6),
        },
        **(
            {"labelled": {name: round(value, 6) for name, value in line.quality.items()}}
            if line.quality
            else {}
        ),
        "failure": line.failure or None,
    }


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"

"""Weights → ONNX → PyTorch's answers to the golden inputs → a folder that ``trb build`` takes."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import containment, files, new_folder, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import first_line
from triton_repo_builder.endpoint.golden import pytorch
from triton_repo_builder.endpoint.plan.kinds import KINDS
from triton_repo_builder.model.read import conversion
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import request as request_of
from triton_repo_builder.produce.convert import environment, output, weights
from triton_repo_builder.produce.convert.weights import Weights
from triton_repo_builder.repository.manifest import Conversion, HubModel

WORKER = Path(__file__).with_name("worker.py")
MODEL = "model.onnx"
PREPROCESSOR = "preprocessor_config.json"
FAR = 1e-3
"""The largest difference between the graph and PyTorch, as a share of the largest number (at least 1)."""
LONGEST = 3600.0
"""Seconds of one step of a conversion."""
ATTEMPTS: tuple[Mapping[str, Any], ...] = ({}, {"pooling": "mean"}, {"task": "tensor"})
"""Options of builds that give golden inputs. Any pooling gives the same ones."""
HIDDEN = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "PYTHONPATH", "PYTHONHOME")
"""Variables that the worker does not get."""
OBJECTS = ("logits", "pred_boxes")
"""Outputs of a detector, [images, queries, …]."""
Progress = Callable[[str], None]
Run = tuple[dict[str, npt.NDArray[Any]], list[npt.NDArray[Any]]]


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The result of a conversion."""

    output: Path
    conversion: Conversion
    hub: HubModel | None
    bytes: int
    """Size of the graph with its weights."""
    runs: int
    """Golden inputs that PyTorch answered."""
    difference: float
    """The largest difference between the graph and PyTorch, as a share of the largest number."""
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return {
            "output": str(self.output),
            **self.conversion.to_json(),
            **({"hub": self.hub.to_json()} if self.hub else {}),
            "bytes": self.bytes,
            "pytorch_runs": self.runs,
            "difference": float(f"{self.difference:.3g}"),
            "notes": list(self.notes),
        }


def convert(
    folder: Path,
    target: Path,
    *,
    task: str | None = None,
    python: Path | None = None,
    hub: HubModel | None = None,
    force: bool = False,
    progress: Progress = lambda message: None,
    tell: Progress = lambda message: None,
) -> Converted:
    """Convert the weights in ``folder`` to ``target``. Raises ``TrbError``; then ``target`` is as it was."""
    source = weights.find(folder, task)
    output.check(target, force=force)
    interpreter = environment.python(python, progress, tell)
    with new_folder.staging(target, kept=output.KEPT) as scratch:
        worker = _Worker(interpreter, source, scratch)
        whole = scratch / "whole"
        whole.mkdir()
        progress(f"exporting the model for {source.task}")
        report = worker.ask("export", target=str(whole))
        graph = _graph_files(whole)
        _copy_companions(source, whole)
        progress("running the converted model")
        names, runs = golden_runs(whole)
        progress("asking PyTorch")
        answers = worker.answers(names, [feeds for feeds, _ in runs])
        difference = compare(names, runs, answers, str(folder))
        by_key = {pytorch.key(feeds): values for (feeds, _), values in zip(runs, answers, strict=True)}
        _save(whole / conversion.ANSWERS, pytorch.content(names, by_key))
        facts = Conversion(
            converter=report["converter"],
            task=source.task,
            tools=report["tools"],
            weights={name: files.hash_file(folder / name) for name in source.files},
        )
        record = {
            "conversion": facts.to_json(),
            **({"hub": hub.to_json()} if hub else {}),
            "graph": {file.name: files.hash_file(file) for file in graph},
        }
        files.create(whole / conversion.FILE, json.dumps(record, indent=1).encode() + b"\n")
        size = sum(file.stat().st_size for file in graph)
        output.place(whole, target, force=force)
    return Converted(
        output=target,
        conversion=facts,
        hub=hub,
        bytes=size,
        runs=len(runs),
        difference=difference,
        notes=tuple(report["notes"]),
    )


class _Worker:
    """The script in the conversion environment, on a private folder with nothing but what it needs."""

    def __init__(self, interpreter: Path, source: Weights, scratch: Path) -> None:
        self._interpreter, self._source, self._scratch = interpreter, source, scratch
        self._model = scratch / "model"
        self._model.mkdir()
        for name in ("config.json", PREPROCESSOR):
            if file := containment.within(source.folder, name):
                files.create(self._model / name, files.read(file, files.LARGEST_DOCUMENT))
        for name in source.files:
            (self._model / name).symlink_to((source.folder / name).resolve())

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """The report of an action. Raises ``TrbError``."""
        source, report = self._source, self._scratch / f"{action}.report.json"
        request = {
            "action": action,
            "model": str(self._model),
            "task": source.task,
            "class": source.stated_class,
            "report": str(report),
            **arguments,
        }
        place = self._scratch / f"{action}.json"
        files.create(place, json.dumps(request).encode())
        kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        environment = {**kept, **offline, "HF_HOME": str(self._scratch / "hf"), "TMPDIR": str(self._scratch)}
        argv = [str(self._interpreter), "-I", str(WORKER), str(place)]
        try:
            process.run(argv, env=environment, timeout=LONGEST, stdin="")
            answer: dict[str, Any] = files.load_json(files.read(report))
        except (process.ProcessFailed, OSError, *files.DAMAGED) as error:
            raise self._failed(action, error) from None
        if "refused" in answer:
            raise self._refused(answer)
        return answer

    def answers(
        self, names: Sequence[str], feeds: Sequence[Mapping[str, Any]]
    ) -> list[list[npt.NDArray[Any]]]:
        """PyTorch's outputs for each of these inputs. Raises ``TrbError``."""
        inputs, outputs = self._scratch / "feeds.npz", self._scratch / "answers.npz"
        arrays = {f"{n}.{name}": array for n, run in enumerate(feeds) for name, array in run.items()}
        _save(inputs, arrays, compressed=False)
        self.ask("answers", feeds=str(inputs), target=str(outputs), outputs=list(names))
        with np.load(outputs, allow_pickle=False) as stored:
            return [[stored[f"{n}.{place}"] for place in range(len(names))] for n in range(len(feeds))]

    def _refused(self, answer: Mapping[str, str]) -> TrbError:
        remedies = {
            "unknown": "export it by its author's own script, and build that ONNX file",
            "weights": "get the whole folder again; or name what it is for with --task",
            "outputs": "name what the model is for with --task",
        }
        code = Code.GOLDEN_FAILED if answer["refused"] == "outputs" else Code.UNSUPPORTED_MODEL
        remedy = remedies.get(answer["refused"], "")
        return TrbError(code, answer["message"], where=str(self._source.folder), remedy=remedy)

    def _failed(self, action: str, error: Exception) -> TrbError:
        said = error.stderr if isinstance(error, process.ProcessFailed) else str(error)
        if "No space left on device" in said or "Disk quota exceeded" in said:
            return TrbError(
                Code.DISK_FULL,
                f"the disk is full; {output.KEPT}",
                where=str(self._scratch.parent),
                remedy="free some space, or choose another disk with --output",
            )
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        reason = first_line(lines[-1]) if lines else "it ended without a word (out of memory?)"
        doing = "exporting the model" if action == "export" else "asking PyTorch"
        return TrbError(
            Code.UNSUPPORTED_MODEL,
            f"{doing} failed: {reason.replace(str(self._model), str(self._source.folder))}",
            where=str(self._source.folder),
            remedy="check that transformers itself loads this folder; --task names what the model is for",
        )


def _graph_files(whole: Path) -> list[Path]:
    """The graph and its external data; what an exporter wrote besides is removed."""
    kept = []
    for file in sorted(whole.iterdir()):
        if file.name.startswith(MODEL) and file.is_file():
            kept.append(file)
        elif file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()
    return kept


def _copy_companions(source: Weights, whole: Path) -> None:
    for name in source.companions:
        if file := containment.within(source.folder, name):
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, whole / name)


def golden_runs(folder: Path) -> tuple[tuple[str, ...], list[Run]]:
    """Names of the graph's outputs, and the runs that recording golden cases needs. Raises ``TrbError``."""
    first: TrbError | None = None
    for settings in ATTEMPTS:
        tape: list[Run] = []
        try:
            build = request_of.requested(BuildOptions(model=folder, name="converted", **settings))
            assert build.model is not None
            kind, model = KINDS[build.kind], replace(build.model, tape=tape)
            kind.record(build.request, kind.prepare(build.request), model)
        except TrbError as error:
            first = first or error
            continue
        return tuple(model.session.outputs), list(
            {pytorch.key(feeds): (feeds, v) for feeds, v in tape}.values()
        )
    assert first is not None
    raise first


def compare(
    names: Sequence[str], runs: Sequence[Run], answers: Sequence[Sequence[npt.NDArray[Any]]], where: str
) -> float:
    """The largest difference between the graph and PyTorch, padding left out. Raises ``TrbError``."""
    largest, place = 0.0, ""
    for (feeds, values), expected in zip(runs, answers, strict=True):
        mask = feeds.get("attention_mask")
        for name, value, other in zip(names, values, _in_order(names, values, expected), strict=True):
            difference = _difference(np.asarray(value), other, mask)
            if not difference <= largest:
                largest, place = difference, name
    if largest <= FAR:
        return largest
    raise TrbError(
        Code.GOLDEN_FAILED,
        f"the converted graph does not answer as PyTorch does: output '{place}' is off by {largest:.1e} of "
        "its largest number",
        where=where,
        remedy="take another exporter's ONNX file of this model, if there is one; nothing was written",
    )


def _in_order(
    names: Sequence[str], values: Sequence[npt.NDArray[Any]], expected: Sequence[npt.NDArray[Any]]
) -> Sequence[npt.NDArray[Any]]:
    """PyTorch's objects in the graph's order: which of nearly equal places is which query, noise decides."""
    if not set(OBJECTS) <= set(names):
        return expected
    ours, theirs = (
        np.concatenate([side[names.index(name)].astype(np.float64) for name in OBJECTS], axis=-1)
        for side in (values, expected)
    )
    if ours.shape != theirs.shape:
        return expected
    order = np.zeros(ours.shape[:2], dtype=np.int64)
    for image, (mine, others) in enumerate(zip(ours, theirs, strict=True)):
        distances = np.abs(mine[:, None] - others[None]).max(axis=-1)
        for query in range(len(mine)):
            order[image, query] = nearest = distances[query].argmin()
            distances[:, nearest] = np.inf
    rows = np.arange(len(order))[:, None]
    return [other[rows, order] if other.shape[:2] == order.shape else other for other in expected]


def _difference(value: npt.NDArray[Any], other: npt.NDArray[Any], mask: npt.NDArray[Any] | None) -> float:
    if value.shape != other.shape:
        return float("inf")
    if mask is not None and value.shape[:2] == mask.shape:
        value, other = value[mask.astype(bool)], other[mask.astype(bool)]
    value, other = value.astype(np.float64), other.astype(np.float64)
    sizes = np.abs(other[np.isfinite(other)])
    with np.errstate(invalid="ignore"):
        differences = np.where(value == other, 0, np.abs(value - other))
    most = float(differences.max(initial=0.0)) / max(1.0, float(sizes.max(initial=0.0)))
    return most if np.isfinite(most) else float("inf")


def _save(file: Path, arrays: Mapping[str, Any], *, compressed: bool = True) -> None:
    content = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(content, **arrays)
    files.create(file, content.getvalue())

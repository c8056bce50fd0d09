from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from cli import call, trb

from triton_repo_builder.measure.optimize import precision, run, speed
from triton_repo_builder.measure.optimize.accuracy import Accuracy
from triton_repo_builder.model.graph import per_row


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of 8 × 8 count, and no second is spent on each measurement."""
    monkeypatch.setattr(per_row, "SMALLEST", 16)
    monkeypatch.setattr(speed, "SECONDS", 0.0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.classifier(tmp_path / "bert", labels=8)


def build(model: Path, *arguments: object) -> Any:
    output = model.parent / "repository"
    return call("build", "--model", model, "--output", output, *map(str, arguments))


def served(model: Path) -> dict[str, Any]:
    manifest = json.loads((model.parent / "repository" / "manifest.json").read_text())
    entry: dict[str, Any] = manifest["endpoints"]["bert"]
    return entry


def _faster(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    monkeypatch.setattr(speed.Speed, "ratio", property(lambda self: ratio))


def test_int8_is_built_and_recorded(model: Path) -> None:
    done = build(model, "--precision", "int8")
    assert done.returncode == 0, done.stderr
    assert "note: --precision int8: int8 per-row, " in done.stderr and "label agreement 0.99" in done.stderr
    entry = served(model)
    assert entry["facts"]["optimised"] == "int8 per-row"
    assert entry["options"]["precision"] == "int8"
    assert "repository: unchanged" in build(model, "--precision", "int8").stdout


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "taken"), [(2.0, True), (0.9, False)])
def test_auto_takes_what_is_faster(
    ratio: float, taken: bool, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _faster(monkeypatch, ratio)
    done = build(model, "--precision", "auto", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert ("optimised" in served(model)["facts"]) == taken
    kept = "note: --precision auto keeps the model: int8 per-row is 0.90 times as fast as the original here"
    assert (kept in done.stderr) != taken


@pytest.mark.slow
def test_what_loses_too_much(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Accuracy(measure="label agreement", mean=0.9)
    monkeypatch.setattr(run.accuracy, "compare", lambda *arguments: lost)
    done = build(model, "--precision", "int8")
    assert (done.returncode, "[accuracy-lost]" in done.stderr) == (1, True)
    assert not (model.parent / "repository").exists()
    kept = build(model, "--precision", "auto", "--device", "cpu")
    assert "keeps the model: label agreement 0.90000 is below 0.995" in kept.stderr
    assert "optimised" not in served(model)["facts"]


def test_nothing_to_quantise(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_row, "SMALLEST", 1 << 20)
    assert "[unsupported-model]" in build(model, "--precision", "int8").stderr
    assert "keeps the model: int8: the graph has no" in build(model, "--precision", "auto").stderr


def test_fp16_is_for_gpus(model: Path) -> None:
    done = build(model, "--precision", "fp16", "--device", "cpu")
    assert (done.returncode, "fp16 is for GPUs" in done.stderr) == (2, True)


def test_not_for_many_models(model: Path, tmp_path: Path) -> None:
    done = call("build", "--all", model, "--output", tmp_path / "r", "--precision", "int8")
    assert (done.returncode, "does not apply to --all" in done.stderr) == (2, True)


def test_keep_is_the_default(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("nothing is to be optimised")

    monkeypatch.setattr(precision, "applied", never)
    trb("build", "--model", str(model), "--output", str(model.parent / "repository"), "--precision", "keep")

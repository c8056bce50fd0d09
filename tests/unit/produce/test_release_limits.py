"""Operators without a kernel in the release's ONNX Runtime are named before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from cli import call
from onnx import helper
from tiny_onnx import node, tensor

from triton_repo_builder.base import releases
from triton_repo_builder.measure.optimize import run

OLD, NEW = "24.10", "26.07"


def _model(path: Path, operator: str, domain: str = "com.microsoft") -> Path:
    made = node(operator, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([made], "g", [tensor("x", ["batch", 4])], [tensor("y", ["batch", 4])])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    )
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("domain", "operator", "since", "old", "new"),
    [
        ("com.microsoft", "Attention", 1, True, True),
        ("com.microsoft", "GatherBlockQuantized", 1, False, True),
        ("com.microsoft", "PackedAttention", 1, False, False),  # it is for GPUs
        ("", "QLinearMatMul", 10, True, True),
        ("", "QLinearMatMul", 21, False, True),
        ("", "Loop", 21, True, True),
        ("my.own", "Anything", 1, True, True),
    ],
)
def test_what_an_onnxruntime_runs(domain: str, operator: str, since: int, old: bool, new: bool) -> None:
    assert releases.get(OLD).runs(domain, operator, since) == old
    assert releases.get(NEW).runs(domain, operator, since) == new


def test_a_pre_release_is_older_than_its_release() -> None:
    assert not releases.get("25.08").runs("com.microsoft", "QMoE", 1)
    assert releases.get("25.09").runs("com.microsoft", "QMoE", 1)


@pytest.mark.parametrize("command", ["build", "optimize"])
def test_the_operator_and_a_release_that_has_it_are_named(command: str, tmp_path: Path) -> None:
    model = _model(tmp_path / "model.onnx", "LinearAttention")
    where = ("--model", model, "--output") if command == "build" else (model, "-o")
    done = call(command, *where, tmp_path / "out", "--device", "cpu")
    assert done.returncode == 3 and "[too-new]" in done.stderr
    assert "of Triton 24.10 has no CPU kernel for com.microsoft.LinearAttention" in done.stderr
    assert "--triton-release 26.07" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_operator_for_gpus(tmp_path: Path) -> None:
    model = _model(tmp_path / "model.onnx", "PackedAttention")
    arguments = ("build", "--model", model, "--output", tmp_path / "out", "--no-golden")
    assert "no known release has one" in call(*arguments, "--device", "cpu").stderr
    assert call(*arguments, "--device", "gpu").returncode == 0


def test_a_step_that_makes_such_an_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file under way is held against the release as well."""
    model = tiny.tensor_model(tmp_path / "model.onnx")

    def step(step: Any, before: Path, after: Path, samples: Any) -> None:
        _model(after, "LinearAttention")

    monkeypatch.setattr(run.steps, "apply", step)
    done = call("optimize", model, "-o", tmp_path / "out", "--steps", "int8:dynamic", "--device", "cpu")
    assert "has no CPU kernel for com.microsoft.LinearAttention" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_release(tmp_path: Path) -> None:
    model = tiny.tensor_model(tmp_path / "model.onnx")
    done = call("optimize", model, "-o", tmp_path / "out", "--triton-release", "22.01")
    assert (done.returncode, "unknown Triton release '22.01'" in done.stderr) == (2, True)


@pytest.mark.parametrize(("release", "fails"), [("24.05", True), ("24.06", False)])
def test_older_releases_cache_no_ensemble(release: str, fails: bool, tmp_path: Path) -> None:
    model = tiny.embedder(tmp_path / "model")
    arguments = ("--output", tmp_path / "out", "--response-cache", "--triton-release", release, "--no-golden")
    done = call("build", "--model", model, *arguments)
    assert ("does not cache the answers of an ensemble" in done.stderr) == fails == (done.returncode == 2)

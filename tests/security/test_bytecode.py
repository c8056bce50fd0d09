"""Bytecode beside the sources of a clone: no process of the server runs it, and --verify refuses it."""

from __future__ import annotations

import importlib.util
import py_compile
import shutil
from pathlib import Path

import pytest
import tiny
import two_versions
from cli import FEW, call, kind

from triton_repo_builder.base.errors import Code

EVIL = "open({marker!r}, 'w').close()\nraise SystemExit\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository in which each Python file has unchecked bytecode of another program (PEP 552)."""
    tiny.classifier(tmp_path / "model")
    assert call("build", "--model", "model", "--name", "sentiment", cwd=tmp_path).returncode == 0
    evil = tmp_path / "evil.py"
    evil.write_text(EVIL.format(marker=str(tmp_path / "RAN")))
    for source in sorted((tmp_path / "model_repository").rglob("*.py")):
        cached = Path(importlib.util.cache_from_source(str(source)))
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(evil), str(cached), dfile=str(source), invalidation_mode=mode, doraise=True)
    return tmp_path


@pytest.mark.server
def test_it_does_not_run(clone: Path) -> None:
    done = call("smoke", "model_repository", *FEW, cwd=clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (clone / "RAN").exists()


def test_verify_refuses_it(clone: Path) -> None:
    done = call("serve", "model_repository", "--verify", cwd=clone)
    assert kind(done.stderr) is Code.DIGEST_MISMATCH
    assert "__pycache__" in done.stderr


def test_code_beside_a_version_is_not_promoted(clone: Path) -> None:
    for cache in sorted((clone / "model_repository").rglob("__pycache__")):
        shutil.rmtree(cache)
    two_versions.change_weights(clone / "model" / "model.onnx")
    version = ("build", "--model", "model", "--name", "sentiment", "--version", "2")
    assert call(*version, cwd=clone).returncode == 0
    vendor = clone / "model_repository" / "sentiment_tokenizer" / "2" / "vendor"
    (vendor / "numpy").mkdir(parents=True)
    (vendor / "numpy" / "__init__.py").write_text("evil = 1\n")
    done = call("promote", "sentiment", "--version", "2", cwd=clone)
    assert kind(done.stderr) is Code.PROMOTE_FAILED
    assert "vendor/numpy/__init__.py was not written by trb" in done.stderr

"""The steps of benchmarks/gpu.py on the CPU, small, on the real embedded server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base import process

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"
DIRECTORY = str(ROOT / "benchmarks")


def gpu(*arguments: object, code: int = 0) -> str:
    """What the script prints, with this exit code; a step's own output comes with it."""
    environment = {**os.environ, "PYTHONPATH": f"{DIRECTORY}{os.pathsep}{ROOT}"}
    argv = [sys.executable, str(SCRIPT), *map(str, arguments)]
    try:
        text, ended = process.run(argv, env=environment, timeout=1200), 0
    except process.ProcessFailed as error:
        text, ended = f"{error.stdout}\n{error.stderr}", error.code
    assert ended == code, text
    return text


def steps(output: Path, *names: str, code: int = 0) -> str:
    chosen = [word for name in names for word in ("--only", name)]
    return gpu("--device", "cpu", "--small", "--output", output, *chosen, code=code)


def result(output: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((output / "gpu" / f"{name}.json").read_text())
    return document


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the first steps, which later ones take up."""
    folder = tmp_path_factory.mktemp("gpu")
    steps(folder, "reference")
    return folder


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("name", ["parity_fp32", pytest.param("parity_fp16", marks=pytest.mark.slow)])
def test_answers_are_those_of_the_reference(output: Path, name: str) -> None:
    steps(output, name)
    found = result(output, name)["found"]
    assert found["kind"] == "KIND_CPU"
    assert set(found["requests"]) == {"pooling", "classes", "tokens"}
    # Of what answers with words, 16 bits are asked the golden cases alone.
    assert found["requests"]["pooling"] > 30
    assert min(found["requests"].values()) > (30 if name == "parity_fp32" else 5)
    assert max(found["largest_difference"].values()) <= found["tolerance"]


@pytest.mark.slow
@pytest.mark.server
def test_a_wrong_answer_in_the_reference_is_noticed(output: Path, tmp_path: Path) -> None:
    answers = result(output, "answers")
    next(iter(answers["pooling"].values()))["embedding"][0][0] += 1e-3
    for entities in answers["tokens"].values():
        entities["entities"] = [
            [text.replace('"LOC"', '"ORG"') for text in row] for row in entities["entities"]
        ]
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "answers.json").write_text(json.dumps(answers))
    text = steps(tmp_path, "parity_fp32", code=1)
    assert "differ from the CPU's answers by more than 0.0001: pooling by 0.001, tokens by inf" in text
    wrong = result(tmp_path, "parity_fp32")
    assert not wrong["ok"]
    assert wrong["found"]["largest_difference"]["classes"] <= 1e-4, (
        "the other heads are reported all the same"
    )
    assert "**differ from" in (tmp_path / "gpu.md").read_text()


@pytest.mark.slow
@pytest.mark.server
def test_load_is_measured_on_every_variant(output: Path) -> None:
    steps(output, "throughput", "arctic")
    found = result(output, "throughput")["found"]
    assert {(level["clients"], level["variant"]) for level in found["levels"]} == {
        (clients, variant)
        for clients in (1, 4)
        for variant in (
            "ours, trb build's defaults",
            "usual template",
            "usual template, ours' max_batch_size",
        )
    }
    assert all(level["answered"] > 0 and level["p99_ms"] > 0 for level in found["levels"])
    assert [one["batch"] for one in found["alone"]] == [1, 4]
    assert found["largest_difference"] < 1e-5
    arctic = result(output, "arctic")["found"]
    assert [(level["rows"], level["length"]) for level in arctic["levels"]] == [(1, 50), (4, 50)]
    for level in arctic["levels"]:
        assert level["answered"] >= level["requests_wanted"] / 2
        assert level["tokens_per_second"] == pytest.approx(level["requests_per_second"] * level["rows"] * 50)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(1200)
def test_the_whole_pass(tmp_path: Path) -> None:
    """All steps, also those whose parts the others share; about two minutes."""
    gpu("--device", "cpu", "--small", "--output", tmp_path)
    page = (tmp_path / "gpu.md").read_text()
    assert page.count("| holds |") == 13
    for part in ("No GPU took part", "trb smoke", "## arctic", "Versions: commit ", "onnxruntime-gpu"):
        assert part in page


def test_what_holds_is_kept_and_again_repeats_it(tmp_path: Path) -> None:
    text = steps(tmp_path, "environment")
    assert "1/1 environment: ok" in text
    kept = {"step": "reference", "ok": True, "setting": {"device": "cpu", "small": True}, "found": {}}
    other = {**kept, "setting": {"device": "cpu", "small": False}}
    for document, state in ((kept, "done"), (other, "to do"), ({**kept, "ok": False}, "to do")):
        (tmp_path / "gpu" / "reference.json").write_text(json.dumps(document))
        listed = gpu("--device", "cpu", "--small", "--output", tmp_path, "--list")
        assert f"reference      {state}" in listed
    (tmp_path / "gpu" / "reference.json").write_text('{"ok": tr')
    assert "reference      to do" in gpu("--device", "cpu", "--small", "--output", tmp_path, "--list")


@pytest.mark.slow
@pytest.mark.server
def test_a_pass_that_is_interrupted_says_so_and_is_taken_up(tmp_path: Path) -> None:
    # What was started in the background ignores SIGINT, and so would all that it starts.
    argv = ["env", "--default-signal=INT", sys.executable, str(SCRIPT), "--device", "cpu", "--small"]
    argv += ["--output", str(tmp_path), "--only", "reference"]
    # A session of its own: Ctrl-C reaches every process of a terminal's group.
    passing = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert passing.stdout is not None
    for line in passing.stdout:
        if line.startswith("2/2 reference"):
            break
    os.killpg(passing.pid, signal.SIGINT)
    assert passing.stdout.read().splitlines()[-1].startswith("interrupted: run it again")
    assert passing.wait() == 130
    assert not (tmp_path / "gpu" / "reference.json").exists()
    assert "1/2 environment: ok" in steps(tmp_path, "reference")


def test_a_machine_without_a_gpu_is_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    text = gpu("--output", tmp_path / "out", code=2)
    assert "no GPU: nvidia-smi lists none: run it on a machine with an NVIDIA GPU, or --device cpu" in text
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.*")) == ["environment.json"]


def test_a_pack_becomes_an_environment_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the newest of a package in the wheel, whatever this environment has; and what it has beside it."""
    monkeypatch.syspath_prepend(DIRECTORY)
    from gpu_steps import prepare

    wheel = tmp_path / "click-99.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("click/__init__.py", "MINE = True\n")
        archive.writestr(
            "click-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: click\nVersion: 99.0\n"
        )
        archive.writestr(
            "click-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("click-99.0.dist-info/RECORD", "")
    (tmp_path / "model.onnx").write_bytes(b"weights")
    monkeypatch.setattr(prepare, "PART", 100)
    monkeypatch.setattr(prepare, "VENV", tmp_path / "venv")
    monkeypatch.setattr(prepare, "MODEL", tmp_path / "placed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pillow = tmp_path / "pillow-1-cp310.whl"
    pillow.write_bytes(b"for the server's Python")
    files = {"model/model.onnx": tmp_path / "model.onnx", f"server/{pillow.name}": pillow}
    prepare.split({f"wheels/{wheel.name}": wheel, **files}, tmp_path / "pack")
    assert prepare.main(["--unpack", str(tmp_path / "pack")]) == 0
    code = "import click, numpy; print(click.MINE, numpy.__version__)"
    python = str(tmp_path / "venv" / "bin" / "python")
    assert process.run([python, "-c", code], timeout=60).startswith("True 1.")
    assert (tmp_path / "placed" / "model.onnx").read_bytes() == b"weights"
    assert (tmp_path / "cache" / "trb" / "wheels" / pillow.name).read_bytes() == pillow.read_bytes()

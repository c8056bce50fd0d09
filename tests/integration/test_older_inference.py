"""Repositories for a release whose ONNX Runtime infers less than the embedded server's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import older_graphs
import pytest
import requests
import tiny
from bad_repositories import findings
from tiny_onnx import identity, model, node, tensor, write

from tests.support.cli import FEW, trb
from tests.support.zoo import Zoo
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.run import serve

pytestmark = pytest.mark.server

DEFAULT = {
    "einsum": [-1],
    "einsum_unstated": [-1],
    "greater": [-1],
    "greater_unstated": [1],
    "less": [-1],
    "less_unstated": [1],
    "group": [-1, -1],
    "group_unstated": [-1, -1],
}
"""Output dims for 24.10, as its ONNX Runtime 1.19.2 has them."""
OTHERS = {
    ("24.12", "einsum"): [8],
    ("24.12", "greater"): [-1],
    ("24.12", "greater_unstated"): [1],
}
"""Those for releases between the default and the server's ONNX Runtime."""


def variant(release: str, name: str) -> str:
    return f"{name}_{release.replace('.', '_')}"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    for name, content in older_graphs.GRAPHS.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(content)
        tiny.put(path, folder / "repository", golden=True, device="cpu", instances=1)
    for release, name in OTHERS:
        path = folder / f"{variant(release, name)}.onnx"
        path.write_bytes(older_graphs.GRAPHS[name])
        tiny.put(path, folder / "repository", golden=True, device="cpu", instances=1, triton_release=release)
    return folder / "repository"


def dims(repository: Path, name: str) -> list[int]:
    [output] = pbtxt.parse((repository / name / "config.pbtxt").read_text())["output"]
    return list(output["dims"])


def test_dims_are_those_of_the_release(repository: Path) -> None:
    assert {name: dims(repository, name) for name in DEFAULT} == DEFAULT
    assert {key: dims(repository, variant(*key)) for key in OTHERS} == OTHERS


def test_from_26_02_on_onnxruntime_infers_what_onnx_does(tmp_path: Path) -> None:
    """Not served: such a config.pbtxt has histograms, which the server of 24.10 does not know."""
    (tmp_path / "greater.onnx").write_bytes(older_graphs.GRAPHS["greater_unstated"])
    tiny.put(tmp_path / "greater.onnx", tmp_path / "repository", device="cpu", triton_release="26.07")
    assert dims(tmp_path / "repository", "greater") == [4]


def test_smoke_passes_on_every_one(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
    said = trb("smoke", repository, *urls, *FEW)
    assert said.splitlines()[-1].startswith("OK ")


def config(dims: str, dtype: str = "FP32", batch: int = 8) -> str:
    rows = "4" if batch else "-1, 4"
    return (
        f'backend: "onnxruntime"\nmax_batch_size: {batch}\n'
        f'input {{ name: "X" data_type: TYPE_FP32 dims: [ {rows} ] }}\n'
        f'output {{ name: "Y" data_type: TYPE_{dtype} dims: [ {dims} ] }}\n'
        "instance_group { count: 1 kind: KIND_CPU }\n"
    )


BEFORE = model(
    [node("GreaterOrEqual", ["X", "X"], ["unused"]), node("Relu", ["X"], ["Y"])],
    [tensor("X", ["batch", 4])],
    [tensor("Y", ["batch", "width"])],
)
"""Y does not depend on the operator."""
HAND_MADE = {
    "einsum_open": (config("-1"), older_graphs.GRAPHS["einsum"], True),
    "einsum_other": (config("4"), older_graphs.GRAPHS["einsum"], False),
    "einsum_one": (config("1", batch=0), older_graphs.GRAPHS["einsum_unstated"], False),
    "greater_open": (config("-1", "BOOL"), older_graphs.GRAPHS["greater"], True),
    "greater_one": (config("1", "BOOL", batch=0), older_graphs.GRAPHS["greater_unstated"], True),
    "greater_rank": (config("-1, -1", "BOOL", batch=0), older_graphs.GRAPHS["greater_unstated"], False),
    "greater_type": (config("-1"), older_graphs.GRAPHS["greater"], False),
    "independent": (config("-1"), BEFORE, False),
    "plain": (config("-1"), identity(["batch", 4]), False),
}
"""Whether release 24.10 takes it: so says ``trb check``, from shapes measured with its ONNX Runtime."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    """A server of its own: one that refused a model is not ready any more."""
    one = Zoo(tmp_path_factory.mktemp("older"))
    yield one
    one.stop()


@pytest.mark.parametrize("name", HAND_MADE)
def test_hand_made_ones_are_taken_as_the_release_takes_them(alone: Zoo, tmp_path: Path, name: str) -> None:
    text, content, taken = HAND_MADE[name]
    write(tmp_path, name, text, content)
    errors = [finding.message for finding in findings(tmp_path) if finding.severity == "error"]
    assert (errors == []) is taken
    shutil.copytree(tmp_path / name, alone.root / name)
    url = f"{alone.server.urls.http}/v2/repository/models/{name}"
    try:
        answer = requests.post(f"{url}/load", json={}, timeout=120)
        assert (answer.status_code == 200) is taken, answer.text
    finally:
        requests.post(f"{url}/unload", json={}, timeout=120)
        shutil.rmtree(alone.root / name)

"""Nothing as large as a stranger's config.pbtxt, graph or smoke.json states is made without a limit."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import tiny
from bench_values import target
from cli import call, kind
from onnx import TensorProto, helper

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.load import requests
from triton_repo_builder.repository import cases
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import RequestFailed, sample_inputs
from triton_repo_builder.run.smoke import sample

CONFIG = """
name: "big"
backend: "python"
max_batch_size: 0
input {{ name: "X" data_type: TYPE_{datatype} dims: [ {dims} ] }}
output {{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }}
"""
LARGE = (200_000, 50_000)
"""40 GB of FP32."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """What is tried without a limit fails here, rather than on the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def big(datatype: str = "FP32", shape: tuple[int, ...] = LARGE) -> Tensor:
    return Tensor(name="X", datatype=datatype, shape=shape)


@pytest.mark.parametrize("datatype", ["FP32", "STRING"])
def test_calls_are_not_spelled_out(datatype: str, tmp_path: Path) -> None:
    (tmp_path / "r/big/1").mkdir(parents=True)
    (tmp_path / "r/big/config.pbtxt").write_text(CONFIG.format(datatype=datatype, dims="200000, 50000"))
    done = call("client", "big", tmp_path / "r", "--output", tmp_path / "client.py")
    assert done.returncode == 0, done.stderr
    assert "infer(x=…)" in done.stdout and len(done.stdout) < 500
    calls = call("client", "big", tmp_path / "r")
    assert " * 10000000000" in calls.stdout and len(calls.stdout) < 5000
    assert (tmp_path / "client.py").stat().st_size < 20_000


def test_a_client_of_hundreds_of_axes(tmp_path: Path) -> None:
    (tmp_path / "r/big/1").mkdir(parents=True)
    (tmp_path / "r/big/config.pbtxt").write_text(CONFIG.format(datatype="FP32", dims="1, " * 299 + "1"))
    done = call("client", "big", tmp_path / "r", "--output", tmp_path / "client.py")
    assert kind(done.stderr) is Code.UNSUPPORTED_TYPE and "'X' has 300 axes" in done.stderr


@pytest.mark.parametrize("tensor", [big(), big("BYTES"), big("INT8"), big(shape=(1,) * 40)])
def test_bench_and_smoke_make_no_such_input(tensor: Tensor) -> None:
    with pytest.raises(sample_inputs.TooLarge, match=r"input X of \d+ x .* is more than is made"):
        sample_inputs.request([tensor], 0, batched=False)
    with pytest.raises(TrbError, match="is more than is made") as caught:
        requests.tensor_inputs(target(tensor, batch=0), 1, None)
    assert caught.value.code is Code.UNSUPPORTED_MODEL and "--endpoint" in caught.value.remedy
    endpoint = cast("Endpoint", SimpleNamespace(name="big", inputs=(tensor,), outputs=(), max_batch_size=0))
    file, inputs, reason = sample.record(cast("Any", None), endpoint)
    assert (file, inputs) == (None, {}) and reason.startswith("smoke makes no such inputs (input X of ")


def test_many_inputs_are_bounded_together() -> None:
    tensors = [Tensor(name=f"X{i}", datatype="FP32", shape=(1 << 22,)) for i in range(100)]
    with pytest.raises(sample_inputs.TooLarge, match="input X8 of"):
        sample_inputs.request(tensors, 0, batched=False)


def test_open_axes_that_are_too_large_leave_the_servers_reason() -> None:
    class Refuses:
        def infer(self, name: str, inputs: object) -> object:
            raise RequestFailed("refused", "400", "no such size")

    tensor = big(shape=(-1, -1, -1, -1))
    endpoint = cast("Endpoint", SimpleNamespace(name="big", inputs=(tensor,), outputs=(), max_batch_size=0))
    _, _, reason = sample.record(cast("Any", Refuses()), endpoint)
    assert "no such size" in reason


@pytest.mark.parametrize("option", ["--golden", "--no-golden"])
@pytest.mark.parametrize("sizes", [(20_000, 10_000), (1 << 40, 1 << 40)])
def test_a_graph_that_takes_so_much(option: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    shape: list[Any] = ["batch", *sizes]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    model = tiny.save(tmp_path / "model.onnx", graph)
    done = call("build", "--model", model, "--output", tmp_path / "out", option)
    assert "Traceback" not in done.stderr
    if option == "--golden":
        assert done.returncode == 0, done.stderr
        assert "no golden cases" in done.stderr and f"input 'x' of 1 x {sizes[0]} x {sizes[1]}" in done.stderr


def test_cases_of_a_file_are_bounded_together(tmp_path: Path) -> None:
    tensor = cases.CaseTensor(name="x", datatype="FP32", shape=(cases.MOST // 2,), pattern=1)
    row = cases.Case(name="c", inputs=(tensor,) * 3, outputs=())
    file = tmp_path / "smoke.json"
    stated = cases.Tolerance(alone=0.0, batched=0.0, reason="")
    made = cases.CaseFile(endpoint="e", recorded_with="", tolerance=stated, cases=(row,))
    file.write_text(cases.dump(made))
    with pytest.raises(ValueError, match="has inputs of more than 67,108,864 elements"):
        cases.load(file)


def test_a_pattern_is_the_same_in_pieces() -> None:
    from triton_repo_builder.base import dtypes

    shape = (3, dtypes.PIECE // 2)
    index = np.arange(np.prod(shape), dtype=np.uint64)
    unit = ((index * np.uint64(2654435761) + np.uint64(7)) % np.uint64(2**32)).astype(np.float64) / 2.0**32
    assert np.array_equal(dtypes.pattern(shape, "FP64", 7).reshape(-1), unit)
    assert np.array_equal(dtypes.pattern(shape, "INT8", 7).reshape(-1), np.floor(unit * 2))
    assert np.array_equal(dtypes.pattern(shape, "BOOL", 7).reshape(-1), unit >= 0.5)
    texts = dtypes.pattern((2, 3), "BYTES", 7).reshape(-1).tolist()
    assert texts == [b"a" if u < 0.5 else b"b" for u in unit[:6]]

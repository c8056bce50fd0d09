"""Large single-file models cost no memory for their weights: not to inspect, not to build with proof."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from triton_repo_builder.base import process
from triton_repo_builder.endpoint.render import endpoint
from triton_repo_builder.model.read import wire
from triton_repo_builder.repository import cases

TRB = str(Path(sys.executable).with_name("trb"))
PEAK = Path(__file__).resolve().parents[2] / "benchmarks" / "peak.py"


def sparse_model(path: Path, size: int, *, multiplies: bool = True) -> None:
    """A model with one initializer of ``size`` bytes, its data a hole in the file.

    It multiplies by all of it, or only adds its first row.
    """
    rows = size // 4096 // 4
    multiply = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    add = [
        helper.make_node("Constant", [], ["first"], value_int=0),
        helper.make_node("Gather", ["w", "first"], ["row"]),
        helper.make_node("Add", ["x", "row"], ["y"]),
    ]
    graph = helper.make_graph(
        multiply if multiplies else add,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", rows if multiplies else 4096])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4096])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    body = graph.SerializeToString()
    model.ClearField("graph")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, 4096]).SerializeToString()
    tensor += wire.varint(9 << 3 | wire.BYTES) + wire.varint(size)
    initializer = wire.varint(5 << 3 | wire.BYTES) + wire.varint(len(tensor) + size) + tensor
    head = wire.varint(7 << 3 | wire.BYTES) + wire.varint(len(body) + len(initializer) + size)
    with path.open("wb") as stream:
        stream.write(model.SerializeToString() + head + body + initializer)
        stream.truncate(stream.tell() + size)


def run(*argv: str) -> dict[str, float]:
    """What benchmarks/peak.py says of a ``trb`` command that succeeds."""
    found: dict[str, float] = json.loads(process.run([sys.executable, "-S", str(PEAK), TRB, *argv]))
    assert found["status"] == 0
    return found


def test_inspect_of_a_large_model_stays_small(tmp_path: Path) -> None:
    size = 1_300_000_000 // 16384 * 16384
    sparse_model(tmp_path / "big.onnx", size)
    assert run("inspect", str(tmp_path / "big.onnx"))["resident"] < 200
    facts = json.loads(process.run([TRB, "inspect", str(tmp_path / "big.onnx"), "--json"]))
    assert facts["bytes"] > size
    assert facts["batchable"] is True


def test_inspect_of_a_file_written_in_one_piece_stays_small(tmp_path: Path) -> None:
    """As exporters write it: the kernel keeps such a file in blocks of megabytes, and maps them whole."""
    names = [f"w{number}" for number in range(100)]
    nodes = [helper.make_node("Add", [f"x{n}" if n else "x", w], [f"x{n + 1}"]) for n, w in enumerate(names)]
    shape = ["batch", 1 << 20]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("x100", TensorProto.FLOAT, shape)],
        [TensorProto(name=w, data_type=1, dims=[1 << 20], raw_data=bytes(4 << 20)) for w in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "big.onnx").write_bytes(model.SerializeToString())
    # Python and its packages take 70 to 110 MB, by the machine; the file alone would add 400.
    assert run("inspect", str(tmp_path / "big.onnx"))["resident"] < 200


@pytest.mark.slow
@pytest.mark.parametrize("size", [1_300_000_000 // 16384 * 16384, 2_600_000_000 // 16384 * 16384])
def test_build_with_golden_cases_needs_no_memory_for_the_weights(tmp_path: Path, size: int) -> None:
    """Of any size, also where ONNX Runtime itself could not load the file: protobuf ends at 2 GB."""
    sparse_model(tmp_path / "big.onnx", size)
    output = tmp_path / "model_repository"
    assert run("build", "--model", str(tmp_path / "big.onnx"), "--output", str(output))["anonymous"] < 300
    recorded = cases.load(output / "big" / "smoke.json")
    assert len(recorded.cases) == 2


@pytest.mark.slow
@pytest.mark.server
def test_a_file_beyond_protobufs_limit_is_served(tmp_path: Path) -> None:
    """ONNX Runtime refuses a model.onnx over 2 GB; the user's file lies beside a small one instead."""
    sparse_model(tmp_path / "huge.onnx", 2_200_000_000 // 16384 * 16384, multiplies=False)
    output = tmp_path / "model_repository"
    process.run([TRB, "build", "--model", str(tmp_path / "huge.onnx"), "--output", str(output)])
    served = output / "huge" / "1"
    assert (served / "model.onnx").stat().st_size < 4096
    assert (served / "weights.onnx").stat().st_size > endpoint.LARGEST
    report = json.loads(process.run([TRB, "smoke", str(output), "--json"]))
    assert report["ok"] and report["parity_proven"]


@pytest.mark.slow
def test_optimize_of_a_large_model_stays_below_two_gigabytes(tmp_path: Path) -> None:
    """Mapped pages of the original count here as well: they are given back between the runs."""
    chance, nodes, weights, name = np.random.default_rng(0), [], [], "x"
    for number in range(78):
        shape = (1024, 4096) if number % 2 == 0 else (4096, 1024)
        values = chance.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{number}"], [name := f"h{number}"]))
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, ["batch", 1024]) for port in ("x", name)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "big.onnx").write_bytes(model.SerializeToString())
    del model, graph, weights
    steps = ("--steps", "int8:per-row", "--max-drop", "0.5")
    found = run("optimize", str(tmp_path / "big.onnx"), "-o", str(tmp_path / "out"), *steps)
    assert (tmp_path / "out" / "model.onnx").stat().st_size > 300_000_000
    assert found["resident"] < 2000

"""``trb inspect`` reads a 1.3 GB single-file model without touching its weights."""

import json
import sys
from pathlib import Path

from onnx import TensorProto, helper

from triton_repo_builder import process
from triton_repo_builder.graph import wire

# Prints the peak resident memory of a command, started from a small process: a child inherits its parent's.
PEAK = """
import json, os, sys
null = [(os.POSIX_SPAWN_OPEN, 1, sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)]
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=null)
_, status, usage = os.wait4(pid, 0)
print(json.dumps([status, usage.ru_maxrss / 1024]))
"""


def sparse_model(path: Path, size: int) -> None:
    """A model with one initializer of ``size`` bytes, its data a hole in the file."""
    shape = ["batch", size // 4096 // 4]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4096])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    body = graph.SerializeToString()
    model.ClearField("graph")
    tensor = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[size // 4096 // 4, 4096]
    ).SerializeToString()
    tensor += wire.varint(9 << 3 | wire.BYTES) + wire.varint(size)
    initializer = wire.varint(5 << 3 | wire.BYTES) + wire.varint(len(tensor) + size) + tensor
    head = wire.varint(7 << 3 | wire.BYTES) + wire.varint(len(body) + len(initializer) + size)
    with path.open("wb") as stream:
        stream.write(model.SerializeToString() + head + body + initializer)
        stream.truncate(stream.tell() + size)


def test_inspect_of_a_large_model_stays_small(tmp_path: Path) -> None:
    size = 1_300_000_000 // 16384 * 16384
    sparse_model(tmp_path / "big.onnx", size)
    argv = [str(Path(sys.executable).with_name("trb")), "inspect", str(tmp_path / "big.onnx"), "--json"]
    said = process.run([sys.executable, "-S", "-c", PEAK, str(tmp_path / "out.json"), *argv])
    status, megabytes = json.loads(said)
    assert status == 0
    facts = json.loads((tmp_path / "out.json").read_text())
    assert facts["bytes"] > size
    assert facts["batchable"] is True
    assert megabytes < 200

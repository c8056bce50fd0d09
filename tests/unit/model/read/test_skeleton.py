"""The skeleton is the same model: same answers, same errors for what is no model, the file untouched."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper
from tiny_onnx import FLOAT, node, tensor

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import skeleton, wire


def run(path: Path) -> list[Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {}
    for number, value in enumerate(session.get_inputs()):
        shape = [size if isinstance(size, int) else 2 + axis for axis, size in enumerate(value.shape)]
        if value.type == "tensor(float)":
            feeds[value.name] = tiny.weights(*shape, seed=number)
        else:
            high = 2 if value.name != "input_ids" else 60
            feeds[value.name] = np.random.default_rng(number).integers(1, high, shape)
    return list(session.run(None, feeds))


def skeleton_of(path: Path) -> Path:
    """Written as ``trb`` serves it: in another folder, the user's file beside it."""
    folder = path.parent / "served"
    folder.mkdir()
    made = skeleton.read(path)
    (folder / "model.onnx").write_bytes(made.content("weights.onnx"))
    (folder / "weights.onnx").hardlink_to(path)
    return folder / "model.onnx"


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
def test_answers_are_the_original_ones(opset: int, tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", opset=opset, ir_version=8 if opset < 21 else 10)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    served = skeleton_of(path)
    assert served.stat().st_size < path.stat().st_size - 1500
    for expected, got in zip(run(path), run(served), strict=True):
        np.testing.assert_array_equal(expected, got)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_sizes_are_those_of_the_large_weights(tmp_path: Path) -> None:
    path = tiny.tensor_model(tmp_path / "m.onnx")
    assert skeleton.read(path).external_bytes == 32 * 32 * 4


def test_small_weights_stay_inside(tmp_path: Path) -> None:
    small = helper.make_tensor("W", FLOAT, [skeleton.INLINE // 4], bytes(skeleton.INLINE), raw=True)
    graph = helper.make_graph(
        [node("Add", ["X", "W"], ["Y"])], "g", [tensor("X", ["n"])], [tensor("Y", ["n"])], [small]
    )
    path = tiny.save(tmp_path / "m.onnx", graph)
    made = skeleton.read(path)
    assert (made.external_bytes, made.content("w")) == (0, path.read_bytes())


def test_raw_data_may_stand_anywhere_in_its_tensor(tmp_path: Path) -> None:
    path = tiny.tensor_model(tmp_path / "m.onnx")
    expected = run(path)
    model = onnx.load(path)
    weights = model.graph.initializer[0].raw_data
    rest = onnx.TensorProto(dims=[32, 32], data_type=FLOAT, name="W", doc_string="after")
    parts = [bytes(part) for part in _fields(rest.SerializeToString())]
    del model.graph.initializer[:]
    for position in range(len(parts) + 1):
        order = [*parts[:position], wire.field(skeleton.TENSOR_RAW_DATA, weights), *parts[position:]]
        graph = model.graph.SerializeToString() + wire.field(skeleton.GRAPH_INITIALIZER, b"".join(order))
        bare = onnx.ModelProto()
        bare.CopyFrom(model)
        bare.ClearField("graph")
        folder = tmp_path / str(position)
        folder.mkdir()
        # The graph first, the rest after: protobuf allows any order of fields.
        (folder / "m.onnx").write_bytes(wire.field(skeleton.MODEL_GRAPH, graph) + bare.SerializeToString())
        assert skeleton.read(folder / "m.onnx").external_bytes == len(weights)
        np.testing.assert_array_equal(run(skeleton_of(folder / "m.onnx"))[0], expected[0])


def _fields(data: bytes) -> list[memoryview]:
    view = memoryview(data)
    return [view[f.start : f.end] for f in wire.fields(view, 0, len(view))]


def test_a_field_given_twice_is_left_to_protobuf(tmp_path: Path) -> None:
    path = tiny.tensor_model(tmp_path / "m.onnx")
    content = path.read_bytes()
    model = onnx.load(path)
    tensor_bytes = model.graph.initializer[0].SerializeToString()
    twice = wire.field(skeleton.TENSOR_RAW_DATA, bytes(4096)) + tensor_bytes
    del model.graph.initializer[:]
    graph = model.graph.SerializeToString() + wire.field(skeleton.GRAPH_INITIALIZER, twice)
    model.ClearField("graph")
    path.write_bytes(model.SerializeToString() + wire.field(skeleton.MODEL_GRAPH, graph))
    assert skeleton.read(path).external_bytes == 0
    (tmp_path / "plain.onnx").write_bytes(content)
    np.testing.assert_array_equal(run(path)[0], run(tmp_path / "plain.onnx")[0])


@pytest.mark.parametrize("external", [False, True])
def test_a_file_cut_anywhere_is_an_error_or_the_same_model(external: bool, tmp_path: Path) -> None:
    """Every prefix. Only what follows the last operator set (metadata) may be missing unnoticed."""
    path = tiny.text_model(tmp_path / "whole" / "m.onnx")
    if external:
        tiny.externalise(path)
        (tmp_path / "model.onnx_data").write_bytes((path.parent / "model.onnx_data").read_bytes())
    content = path.read_bytes()
    whole = reader.read_signature(path)
    cut = tmp_path / "m.onnx"
    for length in range(len(content)):
        cut.write_bytes(content[:length])
        with pytest.raises(TrbError) as caught:
            reader.read_signature(cut)
        assert caught.value.code in (Code.TRUNCATED, Code.NOT_ONNX), length
    cut.write_bytes(content)
    assert reader.read_signature(cut) == whole


def test_a_second_operator_set_that_was_cut_off_is_missed(tmp_path: Path) -> None:
    custom = helper.make_node("Foo", ["X"], ["Y"], domain="my.domain")
    graph = helper.make_graph([custom], "g", [tensor("X", ["n"])], [tensor("Y", ["n"])])
    path = tiny.save(tmp_path / "m.onnx", graph)
    with pytest.raises(TrbError) as caught:
        reader.read_signature(path)
    assert caught.value.code == Code.TRUNCATED
    assert "the operator set 'my.domain'" in caught.value.message


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"\x3a\x00")
@example(b"\x08\x08\x3a\x00")
@example(b"\x3a\x02\x2a\x00")
@example(b"\x08\x08\x3a\x04\x2a\x02\x4a\x00\x42\x02\x10\x11")
def test_random_bytes_are_never_a_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.onnx"
    path.write_bytes(data)
    try:
        reader.read_signature(path)
    except TrbError as error:
        assert error.code in (Code.NOT_ONNX, Code.TRUNCATED, Code.LFS_POINTER)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_byte_is_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    good = folder / "good.onnx"
    if not good.exists():
        tiny.text_model(good)
    content = bytearray(good.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] = data.draw(st.integers(0, 255))
    path = folder / "bad.onnx"
    path.write_bytes(content)
    try:
        reader.read_signature(path)
    except TrbError as error:
        assert error.remedy


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"", Code.NOT_ONNX, "the file is empty"),
        (b"hello, I am a text\n" * 9, Code.NOT_ONNX, "this is not an ONNX model"),
        (b"PK\x03\x04" + bytes(99), Code.NOT_ONNX, "it looks like a zip archive"),
        (b"\n<!DOCTYPE html><html>", Code.NOT_ONNX, "it looks like an HTML or XML page"),
        (b'{"a": 1}', Code.NOT_ONNX, "it looks like a JSON file"),
        (b"\x80\x02}q\x00.", Code.NOT_ONNX, "it looks like a Python pickle"),
        (files.LFS_POINTER + b"/v1\noid sha256:00\nsize 9\n", Code.LFS_POINTER, "this is a git-LFS pointer"),
        (b"\x08", Code.TRUNCATED, "the file is cut off after 1 bytes"),
    ],
)
def test_what_is_no_model(content: bytes, code: Code, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(TrbError) as caught:
        skeleton.read(path)
    assert caught.value.code == code
    assert message in caught.value.message
    assert caught.value.where == str(path)


def test_a_folder_and_a_device_are_no_model(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "absent.onnx"):
        with pytest.raises(TrbError) as caught:
            skeleton.read(path)
        assert caught.value.code == Code.NOT_FOUND

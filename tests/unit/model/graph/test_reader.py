from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import tiny
import tiny_onnx as t
from onnx import helper, numpy_helper

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import LFS_POINTER as LFS
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import skeleton


def signature(tmp_path: Path, content: bytes) -> Any:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    return reader.read_signature(path)


def test_what_a_text_model_says(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", opset=18)
    read = reader.read_signature(path)
    assert [str(spec) for spec in read.inputs] == [
        "input_ids int64[batch, sequence]",
        "attention_mask int64[batch, sequence]",
        "token_type_ids int64[batch, sequence]",
    ]
    assert [str(spec) for spec in read.outputs] == ["last_hidden_state float[batch, sequence, 8]"]
    assert (read.opset, read.ir_version, read.bytes) == (18, 8, path.stat().st_size)
    assert read.batch.possible
    assert read.vocabulary == tiny.ROWS
    assert read.external == ()


def test_an_initializer_that_is_listed_as_input_is_optional(tmp_path: Path) -> None:
    content = t.model(
        [t.node("Add", ["X", "W"], ["Y"])],
        [t.tensor("X", ["n", 1]), t.tensor("W", [1])],
        [t.tensor("Y", ["n", 1])],
        initializers=[t.constant("W", t.FLOAT, [1], [1.0])],
    )
    read = signature(tmp_path, content)
    assert [spec.name for spec in read.inputs] == ["X"]
    assert [spec.name for spec in read.optional_inputs] == ["W"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ([t.tensor("X", [1, 2])], [t.tensor("Y", ["n", 2])], "the first axis of input 'X' is fixed at 1"),
        ([t.tensor("X", ["n", 2])], [t.tensor("Y", [7, 2])], "the first axis of output 'Y' is fixed at 7"),
        ([t.tensor("X", [])], [t.tensor("Y", [])], "input 'X' is a scalar and has no batch axis"),
        ([t.tensor("X", ["n"])], [t.tensor("Y", None)], "the graph does not state the shape of output 'Y'"),
        ([t.tensor("X", ["n"])], [t.sequence("Y")], "output 'Y' is a sequence, not a tensor"),
        ([], [t.tensor("Y", ["n"])], "the model has no inputs"),
        ([t.tensor("X", ["n"])], [t.tensor("Y", ["n"])], ""),
        ([t.tensor("X", [-1, 3])], [t.tensor("Y", [0, 3])], ""),
    ],
)
def test_what_prevents_batching(inputs: list[Any], outputs: list[Any], reason: str, tmp_path: Path) -> None:
    batch = signature(tmp_path, t.model([], inputs, outputs)).batch
    assert (batch.possible, batch.reason) == (not reason, reason)


def test_types_that_triton_has_not_and_numbers_newer_than_the_table(tmp_path: Path) -> None:
    read = signature(tmp_path, t.model([], [t.tensor("X", ["n"], t.BF16)], [t.tensor("Y", ["n"], 23)]))
    assert (read.inputs[0].dtype.name, read.inputs[0].dtype.servable) == ("bfloat16", False)
    value = helper.make_tensor_value_info("X", 1, ["n"])
    value.type.tensor_type.elem_type = 99
    read = signature(tmp_path, t.model([], [value], [t.tensor("Y", ["n"])]))
    assert read.inputs[0].dtype.name == "onnx type 99"


def test_operators_in_subgraphs_are_seen(tmp_path: Path) -> None:
    branch = helper.make_graph([t.node("DynamicQuantizeLinear", ["X"], ["q", "s", "z"])], "b", [], [])
    choice = t.node("If", ["C"], ["Y"], then_branch=branch, else_branch=branch)
    content = t.model([choice], [t.tensor("X", ["n"]), t.tensor("C", [1], t.BOOL)], [t.tensor("Y", ["n"])])
    read = signature(tmp_path, content)
    assert read.operators == {"If", "DynamicQuantizeLinear"}
    assert read.quantised


# --- external data -----------------------------------------------------------------------------------


def external(tmp_path: Path, **entries: str) -> Path:
    """A model one of whose weights is said to lie elsewhere."""
    weight = helper.make_tensor("W", t.FLOAT, [4], [0.0] * 4)
    weight.ClearField("float_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    path = tmp_path / "m.onnx"
    path.write_bytes(
        t.model(
            [t.node("Add", ["X", "W"], ["Y"])],
            [t.tensor("X", ["n", 4])],
            [t.tensor("Y", ["n", 4])],
            initializers=[weight],
        )
    )
    return path


def test_external_files_are_found_once_each(tmp_path: Path) -> None:
    path = tiny.externalise(tiny.text_model(tmp_path / "m.onnx"), "data.bin")
    read = reader.read_signature(path)
    size = (tmp_path / "data.bin").stat().st_size
    assert [(file.location, file.bytes) for file in read.external] == [("data.bin", size)]
    assert read.bytes == size + path.stat().st_size


def test_a_location_is_one_file_however_it_is_written(tmp_path: Path) -> None:
    path = external(tmp_path, location="./data/../data/w.bin")
    with pytest.raises(TrbError, match="outside its folder"):
        reader.read_signature(path)
    path = external(tmp_path, location=".//data/./w.bin", length="16")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(16))
    assert [file.location for file in reader.read_signature(path).external] == ["data/w.bin"]


@pytest.mark.parametrize(
    ("entries", "content", "code", "message"),
    [
        (
            {"location": "../w"},
            bytes(16),
            Code.EXTERNAL_DATA,
            "its external data is outside its folder: '../w'",
        ),
        ({"location": "/etc/passwd"}, None, Code.EXTERNAL_DATA, "outside its folder: '/etc/passwd'"),
        ({}, None, Code.EXTERNAL_DATA, "outside its folder: '.'"),
        ({"location": "w"}, None, Code.EXTERNAL_DATA, "its weights are in 'w', which is not there"),
        ({"location": "w", "length": "16"}, bytes(15), Code.TRUNCATED, "cut off: 15 bytes of at least 16"),
        (
            {"location": "w", "offset": "8", "length": "16"},
            bytes(23),
            Code.TRUNCATED,
            "23 bytes of at least 24",
        ),
        (
            {"location": "w", "length": "much"},
            bytes(16),
            Code.EXTERNAL_DATA,
            "the offset or length of 'W' in 'w' is not a number of bytes",
        ),
        *(
            ({"location": "w", **entry}, bytes(16), Code.EXTERNAL_DATA, "is not a number of bytes")
            for entry in (
                {"offset": "-4"},
                {"length": "-1"},
                {"length": "4_0"},
                {"offset": "\u0661"},
                {"length": "9" * 30},
            )
        ),
        *(
            ({"location": place, **entry}, None, Code.EXTERNAL_DATA, message)
            for place in ("m.onnx", "./m.onnx")
            for entry, message in (
                ({}, "is said to be in 'm.onnx', which is the model itself"),
                ({"offset": "0", "length": "16"}, "which is the model itself"),
                ({"offset": "-5"}, "is not a number of bytes"),
                ({"length": "abc"}, "is not a number of bytes"),
            )
        ),
        ({"location": "w"}, LFS + b"/v1", Code.LFS_POINTER, "this is a git-LFS pointer, not the weights"),
    ],
)
def test_external_data_that_is_not_there(
    entries: dict[str, str], content: bytes | None, code: Code, message: str, tmp_path: Path
) -> None:
    path = external(tmp_path, **entries)
    if content is not None:
        (tmp_path / "w").write_bytes(content)
    with pytest.raises(TrbError) as caught:
        reader.read_signature(path)
    assert caught.value.code == code
    assert message in caught.value.message


def test_weights_of_a_subgraph_and_of_a_constant_count_too(tmp_path: Path) -> None:
    def outside(name: str, location: str) -> Any:
        weight = numpy_helper.from_array(tiny.weights(4), name)
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        return weight

    inner = helper.make_graph(
        [t.node("Add", ["X", "W"], ["Z"])],
        "b",
        [],
        [t.tensor("Z", None)],
        initializer=[outside("W", "inner.bin")],
    )
    nodes = [
        t.node("Constant", [], ["K"], value=outside("K", "constant.bin")),
        t.node("If", ["C"], ["Y"], then_branch=inner, else_branch=inner),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(t.model(nodes, [t.tensor("X", [4]), t.tensor("C", [], t.BOOL)], [t.tensor("Y", None)]))
    for name in ("constant.bin", "inner.bin"):
        with pytest.raises(TrbError, match=name):
            reader.read_signature(path)
        (tmp_path / name).write_bytes(bytes(16))
    assert [file.location for file in reader.read_signature(path).external] == ["constant.bin", "inner.bin"]


# --- what the graph implies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "between",
    [
        [],
        [t.node("Cast", ["input_ids"], ["i"], to=t.INT32), t.node("Identity", ["i"], ["j"])],
        [t.node("Identity", ["input_ids"], ["i"])],
    ],
)
def test_vocabulary_is_found_through_casts(between: list[Any], tmp_path: Path) -> None:
    index = between[-1].output[0] if between else "input_ids"
    nodes = [*between, t.node("Identity", ["T"], ["table"]), t.node("Gather", ["table", index], ["Y"])]
    content = t.model(
        nodes,
        [t.tensor("input_ids", ["n", "s"], t.INT64)],
        [t.tensor("Y", ["n", "s", 2])],
        initializers=[t.constant("T", t.FLOAT, [7, 2], [0.0] * 14)],
    )
    assert signature(tmp_path, content).vocabulary == 7


def test_a_vocabulary_that_is_not_plain_is_unknown(tmp_path: Path) -> None:
    nodes = [t.node("Add", ["T", "T"], ["table"]), t.node("Gather", ["table", "input_ids"], ["Y"])]
    content = t.model(
        nodes,
        [t.tensor("input_ids", ["n", "s"], t.INT64)],
        [t.tensor("Y", ["n", "s", 2])],
        initializers=[t.constant("T", t.FLOAT, [7, 2], [0.0] * 14)],
    )
    assert signature(tmp_path, content).vocabulary is None


@pytest.mark.parametrize(
    ("operators", "recipe", "by_batch"),
    [
        ({"MatMulInteger"}, "", True),
        ({"MatMulInteger"}, '[{"step": "int8", "how": "per-row"}]', False),
        ({"MatMulInteger", "DynamicQuantizeLinear"}, '[{"step": "int8", "how": "per-row"}]', True),
        ({"QAttention"}, "", True),
        ({"QuantizeLinear", "MatMul"}, "", False),
    ],
)
def test_scales_of_a_batch_are_known_by_operators_and_recipe(
    operators: set[str], recipe: str, by_batch: bool, tmp_path: Path
) -> None:
    read = reader.read_signature(tiny.text_model(tmp_path / "model.onnx"))
    made = replace(read, operators=frozenset(operators), metadata={"trb.recipe": recipe})
    assert made.quantised == by_batch


@pytest.mark.parametrize(
    ("stated", "rounding"), [("0.03", 0.03), ("", 0), ("many", 0), ("nan", 0), ("-1", 0), ("7", 0)]
)
def test_the_difference_that_a_file_states(stated: str, rounding: float, tmp_path: Path) -> None:
    read = reader.read_signature(tiny.text_model(tmp_path / "model.onnx"))
    assert replace(read, metadata={"trb.difference": stated}).rounding == rounding
    assert read.rounding == 0


def test_a_model_of_8_bits_that_states_nothing_may_move_by_steps(tmp_path: Path) -> None:
    read = reader.read_signature(tiny.text_model(tmp_path / "model.onnx"))
    integers = replace(read, operators=frozenset({"DynamicQuantizeLinear", "MatMulInteger"}))
    assert 0.006 < integers.rounding < 0.05
    assert replace(integers, metadata={"trb.difference": "0.001"}).rounding == 0.001


def test_large_tensors_of_the_file_are_no_external_data(tmp_path: Path) -> None:
    """The skeleton says of them that they are in the file itself."""
    path = tiny.text_model(tmp_path / "m.onnx")
    assert skeleton.read(path).external_bytes
    assert reader.read_signature(path).external == ()


def test_external_data_beside_data_of_its_own(tmp_path: Path) -> None:
    path = external(tmp_path, location="../w")
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[:] = [1024]
    model.graph.initializer[0].raw_data = bytes(4096)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(TrbError, match=r"outside its folder: '\.\./w'"):
        reader.read_signature(path)
    model.graph.initializer[0].data_location = onnx.TensorProto.DEFAULT
    path.write_bytes(model.SerializeToString())
    assert reader.read_signature(path).external == ()


@pytest.mark.parametrize(
    ("before", "inside", "after", "half"),
    [
        (t.FLOAT, t.FLOAT, t.FLOAT, False),
        (t.FP16, t.FLOAT, t.FLOAT, True),
        (t.FLOAT, t.FLOAT, t.FP16, True),
        (t.FLOAT, t.FP16, t.FLOAT, True),
    ],
)
def test_floats_of_16_bits_are_found_at_the_edges_and_inside(
    before: int, inside: int, after: int, half: bool, tmp_path: Path
) -> None:
    nodes = [t.node("Cast", ["X"], ["inside"], to=inside), t.node("Cast", ["inside"], ["Y"], to=after)]
    tensors = [t.tensor("X", ["n", 2], before)], [t.tensor("Y", ["n", 2], after)]
    (tmp_path / "m.onnx").write_bytes(t.model(nodes, *tensors))
    assert reader.read_signature(tmp_path / "m.onnx").half_precision is half

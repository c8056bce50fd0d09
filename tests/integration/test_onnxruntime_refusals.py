"""What the C++ onnxruntime backend refuses at load time, refused by ours in the same words.

The expected texts are those observed on the C++ backend of release 24.10. Where they are ONNX Runtime's own
(``onnx runtime error N``), only the part that does not change between its releases is expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from tiny_onnx import (
    BF16,
    FLOAT,
    INT64,
    add_subtract,
    constant,
    identity,
    model,
    node,
    sequence,
    tensor,
    write,
)

from tests.support.raw_server import RawServer, raw_server

pytestmark = pytest.mark.server

BATCHED = "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
SCALAR = (
    "should only provide 1 in the model configuration when the model doesn't support batching. "
    "Model configuration provided: "
)


@dataclass(frozen=True)
class Case:
    name: str
    config: str
    content: bytes | None
    expected: tuple[str, ...]
    code: str = "Internal: Invalid argument: "
    """What stands between ``UNAVAILABLE state: `` and the first expected text."""


def io(side: str, name: str, dims: str, dtype: str = "FP32", more: str = "") -> str:
    return f'{side} {{ name: "{name}" data_type: TYPE_{dtype} dims: [ {dims} ] {more} }}\n'


def xy(x: str = "4", y: str = "4", dtype: str = "FP32", batch: int | None = 8, more: str = "") -> str:
    batching = "" if batch is None else f"max_batch_size: {batch}\n"
    return f"{batching}{io('input', 'X', x, dtype)}{io('output', 'Y', y, dtype)}{more}"


def option(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def dims(name: str, graph: str, given: str, full: str) -> str:
    rank, count = len(graph.split(",")), len(full.split(","))
    complete = f"{BATCHED}making complete shape [{full}])"
    return (
        f"model '{name}', tensor '{given}': the model expects {rank} dimensions (shape [{graph}]) but the "
        f"model configuration specifies {count} dimensions ({complete}"
    )


def fixed(name: str, given: str, graph: str) -> str:
    return (
        f"model '{name}', tensor '{given}': for the model to support batching the shape should have at least "
        f"1 dimension and the first dimension must be -1; but shape expected by the model is [{graph}]"
    )


def with_weight() -> bytes:
    """X + W, where W is an initializer that may be overridden."""
    inputs = [tensor("X", ["batch", 4]), tensor("W", [4])]
    weight = constant("W", FLOAT, [4], [1, 2, 3, 4])
    return model([node("Add", ["X", "W"], ["Y"])], inputs, [tensor("Y", ["batch", 4])], initializers=[weight])


def scalar_output() -> bytes:
    total = node("ReduceSum", ["X"], ["Y"], keepdims=0)
    return model([total], [tensor("X", ["batch", 4])], [tensor("Y", [])])


def sequence_output() -> bytes:
    return model([node("SequenceConstruct", ["X"], ["Y"])], [tensor("X", ["batch", 4])], [sequence("Y")])


def cast(source: int, target: int) -> bytes:
    nodes = [node("Cast", ["X"], ["Y"], to=target)]
    return model(nodes, [tensor("X", ["batch", 4], source)], [tensor("Y", ["batch", 4], target)])


def external(location: str) -> bytes:
    from onnx import TensorProto

    weight = TensorProto(name="W", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    return model(
        [node("Add", ["X", "W"], ["Y"])],
        [tensor("X", ["batch", 4])],
        [tensor("Y", ["batch", 4])],
        initializers=[weight],
    )


def accelerator(device: str, name: str) -> str:
    accelerators = f'{device}_execution_accelerator [ {{ name: "{name}" }} ]'
    return f"optimization {{ execution_accelerators {{ {accelerators} }} }}"


FREE = identity(["batch", 4])
WIDE = identity(["batch", "width"])
AB = "max_batch_size: 8\n" + io("input", "A", "4") + io("input", "B", "4")
ORT = "Internal: onnx runtime error "
INTERNAL = "Internal: "

GRAPH = [
    Case("fixed1", xy(), identity([1, 4]), (fixed("fixed1", "X", "1,4"),)),
    Case("fixed8", xy(), identity([8, 4]), (fixed("fixed8", "X", "8,4"),)),
    Case("fixed_mbs1", xy(batch=1), identity([1, 4]), (fixed("fixed_mbs1", "X", "1,4"),)),
    Case("fixed_out", xy(), identity(["batch", 4], out=[1, 4]), (fixed("fixed_out", "Y", "1,4"),)),
    Case(
        "only_mbs",
        "max_batch_size: 8",
        identity([1, 4]),
        (
            "autofill failed for model 'only_mbs': model does not support batching while non-zero "
            "max_batch_size is specified",
        ),
    ),
    Case("repeated", xy("-1, 4", "-1, 4"), FREE, (dims("repeated", "-1,4", "X", "-1,-1,4"),)),
    Case(
        "forgotten",
        xy(batch=0),
        FREE,
        (
            "model 'forgotten', tensor 'X': the model expects 2 dimensions (shape [-1,4]) but the model "
            "configuration specifies 1 dimensions (shape [4])",
        ),
    ),
    Case(
        "forgotten_absent",
        xy(batch=None),
        FREE,
        ("the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies 1 dimensions",),
        "Internal: Invalid argument: model 'forgotten_absent', tensor 'X': ",
    ),
    Case(
        "inputs_only",
        io("input", "X", "-1, 4"),
        FREE,
        (dims("inputs_only", "-1,4", "X", "-1,-1,4"),),
    ),
    Case("in_other", xy("5"), FREE, (dims("in_other", "-1,4", "X", "-1,5"),)),
    Case("in_open", xy("-1"), FREE, (dims("in_open", "-1,4", "X", "-1,-1"),)),
    Case("out_fixed", xy("-1", "4"), WIDE, (dims("out_fixed", "-1,-1", "Y", "-1,4"),)),
    Case("out_open", xy("4", "-1"), FREE, (dims("out_open", "-1,4", "Y", "-1,-1"),)),
    Case("rank1", xy("1", "1"), identity(["batch"]), (dims("rank1", "-1", "X", "-1,1"),)),
    Case(
        "in_type",
        xy(dtype="INT32"),
        identity(["batch", 4], INT64),
        (
            "unable to load model 'in_type', configuration expects datatype TYPE_INT32 for input 'X', "
            "model provides TYPE_INT64",
        ),
    ),
    Case(
        "out_type",
        "max_batch_size: 8\n" + io("input", "X", "4") + io("output", "Y", "4", "INT32"),
        FREE,
        (
            "unable to load model 'out_type', configuration expects datatype TYPE_INT32 for output 'Y', "
            "model provides TYPE_FP32",
        ),
    ),
    Case(
        "bf16_config",
        "max_batch_size: 8\n" + io("input", "X", "4", "BF16") + io("output", "Y", "4"),
        cast(BF16, FLOAT),
        ("unsupported datatype TYPE_BF16 for input 'X' for model 'bf16_config'",),
        "Internal: onnxruntime: ",
    ),
    Case(
        "bf16_none",
        "",
        cast(BF16, FLOAT),
        ("model input 'X' must specify 'data_type' for bf16_none",),
        "Invalid argument: ",
    ),
    Case(
        "missing",
        "max_batch_size: 8\n" + io("input", "A", "4") + io("output", "S", "4"),
        add_subtract(),
        ("unable to load model 'missing', configuration expects 1 inputs, model provides 2",),
    ),
    Case(
        "extra",
        xy() + io("input", "Z", "4"),
        FREE,
        ("unable to load model 'extra', configuration expects 2 inputs, model provides 1",),
    ),
    Case(
        "in_renamed",
        "max_batch_size: 8\n" + io("input", "A", "4") + io("input", "Z", "4") + io("output", "S", "4"),
        add_subtract(),
        ("unexpected inference input 'Z', allowed inputs are: A, B",),
    ),
    Case(
        "out_renamed",
        AB + io("output", "Z", "4"),
        add_subtract(),
        ("unexpected inference output 'Z', allowed outputs are: D, S",),
    ),
    Case(
        "optional_plain",
        io("input", "A", "-1, 4")
        + io("input", "B", "-1, 4", more="optional: true")
        + io("output", "S", "-1, 4"),
        add_subtract(),
        ("unable to load model 'optional_plain', configuration expects 1 inputs, model provides 2",),
    ),
    Case(
        "initializer",
        xy("-1, 4", "-1, 4", batch=0) + io("input", "W", "4"),
        with_weight(),
        ("unable to load model 'initializer', configuration expects 2 inputs, model provides 1",),
    ),
    Case(
        "optional_mbs",
        xy() + io("input", "W", "4", more="optional: true"),
        with_weight(),
        (
            "unable to load model 'optional_mbs', optional input 'W' is not supported for models that "
            "support batching",
        ),
    ),
    Case(
        "scalar",
        io("input", "X", "-1, 4") + io("output", "Y", "-1, 4"),
        scalar_output(),
        (f"unable to load model 'scalar', scalar tensor 'Y', {SCALAR}[-1,4].",),
    ),
    Case(
        "sequence",
        xy(),
        sequence_output(),
        ("Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'Y', expected 'ONNX_TYPE_TENSOR'.",),
        "Internal: Unsupported: ",
    ),
    Case(
        "sequence_none",
        "",
        sequence_output(),
        ("Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'Y', expected 'ONNX_TYPE_TENSOR'.",),
        "Internal: Unsupported: ",
    ),
    Case(
        "ragged_rank2",
        "max_batch_size: 8\n"
        + io("input", "X", "4", more="allow_ragged_batch: true")
        + io("output", "Y", "4"),
        FREE,
        (
            "unable to load model 'ragged_rank2', configuration expects model provides input with shape "
            "[-1]  for ragged input 'X', model provides [-1,4]",
        ),
    ),
]

FILES = [
    Case(
        "no_file", xy(), None, ("failed to stat file ", "/no_file/1/model.onnx;"), "Internal: onnxruntime: "
    ),
    Case(
        "ir",
        xy(),
        model(
            [node("Identity", ["X"], ["Y"])], [tensor("X", ["n", 4])], [tensor("Y", ["n", 4])], ir_version=99
        ),
        ("1: Load model from ", "Unsupported model IR version: 99, max supported IR version: "),
        ORT,
    ),
    Case(
        "opset",
        xy(),
        model([node("Identity", ["X"], ["Y"])], [tensor("X", ["n", 4])], [tensor("Y", ["n", 4])], opset=99),
        (
            "1: ",
            "ONNX Runtime only *guarantees* support for models stamped with official released onnx opset",
        ),
        ORT,
    ),
    Case(
        "operator",
        xy(),
        model([node("NoSuchOp", ["X"], ["Y"])], [tensor("X", ["n", 4])], [tensor("Y", ["n", 4])]),
        (
            "10: ",
            'In Node, ("", NoSuchOp, "", -1)',
            "No Op registered for NoSuchOp with domain_version of 17",
        ),
        ORT,
    ),
    Case(
        "domain",
        xy(),
        model(
            [node("Foo", ["X"], ["Y"], domain="my.dom")],
            [tensor("X", ["n", 4])],
            [tensor("Y", ["n", 4])],
            domains=["my.dom"],
        ),
        ("1: ", "Fatal error: my.dom:Foo(-1) is not a registered function/op"),
        ORT,
    ),
    Case(
        "library",
        xy(more='model_operations { op_library_filename: "/nope/libx.so" }'),
        FREE,
        ("1: Failed to load library /nope/libx.so with error: /nope/libx.so: cannot open shared object",),
        ORT,
    ),
    Case(
        "garbage", xy(), b"version https://git-lfs", ("7: Load model from ", "Protobuf parsing failed."), ORT
    ),
    Case("empty", xy(), b"", ("", ": Load model from ", "graph"), ORT),
    Case("external", xy(), external("model.onnx.data"), ("", "model.onnx.data"), ORT),
]

OPTIONS = [
    Case(
        "threads_text",
        xy(more=option("intra_op_thread_count", "abc")),
        FREE,
        ("failed to convert 'abc' to integral number;",),
    ),
    Case(
        "threads_empty",
        xy(more=option("intra_op_thread_count", "")),
        FREE,
        ("failed to convert '' to integral number;",),
    ),
    Case(
        "mode",
        xy(more=option("execution_mode", "3")),
        FREE,
        (
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got 3 "
            ".;",
        ),
    ),
    Case(
        "arena",
        xy(more=option("enable_mem_arena", "yes")),
        FREE,
        ("failed to convert 'yes' to boolean;",),
    ),
    Case(
        "openvino",
        xy(more=accelerator("cpu", "openvino")),
        FREE,
        ("unknown Execution Accelerator 'openvino' is requested;",),
    ),
    Case(
        "accelerator",
        xy(more=accelerator("cpu", "warp")),
        FREE,
        ("unknown Execution Accelerator 'warp' is requested;",),
    ),
]
CASES = GRAPH + FILES + OPTIONS


@dataclass(frozen=True)
class Outcome:
    server: RawServer
    errors: dict[str, str]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """All models loaded once, several at a time: most of a load is waiting for processes."""
    repository = tmp_path_factory.mktemp("refused")
    for case in CASES:
        one = "instance_group { count: 1 kind: KIND_CPU }\n"
        write(repository, case.name, f'backend: "onnxruntime"\n{one}{case.config}', case.content)
    with raw_server(repository, tmp_path_factory.mktemp("server")) as server, ThreadPoolExecutor(6) as pool:
        names = [case.name for case in CASES]
        yield Outcome(server, dict(zip(names, pool.map(server.load, names), strict=True)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused_in_the_same_words(outcome: Outcome, case: Case) -> None:
    error = outcome.errors[case.name]
    start = f"load failed for model '{case.name}': version 1 is at UNAVAILABLE state: {case.code}"
    assert error.startswith(start + case.expected[0])
    for text in case.expected[1:]:
        assert text in error


def test_index_and_log_show_the_sentence_without_a_traceback(outcome: Outcome) -> None:
    index = outcome.server.post("/v2/repository/index")[1]
    reasons = {entry["name"]: entry.get("reason", "") for entry in index}
    sentence = "unable to load model 'extra', configuration expects 2 inputs, model provides 1"
    assert reasons["extra"] == f"Internal: Invalid argument: {sentence}"
    log = outcome.server.log.read_text(errors="replace")
    assert sentence in log
    assert "Traceback" not in log
    assert "At:\n" not in log

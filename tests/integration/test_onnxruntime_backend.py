"""Our onnxruntime backend on a real tritonserver: what it accepts, completes and answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http
from tiny_onnx import (
    BOOL,
    FLOAT,
    FP16,
    INT32,
    INT64,
    STRING,
    add_subtract,
    constant,
    identity,
    lookup,
    model,
    node,
    segment_sums,
    tensor,
    write,
)

from tests.support.raw_server import BACKEND as BACKEND_FOLDER
from tests.support.raw_server import RawServer, raw_server

pytestmark = pytest.mark.server

ONE = "instance_group { count: 1 kind: KIND_CPU }\n"
BACKEND = 'backend: "onnxruntime"\n'
RAGGED = (
    "max_batch_size: 8 dynamic_batching { }\n"
    'input { name: "tokens" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }\n'
    "batch_input { kind: BATCH_ITEM_SHAPE data_type: TYPE_FP32\n"
    '  target_name: "lengths" source_input: "tokens" }\n'
    'output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }\n'
)


def io(side: str, name: str, dims: str, dtype: str = "FP32", more: str = "") -> str:
    return f'{side} {{ name: "{name}" data_type: TYPE_{dtype} dims: [ {dims} ] {more} }}\n'


def xy(x: str = "4", y: str = "4", dtype: str = "FP32", batch: int = 8, more: str = "") -> str:
    batching = f"max_batch_size: {batch}\n"
    return f"{batching}{io('input', 'X', x, dtype)}{io('output', 'Y', y, dtype)}{more}"


def option(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def first_row() -> bytes:
    """X [batch, 4] → Y declared [batch, 4], though it always has one row."""
    nodes = [node("Slice", ["X", "from", "to"], ["Y"])]
    ends = [constant("from", INT64, [1], [0]), constant("to", INT64, [1], [1])]
    return model(nodes, [tensor("X", ["batch", 4])], [tensor("Y", ["rows", 4])], initializers=ends)


def total(out: Sequence[int | str] | None) -> bytes:
    nodes = [node("ReduceSum", ["X"], ["Y"], keepdims=0)]
    return model(nodes, [tensor("X", ["batch", 4])], [tensor("Y", out)])


def add_weight() -> bytes:
    inputs = [tensor("X", ["batch", 4]), tensor("W", [4])]
    weight = constant("W", FLOAT, [4], [1, 2, 3, 4])
    return model([node("Add", ["X", "W"], ["Y"])], inputs, [tensor("Y", ["batch", 4])], initializers=[weight])


def scaled_by_scalar() -> bytes:
    """X [batch, 4] × scalar F → Y."""
    inputs = [tensor("X", ["batch", 4]), tensor("F", [])]
    return model([node("Mul", ["X", "F"], ["Y"])], inputs, [tensor("Y", ["batch", 4])])


KINDS = {
    # By Triton's documentation, for a request [2, 3] before a request [1, 4], and for the other order.
    "BATCH_ELEMENT_COUNT": ([2], [6, 4], [4, 6]),
    "BATCH_ACCUMULATED_ELEMENT_COUNT": ([2], [6, 10], [4, 10]),
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": ([3], [0, 6, 10], [0, 4, 10]),
    # Only its shape says something: its values are not defined.
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": ([6], None, None),
    "BATCH_ITEM_SHAPE": ([3, 1], [3, 3, 4], [4, 3, 3]),
    "BATCH_ITEM_SHAPE_FLATTEN": ([3], [3, 3, 4], [4, 3, 3]),
}
"""Per kind of batch_input: the tensor's shape and its values."""


def rank(kind: str) -> int:
    return 2 if kind == "BATCH_ITEM_SHAPE" else 1


def shown(dtype: int) -> bytes:
    """Ragged X [total] and a tensor of each kind → in each row of the batch, all values and sizes of each."""
    nodes = [node("Shape", ["BATCH_ITEM_SHAPE"], ["rows"], start=0, end=1)]
    nodes.append(node("Concat", ["rows", "one"], ["in_rows"], axis=0))
    outputs = []
    for kind in ("X", *KINDS):
        nodes += [
            node("Shape", [kind], [f"{kind}_shape"]),
            node("Expand", [f"{kind}_shape", "in_rows"], [f"{kind}_sizes"]),
            node("Reshape", [kind, "flat"], [f"{kind}_flat"]),
            node("Cast", [f"{kind}_flat"], [f"{kind}_numbers"], to=FLOAT),
            node("Expand", [f"{kind}_numbers", "in_rows"], [f"{kind}_values"]),
        ]
        outputs.append(tensor(f"{kind}_sizes", ["batch", rank(kind)], INT64))
        outputs.append(tensor(f"{kind}_values", ["batch", f"{kind}_count"]))
    inputs = [tensor("X", ["total"])]
    inputs += [tensor(kind, [kind, 1][: rank(kind)], dtype) for kind in KINDS]
    constants = [constant("one", INT64, [1], [1]), constant("flat", INT64, [1], [-1])]
    return model(nodes, inputs, outputs, initializers=constants)


def kinds(dtype: str) -> str:
    """The batcher waits for three rows: a request [2, 3] and one [1, 4]."""
    text = "max_batch_size: 3\n"
    text += "dynamic_batching { preferred_batch_size: 3 max_queue_delay_microseconds: 20000000 }\n"
    text += io("input", "X", "-1", more="allow_ragged_batch: true")
    for kind in KINDS:
        text += f"batch_input {{ kind: {kind} data_type: TYPE_{dtype}\n"
        text += f'  target_name: "{kind}" source_input: "X" }}\n'
    for kind in ("X", *KINDS):
        text += io("output", f"{kind}_sizes", str(rank(kind)), "INT64") + io("output", f"{kind}_values", "-1")
    return text


FREE = identity(["batch", 4])
SUBTRACT = "max_batch_size: 8\n" + io("input", "A", "4") + io("input", "B", "4")
SHRINK = option("memory.enable_memory_arena_shrinkage", "cpu:0")
TENSORRT = 'optimization { execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" } ] } }'

MODELS: dict[str, tuple[str, bytes]] = {
    "bare": ("", FREE),
    "zero": ("max_batch_size: 0\n" + ONE, FREE),
    "sixteen": ("max_batch_size: 16\n" + ONE, FREE),
    "single": ("max_batch_size: 1\n" + ONE, FREE),
    "fixed": (ONE, identity([1, 4])),
    "scalar": (ONE, total([])),
    "inputs": (ONE + io("input", "X", "4"), FREE),
    "outputs": (ONE + io("output", "Y", "4"), FREE),
    "rank1": (ONE, identity(["batch"])),
    "platform": ('platform: "onnxruntime_onnx"\n' + ONE + xy(), FREE),
    "both": ('platform: "onnxruntime_onnx"\n' + BACKEND + ONE + xy(), FREE),
    "three": ("instance_group { count: 3 kind: KIND_CPU }\n" + xy(), FREE),
    "kind_model": ("instance_group { kind: KIND_MODEL }\n" + xy(), FREE),
    "settings": (
        ONE
        + xy(more="optimization { graph { level: 3 } }\n")
        + option("intra_op_thread_count", "2x")
        + option("inter_op_thread_count", "-3")
        + option("execution_mode", "1")
        + option("enable_mem_pattern", "FALSE")
        + option("no_such_key", "1")
        + SHRINK,
        FREE,
    ),
    "no_arena": (ONE + xy() + option("enable_mem_arena", "0") + SHRINK, FREE),
    "tensorrt": (ONE + xy(more=TENSORRT), FREE),
    "half": (ONE + SUBTRACT + io("output", "D", "4"), add_subtract()),
    "reversed": (ONE + SUBTRACT + io("output", "D", "4") + io("output", "S", "4"), add_subtract()),
    "twice": (
        ONE + "max_batch_size: 8\n" + io("input", "A", "4") * 2 + io("output", "S", "4"),
        add_subtract(),
    ),
    "narrow": (ONE + xy("4", "-1"), identity(["batch", "width"])),
    "first_row": (ONE + xy(), first_row()),
    "scalar_batched": (ONE + xy("4", "1"), total([])),
    "unknown_shape": (ONE + io("input", "X", "-1, 4") + io("output", "Y", "1"), total(None)),
    "reshaped": (
        ONE + xy("1", "1").replace("dims: [ 1 ]", "dims: [ 1 ] reshape { shape: [ ] }"),
        identity(["batch"]),
    ),
    "folded": (
        ONE
        + "max_batch_size: 8\n"
        + io("input", "X", "4", more="reshape { shape: [ 2, 2 ] }")
        + io("output", "Y", "4", more="reshape { shape: [ 2, 2 ] }"),
        identity(["batch", 2, 2]),
    ),
    "optional": (
        ONE
        + io("input", "X", "-1, 4")
        + io("input", "W", "4", more="optional: true")
        + io("output", "Y", "-1, 4"),
        add_weight(),
    ),
    "scalar_input": (
        ONE + io("input", "X", "-1, 4") + io("input", "F", "1") + io("output", "Y", "-1, 4"),
        scaled_by_scalar(),
    ),
    "lookup": (
        ONE + "max_batch_size: 8\n" + io("input", "X", "1", "INT64") + io("output", "Y", "1"),
        lookup(),
    ),
    "text": (ONE + xy("2", "2", "STRING"), identity(["batch", 2], STRING)),
    "truth": (ONE + xy(dtype="BOOL"), identity(["batch", 4], BOOL)),
    "fp16": (ONE + xy(dtype="FP16"), identity(["batch", 4], FP16)),
    "ragged": (ONE + RAGGED, segment_sums()),
    "ragged_alone": (
        ONE
        + "max_batch_size: 8\n"
        + io("input", "X", "-1", more="allow_ragged_batch: true")
        + io("output", "Y", "1", more="reshape { shape: [ ] }"),
        identity(["total"]),
    ),
    "ragged_unbatched": (
        ONE + io("input", "X", "-1", more="allow_ragged_batch: true") + io("output", "Y", "-1"),
        identity(["total"]),
    ),
    "kinds_FP32": (ONE + kinds("FP32"), shown(FLOAT)),
    "kinds_INT32": (ONE + kinds("INT32"), shown(INT32)),
    "stream": (ONE + xy(more="model_transaction_policy { decoupled: true }"), FREE),
}


@dataclass(frozen=True)
class Loaded:
    server: RawServer
    errors: dict[str, str]

    def config(self, name: str) -> dict[str, Any]:
        status, config = self.server.get(f"/v2/models/{name}/config")
        assert status == 200, self.errors[name]
        assert isinstance(config, dict)
        return config

    def infer(self, name: str, *inputs: tuple[str, str, Any]) -> tuple[int, Any]:
        """Status and outputs by name, or the error's text."""
        status, answer = self.server.infer(name, inputs)
        if status != 200:
            return status, answer["error"]
        return status, {output["name"]: (output["shape"], output["data"]) for output in answer["outputs"]}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    repository = tmp_path_factory.mktemp("accepted")
    for name, (config, content) in MODELS.items():
        write(repository, name, config if "platform" in config else BACKEND + config, content)
    write(repository, "renamed", BACKEND + ONE + 'default_model_filename: "net.onnx"\n', FREE, "net.onnx")
    write(repository, "folder", BACKEND + ONE, FREE, "model.onnx/model.onnx")
    write(repository, "no_backend", ONE, FREE)
    names = [*MODELS, "renamed", "folder", "no_backend"]
    with raw_server(repository, tmp_path_factory.mktemp("server")) as server, ThreadPoolExecutor(6) as pool:
        yield Loaded(server, dict(zip(names, pool.map(server.load, names), strict=True)))


@pytest.mark.parametrize("name", [*MODELS, "renamed", "folder", "no_backend"])
def test_loads(loaded: Loaded, name: str) -> None:
    assert loaded.errors[name] == ""


@pytest.mark.parametrize(
    ("name", "batch", "preferred", "inputs", "outputs"),
    [
        ("bare", 4, [4], [4], [4]),
        ("zero", 4, [4], [4], [4]),
        ("sixteen", 16, [16], [4], [4]),
        ("single", 1, None, [4], [4]),
        ("fixed", 0, None, [1, 4], [1, 4]),
        ("scalar", 0, None, [-1, 4], [1]),
        ("inputs", 4, [4], [4], [4]),
        ("outputs", 4, [4], [4], [4]),
        ("rank1", 4, [4], [1], [1]),
    ],
)
def test_completes_the_configuration(
    loaded: Loaded, name: str, batch: int, preferred: list[int] | None, inputs: list[int], outputs: list[int]
) -> None:
    config = loaded.config(name)
    assert config["max_batch_size"] == batch
    assert config.get("dynamic_batching", {}).get("preferred_batch_size") == preferred
    assert [entry["dims"] for entry in config["input"]] == [inputs]
    assert [entry["dims"] for entry in config["output"]] == [outputs]
    assert [entry["data_type"] for entry in config["input"]] == ["TYPE_FP32"]


@pytest.mark.parametrize(("name", "count"), [("bare", 2), ("three", 3), ("kind_model", 1), ("zero", 1)])
def test_instances(loaded: Loaded, name: str, count: int) -> None:
    started = f"TRITONBACKEND_ModelInstanceInitialize: {name}_"
    assert loaded.server.log.read_text(errors="replace").count(started) == count
    assert sum(group["count"] for group in loaded.config(name)["instance_group"]) == count


ROW, ROWS = [[1.0, 2.0, 3.0, 4.0]], [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
FLAT = [*ROWS[0], *ROWS[1]]
SPLIT = (
    "failed to split the output tensor 'Y' in responses: expected batch size of at least 2 in model output, "
    "got 1"
)


@pytest.mark.parametrize(
    "name", ["bare", "platform", "both", "no_backend", "renamed", "folder", "settings", "tensorrt", "narrow"]
)
def test_answers(loaded: Loaded, name: str) -> None:
    assert loaded.infer(name, ("X", "FP32", ROWS)) == (200, {"Y": ([2, 4], FLAT)})


def test_answers_only_what_is_asked(loaded: Loaded) -> None:
    inputs = [("A", "FP32", ROW), ("B", "FP32", ROW)]
    _, answer = loaded.server.infer("reversed", inputs, ["S"])
    assert [(output["name"], output["data"]) for output in answer["outputs"]] == [("S", [2.0, 4.0, 6.0, 8.0])]
    assert set(loaded.infer("reversed", *inputs)[1]) == {"D", "S"}
    assert loaded.infer("half", *inputs) == (200, {"D": ([1, 4], [0.0] * 4)})


def test_output_with_fewer_rows_than_the_batch(loaded: Loaded) -> None:
    assert loaded.infer("first_row", ("X", "FP32", ROW))[0] == 200
    assert loaded.infer("first_row", ("X", "FP32", ROWS)) == (501, SPLIT)


def test_scalar_outputs(loaded: Loaded) -> None:
    assert loaded.infer("scalar", ("X", "FP32", ROWS)) == (200, {"Y": ([1], [36.0])})
    assert loaded.infer("unknown_shape", ("X", "FP32", ROWS)) == (200, {"Y": ([1], [36.0])})
    assert loaded.infer("scalar_batched", ("X", "FP32", ROW)) == (200, {"Y": ([1], [10.0])})
    assert loaded.infer("scalar_batched", ("X", "FP32", ROWS)) == (501, SPLIT)


def test_reshape_both_ways(loaded: Loaded) -> None:
    column = [[1.0], [2.0], [3.0]]
    for name in ("rank1", "reshaped"):
        assert loaded.infer(name, ("X", "FP32", column)) == (200, {"Y": ([3, 1], [1.0, 2.0, 3.0])})
    assert loaded.infer("folded", ("X", "FP32", ROWS)) == (200, {"Y": ([2, 4], FLAT)})


def test_optional_and_scalar_inputs(loaded: Loaded) -> None:
    assert loaded.infer("optional", ("X", "FP32", ROW))[1]["Y"][1] == [2.0, 4.0, 6.0, 8.0]
    answer = loaded.infer("optional", ("X", "FP32", ROW), ("W", "FP32", [0.0, 0.0, 0.0, 1.0]))
    assert answer[1]["Y"][1] == [1.0, 2.0, 3.0, 5.0]
    answer = loaded.infer("scalar_input", ("X", "FP32", ROW), ("F", "FP32", [3.0]))
    assert answer == (200, {"Y": ([1, 4], [3.0, 6.0, 9.0, 12.0])})


def test_failing_run_says_what_onnx_runtime_says(loaded: Loaded) -> None:
    status, error = loaded.infer("lookup", ("X", "INT64", [[9]]))
    assert status == 500
    assert error.startswith("onnx runtime error ")
    assert "Non-zero status code returned while running Gather node" in error
    status, error = loaded.infer("no_arena", ("X", "FP32", ROW))
    assert (status, error[:21]) == (500, "onnx runtime error 2:")
    assert "cpu:0" in error


def test_strings(loaded: Loaded) -> None:
    words = [["naïve", ""], ["日本 😀", "a\nb"]]
    assert loaded.infer("text", ("X", "BYTES", words)) == (200, {"Y": ([2, 2], [*words[0], *words[1]])})


def test_bool(loaded: Loaded) -> None:
    assert loaded.infer("truth", ("X", "BOOL", [[True, False, False, True]]))[1]["Y"][1] == [
        True,
        False,
        False,
        True,
    ]


def binary(server: RawServer, name: str, array: np.ndarray[Any, Any], datatype: str) -> Any:
    with http.InferenceServerClient(server.http) as client:
        given = http.InferInput("X", list(array.shape), datatype)
        given.set_data_from_numpy(array)
        return client.infer(name, [given]).as_numpy("Y")


def test_fp16(loaded: Loaded) -> None:
    given = np.arange(8, dtype=np.float16).reshape(2, 4) / 3
    answer = binary(loaded.server, "fp16", given, "FP16")
    assert answer.dtype == np.float16
    np.testing.assert_array_equal(answer, given)


def test_string_that_is_not_utf8_is_one_requests_error(loaded: Loaded) -> None:
    given = np.array([[b"\xff\xfe", b"b"]], dtype=np.object_)
    with pytest.raises(http.InferenceServerException, match="a string that is not UTF-8"):
        binary(loaded.server, "text", given, "BYTES")


def test_ragged(loaded: Loaded) -> None:
    assert loaded.infer("ragged", ("tokens", "INT32", [[1, 2, 3]])) == (200, {"Y": ([1, 1], [6.0])})
    rows = [[1, 2, 3], [4, 5, 6]]
    assert loaded.infer("ragged", ("tokens", "INT32", rows)) == (200, {"Y": ([2, 1], [6.0, 15.0])})
    # Without batch_input the output is cut to the request's rows, as the C++ backend does.
    assert loaded.infer("ragged_alone", ("X", "FP32", [[7.0, 8.0, 9.0]])) == (200, {"Y": ([1, 1], [7.0])})
    answer = loaded.infer("ragged_unbatched", ("X", "FP32", [7.0, 8.0, 9.0]))
    assert answer == (200, {"Y": ([3], [7.0, 8.0, 9.0])})


@pytest.mark.parametrize("dtype", ["FP32", "INT32"])
def test_every_kind_of_batch_input_of_two_requests_in_one_run(loaded: Loaded, dtype: str) -> None:
    name = f"kinds_{dtype}"
    requests = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0, 10.0]]]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda rows: loaded.infer(name, ("X", "FP32", rows)), requests))
    assert [status for status, _ in answers] == [200, 200]
    assert loaded.server.statistics(name, 2)["execution_count"] == 1
    long_first = answers[0][1]["X_values"][1][0] == 1.0
    joined = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] if long_first else [7, 8, 9, 10, 1, 2, 3, 4, 5, 6]
    for rows, (_, answer) in zip((2, 1), answers, strict=True):
        assert answer["X_values"] == ([rows, 10], joined * rows)
        for kind, (shape, *orders) in KINDS.items():
            assert answer[f"{kind}_sizes"] == ([rows, len(shape)], shape * rows), kind
            values = orders[not long_first]
            if values is not None:
                assert answer[f"{kind}_values"] == ([rows, len(values)], values * rows), kind


def test_decoupled_is_refused_over_http_only(loaded: Loaded) -> None:
    import tritonclient.grpc as grpc

    status, error = loaded.infer("stream", ("X", "FP32", ROW))
    assert (status, error) == (501, "HTTP end point doesn't support models with decoupled transaction policy")
    answers: list[tuple[Any, Any]] = []
    given = grpc.InferInput("X", [1, 4], "FP32")
    given.set_data_from_numpy(np.array(ROW, np.float32))
    with grpc.InferenceServerClient(loaded.server.grpc) as client:
        client.start_stream(lambda result, error: answers.append((result, error)))
        client.async_stream_infer("stream", [given])
        client.stop_stream()
    assert [error for _, error in answers] == [None]
    assert answers[0][0].as_numpy("Y").tolist() == ROW


def batch_of(server: RawServer, name: str, requests: Sequence[Sequence[tuple[str, str, Any]]]) -> list[Any]:
    """Send all at once; the delayed scheduler lets them meet in one batch."""
    assert server.load(name) == ""

    def send(inputs: Sequence[tuple[str, str, Any]]) -> Any:
        status, answer = server.infer(name, inputs)
        return answer["outputs"][0]["data"] if status == 200 else (status, answer["error"])

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(send, requests))


@pytest.fixture(scope="module")
def delayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    """A server whose schedulers wait for four requests before they form a first batch."""
    repository = tmp_path_factory.mktemp("delayed")
    dynamic = BACKEND + ONE + "dynamic_batching { }\n"
    write(repository, "sum", dynamic + SUBTRACT + io("output", "S", "4"), add_subtract())
    write(repository, "text", dynamic + xy("-1", "-1", "STRING"), identity(["batch", "words"], STRING))
    write(repository, "lookup", dynamic + MODELS["lookup"][0].replace(ONE, ""), lookup())
    write(repository, "ragged", BACKEND + ONE + RAGGED, segment_sums())
    write(repository, "first_row", dynamic + xy(), first_row())
    environment = {"TRITONSERVER_DELAY_SCHEDULER": "4"}
    with raw_server(repository, tmp_path_factory.mktemp("server"), environment=environment) as server:
        yield server


def numbers(value: float) -> list[tuple[str, str, Any]]:
    return [("A", "FP32", [[value] * 4]), ("B", "FP32", [[value * 10] * 4])]


@pytest.mark.parametrize(
    ("name", "request_of", "answer_of"),
    [
        ("sum", numbers, lambda value: [value * 11.0] * 4),
        ("text", lambda value: [("X", "BYTES", [[f"é{value}", "b"]])], lambda value: [f"é{value}", "b"]),
        # Rows of different lengths, several rows in a request.
        (
            "ragged",
            lambda value: [("tokens", "INT32", [[value + 1] * (value + 2)] * (1 + value % 2))],
            lambda value: [(value + 1.0) * (value + 2)] * (1 + value % 2),
        ),
    ],
)
def test_requests_of_one_batch_are_one_run(
    delayed: RawServer, name: str, request_of: Callable[[int], Any], answer_of: Callable[[int], Any]
) -> None:
    answers = batch_of(delayed, name, [request_of(value) for value in range(4)])
    assert answers == [answer_of(value) for value in range(4)]
    statistics = delayed.statistics(name, 4)
    assert statistics["execution_count"] == 1
    assert statistics["inference_stats"]["success"]["count"] == 4


def test_bad_request_does_not_fail_its_neighbours(delayed: RawServer) -> None:
    answers = batch_of(delayed, "lookup", [[("X", "INT64", [[index]])] for index in (0, 99, 2, 3)])
    assert [answers[0], *answers[2:]] == [[10.0], [12.0], [13.0]]
    status, error = answers[1]
    assert status == 500
    assert error.startswith("onnx runtime error ")
    assert delayed.statistics("lookup", 4)["execution_count"] == 1


def test_requests_of_a_graph_that_does_not_batch_are_answered_alone(delayed: RawServer) -> None:
    answers = batch_of(delayed, "first_row", [[("X", "FP32", [[float(value)] * 4])] for value in range(4)])
    assert answers == [[float(value)] * 4 for value in range(4)]


def test_runs_without_our_package() -> None:
    stubs = Path(__file__).parents[1] / "stubs"
    code = (
        "import sys\n"
        "sys.modules['triton_repo_builder'] = None\n"
        f"sys.path += [{str(BACKEND_FOLDER)!r}, {str(stubs)!r}]\n"
        "import model\n"
        "print(model.TritonPythonModel.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("TritonPythonModel\n", 0), done.stderr

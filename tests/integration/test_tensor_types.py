"""The tensor task: every element type at every rank, in and out, against ONNX Runtime on the same file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny
from onnx import TensorProto
from tiny_onnx import FLOAT, INT64, constant, model, node, tensor

from tests.support.zoo import Zoo
from triton_repo_builder import repository
from triton_repo_builder.base import dtypes
from triton_repo_builder.run import serve, smoke
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_binary, encode_json
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = pytest.mark.server

HALF = "float16"
TYPES = [dtype for dtype in dtypes.ALL if dtype.servable]
SHAPES: dict[str, Sequence[int | str]] = {
    "batched": ["batch", 3],
    "batched_open": ["batch", 2, "n"],
    "batched_rank_1": ["batch"],
    "fixed": [2, 3],
    "fixed_rank_1": [4],
    "open": [2, "n"],
    "open_rank_2": ["n", 3, 1],
    "scalar": [],
    "one": [1],
}
OTHERS = ("to_scalar", "to_rank_1", "from_scalar", "unknown", "text_length", "choose", "boxes")
ROWS = 5


def identities(shape: Sequence[int | str], half: bool) -> bytes:
    """One input and one output of each type; half floats apart, for they cannot travel as JSON."""
    chosen = [dtype for dtype in TYPES if (dtype.name == HALF) is half]
    return model(
        [node("Identity", [f"in_{d.name}"], [f"out_{d.name}"]) for d in chosen],
        [tensor(f"in_{d.name}", shape, d.onnx) for d in chosen],
        [tensor(f"out_{d.name}", shape, d.onnx) for d in chosen],
    )


def others() -> dict[str, bytes]:
    """Graphs whose inputs and outputs differ in rank or type."""
    zero = constant("zero", INT64, [], [0])
    return {
        "to_scalar": model(
            [node("ReduceMax", ["X"], ["Y"], keepdims=0)], [tensor("X", [3, 4])], [tensor("Y", [])]
        ),
        "to_rank_1": model(
            [node("ArgMax", ["X"], ["Y"], axis=1, keepdims=0), node("ReduceMin", ["X"], ["Z"], axes=[1])],
            [tensor("X", ["batch", 4])],
            [tensor("Y", ["batch"], INT64), tensor("Z", ["batch", 1])],
        ),
        "from_scalar": model(
            [node("Mul", ["X", "factor"], ["Y"]), node("Cast", ["X"], ["B"], to=TensorProto.BOOL)],
            [tensor("X", ["batch", 4]), tensor("factor", [])],
            [tensor("Y", ["batch", 4]), tensor("B", ["batch", 4], TensorProto.BOOL)],
        ),
        "unknown": model(
            [node("NonZero", ["X"], ["Y"])], [tensor("X", ["batch", 4])], [tensor("Y", None, INT64)]
        ),
        "text_length": model(
            [node("Equal", ["X", "word"], ["Y"]), node("Identity", ["X"], ["Z"])],
            [tensor("X", ["batch"], TensorProto.STRING)],
            [tensor("Y", ["batch"], TensorProto.BOOL), tensor("Z", ["batch"], TensorProto.STRING)],
            initializers=[constant("word", TensorProto.STRING, [1], [b"a"])],
            opset=19,
        ),
        "choose": model(
            [node("Where", ["C", "A", "B"], ["Y"])],
            [
                tensor("C", ["batch", 2], TensorProto.BOOL),
                tensor("A", ["batch", 2]),
                tensor("B", ["batch", 2]),
            ],
            [tensor("Y", ["batch", 2])],
        ),
        # Its first axis counts what it found, as detectors do.
        "boxes": model(
            [node("Gather", ["X", "zero"], ["Y"], axis=1)],
            [tensor("X", [1, "boxes", 4], FLOAT)],
            [tensor("Y", [1, 4], FLOAT)],
            initializers=[zero],
        ),
    }


def values(dtype: str, shape: Sequence[int]) -> Any:
    """The ends of the type's range, and numbers between."""
    kind = dtypes.BY_NAME[dtype]
    count = int(np.prod(shape, dtype=int))
    if kind.wire == "BYTES":
        texts = ["", "a", "Größe 😀 今日", 'quote " and \\', "line\nline\ttab", " x "]
        flat: Any = np.empty(count, dtype=object)
        flat[:] = [texts[n % len(texts)] for n in range(count)]
        return flat.reshape(shape)
    numpy = np.dtype(kind.numpy)
    if numpy.kind == "b":
        return (np.arange(count) % 3 == 0).reshape(shape)
    ends = np.finfo(numpy) if numpy.kind == "f" else np.iinfo(numpy)
    picked = [numpy.type(n) for n in (ends.max, ends.min, 0, 1, 77, 3)]
    return np.array([picked[n % len(picked)] for n in range(count)], dtype=numpy).reshape(shape)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tensors")
    for name, shape in SHAPES.items():
        (folder / f"{name}.onnx").write_bytes(identities(shape, half=False))
        (folder / f"{name}_half.onnx").write_bytes(identities(shape, half=True))
    for name, content in others().items():
        (folder / f"{name}.onnx").write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def built(models: Path) -> Path:
    for path in sorted(models.glob("*.onnx")):
        tiny.put(path, models / "repository", golden=True, device="cpu", instances=1)
    return models / "repository"


@pytest.fixture(scope="module")
def server(zoo: Zoo, built: Path) -> Iterator[serve.RunningServer]:
    with zoo.serving(built) as running:
        yield running


@pytest.fixture(scope="module")
def grpc(server: serve.RunningServer) -> Iterator[GrpcClient]:
    made = GrpcClient(server.urls.grpc)
    yield made
    made.close()


def original(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def sent(array: Any, dims: Sequence[int]) -> Any:
    """As the endpoint states it: a scalar is [1], a row without a size [rows, 1]; texts as bytes."""
    if array.dtype == object:
        flat = np.empty(array.size, dtype=object)
        flat[:] = [text.encode() for text in array.reshape(-1)]
        array = flat.reshape(array.shape)
    return array.reshape(*array.shape, 1) if array.ndim < len(dims) else array


def check(
    server: serve.RunningServer, grpc: GrpcClient, name: str, path: Path, feeds: dict[str, Any]
) -> None:
    """Over gRPC, binary HTTP, and JSON where it can carry the types."""
    expected = original(path, feeds)
    http = HttpClient(server.urls.http)
    metadata = http.endpoint(name)
    stated = {item.name: item for item in (*metadata.inputs, *metadata.outputs)}
    request = {key: sent(array, stated[key].shape) for key, array in feeds.items()}
    answers = [grpc.infer(name, request), http.infer(name, encode_binary(request))]
    if not any(item.datatype == "FP16" for item in stated.values()):
        answers.append(http.infer(name, encode_json(request)))
    for answer in answers:
        assert answer.keys() == expected.keys()
        for key, want in expected.items():
            got = answer[key]
            assert len(got.shape) == len(stated[key].shape)
            assert got.size == want.size
            np.testing.assert_array_equal(got, sent(np.asarray(want), got.shape).reshape(got.shape))
            if want.dtype != object:
                assert got.dtype == want.dtype


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("half", [False, True])
def test_every_type_at_every_rank(
    server: serve.RunningServer, grpc: GrpcClient, models: Path, name: str, half: bool
) -> None:
    sizes = {"batch": ROWS, "n": 6}
    shape = [size if isinstance(size, int) else sizes[size] for size in SHAPES[name]]
    chosen = [dtype for dtype in TYPES if (dtype.name == HALF) is half]
    feeds = {f"in_{dtype.name}": values(dtype.name, shape) for dtype in chosen}
    endpoint = f"{name}_half" if half else name
    check(server, grpc, endpoint, models / f"{endpoint}.onnx", feeds)


def test_only_what_has_a_batch_axis_batches(server: serve.RunningServer) -> None:
    http = HttpClient(server.urls.http)
    sizes = {name: http.config(name).max_batch_size for name in (*SHAPES, *OTHERS)}
    batched = {name for name, size in sizes.items() if size}
    assert batched == {
        *("batched", "batched_open", "batched_rank_1", "open_rank_2"),
        *("to_rank_1", "text_length", "choose"),
    }


@pytest.mark.parametrize("name", OTHERS)
def test_ranks_and_types_that_differ(
    server: serve.RunningServer, grpc: GrpcClient, models: Path, name: str
) -> None:
    numbers = np.random.default_rng(1).normal(size=(ROWS, 4)).astype(np.float32)
    feeds: dict[str, dict[str, Any]] = {
        "to_scalar": {"X": numbers[:3]},
        "to_rank_1": {"X": numbers},
        "from_scalar": {"X": numbers, "factor": np.array(2.5, dtype=np.float32)},
        "unknown": {"X": numbers},
        "text_length": {"X": values("string", [ROWS])},
        "choose": {"C": numbers[:, :2] > 0, "A": numbers[:, :2], "B": numbers[:, 2:]},
        "boxes": {"X": numbers[np.newaxis]},
    }
    check(server, grpc, name, models / f"{name}.onnx", feeds[name])


def test_numbers_that_are_none(server: serve.RunningServer, models: Path) -> None:
    """NaN and infinities have no JSON; binary HTTP carries them."""
    feeds = {
        f"in_{dtype.name}": np.array([[np.nan, np.inf, -np.inf]], dtype=dtype.numpy)
        if dtype.name in ("float", "double")
        else values(dtype.name, [1, 3])
        for dtype in TYPES
        if dtype.name != HALF
    }
    request = {key: sent(array, array.shape) for key, array in feeds.items()}
    answer = HttpClient(server.urls.http).infer("batched", encode_binary(request))
    for kind in ("float", "double"):
        np.testing.assert_array_equal(answer[f"out_{kind}"], feeds[f"in_{kind}"])


def test_smoke_proves_every_endpoint(server: serve.RunningServer, built: Path) -> None:
    report = smoke.run(server.urls, repository.read(built), smoke.SmokeOptions(clients=4, requests=4))
    assert [f"{c.endpoint} {c.name}: {c.detail}" for c in report.checks if c.status.value == "failed"] == []
    assert report.ok
    assert len(report.endpoints) == 2 * len(SHAPES) + len(OTHERS)

"""What ``trb bench`` sends: requests, their encodings, the load of each process."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_values import TEXT, target

from triton_repo_builder.base.dtypes import pattern
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.level import shares
from triton_repo_builder.measure.bench.load import requests as load_requests
from triton_repo_builder.measure.bench.options import Shape, processes
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.repository.cases import (
    Case,
    CaseFile,
    CaseTensor,
    Tolerance,
)
from triton_repo_builder.repository.interface import Tensor

FIXED = Tensor(name="X", datatype="FP32", shape=(-1, 3))


@pytest.mark.parametrize(
    ("texts", "rows", "expected"),
    [("abc", 2, "ab ca bc"), ("abcd", 2, "ab cd bc da"), ("ab", 3, "aba bab"), ("abc", 1, "a b c")],
)
def test_each_request_begins_where_the_last_one_ended(texts: str, rows: int, expected: str) -> None:
    made = load_requests.text_inputs(target(TEXT), tuple(texts), rows)
    sent = [b"".join(row for (row,) in inputs["TEXT"].tolist()).decode() for inputs in made]
    assert " ".join(sent) == expected


def test_an_endpoint_without_batches_gets_one_text_in_a_request() -> None:
    flat = Tensor(name="TEXT", datatype="BYTES", shape=(-1,))
    alone = load_requests.text_inputs(target(flat, batch=0), ("a", "b"), 1)
    assert [inputs["TEXT"].tolist() for inputs in alone] == [[b"a"], [b"b"]]


def golden(*names: str) -> CaseFile:
    made = [
        Case(
            name=name,
            inputs=(CaseTensor(name="X", datatype="FP32", shape=(1, 3), data=(1.0, 2.0, float(number))),),
            outputs=(),
        )
        for number, name in enumerate(names)
    ]
    tolerance = Tolerance(alone=0.0, batched=0.0, reason="")
    return CaseFile(endpoint="a model", recorded_with="", tolerance=tolerance, cases=tuple(made))


def test_tensors_come_from_golden_cases_or_are_made() -> None:
    found, source = load_requests.tensor_inputs(target(FIXED, golden=golden("one", "two")), 3, None)
    assert source == "2 golden cases"
    assert [inputs["X"].shape for inputs in found] == [(3, 3), (3, 3)]
    assert found[1]["X"][2].tolist() == [1.0, 2.0, 1.0]
    mask = Tensor(name="attention_mask", datatype="INT64", shape=(-1, -1))
    made, source = load_requests.tensor_inputs(target(FIXED, mask), 2, 16)
    assert source == "8 inputs made from the metadata, open axes 16"
    assert made[0]["attention_mask"].tolist() == [[1] * 16] * 2
    assert made[0]["X"].dtype == np.float32
    assert len({inputs["X"].tobytes() for inputs in made}) == 8
    with pytest.raises(TrbError, match="which bench cannot make"):
        load_requests.tensor_inputs(target(Tensor(name="X", datatype="BF16", shape=(-1, 1))), 1, None)


def test_requests_are_encoded_for_each_protocol() -> None:
    service = pytest.importorskip("tritonclient.grpc.service_pb2")
    requests = load_requests.text_inputs(target(TEXT), ("über",), 1)
    grpc = load_requests.encode(target(TEXT), "grpc", requests)
    message = service.ModelInferRequest.FromString(grpc.bodies[0])
    text = "über".encode()
    assert message.raw_input_contents[0] == struct.pack("<I", len(text)) + text
    assert (message.model_name, list(message.inputs[0].shape)) == ("a model", [1, 1])
    assert grpc.address == "127.0.0.1:2"
    http = load_requests.encode(target(TEXT), "http", requests)
    assert http.address == "http://127.0.0.1:1/v2/models/a%20model/infer"
    assert json.loads(http.bodies[0])["inputs"][0]["data"] == ["über"]
    binary = load_requests.encode(target(TEXT), "http-binary", requests)
    assert "Inference-Header-Content-Length" in binary.headers[0]
    half = load_requests.encode(target(TEXT, output="FP16"), "http", requests)
    assert half.headers == binary.headers, "half floats cannot travel as JSON"


def test_ready_requests_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_requests, "ROOM", 1000)
    array = pattern((1, 100), "FP32", 1)
    made = load_requests.encode(target(FIXED), "grpc", [{"X": array}] * 5)
    assert len(made.bodies) == 2


def test_rows_must_fit_the_endpoint() -> None:
    load_requests.check_rows(target(TEXT), 8)
    for batch, rows in ((8, 9), (0, 2)):
        with pytest.raises(TrbError, match="takes at most"):
            load_requests.check_rows(target(TEXT, batch=batch), rows)


def test_clients_and_rates_are_shared_out() -> None:
    made = load_requests.Payload(address="x", bodies=(b"a",) * 10, headers=({},) * 10)
    options = BenchOptions(processes=3, in_flight=9)
    closed = shares(Shape(protocol="http-binary", mode="closed", concurrency=7), made, options)
    assert [load.clients for load in closed] == [3, 2, 2]
    assert [load.first for load in closed] == [0, 3, 6]
    assert {load.protocol for load in closed} == {"http"}
    opened = shares(Shape(protocol="grpc", mode="open", rate=30.0), made, options)
    assert [load.rate for load in opened] == [10.0] * 3
    assert [load.in_flight for load in opened] == [3] * 3
    assert len({load.seed for load in opened}) == 3
    assert processes(options, Shape(protocol="grpc", mode="closed", concurrency=1)) == 1


OPEN = Tensor(name="X", datatype="INT64", shape=(-1, -1))


@pytest.mark.parametrize("changes", [{"corpus": Path("a.txt")}, {"fixed": ""}, {"lengths": (16,)}])
def test_what_is_not_read_cannot_be_chosen(changes: dict[str, Any]) -> None:
    (name,) = changes
    for one in (target(FIXED), target(TEXT, golden=golden("one")), target(OPEN, TEXT, golden=golden("one"))):
        with pytest.raises(TrbError, match=f"--{name}") as raised:
            load_requests.check_kind(one, BenchOptions(**changes))
        assert (raised.value.code, raised.value.where) == (Code.USAGE, "a model")
        assert raised.value.remedy == f"leave --{name} out"
    if name != "lengths":
        with pytest.raises(TrbError, match="benchmarked with tensors made from its metadata"):
            load_requests.check_kind(target(OPEN), BenchOptions(**changes))


def test_a_length_needs_an_open_axis_beside_the_batch() -> None:
    assert load_requests.open_axes(target(OPEN))
    assert not load_requests.open_axes(target(FIXED)), "the first axis is the batch"
    assert load_requests.open_axes(target(FIXED, batch=0))
    load_requests.check_kind(target(OPEN, golden=golden("one")), BenchOptions(lengths=(16,)))
    load_requests.check_kind(target(FIXED), BenchOptions())


def test_what_is_sent_has_one_digest_however_it_travels() -> None:
    def sent(protocol: str, texts: tuple[str, ...], rows: int = 1) -> str:
        return load_requests.encode(
            target(TEXT), protocol, load_requests.text_inputs(target(TEXT), texts, rows)
        ).sent

    one = sent("http", ("a", "b"))
    assert {sent("http-binary", ("a", "b")), sent("http", ("b", "a"), 2)} == {one}
    others = {sent("http", texts) for texts in (("a",), ("ab",), ("a", "c"))}
    assert len(others) == 3
    assert one not in others
    made = [load_requests.tensor_inputs(target(OPEN), rows, 4)[0] for rows in (1, 2)]
    assert len({load_requests.digest(inputs, True) for inputs in made}) == 1


PAIR = Tensor(name="PAIR", datatype="BYTES", shape=(-1, 1))


@pytest.mark.parametrize(
    ("inputs", "longest", "read"),
    [((TEXT,), 10, True), ((TEXT,), 0, False), ((TEXT, PAIR), 10**6, True), ((TEXT, PAIR), 10, False)],
)
def test_an_endpoint_that_takes_only_some_texts_gets_its_golden_cases(
    inputs: tuple[Tensor, ...], longest: int, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask is missing in any text of the corpus; a question must be short."""

    def accepted(endpoint: Any, sent: load_requests.Inputs) -> bool:
        return all(len(item) <= longest for array in sent.values() for item in array.reshape(-1))

    monkeypatch.setattr(load_requests, "_accepted", accepted)
    assert load_requests.takes_text(target(*inputs, golden=golden("one"))) is read
    assert load_requests.takes_text(target(*inputs))
    assert not load_requests.takes_text(target(FIXED))


FILE = Tensor(name="IMAGE", datatype="BYTES", shape=(-1, 1))


@pytest.mark.parametrize("texts", [True, False])
def test_an_endpoint_without_golden_cases_that_refuses_texts_gets_images(
    texts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_requests, "_accepted", lambda endpoint, sent: texts)
    assert load_requests.takes_text(target(FILE)) is texts
    sent, _ = load_requests.tensor_inputs(target(FILE), 2, None)
    assert all(inputs["IMAGE"].shape == (2, 1) for inputs in sent)
    kinds = {inputs["IMAGE"][row, 0][:2] for inputs in sent for row in (0, 1)}
    assert kinds == {b"\x89P", b"\xff\xd8"}
    assert len({inputs["IMAGE"][0, 0] for inputs in sent}) == len(sent)

"""What ``trb bench`` sends: the corpus, exact lengths, payloads, the load of each process."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from bench_values import TEXT, target

from triton_repo_builder.bench.level import shares
from triton_repo_builder.bench.load import requests as load_requests
from triton_repo_builder.bench.load import texts
from triton_repo_builder.bench.options import (
    Options,
    Shape,
    check,
    limit,
    processes,
    shapes,
)
from triton_repo_builder.dtypes import pattern
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.golden.cases import (
    Case,
    CaseFile,
    CaseTensor,
    Tolerance,
)
from triton_repo_builder.repository import Model, Repository
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.interface import Tensor

FIXED = Tensor(name="X", datatype="FP32", shape=(-1, 3))


def test_the_shipped_corpus_is_a_realistic_mix() -> None:
    found = texts.corpus(None)
    lengths = sorted(len(text.split()) for text in found)
    assert len(found) == len(set(found)) >= 300
    assert 15 <= lengths[len(lengths) // 2] <= 20
    assert lengths[-1] <= 120
    assert lengths[int(0.95 * len(lengths))] > 3 * lengths[len(lengths) // 2], "a long tail"
    assert sum(not text.isascii() for text in found) > 10


def test_a_corpus_is_a_text_per_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("one\n\n  two words \n")
    assert texts.corpus(file) == ("one", "two words")
    file.write_text("\n")
    with pytest.raises(TrbError, match="holds no text") as raised:
        texts.corpus(file)
    assert raised.value.code == Code.USAGE
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(TrbError, match="not UTF-8"):
        texts.corpus(file)
    with pytest.raises(TrbError, match="cannot be read"):
        texts.corpus(tmp_path / "absent.txt")


def local(tmp_path: Path) -> Repository:
    folder = tmp_path / "t"
    tiny.tokenizer(folder / "1" / "tokenizer.json")
    model = Model(name="t", path=folder, config=ModelConfig(), text="", error=None, versions=(1,))
    return Repository(path=tmp_path, models=(model,), manifest=None)


@pytest.mark.parametrize("length", [3, 4, 32, 64, 128, 256, 700])
def test_texts_have_exactly_as_many_tokens(tmp_path: Path, length: int) -> None:
    measured = texts.measure(local(tmp_path), ["absent", "t"])
    assert measured.unit == "tokens"
    fitted = texts.fit(texts.corpus(None), length, measured.count)
    assert {measured.count(text) for text in fitted} == {length}, "though the file says to cut at 12"
    assert len(set(fitted)) > 3 or length == 3
    assert fitted == texts.fit(texts.corpus(None), length, measured.count)


def test_words_are_counted_where_there_is_no_tokenizer(tmp_path: Path) -> None:
    for repository in (None, Repository(path=tmp_path, models=(), manifest=None)):
        measured = texts.measure(repository, ["t"])
        assert (measured.unit, measured.source) == ("words", "")
    fitted = texts.fit(texts.corpus(None), 300, measured.count)
    assert {len(text.split()) for text in fitted} == {300}


def test_requests_of_several_rows_hold_neighbouring_texts() -> None:
    made = load_requests.text_inputs(target(TEXT), ("a", "b", "c"), 2)
    assert [inputs["TEXT"].tolist() for inputs in made] == [
        [[b"a"], [b"b"]],
        [[b"b"], [b"c"]],
        [[b"c"], [b"a"]],
    ]
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
    options = Options(processes=3, in_flight=9)
    closed = shares(Shape(protocol="http-binary", mode="closed", concurrency=7), made, options)
    assert [load.clients for load in closed] == [3, 2, 2]
    assert [load.first for load in closed] == [0, 3, 6]
    assert {load.protocol for load in closed} == {"http"}
    opened = shares(Shape(protocol="grpc", mode="open", rate=30.0), made, options)
    assert [load.rate for load in opened] == [10.0] * 3
    assert [load.in_flight for load in opened] == [3] * 3
    assert len({load.seed for load in opened}) == 3
    assert processes(options, Shape(protocol="grpc", mode="closed", concurrency=1)) == 1


def test_every_combination_is_a_level_and_time_is_bounded() -> None:
    options = Options(
        protocols=("grpc", "http"), concurrency=(1, 4), rates=(9.5,), lengths=(32, 64), warmup=1, window=2
    )
    found = list(shapes(options))
    assert len(found) == len(set(found)) == 12
    assert found[0].title == "grpc, 1 client, length 32"
    assert found[2].title == "grpc, 9.5/s, length 32"
    assert limit(options) == 12 * (1 + 10 * 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fixed": "a", "lengths": (3,)}, "--corpus or --lengths"),
        ({"min_windows": 5, "max_windows": 4}, "less than --min-windows 5"),
        ({"concurrency": ()}, "no level"),
        ({"protocols": ("grpc", "tcp")}, "unknown protocol 'tcp'"),
        ({"window": 0.0}, "above 0"),
        ({"warmup": -1.0}, "above 0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TrbError, match=message) as raised:
        check(Options(**changes))
    assert raised.value.code == Code.USAGE


def test_a_corpus_is_read_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(TrbError, match=r"absent\.txt: cannot be read") as raised:
        check(Options(corpus=tmp_path / "absent.txt"))
    assert raised.value.code == Code.NOT_FOUND


OPEN = Tensor(name="X", datatype="INT64", shape=(-1, -1))


@pytest.mark.parametrize("changes", [{"corpus": Path("a.txt")}, {"fixed": ""}, {"lengths": (16,)}])
def test_what_is_not_read_cannot_be_chosen(changes: dict[str, Any]) -> None:
    (name,) = changes
    for one in (target(FIXED), target(TEXT, golden=golden("one")), target(OPEN, TEXT, golden=golden("one"))):
        with pytest.raises(TrbError, match=f"--{name}") as raised:
            load_requests.check_kind(one, Options(**changes))
        assert (raised.value.code, raised.value.where) == (Code.USAGE, "a model")
        assert raised.value.remedy == f"leave --{name} out"
    if name != "lengths":
        with pytest.raises(TrbError, match="benchmarked with tensors made from its metadata"):
            load_requests.check_kind(target(OPEN), Options(**changes))


def test_a_length_needs_an_open_axis_beside_the_batch() -> None:
    assert load_requests.open_axes(target(OPEN))
    assert not load_requests.open_axes(target(FIXED)), "the first axis is the batch"
    assert load_requests.open_axes(target(FIXED, batch=0))
    load_requests.check_kind(target(OPEN, golden=golden("one")), Options(lengths=(16,)))
    load_requests.check_kind(target(FIXED), Options())


def test_what_is_sent_has_one_digest_however_it_travels() -> None:
    def sent(protocol: str, texts: tuple[str, ...], rows: int = 1) -> str:
        return load_requests.encode(
            target(TEXT), protocol, load_requests.text_inputs(target(TEXT), texts, rows)
        ).sent

    one = sent("http", ("a", "b"))
    assert {sent("http-binary", ("a", "b")), sent("http", ("a", "b"), 2)} == {one}
    others = {sent("http", texts) for texts in (("a",), ("b", "a"), ("ab",), ("a", "c"))}
    assert len(others) == 4
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

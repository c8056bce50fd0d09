"""Golden cases: what is written is read back, and every way of being different counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_repo_builder.base.dtypes import BY_WIRE, pattern
from triton_repo_builder.repository import cases
from triton_repo_builder.repository.cases import (
    Case,
    CaseFile,
    CaseTensor,
    Tolerance,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
NUMBERS = st.floats(width=32, allow_nan=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def fp32(*data: float) -> CaseTensor:
    return CaseTensor(name="y", datatype="FP32", shape=(1, len(data)), data=data)


@st.composite
def tensors(draw: st.DrawFn) -> CaseTensor:
    kind = draw(st.sampled_from(["BYTES", "FP32", "INT64", "BOOL", "pattern", "sampled"]))
    name = draw(NAMES)
    if kind == "pattern":
        return CaseTensor(
            name=name, datatype="FP32", shape=(1, 3, 4), pattern=draw(st.integers(0, 2**32 - 1))
        )
    if kind == "sampled":
        data = tuple(draw(st.lists(NUMBERS, min_size=2, max_size=2)))
        return CaseTensor(name=name, datatype="FP32", shape=(1, 9), data=data, indices=(0, 8))
    elements: dict[str, st.SearchStrategy[Any]] = {
        "BYTES": TEXTS,
        "FP32": NUMBERS,
        "INT64": st.integers(-(2**63), 2**63 - 1),
        "BOOL": st.booleans(),
    }
    values = tuple(draw(st.lists(elements[kind], max_size=5)))
    return CaseTensor(name=name, datatype=kind, shape=(1, len(values)), data=values)


@settings(max_examples=60)
@given(st.lists(tensors(), min_size=1, max_size=3), st.lists(tensors(), max_size=3), NAMES, NUMBERS)
def test_what_is_dumped_is_loaded(
    tmp_path_factory: pytest.TempPathFactory,
    inputs: list[CaseTensor],
    outputs: list[CaseTensor],
    name: str,
    number: float,
) -> None:
    file = CaseFile(
        endpoint=name,
        recorded_with="hypothesis",
        tolerance=Tolerance(alone=number, batched=1e-4, reason="because"),
        cases=(Case(name=name, inputs=tuple(inputs), outputs=tuple(outputs)),),
    )
    path = tmp_path_factory.mktemp("cases") / "smoke.json"
    path.write_text(cases.dump(file), encoding="utf-8")
    assert cases.load(path) == file


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cases": [{}]}', '{"cases": []}', '{"cases": 5}'])
def test_other_json_is_refused_with_a_value_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "smoke.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        cases.load(path)


def test_a_file_of_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "smoke.json"
    path.write_text(json.dumps({"schema": 2}))
    with pytest.raises(ValueError, match="schema 2"):
        cases.load(path)


@pytest.mark.parametrize("datatype", sorted(BY_WIRE))
def test_a_pattern_is_the_documented_formula(datatype: str) -> None:
    array = pattern((2, 5), datatype, 7)
    assert array.shape == (2, 5)
    units = [((i * 2654435761 + 7) % 2**32) / 2**32 for i in range(10)]
    if datatype == "BYTES":
        assert array.reshape(-1).tolist() == [b"a" if u < 0.5 else b"b" for u in units]
        return
    kind = np.dtype(BY_WIRE[datatype].numpy)
    assert array.dtype == kind
    formula = {"f": lambda u: u, "b": lambda u: u >= 0.5}.get(kind.kind, lambda u: int(2 * u))
    assert array.reshape(-1).tolist() == np.array([formula(u) for u in units]).astype(kind).tolist()


def test_different_seeds_give_different_patterns() -> None:
    assert not np.array_equal(pattern((64,), "FP32", 1), pattern((64,), "FP32", 2))


def test_an_array_is_what_was_recorded() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert np.array_equal(cases.record("x", "INT64", array).array(), array)
    texts = np.array([["é".encode()], [b""]], dtype=object)
    assert cases.record("t", "BYTES", texts).array().tolist() == texts.tolist()


def test_a_large_output_is_sampled_from_end_to_end() -> None:
    array = np.random.default_rng(0).random((1, cases.LARGE + 1), dtype=np.float32)
    tensor = cases.record("y", "FP32", array)
    assert tensor.indices is not None
    assert len(tensor.data) == len(tensor.indices) == cases.SAMPLES
    assert (tensor.indices[0], tensor.indices[-1]) == (0, cases.LARGE)
    assert cases.difference(tensor, array) == 0.0
    array[0, tensor.indices[100]] += 0.5
    assert cases.difference(tensor, array) == pytest.approx(0.5)


def test_difference_is_the_largest_one() -> None:
    got = np.array([[1.0, 2.5, 3.0]], dtype=np.float32)
    assert cases.difference(fp32(1.0, 2.0, 2.75), got) == pytest.approx(0.5)
    assert cases.difference(fp32(), np.zeros((1, 0), dtype=np.float32)) == 0.0


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (fp32(1.0, 2.0), np.array([[1.0]], dtype=np.float32)),
        (fp32(1.0), np.array([1.0], dtype=np.float32)),
        (fp32(1.0), np.array([[np.nan]], dtype=np.float32)),
        (fp32(1.0), np.array([[np.inf]], dtype=np.float32)),
        (fp32(float("nan")), np.array([[1.0]], dtype=np.float32)),
        (fp32(float("inf")), np.array([[-np.inf]], dtype=np.float32)),
        (fp32(1.0), np.array([[b"1.0"]], dtype=object)),
        (
            CaseTensor(name="y", datatype="BYTES", shape=(1,), data=("a",)),
            np.array([b"A"], dtype=object),
        ),
        (CaseTensor(name="y", datatype="BYTES", shape=(1,), data=("1",)), np.array([1])),
    ],
)
def test_what_no_tolerance_covers_is_infinitely_different(expected: CaseTensor, got: Any) -> None:
    assert cases.difference(expected, got) == float("inf")


def test_equal_infinities_and_nans_are_equal() -> None:
    expected = fp32(float("nan"), float("inf"), float("-inf"), 1.0)
    got = np.array([[np.nan, np.inf, -np.inf, 1.25]], dtype=np.float32)
    assert cases.difference(expected, got) == pytest.approx(0.25)


def test_bytes_that_are_no_text_travel_as_base64(tmp_path: Path) -> None:
    image = CaseTensor(name="IMAGE", datatype="BYTES", shape=(2, 1), data=(b"\xff\xd8\x00", "text"))
    file = CaseFile(
        endpoint="e",
        recorded_with="r",
        tolerance=Tolerance(alone=1e-4, batched=1e-4, reason="x"),
        cases=(Case(name="c", inputs=(image,), outputs=()),),
    )
    path = tmp_path / "smoke.json"
    path.write_text(cases.dump(file))
    assert '{"base64": "/9gA"}, "text"' in path.read_text()
    assert cases.load(path) == file
    assert image.binary
    assert image.array().tolist() == [[b"\xff\xd8\x00"], [b"text"]]
    path.write_text(path.read_text().replace("/9gA", "/9g"))
    with pytest.raises(ValueError, match="has data that is not base64"):
        cases.load(path)


def test_entries_are_compared_by_their_keys() -> None:
    keys = CaseTensor(name="indices", datatype="INT32", shape=(1, 3), data=(2, 7, -1))
    values = CaseTensor(name="values", datatype="FP32", shape=(1, 3), data=(0.5, 1.0, 0.0), at="indices")
    outputs = (keys, values)

    def off(places: list[int], numbers: list[float]) -> float:
        answer = {"indices": np.array([places]), "values": np.array([numbers])}
        return cases.among(outputs, values, answer)

    assert off([2, 7], [0.5, 1.0]) == 0
    assert off([2, 7, -1, -1, -1], [0.5, 1.0, 0, 0, 0]) == 0
    # One that is almost 0 may be missing or come in, wherever it is listed.
    assert off([1, 2, 7], [1e-6, 0.5, 1.0]) == pytest.approx(1e-6)
    assert off([7], [1.0]) == 0.5
    assert off([2, 8], [0.5, 1.0]) == 1.0
    assert off([-1], [0.0]) == 1.0


@pytest.mark.parametrize(
    ("want", "got", "difference"),
    [
        ('[{"score": 0.5, "start": 3}]', '[{"score": 0.25, "start": 3}]', 0.25),
        ('[{"score": 0.5}, {"score": 0.5}]', '[{"score": 0.5}, {"score": 0.375}]', 0.125),
        ('[{"score": 0.5, "start": 3}]', '[{"start": 3, "score": 0.5}]', 0.0),
        ('[{"start": 3}]', '[{"start": 4}]', np.inf),
        ('[{"text": "a"}]', '[{"text": "b"}]', np.inf),
        ('[{"text": "a"}]', "[]", np.inf),
        ('{"a": 1.5}', '{"b": 1.5}', np.inf),
        ("[1.5]", "[1]", np.inf),
        ("[1.5", "[1.25", np.inf),
        ("0.5", "0.25", np.inf),
    ],
)
def test_json_answers_differ_by_their_numbers(want: str, got: str, difference: float) -> None:
    expected = CaseTensor(name="Y", datatype="BYTES", shape=(1, 1), data=(want,))
    assert cases.difference(expected, np.array([[got.encode()]], dtype=object)) == difference

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.model.read import wire

NUMBERS = st.integers(0, 2**64 - 1)


@given(NUMBERS)
def test_numbers_round_trip(number: int) -> None:
    encoded = wire.varint(number)
    assert wire.read_varint(memoryview(encoded), 0, len(encoded)) == (number, len(encoded))


@given(st.lists(st.tuples(st.integers(1, 2**20), st.binary(max_size=300))))
def test_fields_are_found_where_they_lie(items: list[tuple[int, bytes]]) -> None:
    data = memoryview(b"".join(wire.field(number, content) for number, content in items))
    found = list(wire.fields(data, 0, len(data)))
    assert [(f.number, bytes(data[f.value : f.end])) for f in found] == items
    assert [f.start for f in found] == [0, *(f.end for f in found)][: len(found)]


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_an_error(data: bytes) -> None:
    try:
        found = list(wire.fields(memoryview(data), 0, len(data)))
    except wire.WireError:
        return
    assert found[-1].end == len(data) if found else not data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x08", wire.WireTruncated),
        (b"\x08\x80", wire.WireTruncated),
        (b"\x0a\x05abc", wire.WireTruncated),
        (b"\x09\x00\x00", wire.WireTruncated),
        (b"\x0d\x00", wire.WireTruncated),
        (b"\x00\x00", wire.WireError),
        (b"\x0b\x00", wire.WireError),
        (b"\x08" + b"\xff" * 11, wire.WireError),
    ],
)
def test_what_is_no_message(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        list(wire.fields(memoryview(data), 0, len(data)))

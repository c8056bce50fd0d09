"""The document of a config.pbtxt: tokens, places, edits."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.pbtxt_document import Document, Key, tokens
from triton_repo_builder.repository.pbtxt_document import Path as FieldPath

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    path.read_bytes().decode("utf-8", "surrogateescape")
    for folder in ("model_repository", "examples", "tests/errors", "tests/data")
    for path in sorted((ROOT / folder).rglob("config.pbtxt"))
    if path.is_file()
]
TEXT = """# name: "commented out"
name: "m"
input [
  { name: "A" dims: [ 4,
     -1 ] },
  {
    name: "B # { no brace"
    reshape < shape: [ ] >
  }
]
input { name: 'C'
  dims: 3 dims: 5 }
parameters { key: "a" value { string_value: "1" } }
parameters {
  key: "b" value { string_value: "two "
                                 "halves" }
}
max_batch_size: 0; backend: "python"
"""
STATEMENTS = """# Mine.
name: "m", backend: 'python';
max_batch_size : 8 # as many as fit { [
input [ { name: "X{}" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [
  { count: 1 kind: KIND_CPU },
  { count: 2 kind: KIND_CPU }
]
parameters { key: "a" value { string_value: "key: \\"b\\" } #" } }
parameters: { key: 'b' value: { string_value: '1' } }
"""
PIECES = st.sampled_from(
    [
        *"ab:{}<>[]\",#\n \\'-+.0_/;\0\t\u00a0\u201c",
        "name: ",
        '"m"',
        "input",
        "dims: [ 4, -1 ]",
        "# c\n",
        "-1",
    ]
)
ANY = st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(), st.sampled_from(FILES))


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("name",), (2, 1)),
        (("input",), (3, 1)),
        (("input", 1), (6, 3)),
        (("input", 1, "reshape"), (8, 5)),
        (("input", 2, "name"), (11, 9)),
        (("input", 0, "dims", 1), (5, 6)),
        (("input", 2, "dims", 1), (12, 11)),
        (("parameters", Key("b"), "value"), (15, 12)),
        (("backend",), (18, 20)),
        # The innermost that is there.
        (("input", 1, "dims"), (6, 3)),
        (("output", 0), None),
    ],
)
def test_places(path: FieldPath, place: tuple[int, int] | None) -> None:
    document = Document(TEXT)
    field = document.find(path)
    assert (document.place(field.start) if field else None) == place


def test_presence_includes_defaults() -> None:
    fields = Document(TEXT).fields
    assert any(fields.each("max_batch_size"))
    assert any(fields.each("input", "reshape", "shape"))
    assert not any(fields.each("output"))


def test_an_empty_text_is_a_value() -> None:
    document = Document('name: "" backend: - 1 platform: \u201cx\u201d version: -1.5e3')
    assert [(field.name, field.value) for field in document.fields] == [
        ("name", ""),
        ("backend", "- 1"),
        ("platform", "\u201cx\u201d"),
        ("version", "-1.5e3"),
    ]


@pytest.mark.parametrize(
    ("field", "key", "statements"),
    [
        ("backend", "", ["backend: 'python'"]),
        ("max_batch_size", "", ["max_batch_size : 8"]),
        (
            "instance_group",
            "",
            ["instance_group [\n  { count: 1 kind: KIND_CPU },\n  { count: 2 kind: KIND_CPU }\n]"],
        ),
        ("parameters", "b", ["parameters: { key: 'b' value: { string_value: '1' } }"]),
        ("output", "", []),
    ],
)
def test_statements(field: str, key: str, statements: list[str]) -> None:
    spans = Document(STATEMENTS).statements(field, key)
    assert [STATEMENTS[start:end] for start, end in spans] == statements


def test_an_entry_of_a_list_is_edited_alone() -> None:
    document = Document(STATEMENTS)
    _, second = document.fields.each("instance_group")
    count = next(second.fields.each("count"))
    assert document.edited([(count.value_start, count.end, "7")]) == STATEMENTS.replace(
        "count: 2", "count: 7"
    )
    assert document.edited([(second.start, second.end, "{}")]) == STATEMENTS.replace(
        "{ count: 2 kind: KIND_CPU }", "{}"
    )


@given(ANY)
def test_tokens_are_the_text(text: str) -> None:
    assert "".join(token.text for token in tokens(text)) == text


@given(ANY)
def test_values_are_written_back_as_they_are(text: str) -> None:
    document = Document(text)
    leaves = [field for field in document.fields.all() if not field.fields]
    spans = [(field.value_start, field.end) for field in leaves]
    assert document.edited((start, end, text[start:end]) for start, end in spans) == text
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@given(ANY)
def test_each_field_is_where_it_says(text: str) -> None:
    document = Document(text)
    for field in document.fields.all():
        start, end = field.statement
        assert 0 <= start <= field.start <= field.value_start <= field.end <= end <= len(text)
        assert text[start:].startswith(field.name)
        assert (
            field.fields or field.value in text[field.value_start : field.end] or '"' in text or "'" in text
        )
        assert document.offset(*document.place(field.start)) == field.start


@given(st.data())
def test_an_edit_changes_one_number_and_nothing_else(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([TEXT, STATEMENTS, *FILES]))
    document = Document(text)
    numbers = [field for field in document.fields.all() if field.value.lstrip("-").isdigit()]
    if not numbers:
        return
    field = data.draw(st.sampled_from(numbers))
    edited = document.edited([(field.value_start, field.end, "12345")])
    assert (edited[: field.value_start], edited[field.value_start + 5 :]) == (
        text[: field.value_start],
        text[field.end :],
    )
    before, after = ([item.value for item in Document(each).fields.all()] for each in (text, edited))
    assert [new for old, new in zip(before, after, strict=True) if old != new] in ([], ["12345"])


PARSED = [text for text in FILES if "\0" not in text]


@given(st.sampled_from([TEXT, STATEMENTS, *PARSED]), st.sampled_from(["name", "max_batch_size", "input"]))
def test_what_is_removed_is_one_field(text: str, name: str) -> None:
    try:
        config = pbtxt.parse(text)
    except pbtxt.PbtxtError:
        return
    document = Document(text)
    removed = document.edited((start, document.line_end(end), "") for start, end in document.statements(name))
    assert pbtxt.parse(removed) == {field: value for field, value in config.items() if field != name}
    comments = [token.text for token in tokens(removed) if token.text.startswith("#")]
    assert comments == [
        token.text
        for token in tokens(text)
        if token.text.startswith("#")
        and not any(start < token.start < end for start, end in document.statements(name))
    ]

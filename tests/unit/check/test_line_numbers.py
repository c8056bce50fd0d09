from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.check import line_numbers
from triton_repo_builder.check.line_numbers import Key

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


def test_lines() -> None:
    fields = line_numbers.scan(TEXT)
    assert line_numbers.line(fields, ("name",)) == 2
    assert line_numbers.line(fields, ("input",)) == 3
    assert line_numbers.line(fields, ("input", 1)) == 6
    assert line_numbers.line(fields, ("input", 1, "reshape")) == 8
    assert line_numbers.line(fields, ("input", 2, "name")) == 11
    assert line_numbers.line(fields, ("input", 2, "dims", 1)) == 12
    assert line_numbers.line(fields, ("parameters", Key("b"), "value")) == 15
    assert line_numbers.line(fields, ("backend",)) == 18


def test_a_field_that_is_not_there_gives_the_innermost_that_is() -> None:
    fields = line_numbers.scan(TEXT)
    assert line_numbers.line(fields, ("input", 1, "dims")) == 6
    assert line_numbers.line(fields, ("output", 0)) is None


def test_presence_includes_defaults() -> None:
    fields = line_numbers.scan(TEXT)
    assert line_numbers.present(fields, ("max_batch_size",))
    assert line_numbers.present(fields, ("input", "reshape", "shape"))
    assert not line_numbers.present(fields, ("output",))


@given(st.text(alphabet="ab:{}<>[]\",#\n \\'", max_size=40))
def test_any_text_is_scanned(text: str) -> None:
    line_numbers.scan(text)

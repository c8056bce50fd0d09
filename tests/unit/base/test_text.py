"""Messages of other libraries, in ours."""

from __future__ import annotations

import pytest

from triton_repo_builder.base import text

WRAPPED = """
XProcessor requires the Torchvision library but it was not found in your environment. Check out the
instructions on the installation page: https://pytorch.org/get-started/locally/ and follow those that match.
Please note that you may need to restart your runtime after installation.
"""
ANNOUNCED = """
XProcessor requires the PyAv library but it was not found in your environment. You can install it with:
```
pip install av
```
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", ""),
        ("one line\n", "one line"),
        ("No Op registered for X\n  at session.cc:12\n", "No Op registered for X"),
        (WRAPPED, " ".join(WRAPPED.strip().splitlines()[:2])),
        (ANNOUNCED, "XProcessor requires the PyAv library but it was not found in your environment."),
        ("cannot be read. It is one of: " + "name, " * 300, "cannot be read."),
        ("word " * 300, "word " * 199 + "word …"),
        (OSError("refused: " + "x" * 20), "refused: " + "x" * 20),
        (ValueError(), "ValueError"),
    ],
)
def test_no_message_is_cut_in_the_middle(message: object, line: str) -> None:
    assert text.first_line(message) == line
    assert len(line) <= text.LONGEST + 2

"""Long lines of a page are wrapped, and only those."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LONG = "word " * 40


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from wrapping import wrapped

    return wrapped


def test_a_paragraph_is_wrapped_as_a_whole(wrapped: Callable[[str], str]) -> None:
    page = wrapped(f"# {LONG}\n\n{LONG.strip()}\nend\n\nshort\nlines\n")
    assert page.startswith(f"# {LONG}\n\n")
    assert page.endswith("word end\n\nshort\nlines\n")
    assert max(map(len, page.splitlines()[1:])) <= 120


def test_an_item_keeps_its_indent(wrapped: Callable[[str], str]) -> None:
    lines = wrapped(f"- {LONG}\n  end\n- next").splitlines()
    assert [line[:4] for line in lines] == ["- wo", "  wo", "- ne"]


def test_code_and_tables_stay(wrapped: Callable[[str], str]) -> None:
    page = f"```\n{LONG}\n```\n\n    {LONG}\n\n| {LONG} |\n"
    assert wrapped(page) == page


def test_no_line_becomes_a_list_item(wrapped: Callable[[str], str]) -> None:
    text = "x" * 113 + " is 2. " + LONG.strip()
    assert not any(line.startswith("2.") for line in wrapped(text).splitlines()[1:])


def test_marks_of_written_sections_stay_lines_of_their_own(wrapped: Callable[[str], str]) -> None:
    page = "<!-- soak: begin -->\n" + "word " * 40 + "\n<!-- soak: end -->\n"
    lines = wrapped(page).split("\n")
    assert lines[0] == "<!-- soak: begin -->"
    assert lines[-2] == "<!-- soak: end -->"
    assert max(map(len, lines)) <= 125

from pathlib import Path

import pytest

from tests.reliability.report import section


def test_a_section_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "r.md"
    file.write_text("# Title\n\n<!-- a: begin -->\nold\n<!-- a: end -->\n\nmore\n")
    section(file, "a", "new\nlines\n")
    assert file.read_text() == "# Title\n\n<!-- a: begin -->\nnew\nlines\n<!-- a: end -->\n\nmore\n"


def test_a_section_that_is_not_there_is_added_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "r.md"
    file.write_text("# Title\n")
    section(file, "b", "text")
    section(file, "b", "text")
    assert file.read_text() == "# Title\n\n<!-- b: begin -->\ntext\n<!-- b: end -->\n"


def test_a_section_without_an_end_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "r.md"
    file.write_text("<!-- a: begin -->\nold\n")
    with pytest.raises(ValueError, match="no <!-- a: end -->"):
        section(file, "a", "new")
    assert file.read_text() == "<!-- a: begin -->\nold\n"

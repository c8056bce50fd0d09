import json
from pathlib import Path

import pytest

from triton_repo_builder.base import files


def test_json_is_read_from_text_and_bytes() -> None:
    assert (
        files.load_json('{"a": [1, "é"]}') == files.load_json('{"a": [1, "é"]}'.encode()) == {"a": [1, "é"]}
    )


@pytest.mark.parametrize(
    "content",
    ["", "{", "[" * 101 + "]" * 101, "[" * 50_000, '{"a":' * 200 + "1" + "}" * 200, "9" * 5000, '"\\ud800"'],
)
def test_json_that_cannot_be_taken_is_one_kind_of_error(content: str) -> None:
    with pytest.raises(ValueError):
        files.load_json(content)


def test_json_is_utf_8() -> None:
    with pytest.raises(ValueError):
        files.load_json('{"a": 1}'.encode("utf-16"))


def test_a_hundred_levels_are_read() -> None:
    assert json.dumps(files.load_json("[" * 100 + "]" * 100)) == "[" * 100 + "]" * 100


def test_half_of_a_surrogate_pair_is_taken_where_that_is_said() -> None:
    assert files.load_json('"\\ud83d"', halves=True) == "\ud83d"
    assert files.load_json('"\\ud83d\\ude00"') == "😀"


def test_a_name_that_no_file_can_have_is_no_file(tmp_path: Path) -> None:
    assert not files.is_file(tmp_path / ("x" * 5000))

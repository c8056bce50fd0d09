"""Tables of any width: a number is never broken."""

from __future__ import annotations

import pytest

from triton_repo_builder.cli import console

COLUMNS = ("load", "requests/s", "p99 ms", "server CPU ms/request", "note")
ROW = ("16 clients", "1,226.68", "119.20", "8.41", "the server was busy with other requests")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 160])
def test_numbers_stay_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    console.table(COLUMNS, [ROW], right={*COLUMNS[1:4]}, whole={"load"})
    printed = capsys.readouterr().out
    assert all(value in printed for value in ROW[:4]), printed
    assert max(map(len, printed.splitlines())) <= width
    assert ("─" in printed) == (width >= 80)


@pytest.mark.parametrize("width", [20, 160])
def test_a_natural_table_is_as_wide_as_its_texts(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    row = (*ROW[:4], "日本語の文 " * 30 + "end")
    console.table(COLUMNS, [row], right={*COLUMNS[1:4]}, whole={"load"}, natural=True)
    heading, _, line = (text for text in capsys.readouterr().out.splitlines() if text.strip())
    assert [text for text in COLUMNS if text not in heading] == []
    assert [text for text in row if text not in line] == []

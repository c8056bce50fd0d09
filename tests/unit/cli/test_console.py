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

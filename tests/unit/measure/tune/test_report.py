"""The Pareto front, the winner, and what is written of a report."""

import errno
import json
from pathlib import Path

import pytest
from tune_values import BASE, compared, report, trial

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.tune import output, prove
from triton_repo_builder.measure.tune.factors import Factor, key
from triton_repo_builder.measure.tune.report import PRUNED


def test_no_trial_of_the_front_is_worse_in_both() -> None:
    made = report(
        trial(1, 100, 40),
        trial(2, 90, 30),
        trial(3, 95, 45),
        trial(4, 90, 35),
        trial(5, 200, 1, status=PRUNED),
    )
    assert [one.number for one in made.front] == [1, 2]
    assert made.best == made.trials[0]


DEFAULT = compared("default", 100, 110, 105)


@pytest.mark.parametrize(
    ("capacities", "wins"),
    [
        ((120, 130, 125), True),
        ((120, 109, 125), False),  # one round was lost
        ((101, 111, 106), False),  # within noise
        ((0, 130, 125), False),
    ],
)
def test_the_default_stays_unless_something_is_better_in_every_round(
    capacities: tuple[float, ...], wins: bool
) -> None:
    other = compared("other", *capacities)
    assert prove.winner([DEFAULT, other]) == (other if wins else None)


def test_anything_is_better_than_a_default_that_never_holds() -> None:
    other = compared("other", 5, 6, 7)
    assert prove.winner([compared("default", 0, 0, 0), other]) == other
    assert prove.winner([compared("default", 0, 0, 0), compared("other", 5, 0, 7)]) is None


def test_each_factor_by_itself_is_the_winner_without_it() -> None:
    space = [Factor(name=name, values=(value,), default=value) for name, value in BASE.items()]
    chosen = compared("best", 200, 200, 200, instances=4, batching=200)
    known = {key({**BASE, "batching": 200}): (160.0, True)}
    asked = []

    def measure(setting: object) -> float | None:
        asked.append(setting)
        return None

    gains = prove.gains(chosen, BASE, space, known, measure)
    assert [(gain.factor, gain.after, gain.gain, gain.at_least) for gain in gains] == [
        ("instances", "4", 1.25, True),
        ("batching", "on, 200 us", None, False),
    ]
    assert asked == [{**BASE, "instances": 4}]


def test_every_file_of_a_report(tmp_path: Path) -> None:
    made = report(
        trial(1),
        trial(2, 150, 30, name="<instances>"),
        trial(3, 0, None, status=PRUNED, reason="reaches less"),
    )
    names = [path.name for path in output.write(made, tmp_path)]
    assert sorted(names) == sorted(output.FILES)
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["front"] == [2]
    assert len((tmp_path / "report.csv").read_text().splitlines()) == 4
    page = (tmp_path / "report.html").read_text()
    assert "&lt;instances&gt;" in page and "reaches less" in page
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_each_column_has_a_header_that_names_the_objective() -> None:
    made = report(trial(1), compared=(compared("default", 100),))
    headers = output.trial_columns(made.objective), output.compared_columns(made.objective)
    assert [len(names) for names in headers] == [
        len(rows[0]) for rows in (output.trial_rows(made), output.compared_rows(made))
    ]
    assert all(any(str(made.objective) in name for name in names) for names in headers)


def test_a_full_disk_leaves_an_earlier_report_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output.write(report(trial()), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write = Path.write_bytes

    def full(file: Path, content: bytes) -> int:
        if file.name == "front.png":
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        return write(file, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TrbError) as caught:
        output.write(report(trial(1, 7, 7)), tmp_path)
    assert caught.value.code is Code.DISK_FULL
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_where_the_report_would_be_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(TrbError) as caught:
        output.open_folder(tmp_path)
    assert (caught.value.code, caught.value.where) == (
        Code.OUTPUT_NOT_WRITABLE,
        str(tmp_path / "report.json"),
    )


def test_the_default_is_known_by_its_setting_not_its_place() -> None:
    """In the log of a run that was killed it need not be the first."""
    made = report(trial(1, name="instances 4", setting={**BASE, "instances": 4}), trial(2))
    assert made.default == made.trials[1]

"""The log with which a search goes on: after runs that were interrupted or killed, and damaged ones."""

from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.tune.factors import Factor
from triton_repo_builder.measure.tune.study import LOG, Search, first_guesses

SPACE = (
    Factor(name="instances", values=(1, 2, 3, 4), default=1),
    Factor(name="batching", values=("off", 0, 200), default="off"),
)


def search(folder: Path, **about: object) -> Search:
    made = Search(SPACE, {"endpoint": "m", **about}, folder, 1)
    for guess in first_guesses(SPACE):
        made.suggest(guess)
    return made


@pytest.mark.parametrize("ended", ["killed", "interrupted"])
def test_the_default_is_first_again_after_a_run_that_did_not_measure_it(tmp_path: Path, ended: str) -> None:
    first = search(tmp_path)
    asked = first.ask()
    assert asked.setting == {"instances": 1, "batching": "off"}
    if ended == "interrupted":
        first.forget(asked)
    assert search(tmp_path).ask().setting == asked.setting


@pytest.mark.parametrize(
    "content", [b"not JSON\n", b"[]\n", b'{"op_code": 99}\n', b"\xff\xfe\n", b"{}\n" * 3]
)
def test_a_log_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOG).write_bytes(content)
    with pytest.raises(TrbError) as caught:
        search(tmp_path)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, str(tmp_path / LOG))


def test_a_log_whose_last_line_was_not_written_whole_goes_on(tmp_path: Path) -> None:
    first = search(tmp_path)
    asked = first.ask()
    first.tell(asked, 5.0, {"capacity": 5.0})
    whole = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(whole + b'{"op_code": 5, "wor')
    again = search(tmp_path)
    assert [setting for setting, _ in again.earlier()] == [asked.setting]


def test_a_folder_in_place_of_the_log(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    with pytest.raises(TrbError) as caught:
        search(tmp_path)
    assert caught.value.code is Code.OUTPUT_NOT_WRITABLE


def test_a_configuration_that_differs_may_be_that_of_a_run_that_was_killed(tmp_path: Path) -> None:
    search(tmp_path, configuration={"m": {}})
    with pytest.raises(TrbError) as caught:
        search(tmp_path, configuration={"m": {"instance_group": [{"count": 2}]}})
    assert "configuration" in caught.value.message
    assert "killed" in caught.value.remedy

"""``trb tune``: what the command line refuses before any server is started."""

import fcntl
import importlib.util
import os
from pathlib import Path

import pytest

from tests.support import cli
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.tune import study
from triton_repo_builder.measure.tune.factors import Factor

SPACE = (Factor(name="instances", values=(1, 2, 4), default=1),)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--slo", "50ms"),
        ("--slo", "p99=50ms", "--protocol", "grpc,http"),
        ("--slo", "p99=50ms", "--matrix", "--write"),
        ("--slo", "p99=50ms", "--grpc-url", "localhost:8001"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert cli.call("tune", *arguments, cwd=tmp_path).returncode == 2


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(study, "find_spec", lambda name: None if name == "optuna" else find(name))
    with pytest.raises(TrbError) as caught:
        study.Search(SPACE, {}, None, 1)
    assert caught.value.code is Code.ENGINE_MISSING
    assert "[tune]" in caught.value.remedy


def test_the_log_of_a_search_is_read_again(tmp_path: Path) -> None:
    first = study.Search(SPACE, {"objective": 1}, tmp_path, 1)
    first.suggest({"instances": 4})
    asked = first.ask()
    assert asked.setting == {"instances": 4}
    first.tell(asked, 10.0, {"capacity": 10.0})
    first.tell(first.ask(), 0.0, {"capacity": 0.0})
    first.forget(first.ask())
    second = study.Search(SPACE, {"objective": 1}, tmp_path, 1)
    assert [result["capacity"] for _, result in second.earlier()] == [10.0, 0.0]
    assert second.earlier()[0][0] == {"instances": 4}


def test_the_log_of_another_search_is_refused(tmp_path: Path) -> None:
    study.Search(SPACE, {"objective": 1, "machine": "a"}, tmp_path, 1)
    with pytest.raises(TrbError) as caught:
        study.Search(SPACE, {"objective": 2, "machine": "a"}, tmp_path, 1)
    assert caught.value.code is Code.USAGE
    assert "objective differs" in caught.value.message


def test_a_second_run_with_the_same_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    held = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        url = ("--url", "http://127.0.0.1:9")
        done = cli.call("tune", "--slo", "p99=50ms", *url, "--output", "out", cwd=tmp_path)
    finally:
        os.close(held)
    assert done.returncode == 5
    assert "another trb is changing this folder now; nothing was written [repository-busy]" in done.stderr

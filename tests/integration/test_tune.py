"""``trb tune`` on real servers: a model whose best setting is known, servers that die, wrong wishes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import serve_repository as made

from tests.support import cli, sleeper
from tests.support.servers import free
from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.capacity import capacities
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.options import TuneOptions
from triton_repo_builder.measure.tune import live, run
from triton_repo_builder.measure.tune.report import FAILED, Report
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, Urls

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

SLO = Objective(percentile="p99", ms=200)
QUICK = ("--slo", "p99=200ms", "--window", "300ms")
ONLY = ("--endpoint", "sleeper")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return sleeper.write(tmp_path)


def snapshot(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def opened(root: Path) -> live.Live:
    @contextmanager
    def start() -> Iterator[tuple[Urls, int | None]]:
        with serve.start(root, free()) as server:
            yield server.urls, server.pid

    return live.Live(start, repository.read(root), own=True)


def options(**changes: object) -> TuneOptions:
    options = TuneOptions(objective=SLO, window=0.3, budget=600, trials=5)
    return replace(options, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_two_instances_and_a_batch_of_eight_win_and_are_written(root: Path, tmp_path: Path) -> None:
    tuned = tmp_path / "tuned"
    config = root / "sleeper" / "config.pbtxt"
    (tmp_path / "trb.toml").write_text('[build]\nmodel = "m.onnx"\ninstances = 1\n')
    done = cli.call(
        "tune", root, *QUICK, "--trials", "8", "--output", tuned, "--write", "--rps", "1000", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tuned / "report.json").read_text())
    assert document["better"]
    assert (document["setting"]["instances"], document["setting"]["max batch"]) == (2, 8)
    assert document["setting"]["batching"] != "off"
    (default, *_), best = document["compared"], document["chosen"]
    won = next(each for each in document["compared"] if each["name"] == best)
    assert won["lowest"] > 4 * default["ratio"]
    # The report of a run is what trb plan reads, with the time of each batch size for its simulation.
    planned = capacities.read(tuned / "report.json", "m", SLO)
    assert max(planned, key=lambda each: each.per_second).service is not None
    for name in ("report.csv", "report.html", "front.png"):
        assert (tuned / name).stat().st_size > 500
    # Only what changed, with its reason; the rest of the file is the user's.
    text = config.read_text()
    assert "max_batch_size: 8\n" in text and "count: 2" in text and "dynamic_batching" in text
    assert "# Written by hand." in text and "# One is enough, we thought." in text
    assert text.count("# trb tune: ") == 3
    toml = (tmp_path / "trb.toml").read_text()
    assert 'model = "m.onnx"' in toml and "instances = 2" in toml and "max-batch-size = 8" in toml
    assert cli.call("check", root).returncode == 0


@pytest.mark.slow
def test_a_run_goes_on_where_the_last_one_ended(root: Path, tmp_path: Path) -> None:
    before = snapshot(root)
    first = run.tune(opened(root), options(trials=2, output=tmp_path / "tuned"))
    second = run.tune(opened(root), options(trials=3, output=tmp_path / "tuned"))
    assert [trial.name for trial in second.trials[: len(first.trials)]] == [
        trial.name for trial in first.trials
    ]
    assert second.trials[0] == first.trials[0]
    assert snapshot(root) == before
    with pytest.raises(TrbError) as caught:
        harder = Objective(percentile="p99", ms=100)
        run.tune(opened(root), options(output=tmp_path / "tuned", objective=harder))
    assert caught.value.code is Code.USAGE
    assert "objective" in caught.value.message


@pytest.mark.slow
def test_a_server_that_dies_in_a_trial_is_started_again(tmp_path: Path) -> None:
    root = sleeper.write(tmp_path, kills=2)
    report = run.tune(opened(root), options(trials=5, seed=5))
    failed = [trial for trial in report.trials if trial.status == FAILED]
    assert failed and all(trial.setting["instances"] == 2 for trial in failed)
    assert any("started again" in note for note in report.notes)
    after = [trial for trial in report.trials if trial.number > failed[0].number]
    assert any(trial.status != FAILED for trial in after)


@pytest.mark.slow
def test_a_server_behind_a_url_is_left_as_it_was(root: Path, tmp_path: Path) -> None:
    before = snapshot(root)
    with serve.start(root, free()) as server:
        http = HttpClient(server.urls.http)
        config = http.config("sleeper")
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        done = cli.call("tune", *url, *QUICK, "--trials", "3", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["trials"]) > 1
        assert http.config("sleeper").instance_groups[0].count == 1
        assert http.config("sleeper").max_batch_size == config.max_batch_size
        assert http.config("sleeper").dynamic_batching is None
    assert snapshot(root) == before


@pytest.mark.slow
def test_what_a_server_behind_a_url_has_not_loaded_is_not_proven(root: Path, tmp_path: Path) -> None:
    made.python(root, "apart")
    with serve.start(root, free("sleeper")) as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        done = cli.call(
            "tune", str(root), *url, *ONLY, *QUICK, "--trials", "2", "--write", "--json", cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        everything = cli.call("smoke", str(root), *url, cwd=tmp_path)
        assert "apart" in everything.stdout and everything.returncode == Code.FAILED_CHECKS.exit


@pytest.mark.slow
def test_an_objective_that_nothing_meets(root: Path) -> None:
    made.python(root, "another", made.RAISES)  # it is not loaded
    before = snapshot(root)
    done = cli.call(
        "tune", root, "--slo", "p99=5ms", "--window", "300ms", "--trials", "2", "--endpoint", "sleeper"
    )
    assert cli.kind(done.stderr) is Code.OBJECTIVE_UNMET
    assert snapshot(root) == before


def test_a_budget_that_is_too_small_says_what_is_enough(root: Path) -> None:
    done = cli.call("tune", root, *QUICK, "--budget", "3s")
    assert cli.kind(done.stderr) is Code.USAGE


@pytest.mark.slow
def test_a_repository_that_is_edited_meanwhile(root: Path) -> None:
    config = root / "sleeper" / "config.pbtxt"
    session = opened(root)

    def edit(text: str, done: int, total: int) -> None:
        if text.startswith("trial 2"):
            config.write_text(config.read_text() + "# edited\n")

    with pytest.raises(TrbError) as caught:
        run.tune(session, options(), edit)
    assert caught.value.code is Code.EDITED_FILE
    assert "config.pbtxt" in caught.value.message


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_learned(root: Path, tmp_path: Path) -> None:
    report: list[Report] = []

    def interrupt(text: str, done: int, total: int) -> None:
        if text.startswith("trial 3"):
            threading.Thread(target=lambda: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGINT))).start()

    report.append(run.tune(opened(root), options(output=tmp_path / "tuned"), interrupt))
    assert len(report[0].trials) == 2
    assert not report[0].better
    assert any("interrupted" in note for note in report[0].notes)
    assert (tmp_path / "tuned" / "study.log").stat().st_size > 0


@pytest.mark.slow
def test_the_matrix_has_the_published_rows(root: Path) -> None:
    config = root / "sleeper" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 32", "max_batch_size: 8"))
    done = cli.call("tune", root, *QUICK, "--matrix", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == ["base", "ig", "db", "ig-db"]
    base, ig, db, both = (row["per_minute"] for row in rows)
    assert base < ig < both
    assert base < db


def test_an_ensemble_keeps_its_tokenizer_and_answers(tmp_path: Path) -> None:
    """Batches of all models follow the main one, and the files that are written pass check and smoke."""
    root = tmp_path / "model_repository"
    shutil.copytree(Path(__file__).resolve().parents[2] / "model_repository", root)
    before = snapshot(root)
    session = opened(root)
    with session:
        subject = session.add("sentiment")
        space = run.factors.space(subject, 2)
        base = run.factors.default(space)
        assert {"instances", "threads", "batching", "max batch", "tokenizer instances"} == base.keys()
        for change in ({"max batch": 8}, {"max batch": 64, "batching": "off"}, {"tokenizer instances": 2}):
            session.apply({**base, **change}, base)
            assert session.http.ready("sentiment")
        assert session.http.config("sentiment_tokenizer").instance_groups[0].count == 2
        session.apply(base, base)
        assert session.http.config("sentiment_model").max_batch_size == 32
        assert session.http.config("sentiment_tokenizer").instance_groups[0].count == 1
    assert snapshot(root) == before

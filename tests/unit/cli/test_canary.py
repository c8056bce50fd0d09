"""Output of ``trb canary``, and the addresses that it works with."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import click
import pytest

from tests.support.cli import call, kind
from triton_repo_builder.base.errors import Code
from triton_repo_builder.cli import canary
from triton_repo_builder.cli.canary import CanaryServers
from triton_repo_builder.ship.canary import judge, sample, state
from triton_repo_builder.ship.canary.engine import Look
from triton_repo_builder.ship.canary.sample import Side, Traffic
from triton_repo_builder.ship.canary.state import State, StateFiles
from triton_repo_builder.ship.canary.traefik import DEFAULT, Traefik
from triton_repo_builder.ship.targets import canary_rules, export, routes
from triton_repo_builder.ship.targets.routes import Backend, Routes
from triton_repo_builder.ship.targets.spec import Rules
from triton_repo_builder.ship.vcs import git

GOLDEN = Path(__file__).resolve().parents[3] / "model_repository"
P99 = next(rule for rule in canary_rules.of(Rules()) if rule.name == "p99")


@pytest.fixture(autouse=True)
def outside_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "last_commit", lambda folder: "")


def deploy(folder: Path) -> Path:
    key = folder / "admin_key"
    key.write_text("a-key-of-the-administrative-apis\n")
    key.chmod(0o600)
    file = folder / "deploy.toml"
    file.write_text(f'name = "bert"\n[repository]\npath = "{GOLDEN}"\n[exposure]\nadmin_key = "{key}"\n')
    return file


def look(percent: int, slower: float = 1.0, note: str = "") -> Look:
    stable, canary_side = (Side(sample=sample.of([0.02 * times] * 200, 0)) for times in (1.0, slower))
    return Look(
        percent=percent,
        step=0,
        steps=3,
        seconds=12.0,
        traffic=Traffic(stable=stable, canary=canary_side),
        verdicts=(judge.latency(P99, judge.TRAFFIC, stable, canary_side),),
        note=note,
    )


def ended(result: str, **more: object) -> State:
    values = {
        "name": "bert",
        "deploy": "deploy.toml",
        "stable": "http://s:8000",
        "canary": "http://c:8000",
        "traefik": "http://t:8080",
        "steps": (10, 50, 100),
        "step": 1,
        "result": result,
        "history": (look(10).to_json(), look(50, 2.0).to_json()),
        **more,
    }
    return State(**values)  # type: ignore[arg-type]


def test_addresses(tmp_path: Path) -> None:
    deployment = export.read(deploy(tmp_path))
    servers = CanaryServers(stable="http://s:8000", canary="localhost:8100", gateway="http://g:9000/")
    with click.Context(canary.start):
        places = servers.places(deployment)
        assert places.servers.gateway == "http://g:9000"
        assert (places.routed_stable.http, places.routed_stable.grpc) == ("http://s:8000", "h2c://s:8001")
        assert places.routed_canary.http == places.servers.canary.http == "http://localhost:8100"
        inside = replace(servers, routed_canary="http://bert-canary:8000").places(deployment)
        assert (inside.routed_canary.http, inside.routed_canary.grpc) == (
            "http://bert-canary:8000",
            "h2c://bert-canary:8001",
        )
        assert inside.servers.canary.http == "http://localhost:8100"
        with pytest.raises(click.BadParameter):
            replace(servers, canary="ftp://x").places(deployment)


def test_lines_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    lines = canary._Lines()
    for each in (look(0), look(10), look(10), look(10, note="too little traffic"), look(10), look(50)):
        lines(each)
    assert capsys.readouterr().err.splitlines() == [
        "golden cases before any traffic",
        "10 % of the traffic",
        "  too little traffic",
        "50 % of the traffic",
    ]


def test_the_live_table_has_both_numbers() -> None:
    table = canary._table(look(10, 2.0))
    assert str(table.title).startswith("10 % to the canary · step 1 of 3 · 12 s · 200 requests")
    assert canary._row(look(10, 2.0).verdicts[0])[:2] == ("p99", "traffic")
    assert canary._row(look(10, 2.0).verdicts[0])[-1] == "broken"
    median = replace(look(10, 2.0).verdicts[0], quantile=0.5)
    assert canary._row(median)[0] == "p99 (median)"


def test_taken_back_names_the_rule_and_the_time() -> None:
    error = canary._taken_back(ended(state.BACK, reason="rule p99: slow", back_s=4.2, first_bad_s=1.3))
    assert error.code == Code.PROMOTE_FAILED
    assert error.message == (
        "taken back at 50 %: rule p99: slow\nall traffic was back at the stable server 4.2 s after the step "
        "began, 1.3 s after the first bad request was seen"
    )
    before = canary._taken_back(ended(state.BACK, history=(look(0).to_json(),), reason="r", back_s=0.1))
    assert before.message.endswith("it got no traffic")
    assert canary._taken_back(ended(state.ABORTED, back_s=1.0)).message.startswith("aborted at 50 %")


def test_status(tmp_path: Path) -> None:
    file = tmp_path / "routes.yml"
    files = StateFiles(routes=file)
    files.save(ended(state.BACK, reason="rule p99: slow"))
    shown = call("canary", "status", "--routes", file)
    assert shown.returncode == 0
    assert "bert: taken back; the canary has 0 % of the traffic\n  rule p99: slow\n" in shown.stdout
    assert "broken" in shown.stdout
    document = json.loads(call("canary", "status", "--routes", file, "--json").stdout)
    assert (document["result"], document["running"]) == ("taken back", False)
    assert "baseline" not in document
    files.save(replace(ended(state.RUNNING, history=()), weight=50, latest=look(50).to_json()))
    shown = call("canary", "status", "--routes", file)
    assert "50 % to http://c:8000, step 2 of 3, stopped" in shown.stdout
    assert "50 %" in shown.stdout.splitlines()[-2]
    assert "no process drives it" in shown.stderr
    with files.locked():
        assert json.loads(call("canary", "status", "--routes", file, "--json").stdout)["running"] is True


@pytest.mark.parametrize("command", ["status", "promote", "abort"])
def test_no_canary_here(tmp_path: Path, command: str) -> None:
    done = call("canary", command, "--routes", tmp_path / "routes.yml")
    assert kind(done.stderr) == Code.NOT_FOUND
    assert not list(tmp_path.glob("*.yml"))


def test_an_ended_canary_is_not_promoted(tmp_path: Path) -> None:
    file = tmp_path / "routes.yml"
    StateFiles(routes=file).save(ended(state.BACK, reason="rule p99: slow"))
    done = call("canary", "promote", "--routes", file)
    assert kind(done.stderr) == Code.USAGE
    assert "taken back (rule p99: slow)" in done.stderr


def test_bad_deploy_file_and_traefik(tmp_path: Path) -> None:
    servers = ("--stable", "http://127.0.0.1:9", "--canary", "http://127.0.0.1:19")
    missing = call("canary", "start", tmp_path / "deploy.toml", *servers)
    assert kind(missing.stderr) == Code.NOT_FOUND
    silent = call(
        "canary",
        "start",
        deploy(tmp_path),
        *servers,
        "--traefik",
        "http://127.0.0.1:9",
        "--routes",
        tmp_path / "routes.yml",
    )
    assert kind(silent.stderr) == Code.UNREACHABLE
    assert not (tmp_path / "routes.yml").exists()


def test_promoted_says_what_is_next(capsys: pytest.CaptureFixture[str]) -> None:
    servers = CanaryServers(stable="http://s:8000", canary="http://c:8000")
    canary._print_promoted(ended(state.PROMOTED, weight=100), servers, Path("deploy.toml"))
    told = capsys.readouterr().out
    assert "promoted: http://c:8000 has all the traffic" in told
    assert "10 %  12 s: stable 200 requests, 0 failed, p99" in told
    assert "--stable http://s:8000 --canary http://c:8000" in told
    assert "--traefik" not in told


def test_the_next_command_has_every_option(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is pasted into a shell, from the same folder."""
    servers = CanaryServers(
        stable="http://s:8000",
        canary="http://c:8000",
        traefik="http://t:8080",
        canary_grpc="c:9001",
        stable_metrics="http://s:9002/metrics",
        routed_canary="http://bert-canary:8000",
        gateway="http://g:9000",
        routes=tmp_path / "the routes.yml",
    )
    canary._print_promoted(ended(state.PROMOTED, weight=100), servers, Path("staging.toml"))
    told = capsys.readouterr().out
    finish = next(line for line in told.splitlines() if "canary finish" in line)
    assert shlex.split(finish) == [
        *("trb", "canary", "finish", "staging.toml"),
        *("--routes", str(servers.routes), "--stable", "http://s:8000", "--canary", "http://c:8000"),
        *("--traefik", "http://t:8080", "--canary-grpc", "c:9001"),
        *("--stable-metrics", "http://s:9002/metrics"),
    ]
    back = told.splitlines()[-1].removeprefix("or go back to it: ")
    assert shlex.split(back)[2:] == ["abort", "--routes", str(servers.routes), "--traefik", "http://t:8080"]


def test_finish_asks_the_traefik_of_the_start(tmp_path: Path) -> None:
    file = tmp_path / "routes.yml"
    StateFiles(routes=file).save(ended(state.PROMOTED, weight=100, traefik="http://127.0.0.1:9"))
    servers = ("--stable", "http://127.0.0.1:9", "--canary", "http://127.0.0.1:19", "--routes", file)
    done = call("canary", "finish", deploy(tmp_path), *servers)
    assert kind(done.stderr) == Code.UNREACHABLE
    assert done.stderr.startswith("error: http://127.0.0.1:9: Traefik")


SERVED = Routes(stable=(Backend(http="http://s:8000"),), body_limit=1 << 20, grpc=False)
HALF = replace(SERVED, canary=(Backend(http="http://c:8000"),), weight=50)


@pytest.mark.parametrize("result", [state.RUNNING, state.PROMOTED])
@pytest.mark.parametrize("content", [routes.text(HALF) + "# mine\n", "mine: {}\n", None])
def test_going_back_works_whatever_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str, content: str | None
) -> None:
    monkeypatch.setattr(Traefik, "follow", lambda self, target, new=False: None)
    file = tmp_path / "routes.yml"
    files = StateFiles(routes=file)
    files.save(ended(result, weight=50, routes=routes.text(SERVED), history=()))
    if content is not None:
        file.write_text(content)
        assert "edited" in call("canary", "status", "--routes", file).stderr or content == "mine: {}\n"
    done = call("canary", "abort", "--routes", file)
    assert done.returncode == 0, done.stderr
    assert file.read_text() == routes.text(SERVED)
    kept = tmp_path / "routes.yml.edited"
    assert (kept.read_text() if kept.exists() else None) == content
    assert (str(kept) in done.stderr) == (content is not None)
    stored = files.load()
    assert stored is not None
    assert (stored.result, stored.weight) == (state.ABORTED, 0)
    files.forget()
    if content and content.startswith("#"):  # without a state the comment says enough
        file.write_text(content)
        assert call("canary", "abort", "--routes", file).returncode == 0
        assert file.read_text() == routes.text(SERVED)


def test_going_back_is_written_although_traefik_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Traefik, "_follow", lambda self, target: "no answer")
    file = tmp_path / "routes.yml"
    file.write_text(routes.text(HALF))
    StateFiles(routes=file).save(ended(state.RUNNING, weight=50))
    done = call("canary", "abort", "--routes", file)
    assert kind(done.stderr) == Code.TIMED_OUT
    assert "the file sends all traffic to the stable server now" in done.stderr
    assert file.read_text() == routes.text(SERVED)


def test_status_compares_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "routes.yml"
    file.write_text(routes.text(SERVED))
    StateFiles(routes=file).save(ended(state.PROMOTED, weight=100))
    shown = call("canary", "status", "--routes", file)
    assert f"{file} sends 0 % to the canary, not 100 %: it was changed since" in shown.stderr
    assert (
        "not 100 %" in json.loads(call("canary", "status", "--routes", file, "--json").stdout)["routes_file"]
    )
    file.write_text(routes.text(replace(HALF, weight=100)))
    assert "it was changed" not in call("canary", "status", "--routes", file).stderr


def test_status_says_which_rows_are_of_an_interrupted_step(tmp_path: Path) -> None:
    file = tmp_path / "routes.yml"
    files = StateFiles(routes=file)
    latest = look(50, note="the canary is not ready").to_json()
    files.save(replace(ended(state.RUNNING, history=(look(10).to_json(),)), weight=50, latest=latest))
    shown = call("canary", "status", "--routes", file).stdout
    assert "50 %, interrupted" in shown
    assert "\n  the canary is not ready\n" in shown
    with files.locked():
        assert "50 %, now" in call("canary", "status", "--routes", file).stdout


def test_an_abort_blames_no_request() -> None:
    error = canary._taken_back(ended(state.ABORTED, back_s=1.0, first_bad_s=0.4))
    assert "bad request" not in error.message
    assert canary.TRAEFIK == DEFAULT

"""What ``trb canary`` prints, and the addresses that it works with."""

from __future__ import annotations

import json
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
from triton_repo_builder.ship.targets import canary_rules, export
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
    files.save(replace(ended(state.RUNNING), weight=50))
    shown = call("canary", "status", "--routes", file)
    assert "50 % to http://c:8000, step 2 of 3, stopped" in shown.stdout
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
    canary._print_promoted(ended(state.PROMOTED, weight=100), servers)
    told = capsys.readouterr().out
    assert "promoted: http://c:8000 has all the traffic" in told
    assert "10 %  12 s: stable 200 requests, 0 failed, p99" in told
    assert "trb canary finish --stable http://s:8000" in told

"""``trb canary`` with two real servers behind a real Traefik, under load over HTTP and gRPC."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import canaries, gateways, traffic
from tests.support.canaries import Stage
from tests.support.cli import ARGV, kind, process
from tests.support.serve_repository import until
from tests.support.servers import free
from triton_repo_builder.base.errors import Code
from triton_repo_builder.base.files import write as replaced
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import Body, HttpClient, NoAnswer
from triton_repo_builder.ship.canary.state import StateFiles
from triton_repo_builder.ship.targets import routes

pytestmark = [pytest.mark.gateway, pytest.mark.server, pytest.mark.traefik]


def start(tmp_path: Path, stage: Stage, *more: str, deploy: Path | None = None) -> Any:
    """The exit code and the JSON of ``trb canary start``."""
    done = process(tmp_path, *stage.arguments(deploy), "--json", *more)
    assert done.returncode in (0, int(Code.PROMOTE_FAILED.exit)), done.stderr
    return done.returncode, json.loads(done.stdout)


def answered_after(stage: Stage, load: canaries.Load) -> None:
    """Wait until every client got ten more answers."""
    before = dict(load.answered)
    until(lambda: all(load.answered[name] >= before.get(name, 0) + 10 for name in load.sent))


def test_a_good_version_is_promoted_and_no_request_is_lost(tmp_path: Path, stage: Stage) -> None:
    with canaries.load(stage.traefik) as load:
        code, result = start(tmp_path, stage)
        assert stage.traefik.weights() == {"stable": 0, "canary": 100}
        answered_after(stage, load)
        finished = process(tmp_path, "canary", "finish", str(stage.deploy), *stage.servers())
        assert finished.returncode == 0, finished.stderr
        answered_after(stage, load)
    assert (code, result["result"], result["reason"]) == (0, "promoted", "")
    assert load.failures == []
    assert load.answered == load.sent
    assert {name[:5] for name in load.answered} == {"_http", "_grpc"}
    assert [step["percent"] for step in result["history"]] == [0, 20, 50, 100]
    for step in result["history"][1:]:
        assert step["canary"]["requests"] >= 40
        assert step["canary"]["failures"] == step["stable"]["failures"] == 0
        # Ten times the requests is beyond any wobble of the balancer.
        assert step["percent"] == 100 or step["stable"]["requests"] > step["canary"]["requests"] / 10
    # Byte for byte as trb export wrote it.
    assert stage.file.read_text() == stage.exported
    assert not StateFiles(routes=stage.file).state.exists()


@pytest.mark.parametrize(
    ("behaviour", "rule"),
    [(canaries.FAILING, "failures"), (canaries.SLOW, "p99"), (canaries.OTHER, "labels")],
)
def test_a_bad_version_is_taken_back(tmp_path: Path, stage: Stage, behaviour: str, rule: str) -> None:
    stage.behaviour.write_text(behaviour)
    with canaries.load(stage.traefik) as load:
        code, result = start(tmp_path, stage)
        # Requests that were under way at the canary end; from then on the stable server answers all.
        answered_after(stage, load)
        failed = len(load.failures)
        answered_after(stage, load)
        assert len(load.failures) == failed
    assert (code, result["result"]) == (9, "taken back")
    assert f"rule {rule}" in result["reason"]
    assert load.lost() == []
    assert bool(load.failures) == (behaviour == canaries.FAILING)
    assert sum(load.answered.values()) + len(load.failures) == sum(load.sent.values())
    assert result["back_s"] > 0
    assert stage.file.read_text() == stage.exported
    assert stage.traefik.weights() == {"stable": 100}


def test_another_answer_is_seen_before_any_traffic(tmp_path: Path, stage: Stage) -> None:
    stage.behaviour.write_text(canaries.OTHER_GOLDEN)
    with canaries.load(stage.traefik) as load:
        code, result = start(tmp_path, stage)
    assert (code, result["result"]) == (9, "taken back")
    assert "rule answers (golden cases)" in result["reason"]
    assert "'odd', then 'even'" in result["reason"]
    assert [step["percent"] for step in result["history"]] == [0]
    assert load.failures == []


def test_without_traffic_it_neither_stalls_nor_passes_unseen(tmp_path: Path, stage: Stage) -> None:
    deploy = canaries.deploy(tmp_path, stage.canary_repository, requests=10, hold="1s")
    code, result = start(tmp_path, stage, deploy=deploy)
    assert (code, result["result"]) == (0, "promoted")
    assert all(step["golden_requests"] >= 10 for step in result["history"][1:])
    back = process(tmp_path, "canary", "abort", "--routes", str(stage.file))
    assert back.returncode == 0, back.stderr
    assert stage.file.read_text() == stage.exported


def test_interrupted_it_goes_on_and_a_second_one_is_refused(tmp_path: Path, stage: Stage) -> None:
    files = StateFiles(routes=stage.file)
    deploy = canaries.deploy(tmp_path, stage.canary_repository, requests=1_000_000, hold="1s")
    first = subprocess.Popen([*ARGV, *stage.arguments(deploy)], stderr=subprocess.PIPE, text=True)
    try:
        until(
            lambda: first.poll() is not None or (files.state.exists() and "canary" in stage.traefik.weights())
        )
        second = process(tmp_path, *stage.arguments(deploy))
        assert kind(second.stderr) == Code.REPOSITORY_BUSY
        shown = process(tmp_path, "canary", "status", "--routes", str(stage.file), "--json")
        assert json.loads(shown.stdout)["running"] is True
        first.send_signal(signal.SIGINT)
        _, told = first.communicate(timeout=60)
    finally:
        if first.poll() is None:
            first.kill()
    assert first.returncode == 130
    assert "go on with the same command" in told
    assert stage.traefik.weights() == {"stable": 80, "canary": 20}
    state = files.load()
    assert state is not None
    assert (state.step, state.weight, state.result) == (0, 20, "running")
    # The same command goes on with the step; another process ends it.
    again = subprocess.Popen([*ARGV, *stage.arguments(deploy)], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: again.poll() is not None or files.running())
        ended = process(tmp_path, "canary", "abort", "--routes", str(stage.file))
        assert ended.returncode == 0, ended.stderr
        _, told = again.communicate(timeout=60)
    finally:
        if again.poll() is None:
            again.kill()
    assert again.returncode == 9
    assert "golden cases before any traffic" not in told
    assert "aborted at 20 %" in told
    assert stage.file.read_text() == stage.exported


def test_promote_now(tmp_path: Path, stage: Stage) -> None:
    files = StateFiles(routes=stage.file)
    deploy = canaries.deploy(tmp_path, stage.canary_repository, requests=1_000_000, hold="1s")
    running = subprocess.Popen([*ARGV, *stage.arguments(deploy)], stdout=subprocess.PIPE, text=True)
    try:
        until(
            lambda: (
                running.poll() is not None or (files.state.exists() and "canary" in stage.traefik.weights())
            )
        )
        done = process(tmp_path, "canary", "promote", "--routes", str(stage.file))
        assert done.returncode == 0, done.stderr
        told, _ = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            running.kill()
    assert running.returncode == 0
    assert "trb canary finish" in told
    assert stage.traefik.weights() == {"stable": 0, "canary": 100}
    # A second canary must not begin while the first still has the traffic.
    refused = process(tmp_path, *stage.arguments())
    assert kind(refused.stderr) == Code.USAGE
    assert "trb canary finish" in refused.stderr


def test_bad_input(tmp_path: Path, stage: Stage) -> None:
    """Each is named before anything is written."""
    closed = "http://127.0.0.1:9"
    changed: dict[str, tuple[dict[str, str], Code, str]] = {
        "no server": ({"--canary": closed}, Code.UNREACHABLE, "the canary server"),
        "no stable server": ({"--stable": closed}, Code.UNREACHABLE, "the stable server"),
        "no Traefik": ({"--traefik": closed}, Code.UNREACHABLE, "Traefik's API does not answer"),
        "not Traefik's API": (
            {"--traefik": stage.stable.urls.http},
            Code.UNREACHABLE,
            "Traefik's API does not answer",
        ),
        "one server twice": (
            {"--canary": stage.stable.urls.http.replace("127.0.0.1", "localhost")},
            Code.USAGE,
            "is both the stable server and the canary",
        ),
        "one metrics page": (
            {"--canary-metrics": stage.stable.urls.metrics},
            Code.USAGE,
            "is both the stable server and the canary",
        ),
        "no metrics": ({"--canary-metrics": f"{closed}/metrics"}, Code.UNREACHABLE, "has no metrics"),
        "no URL": ({"--canary": "ftp://x"}, Code.USAGE, "is not a URL"),
    }
    for name, (options, code, words) in changed.items():
        arguments = stage.arguments()
        for option, value in options.items():
            arguments[arguments.index(option) + 1] = value
        done = process(tmp_path, *arguments)
        assert kind(done.stderr) == code, (name, done.stderr)
        assert words in done.stderr, name
        assert stage.file.read_text() == stage.exported
        assert not StateFiles(routes=stage.file).state.exists()


def test_routes_files_of_others(tmp_path: Path, stage: Stage) -> None:
    for content, code in (
        ("http: {}\n", Code.OUTPUT_FOREIGN),
        (stage.exported + "# mine\n", Code.EDITED_FILE),
    ):
        stage.file.write_text(content)
        done = process(tmp_path, *stage.arguments())
        assert kind(done.stderr) == code
        assert stage.file.read_text() == content


def test_a_routes_file_that_is_not_there_yet(tmp_path: Path, stage: Stage) -> None:
    stage.behaviour.write_text(canaries.OTHER_GOLDEN)
    stage.file.unlink()
    code, result = start(tmp_path, stage)
    assert (code, result["result"]) == (9, "taken back")
    written = routes.read(stage.file.read_text(), "")
    assert (written.stable, written.canary) == ((canaries.backend(stage.stable),), ())


def test_a_stable_server_that_traefik_does_not_reach(tmp_path: Path, stage: Stage) -> None:
    """Its health check sends everything to the canary, which must not pass for lack of a comparison."""
    nowhere = routes.Backend(http="http://127.0.0.1:9", grpc="h2c://127.0.0.1:9")
    shared = replace(routes.read(stage.exported, ""), stable=(nowhere,))
    replaced(stage.file, routes.text(shared).encode())
    until(lambda: stage.traefik.service("stable").get("serverStatus") == {nowhere.http: "DOWN"})
    deploy = canaries.deploy(tmp_path, stage.canary_repository, requests=10, hold="1s", timeout="15s")
    with canaries.load(stage.traefik):
        done = process(tmp_path, *stage.arguments(deploy))
    assert kind(done.stderr) == Code.UNREACHABLE, done.stderr
    assert "Traefik reaches no stable server: http://127.0.0.1:9" in done.stderr
    assert stage.traefik.weights() == {"stable": 80, "canary": 20}


def test_golden_cases_are_no_texts_of_clients(tmp_path: Path, stage: Stage) -> None:
    """The same version, of whose texts most are golden cases: clients send too few."""
    deploy = canaries.deploy(tmp_path, stage.canary_repository, requests=60, hold="4s")
    with canaries.load(stage.traefik, over_http=1, over_grpc=0):
        code, result = start(tmp_path, stage, deploy=deploy)
    assert (code, result["result"], result["reason"]) == (0, "promoted", "")
    first = result["history"][1]
    assert first["golden_requests"] > first["canary"]["requests"]
    labels = next(rule for rule in first["rules"] if rule["rule"] == "labels")
    assert labels["requests"] <= first["canary"]["requests"]


def test_a_traefik_that_reads_another_file(tmp_path: Path, stage: Stage) -> None:
    """The weight is looked up in Traefik itself; the file is put back."""
    other = tmp_path / "routes.yml"
    other.write_text(stage.exported)
    arguments = stage.arguments()
    arguments[arguments.index("--routes") + 1] = str(other)
    done = process(tmp_path, *arguments)
    assert kind(done.stderr) == Code.TIMED_OUT
    assert "did not follow the file" in done.stderr
    assert other.read_text() == stage.exported


def test_other_endpoints(tmp_path: Path, stage: Stage) -> None:
    repository = canaries.repository(tmp_path, tmp_path / "behaviour", "another")
    done = process(tmp_path, *stage.arguments(canaries.deploy(tmp_path, repository)))
    assert kind(done.stderr) == Code.USAGE
    assert "serves none of the endpoints" in done.stderr


def test_commands_without_a_canary(tmp_path: Path, stage: Stage) -> None:
    for command in ("status", "promote", "abort"):
        done = process(tmp_path, "canary", command, "--routes", str(stage.file))
        assert kind(done.stderr) == Code.NOT_FOUND, command
    # Weights without a state: abort needs the routes file alone.
    shared = routes.read(stage.exported, "")
    split = routes.Routes(
        stable=shared.stable,
        canary=(canaries.backend(stage.canary),),
        weight=50,
        ready=shared.ready,
        body_limit=shared.body_limit,
    )
    stage.file.write_text(routes.text(split))
    until(lambda: stage.traefik.weights() == {"stable": 50, "canary": 50})
    refused = process(tmp_path, *stage.arguments())
    assert "of which there is no state" in refused.stderr
    back = process(tmp_path, "canary", "abort", "--routes", str(stage.file), "--traefik", stage.traefik.api)
    assert back.returncode == 0, back.stderr
    assert stage.file.read_text() == stage.exported


def test_shadow_of_the_gateway_counts(tmp_path: Path, stage: Stage) -> None:
    """The gateway asks the canary again what the stable server has answered; nothing goes through Traefik."""
    stage.behaviour.write_text(canaries.OTHER)
    arguments = ("--shadow", stage.canary.urls.grpc, "--share", "100%")
    with gateways.running(tmp_path / "gateway", stage.stable.urls.grpc, *arguments) as url:
        starting = subprocess.Popen(
            [*ARGV, *stage.arguments(), "--gateway", url, "--json"], stdout=subprocess.PIPE, text=True
        )
        try:
            for text in canaries.texts():
                if starting.poll() is not None:
                    break
                httpx.post(f"{url}/predict", json={"inputs": text}, timeout=30).raise_for_status()
            told, _ = starting.communicate(timeout=60)
        finally:
            if starting.poll() is None:
                starting.kill()
    result = json.loads(told)
    assert (starting.returncode, result["result"]) == (9, "taken back")
    rules = {(rule["rule"], rule["source"]): rule for rule in result["history"][-1]["rules"]}
    shadow = rules["answers", "shadow"]
    assert shadow["value"] == pytest.approx(0.5, abs=0.2)
    assert shadow["state"] == "broken" or rules["labels", "traffic"]["state"] == "broken"


def test_forms_and_large_requests(stage: Stage) -> None:
    """A form of 5 MB ends a server of 24.10 that gets it as a form; the proxy refuses larger bodies."""
    client = HttpClient(stage.traefik.http, 60)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    within = client.send(
        "POST", f"/v2/models/{canaries.ENDPOINT}/infer", Body(data=b"x" * (5 << 20), headers=form)
    )
    assert within.status in (400, 500)
    assert HttpClient(stage.stable.urls.http).ready()
    with pytest.raises(NoAnswer):  # Traefik answers 413 and closes while the body is still being sent
        answer = client.send(
            "POST", f"/v2/models/{canaries.ENDPOINT}/infer", Body(data=b"x" * (20 << 20), headers=form)
        )
        assert answer.status == 413
        raise NoAnswer("413")


@pytest.mark.slow
def test_a_canary_that_is_killed(tmp_path: Path, stage: Stage) -> None:
    """Lost are only requests that were under way at it, at most one a client."""
    behaviour = tmp_path / "behaviour"
    repository = canaries.repository(tmp_path / "dies", behaviour)
    deploy = canaries.deploy(tmp_path, repository, requests=1_000_000, hold="1s")
    with serve.start(repository, free()) as dying, canaries.load(stage.traefik) as load:
        arguments = stage.arguments(deploy)
        for option, value in (
            ("--canary", dying.urls.http),
            ("--canary-grpc", dying.urls.grpc),
            ("--canary-metrics", dying.urls.metrics),
        ):
            arguments[arguments.index(option) + 1] = value
        running = subprocess.Popen([*ARGV, *arguments, "--json"], stdout=subprocess.PIPE, text=True)
        try:
            until(lambda: running.poll() is not None or "canary" in stage.traefik.weights())
            answered_after(stage, load)
            os.kill(dying.pid, signal.SIGKILL)
            told, _ = running.communicate(timeout=200)
        finally:
            if running.poll() is None:
                running.kill()
        answered_after(stage, load)
    result = json.loads(told)
    assert (running.returncode, result["result"]) == (9, "taken back")
    assert stage.file.read_text() == stage.exported
    assert len(load.failures) <= 6, load.failures


def test_an_endpoint_that_trb_built(tmp_path: Path) -> None:
    """Golden cases of the build, the metrics of its models, and traffic of real texts."""
    repository = gateways.repository(tmp_path / "built", only=("sentiment",))
    with canaries.proxied(tmp_path, repository, repository, "sentiment") as stage:
        deploy = canaries.deploy(tmp_path, repository, requests=60)
        with ThreadPoolExecutor(1) as pool:
            running = subprocess.Popen(
                [*ARGV, *stage.arguments(deploy), "--json"], stdout=subprocess.PIPE, text=True
            )
            while running.poll() is None:
                pool.submit(traffic.send, stage.traefik.http, repository, 1.0, clients=2, pause=0.02).result()
        told, _ = running.communicate(timeout=60)
    result = json.loads(told)
    assert (running.returncode, result["result"], result["reason"]) == (0, "promoted", "")
    for step in result["history"][1:]:
        rules = {(rule["rule"], rule["source"]): rule for rule in step["rules"]}
        assert rules["labels", "traffic"]["requests"] > 0
        assert rules["answers", "golden cases"]["requests"] > 0

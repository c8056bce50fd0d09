"""``trb serve URL --follow``: a new revision is taken up once it is proven, another one is refused."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
import two_versions

from tests.support import altered, s3_server
from tests.support import serve_repository as made
from tests.support.cli import call, kind, trb
from triton_repo_builder.base.errors import Code
from triton_repo_builder.run.client import HttpClient

PATIENCE = 300
"""Seconds for one revision, on a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.running(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.use(monkeypatch)


def wrong_answers(repository: Path) -> None:
    """Golden cases that the model does not give, as if the weights were another model's."""
    file = repository / "sentiment" / "smoke.json"
    document = json.loads(file.read_text())
    for case in document["cases"]:
        for output in case["outputs"]:
            if output["name"] == "scores":
                output["data"] = [number + 0.25 for number in output["data"]]
    altered.record(repository, "sentiment/smoke.json", json.dumps(document).encode())
    altered.seal(repository, "sentiment", 1)


@pytest.mark.server
@pytest.mark.slow
def test_each_revision_is_taken_up_once_it_is_proven(tmp_path: Path, address: str) -> None:
    first, second = two_versions.make(tmp_path)
    one, two, bad = (tmp_path / name / "model_repository" for name in ("r1", "r2", "r3"))
    tiny.put(first, one, golden=True)
    tiny.put(second, two, golden=True)
    tiny.put(tiny.tensor_model(tmp_path / "net.onnx"), two, golden=True)
    shutil.copytree(one, bad)
    wrong_answers(bad)
    where = f"s3://{address}/{s3_server.BUCKET}/follow"
    trb("push", where, one)
    with made.serve(tmp_path, where, "--engine=embedded", "--json", "--follow", "--interval=1") as running:
        running.ready()
        client = HttpClient(running.http)
        first_content = client.config("sentiment").parameters["trb.content"]
        assert not client.ready("net")

        trb("push", where, two)
        made.until(lambda: running.err.read_text().count("proven by trb smoke") == 1, PATIENCE)
        assert client.ready("net")
        second_content = client.config("sentiment").parameters["trb.content"]
        assert second_content != first_content

        trb("push", where, bad, "--force")
        made.until(lambda: "still serves" in running.err.read_text(), PATIENCE)
        assert client.config("sentiment").parameters["trb.content"] == second_content
        assert "[apply-failed]" not in running.err.read_text()  # said, not raised: the server goes on

        trb("push", where, one)
        made.until(lambda: running.err.read_text().count("proven by trb smoke") == 2, PATIENCE)
        assert client.config("sentiment").parameters["trb.content"] == first_content
        assert "net" not in client.ready_models()
        assert running.err.read_text().count("still serves") == 1
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("model_repository", "--follow"),
        ("s3://models/a@sha256:" + "ab" * 32, "--follow"),
        ("s3://models/a", "--follow", "--load", "b"),
        ("s3://models/a", "--follow", "--engine", "docker"),
    ],
)
def test_what_cannot_be_followed_is_refused(arguments: tuple[str, ...]) -> None:
    assert call("serve", *arguments).returncode == Code.USAGE.exit


def test_nothing_to_follow(address: str) -> None:
    done = call("serve", f"s3://{address}/{s3_server.BUCKET}/empty", "--follow", "--engine", "embedded")
    assert kind(done.stderr) == Code.NOT_PUSHED


@pytest.mark.server
@pytest.mark.slow
def test_old_revisions_may_go_while_a_server_follows(tmp_path: Path, address: str) -> None:
    """All but the current and the previous one are pruned, whatever the server is doing with them."""
    where = f"s3://{address}/{s3_server.BUCKET}/pruned"
    net = tiny.tensor_model(tmp_path / "net.onnx")
    revisions = []
    for number, source in enumerate(2 * two_versions.make(tmp_path)):
        revisions.append(tmp_path / f"r{number}" / "model_repository")
        tiny.put(source, revisions[-1], golden=True)
        if number >= 2:
            tiny.put(net, revisions[-1], golden=True)
    trb("push", where, revisions[0])
    with made.serve(tmp_path, where, "--engine=embedded", "--json", "--follow", "--interval=1") as running:
        urls = running.ready()["urls"]
        client = HttpClient(running.http)
        for revision in revisions[1:]:
            trb("push", where, revision)
            trb("push", where, "--prune", "--keep", "1")
            assert client.ready("sentiment")
        made.until(lambda: call("verify", where, "--url", urls["http"]).returncode == 0, PATIENCE)
        assert "Traceback" not in running.err.read_text()
        smoke = call("smoke", revisions[-1], "--url", urls["http"], "--grpc-url", urls["grpc"])
        assert smoke.returncode == 0, smoke.stdout
    assert len(json.loads(trb("push", where, "--list", "--json"))["revisions"]) == 2

"""Weights that were altered together with their record: nothing is loaded, by whichever command."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import tiny
import two_versions

from tests.support import altered, cli
from tests.support.altered import record, seal
from tests.support.servers import free
from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal.record import NAME
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.ship.container_image.build import _labels
from triton_repo_builder.ship.container_image.context import ImageRequest
from triton_repo_builder.ship.deploy import apply, promote
from triton_repo_builder.ship.options import ApplyOptions

PROGRAM = b"""
import pathlib
pathlib.Path({marker!r}).touch()
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_versions.make(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def built(sources: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 served, version 2 beside it."""
    output = tmp_path_factory.mktemp("built") / "model_repository"
    tiny.put(sources[0], output, golden=True, instances=1)
    cli.trb("build", "--model", sources[1], "--output", output, "--instances", "1", "--version", "next")
    return output


@pytest.fixture
def repo(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "model_repository"))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def tamper(repo: Path, marker: Path, version: int = 1) -> None:
    """The code of the tokenizer, which leaves a marker where it runs, and its record."""
    path = f"sentiment_tokenizer/{version}/model.py"
    data = PROGRAM.replace(b"{marker!r}", repr(str(marker)).encode()) + (repo / path).read_bytes()
    record(repo, path, data)


def kind(*arguments: str | Path) -> Code:
    return cli.kind(cli.call(*arguments).stderr)


def test_what_is_sealed_anew_is_whole(repo: Path, marker: Path) -> None:
    """The helper of these tests: without the digest's disagreement nothing is noticed."""
    tamper(repo, marker)
    assert cli.call("check", repo).returncode == 1
    seal(repo, "sentiment", 1)
    assert cli.call("check", repo).returncode == 0


def test_who_ships_or_reports_says_so(repo: Path, marker: Path) -> None:
    tamper(repo, marker)
    assert cli.call("check", repo).returncode == 1
    assert kind("push", "oci://127.0.0.1:9/models/a:1", repo) is Code.FAILED_CHECKS
    assert kind("serve", repo, "--verify") is Code.DIGEST_MISMATCH
    with pytest.raises(TrbError) as caught:
        _labels(ImageRequest(tag="x", repository=repo))
    assert caught.value.code is Code.DIGEST_MISMATCH
    done = cli.call("provenance", repo)
    assert (done.returncode, "several content digests" in done.stdout) == (1, True)


@pytest.mark.parametrize("what", ["record", "manifest", "config"])
def test_promote_and_rollback_refuse_it(repo: Path, marker: Path, what: str) -> None:
    if what == "record":
        tamper(repo, marker, 2)
    elif what == "config":
        path = "sentiment/2/shared/config.pbtxt"
        data = (repo / path).read_bytes()
        record(repo, path, data.replace(b"trb.content", b"trb.other", 1))
    else:
        text = (repo / "manifest.json").read_text()
        digest = repository.read(repo).manifest.endpoints["sentiment"].versions[2].content  # type: ignore[union-attr]
        (repo / "manifest.json").write_text(text.replace(digest, hashlib.sha256(b"x").hexdigest()))
    before = tiny.tree(repo)
    assert kind("promote", "sentiment", repo, "--version", "2") is Code.PROMOTE_FAILED
    assert tiny.tree(repo) == before
    done = cli.call("promote", "sentiment", repo, "--version", "2", "--force")
    assert (done.returncode, "accepted (--force)" in done.stderr) == (0, True)
    assert cli.call("rollback", "sentiment", repo).returncode == 0
    assert kind("rollback", "sentiment", repo) is Code.PROMOTE_FAILED


def test_a_damaged_version_is_no_way_back(repo: Path, marker: Path) -> None:
    """Offline: the version that was served is altered, the new one is not."""
    done = cli.trb("promote", "sentiment", repo, "--version", "2")
    assert "one 'trb rollback sentiment' away" in done
    cli.trb("rollback", "sentiment", repo)
    for tampered in (repo / "sentiment_model" / "1" / "model.onnx",):
        data = tampered.read_bytes()
        tampered.unlink()
        tampered.write_bytes(data[:-1] + b"x")
    done = cli.trb("promote", "sentiment", repo, "--version", "2")
    assert "away" not in done
    assert "sentiment_model/1/model.onnx was changed" in done
    assert kind("rollback", "sentiment", repo) is Code.PROMOTE_FAILED


def test_the_version_that_is_served_is_proven_as_well(repo: Path, marker: Path) -> None:
    tamper(repo, marker)
    with pytest.raises(TrbError) as caught:
        promote.plan(repo, "sentiment", 1)
    assert caught.value.code is Code.PROMOTE_FAILED


@pytest.mark.server
def test_a_server_runs_nothing_of_it(sources: tuple[Path, Path], tmp_path: Path, marker: Path) -> None:
    root, other = tmp_path / "served" / "model_repository", tmp_path / "other"
    tiny.put(sources[0], root, golden=True, instances=1)
    tiny.put(sources[1], other, golden=True, instances=1)
    tamper(other, marker)
    before = tiny.tree(root)
    with serve.start(root, free(), engine="embedded") as server:
        address = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        for options in ((), ("--no-preflight",), ("--force", "--no-preflight"), ("--dry-run",)):
            assert kind("apply", other, *address, *options) is Code.DIGEST_MISMATCH
        # As --follow does it.
        with pytest.raises(TrbError) as caught:
            options = ApplyOptions(force=True, preflight=False)
            apply.run(other, root, server.urls, options, lambda text: None)
        assert caught.value.code is Code.DIGEST_MISMATCH
        assert not marker.exists()
        assert {path: sha for path, sha in tiny.tree(root).items() if "__pycache__" not in path} == before
        assert HttpClient(server.urls.http).ready("sentiment")

        # verify and provenance agree on what they find.
        assert cli.call("verify", root, "--url", server.urls.http).returncode == 0
        assert cli.call("provenance", root).returncode == 0
        altered.record(root, "sentiment_model/1/model.onnx", b"other weights")
        verified = cli.call("verify", root, "--url", server.urls.http)
        stated = cli.call("provenance", root)
        both = cli.call("provenance", root, "--url", server.urls.http)
        assert [done.returncode for done in (verified, stated, both)] == [1, 1, 1]
        said = "version 1 has several content digests"
        assert all(said in done.stdout for done in (verified, stated, both))


@pytest.mark.server
@pytest.mark.slow
def test_an_apply_killed_between_two_endpoints_is_not_shipped(
    sources: tuple[Path, Path], tmp_path: Path
) -> None:
    root, other = tmp_path / "served" / "model_repository", tmp_path / "other"
    tiny.put(sources[0], root, golden=True, instances=1)
    shutil.copytree(root, other)
    for name in ("first", "second"):
        tiny.put(tiny.tensor_model(tmp_path / f"{name}.onnx"), other, golden=True, instances=1)
    with serve.start(root, free(), engine="embedded") as server:
        address = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        argv = [*cli.ARGV, "apply", str(other), *address, "--no-preflight"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as killed:
            assert killed.stderr is not None
            for line in killed.stderr:
                if line.strip().startswith("second: load"):
                    break
            killed.send_signal(signal.SIGSTOP)
            busy = kind("push", "oci://127.0.0.1:9/models/a:1", root)
            killed.send_signal(signal.SIGKILL)
        assert busy is Code.REPOSITORY_BUSY
        assert (root / "first").is_dir()
        for command in (("commit", "-m", "Deploy"), ("push", "oci://127.0.0.1:9/models/a:1")):
            assert kind(command[0], *command[1:], root) is Code.APPLY_FAILED
        # The endpoint that the mark names is not part of the next change, and is whole all the same.
        assert cli.call("apply", other, *address, "--no-preflight").returncode == 0
        assert cli.call("check", root).returncode == 0
        assert kind("push", "oci://127.0.0.1:9/models/a:1", root) is Code.STORAGE_UNREACHABLE
        assert not [*root.parent.glob(f"*/{NAME}")]

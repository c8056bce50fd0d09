"""``trb apply`` of revisions that share tokenizers, rename endpoints, are a commit or lie in a bucket."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import tiny
import two_versions

from tests.integration.test_apply import address, apply, contents, serve
from tests.integration.test_promote import served
from tests.support import cli, s3_server
from triton_repo_builder.base.errors import Code

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def revisions(folder: Path) -> Path:
    """One: a and b share a tokenizer; two: a has another; three: b, too; four: a is called c."""
    old, new = two_versions.make(folder)
    for revision, endpoints in {
        "one": {"a": old, "b": old},
        "two": {"a": new, "b": old},
        "three": {"a": new, "b": new},
        "four": {"c": new, "b": new},
    }.items():
        for name, model in endpoints.items():
            options = {"name": name, "golden": True, "instances": 1, "share_tokenizer": True}
            tiny.put(model, folder / "revisions" / revision, **options)
    return folder / "revisions"


def tokenizers(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("tokenizer_")}


@pytest.mark.slow
def test_a_shared_tokenizer_stays_as_long_as_it_is_used(revisions: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(revisions / "one", tmp_path / "served"))
    with serve(root) as server:
        (first,) = tokenizers(served(server).keys())
        code, result, endpoints = apply(revisions / "two", server, "--no-preflight")
        assert (code, endpoints["b"]["action"]) == (0, "nothing")
        assert contents(root) == contents(revisions / "two")
        both = tokenizers(served(server).keys())
        assert first in both
        assert len(both) == 2

        assert apply(revisions / "three", server, "--no-preflight")[0] == 0
        assert contents(root) == contents(revisions / "three")
        assert tokenizers(served(server).keys()) == both - {first}
        assert not (root / first).exists()

        # The same content under another name.
        code, _, endpoints = apply(revisions / "four", server, "--no-preflight")
        assert (code, endpoints["a"]["action"], endpoints["c"]["action"]) == (0, "unload", "load")
        assert contents(root) == contents(revisions / "four")
        assert {"b", "c"} <= served(server).keys()
        assert not {"a", "a_model"} & served(server).keys()
        assert cli.call("verify", revisions / "four", "--url", server.urls.http).returncode == 0
        smoke = cli.call("smoke", root, *address(server), "--clients", "2", "--requests", "2")
        assert smoke.returncode == 0, smoke.stdout
        code, result, _ = apply(revisions / "four", server)
        assert (code, result["loads"], result["drift"]) == (0, 0, False)


@pytest.mark.slow
def test_a_commit_and_a_push_are_revisions(
    revisions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A User")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "user@example.org")
    s3_server.use(monkeypatch)
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    repo = Path(shutil.copytree(revisions / "two", work / "model_repository"))
    committed = cli.call("commit", repo, "-m", "two", "--weights", "git")
    assert committed.returncode == 0, committed.stderr
    root = Path(shutil.copytree(revisions / "one", tmp_path / "served"))
    with s3_server.running(tmp_path) as bucket, serve(root) as server:
        url = f"s3://{bucket}/{s3_server.BUCKET}/shared"
        assert cli.call("push", url, revisions / "four").returncode == 0
        for revision, wanted in (("HEAD", "two"), (url, "four")):
            done = cli.call("apply", revision, *address(server), "--no-preflight", cwd=work)
            assert done.returncode == 0, done.stderr
            assert contents(root) == contents(revisions / wanted)
            again = cli.call("apply", revision, *address(server), "--dry-run", cwd=work)
            assert again.returncode == 0, again.stdout
            verified = cli.call("verify", revision, "--url", server.urls.http, cwd=work)
            assert verified.returncode == 0, verified.stdout


def test_a_branch_is_followed_in_a_clone_without_files(
    revisions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/gitops.md, "As a controller": a turn of its loop per commit, and its CronJob's clone."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A User")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "user@example.org")

    def git(folder: Path, *words: str) -> None:
        subprocess.run(["git", "-C", str(folder), *words], check=True)

    work, clone, fresh = (tmp_path / name for name in ("work", "clone", "fresh"))
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    repo = Path(shutil.copytree(revisions / "one", work / "model_repository"))
    assert cli.call("commit", repo, "-m", "one", "--weights", "git").returncode == 0
    git(tmp_path, "clone", "--quiet", "--no-checkout", str(work), str(clone))
    shutil.rmtree(repo)
    shutil.copytree(revisions / "two", repo)
    committed = cli.call("commit", repo, "-m", "two", "--weights", "git")
    assert committed.returncode == 0, committed.stderr
    root = Path(shutil.copytree(revisions / "one", tmp_path / "served"))
    with serve(root) as server:
        git(clone, "fetch", "--quiet", "origin")
        done = cli.call("apply", "origin/main", *address(server), "--no-preflight", cwd=clone)
        assert done.returncode == 0, done.stderr
        assert contents(root) == contents(revisions / "two")
        git(tmp_path, "clone", "--quiet", "--no-checkout", "--depth", "1", f"file://{work}", str(fresh))
        done = cli.call("apply", "HEAD", *address(server), "--to", root, cwd=fresh)
        assert (done.returncode, "already" in done.stdout) == (0, True), done.stderr
        edited = next(repo.glob("tokenizer_*/1/model.py"))
        edited.write_text(f"{edited.read_text()}# edited\n")
        git(work, "commit", "-q", "-a", "-m", "by hand")
        git(clone, "fetch", "--quiet", "origin")
        done = cli.call("apply", "origin/main", *address(server), cwd=clone)
        assert cli.kind(done.stderr) is Code.DIGEST_MISMATCH and done.returncode == 10
        assert contents(root) == contents(revisions / "two")

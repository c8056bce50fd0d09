"""A revision by its name: a folder, a commit with git-lfs or external weights, a pushed revision on S3."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny

from tests.support import s3_server
from tests.support.cli import trb
from triton_repo_builder import repository
from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.deploy import revision
from triton_repo_builder.ship.deploy.expected import expected
from triton_repo_builder.ship.deploy.revision import Revision

NAME = "model_repository"
MODEL = "sentiment_model/1/weights.onnx"


def git(folder: Path, *arguments: str) -> str:
    return process.run(["git", "-C", str(folder), *arguments]).rstrip("\n")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    tiny.put(tiny.classifier(folder / "sentiment"), folder / NAME)
    return folder / NAME


@pytest.fixture
def project(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a committed model repository, and the current folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@example.org\n")
    project = tmp_path / "project"
    shutil.copytree(built, project / NAME)
    git(project, "init", "-q", "-b", "main")
    monkeypatch.chdir(project)
    return project


def deploy(folder: str) -> None:
    trb("commit", folder, "-m", "Deploy", "--weights", "git")


def contents(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".git"))
    return {path.relative_to(folder).as_posix(): files.hash_file(path) for path in found}


def is_whole(spec: str, built: Path) -> Revision:
    """The revision has every file that was built, and its temporary folder is gone afterwards."""
    with revision.opened(spec, weights=True) as found:
        assert {**contents(found.path), "manifest.json": ""} == {**contents(built), "manifest.json": ""}
        assert repository.read(found.path).manifest is not None
    assert not found.path.exists()
    return found


def is_small(spec: str, built: Path) -> Revision:
    """Without weights, whose digests are known all the same."""
    with revision.opened(spec, weights=False) as found:
        read = repository.read(found.path)
        assert read.manifest is not None and read.models[0].text
        assert [model.versions for model in read.models] == [
            m.versions for m in repository.read(built).models
        ]
        assert not (found.path / MODEL).exists()
        assert not list(found.path.rglob("*.so"))
    assert not found.path.exists()
    return found


def refuses(spec: str, code: Code, *, weights: bool = False) -> TrbError:
    with pytest.raises(TrbError) as caught, revision.opened(spec, weights=weights):
        pass
    assert (caught.value.code, bool(caught.value.remedy)) == (code, True), caught.value
    assert "trb-revision-" not in str(caught.value)
    return caught.value


def test_a_folder_is_itself(built: Path) -> None:
    with revision.opened(str(built), weights=True) as found:
        assert (found.path, found.name, found.digest) == (built, str(built), "")
        assert found.sha256(MODEL) == files.hash_file(built / MODEL)
    assert built.exists()


def test_altered_files_are_refused_where_every_file_is_needed(project: Path) -> None:
    file = project / NAME / MODEL
    file.write_bytes(b"x" * file.stat().st_size)
    assert MODEL in refuses(NAME, Code.DIGEST_MISMATCH, weights=True).message
    with revision.opened(NAME, weights=False):
        pass


@pytest.mark.parametrize("weights", [pytest.param("lfs", marks=pytest.mark.lfs), "git", "external"])
def test_a_commit(project: Path, built: Path, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = ("--weights-url", (project.parent / "store").as_uri()) if weights == "external" else ()
    trb("commit", NAME, "-m", "Deploy", "--weights", weights, *url)
    commit = git(project, "rev-parse", "HEAD")
    shutil.rmtree(project / NAME)
    found = is_whole("HEAD", built)
    assert (found.commit, found.name) == (commit, f"{commit[:12]}:{NAME}")
    assert is_whole(f"main:{NAME}/", built).commit == commit
    assert is_small(commit[:10], built).commit == commit
    assert git(project, "status", "--porcelain").strip().splitlines()[0].startswith("D ")
    (project / "folder").mkdir()
    monkeypatch.chdir(project / "folder")
    assert is_whole(f"HEAD:../{NAME}", built).commit == commit


@pytest.mark.lfs
def test_pointers_of_git_lfs_have_the_digest(project: Path, built: Path) -> None:
    trb("commit", NAME, "-m", "Deploy", "--weights", "lfs")
    (library,) = [name for name in git(project, "lfs", "ls-files", "-n").splitlines() if name.endswith(".so")]
    name = library.removeprefix(f"{NAME}/")
    found = is_small("HEAD", built)
    assert found.sha256(name) == files.hash_file(built / name)


def test_a_commit_made_by_hand_has_the_digests_that_it_has(project: Path, built: Path) -> None:
    deploy(NAME)
    code, gone = "sentiment_tokenizer/1/model.py", "sentiment_tokenizer/1/long_texts.py"
    for name in (MODEL, code):
        content = (project / NAME / name).read_bytes()
        (project / NAME / name).unlink()  # it may be linked to the built one
        (project / NAME / name).write_bytes(content + b"#")
    (project / NAME / gone).unlink()
    git(project, "commit", "-q", "-a", "-m", "By hand")
    with revision.opened("HEAD", weights=False) as found:
        for name in (MODEL, code):
            assert found.sha256(name) == files.hash_file(project / NAME / name)
        assert found.sha256(gone) == ""
        (endpoint,) = expected(found)
    assert all(name in endpoint.altered for name in (MODEL, code, gone))


def test_the_folder_of_a_commit_is_the_only_one_that_trb_built(project: Path, built: Path) -> None:
    (project / NAME).rename(project / "other")
    deploy("other")
    assert is_small("HEAD", built).name.endswith(":other")
    shutil.copytree(project / "other", project / "third")
    deploy("third")
    error = refuses("HEAD", Code.USAGE)
    assert "HEAD:other" in error.remedy and "HEAD:third" in error.remedy
    shutil.copytree(project / "other", project / NAME)
    deploy(NAME)
    assert is_small("HEAD", built).name.endswith(f":{NAME}")


def test_what_cannot_be_meant(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "src").mkdir()
    (project / "src" / "code.py").write_text("x = 1\n")
    git(project, "add", "src")
    git(project, "commit", "-q", "-m", "Code")
    for spec in ("nobranch", "no/folder", "--all", "0" * 40):
        refuses(spec, Code.NOT_FOUND)
    for spec in ("nobranch:src", "HEAD:nothing", ":src"):
        refuses(spec, Code.GIT_REFUSED)
    for spec in ("HEAD", "HEAD:src/code.py"):
        refuses(spec, Code.REPOSITORY_UNREADABLE)
    git(project, "tag", "src")
    refuses("src", Code.USAGE)
    refuses("ftp://host/models", Code.BAD_LOCATION)
    monkeypatch.chdir(tmp_path)
    assert "no git repository" in refuses("HEAD", Code.NOT_FOUND).message


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.running(tmp_path_factory.mktemp("moto")) as address:
        yield address


def test_a_pushed_revision(built: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.use(monkeypatch)
    url = f"s3://{address}/{s3_server.BUCKET}/sentiment"
    refuses(url, Code.NOT_PUSHED)
    trb("push", url, str(built))
    found = is_whole(url, built)
    assert found.name == f"{url}@{found.digest}"
    small = is_small(found.name, built)
    assert (small.digest, small.sha256(MODEL)) == (found.digest, files.hash_file(built / MODEL))
    refuses(f"{url}@sha256:{'0' * 64}", Code.NOT_PUSHED)

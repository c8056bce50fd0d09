"""``trb commit`` with real git and git-lfs: exactly the repository's own files, and nothing of the user's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import tiny

from tests.support.cli import ARGV, call, kind, trb
from tests.support.serve_repository import until
from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.ship.deploy import revision

pytestmark = pytest.mark.lfs


def git(folder: Path, *arguments: str) -> str:
    return process.run(["git", "-C", str(folder), *arguments]).rstrip("\n")


def commit(repo: Path, *arguments: str) -> dict[str, object]:
    said: dict[str, object] = json.loads(trb("commit", str(repo), "-m", "Deploy", "--json", *arguments))
    return said


def refused(repo: Path, code: Code, *arguments: str) -> str:
    """What a refusal says, which always says what to do; no branch has moved, the index is as it was."""
    top = repo.parent
    state = (
        ("for-each-ref", "--format=%(refname) %(objectname)"),
        ("ls-files", "-s"),
        ("symbolic-ref", "-q", "HEAD"),
    )
    before = [process_output(top, *words) for words in state]
    with pytest.raises(process.ProcessFailed) as caught:
        trb("commit", str(repo), "-m", "Deploy", *arguments)
    assert (caught.value.code, code.kind in caught.value.stderr) == (code.exit, True), caught.value.stderr
    assert "fix: " in caught.value.stderr
    assert [process_output(top, *words) for words in state] == before
    return caught.value.stderr


def process_output(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    tiny.classifier(folder / "sentiment")
    output = folder / "model_repository"
    facts = ("--source-run", "run-77", "--dataset-id", "ds-2026", "--label", "team=search")
    trb("build", "--model", str(folder / "sentiment"), "--output", str(output), *facts)
    return output


@pytest.fixture
def project(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's git repository with files, staged and edited, of its own, and a built repository in it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")  # without this machine's git lfs settings
    git_config = "[user]\n\tname = A User\n\temail = user@example.org\n[init]\n\tdefaultBranch = main\n"
    (home / ".gitconfig").write_text(git_config)
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    for name in ("app.py", "staged.py", "edited.py"):
        (folder / name).write_text("first\n")
    (folder / ".gitignore").write_text("vendor/\n__pycache__/\n*.onnx\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Start")
    (folder / "staged.py").write_text("staged\n")
    git(folder, "add", "staged.py")
    (folder / "edited.py").write_text("edited\n")
    (folder / "untracked.py").write_text("untracked\n")
    shutil.copytree(built, folder / "model_repository")
    return folder


WAIT = "while ! test -e {}; do sleep 0.05; done"
LFS = ("smudge=git-lfs smudge -- %f", "process=git-lfs filter-process", "required=true")
USERS_STATE = {"M  staged.py", " M edited.py", "?? untracked.py"}


def status(project: Path) -> set[str]:
    return set(git(project, "status", "--porcelain").splitlines())


def listed(repo: Path) -> set[str]:
    return {"manifest.json", *json.loads((repo / "manifest.json").read_text())["files"]}


def in_tree(project: Path, revision: str = "HEAD") -> set[str]:
    return set(git(project, "ls-tree", "-r", "--name-only", revision).splitlines())


def test_exactly_its_own_files_even_those_that_git_ignores(project: Path) -> None:
    repo = project / "model_repository"
    (repo / "sentiment_tokenizer" / "1" / "__pycache__").mkdir()
    (repo / "sentiment_tokenizer" / "1" / "__pycache__" / "model.pyc").write_bytes(b"")
    before = in_tree(project)
    said = commit(repo)
    own = {f"model_repository/{name}" for name in (*listed(repo), ".gitattributes")}
    assert in_tree(project) == before | own
    assert set(said["changed"]) == own  # type: ignore[call-overload]
    assert status(project) == USERS_STATE
    assert (project / "staged.py").read_text() == "staged\n"
    assert git(project, "show", "HEAD:staged.py") == "first"
    assert git(project, "diff", "--cached", "--name-only") == "staged.py"
    assert said["branch"] == "main"
    assert git(project, "rev-parse", "HEAD") == said["commit"]


def test_of_two_commits_at_once_each_has_its_own_message(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git has one file for the message of every commit in a work tree."""
    first, second = project / "model_repository", project / "other"
    shutil.copytree(first, second)
    hook = project / ".git" / "hooks" / "commit-msg"
    begun, go = tmp_path / "begun", tmp_path / "go"
    hook.write_text(f'#!/bin/sh\ngrep -q ^One "$1" || exit 0\ntouch {begun}\n{WAIT.format(go)}\n')
    hook.chmod(0o755)
    waiting = subprocess.Popen(
        [*ARGV, "commit", str(first), "-m", "One"], cwd=project, stderr=subprocess.PIPE, text=True
    )
    try:
        until(begun.exists)
        with monkeypatch.context() as patched:
            patched.setattr(staging, "PATIENCE", 0.2)
            assert kind(call("commit", str(second), "-m", "Two").stderr) is Code.REPOSITORY_BUSY
    finally:
        go.touch()
        _, said = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, said
    trb("commit", str(second), "-m", "Two")
    assert [
        git(project, "log", "-1", "--format=%s", "--", name) for name in ("model_repository", "other")
    ] == [
        "One",
        "Two",
    ]


def test_trailers_say_where_it_comes_from(project: Path) -> None:
    repo = project / "model_repository"
    commit(repo)
    text = git(project, "log", "-1", "--format=%(trailers:only,unfold)")
    found = dict(line.split(": ", 1) for line in text.splitlines())
    entry = json.loads((repo / "manifest.json").read_text())["endpoints"]["sentiment"]
    assert found == {
        "Endpoint": "sentiment version 1",
        "Content-Sha256": entry["content"],
        "Model-Sha256": entry["sources"][0]["sha256"],
        "Source-Sha256": f"{entry['sources'][1]['sha256']} tokenizer.json",
        "Options-Digest": entry["options_digest"],
        "Source-Run": "run-77",
        "Dataset-Id": "ds-2026",
        "Label": "team=search",
        "Trb-Version": json.loads((repo / "manifest.json").read_text())["generator"]["version"],
    }


def test_a_second_commit_with_nothing_changed_makes_none(project: Path) -> None:
    repo = project / "model_repository"
    first = commit(repo)
    again = commit(repo)
    assert (again["created"], again["commit"], again["changed"]) == (False, first["commit"], [])
    assert "nothing to commit" in trb("commit", str(repo), "-m", "again")
    assert git(project, "rev-list", "--count", "HEAD") == "2"


def test_what_is_gone_from_the_repository_goes_from_git(project: Path) -> None:
    repo = project / "model_repository"
    (repo / "notes.txt").write_text("mine\n")
    commit(repo)
    (repo / "notes.txt").unlink()
    assert commit(repo)["changed"] == ["model_repository/notes.txt"]
    assert "model_repository/notes.txt" not in in_tree(project)


def test_a_clone_has_every_byte_with_lfs_and_is_seen_to_lack_them_without(
    project: Path, tmp_path: Path
) -> None:
    repo = project / "model_repository"
    said = commit(repo)
    (library,) = said["large"]  # type: ignore[misc]
    assert library.endswith("tokenizers.abi3.so")
    assert git(project, "cat-file", "-p", f"HEAD:model_repository/{library}").startswith(
        "version https://git-lfs.github.com/spec/v1"
    )
    clone = ("clone", "-q", str(project), str(tmp_path / "c"))
    process.run(["git", *(word for setting in LFS for word in ("-c", f"filter.lfs.{setting}")), *clone])
    for name in listed(repo):
        assert (tmp_path / "c" / "model_repository" / name).read_bytes() == (repo / name).read_bytes(), name
    process.run(["git", "clone", "-q", str(project), str(tmp_path / "pointers")])
    stub = tmp_path / "pointers" / "model_repository"
    message = refused(stub, Code.FAILED_CHECKS)
    assert "git-LFS pointer" in message


def test_without_git_lfs_it_says_how_to_get_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    message = refused(project / "model_repository", Code.ENGINE_MISSING)
    assert "git-lfs is not installed" in message
    assert "--weights external" in message
    assert commit(project / "model_repository", "--weights", "git")["large"] == []


def test_another_branch_without_touching_work_tree_or_index(project: Path) -> None:
    repo = project / "model_repository"
    head = git(project, "rev-parse", "HEAD")
    index = git(project, "ls-files", "-s")
    said = commit(repo, "--branch", "deploy/sentiment")
    assert git(project, "rev-parse", "HEAD") == head
    assert git(project, "ls-files", "-s") == index
    assert git(project, "rev-parse", "deploy/sentiment") == said["commit"]
    assert git(project, "rev-parse", "deploy/sentiment^") == head
    assert "model_repository/manifest.json" in in_tree(project, "deploy/sentiment")
    assert commit(repo, "--branch", "deploy/sentiment")["created"] is False
    assert "invalid branch name" in refused(repo, Code.USAGE, "--branch", "no..name")
    git(project, "worktree", "add", "-q", str(project.parent / "other"), "deploy/sentiment")
    assert "another work tree" in refused(repo, Code.GIT_REFUSED, "--branch", "deploy/sentiment")


def test_a_detached_head(project: Path) -> None:
    repo = project / "model_repository"
    git(project, "checkout", "-q", "--detach")
    main = git(project, "rev-parse", "main")
    said = commit(repo)
    assert said["branch"] == ""
    assert any("git branch NAME" in note for note in said["notes"])  # type: ignore[union-attr, attr-defined]
    assert git(project, "rev-parse", "HEAD") == said["commit"]
    assert git(project, "rev-parse", "main") == main
    assert status(project) == USERS_STATE
    assert "there is no branch to push" in refused(repo, Code.GIT_REFUSED, "--push")


def test_a_subfolder_of_a_monorepo(project: Path) -> None:
    (project / "services" / "nlp").mkdir(parents=True)
    repo = Path(shutil.move(project / "model_repository", project / "services" / "nlp" / "models"))
    said = trb("commit", str(repo), "-m", "Deploy")
    assert "services/nlp/models/manifest.json" in said
    assert {path.split("/")[0] for path in git(project, "diff", "--name-only", "HEAD^", "HEAD").split()} == {
        "services"
    }
    assert status(project) == USERS_STATE


def test_a_fresh_folder_gets_a_git_repository_above_the_model_repository(
    project: Path, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh"
    repo = Path(shutil.copytree(project / "model_repository", fresh / "model_repository"))
    (fresh / "mine.txt").write_text("mine")
    said = commit(repo)
    assert any("git init" in note for note in said["notes"])  # type: ignore[union-attr, attr-defined]
    assert (fresh / ".git").is_dir() and not (repo / ".git").exists()
    assert git(fresh, "rev-list", "--count", "HEAD") == "1"
    assert git(fresh, "status", "--porcelain") == "?? mine.txt"


def test_never_makes_the_home_folder_a_git_repository(project: Path) -> None:
    home = Path(os.environ["HOME"])
    shutil.copytree(project / "model_repository", home / "model_repository")
    with pytest.raises(process.ProcessFailed) as caught:
        trb("commit", str(home / "model_repository"), "-m", "Deploy")
    assert caught.value.code == Code.GIT_REFUSED.exit
    assert not (home / ".git").exists()


def hook(project: Path, name: str, script: str, first: str = "#!/bin/sh\n") -> None:
    file = project / ".git" / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{first}{script}\n")
    file.chmod(0o755)


def test_hooks_run_on_what_is_committed_and_may_refuse(project: Path) -> None:
    repo = project / "model_repository"
    hook(project, "pre-commit", "git diff --cached --name-only > seen.txt")
    hook(project, "commit-msg", 'sed -i "1s/^/[T-1] /" "$1"')
    hook(project, "post-commit", "touch after.txt")
    commit(repo)
    seen = set((project / "seen.txt").read_text().split())
    assert seen == {f"model_repository/{name}" for name in (*listed(repo), ".gitattributes")}
    assert git(project, "log", "-1", "--format=%s") == "[T-1] Deploy"
    assert (project / "after.txt").exists()
    hook(project, "pre-commit", "echo no deploys on Friday >&2; exit 1")
    (repo / "notes.txt").write_text("more\n")
    message = refused(repo, Code.GIT_REFUSED)
    assert "pre-commit" in message and "no deploys on Friday" in message
    assert commit(repo, "--no-verify")["created"] is True


def test_what_a_hook_stages_is_committed_and_not_left_staged_as_its_opposite(project: Path) -> None:
    repo = project / "model_repository"
    script = (
        "date +%N > stamp.txt; echo hooked >> app.py; git add stamp.txt app.py; git rm -q --cached gone.py"
    )
    (project / "gone.py").write_text("x")
    git(project, "add", "gone.py")
    git(project, "commit", "-q", "-m", "Gone", "--", "gone.py")
    (project / "gone.py").unlink()
    hook(project, "pre-commit", script)
    said = commit(repo)
    assert {"stamp.txt", "app.py", "gone.py"} <= {*said["changed"]}  # type: ignore[misc]
    assert "stamp.txt" in in_tree(project) and "gone.py" not in in_tree(project)
    assert status(project) == USERS_STATE
    assert git(project, "diff", "--cached", "--name-only") == "staged.py"
    # On another branch the hook's files are committed there, and the index here knows nothing of them.
    index = git(project, "ls-files", "-s")
    hook(project, "pre-commit", "echo x > other.txt; git add other.txt")
    (repo / "notes.txt").write_text("more\n")
    commit(repo, "--branch", "deploy")
    assert "other.txt" in in_tree(project, "deploy")
    assert git(project, "ls-files", "-s") == index


def test_hooks_that_sh_must_run_that_cannot_run_and_that_print_no_text(project: Path) -> None:
    repo = project / "model_repository"
    hook(project, "pre-commit", "echo ran > ran.txt", first="")  # as git, which lets sh run it
    hook(project, "commit-msg", r"printf 'caf\351\n'; printf 'caf\351\n' >&2; printf 'caf\303\251' >> $1")
    assert commit(repo)["created"] is True
    assert (project / "ran.txt").read_text() == "ran\n"
    assert "café" in git(project, "log", "-1", "--format=%B")
    (repo / "notes.txt").write_text("more\n")
    hook(project, "pre-commit", r"printf 'caf\351 refused\n' >&2; exit 3", first="")
    message = refused(repo, Code.GIT_REFUSED)
    assert "your pre-commit hook refused" in message and "refused\n" in message
    hook(project, "pre-commit", "", first="#!/no/such/interpreter\n")
    message = refused(repo, Code.GIT_REFUSED)
    assert "pre-commit" in message and "No such file or directory" in message
    hook(project, "pre-commit", "")
    hook(project, "post-commit", "", first="#!/no/such/interpreter\n")
    said = commit(repo)
    assert said["created"] is True
    assert "your post-commit hook failed" in str(said["notes"])
    assert status(project) == {*USERS_STATE, "?? ran.txt"}


@pytest.mark.parametrize("script", [': > "$1"', 'printf "\\n  \\n" > "$1"', 'rm "$1"'])
def test_a_message_that_a_hook_empties_is_refused(project: Path, script: str) -> None:
    hook(project, "commit-msg", script)
    assert "left an empty message" in refused(project / "model_repository", Code.GIT_REFUSED)


@pytest.mark.parametrize("weights", ["lfs", "git"])
def test_a_git_repository_of_sha_256(project: Path, tmp_path: Path, weights: str) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q", "--object-format=sha256")
    repo = Path(shutil.copytree(project / "model_repository", fresh / "model_repository"))
    first = commit(repo, "--weights", weights)
    assert len(str(first["commit"])) == 64
    assert git(fresh, "rev-parse", "HEAD") == first["commit"]
    assert status(fresh) == set()
    (repo / "notes.txt").write_text("more\n")
    second = commit(repo, "--weights", weights)
    assert git(fresh, "rev-parse", "HEAD^") == first["commit"]
    assert commit(repo, "--weights", weights)["created"] is False
    assert commit(repo, "--branch", "deploy", "--weights", weights)["commit"] == second["commit"]
    (repo / "notes.txt").write_text("still more\n")
    assert commit(repo, "--branch", "deploy", "--weights", weights)["created"] is True


def test_names_of_branches_that_git_cannot_have_and_full_ones(project: Path) -> None:
    repo = project / "model_repository"
    message = refused(repo, Code.GIT_REFUSED, "--branch", "main/x")
    assert "there is a branch 'main'" in message and "--branch main-x" in message
    git(project, "branch", "team/a")
    message = refused(repo, Code.GIT_REFUSED, "--branch", "team")
    assert "there is a branch 'team/a'" in message
    assert "invalid branch name" in refused(repo, Code.USAGE, "--branch", "refs/tags/v1")
    said = commit(repo, "--branch", "refs/heads/zz")
    assert said["branch"] == "zz"
    assert git(project, "rev-parse", "refs/heads/zz") == said["commit"]
    assert "refs/heads/refs" not in git(project, "for-each-ref")
    git(project, "tag", "main")
    assert commit(repo, "--branch", "refs/heads/main")["branch"] == "main"
    assert status(project) == USERS_STATE


def test_one_file_is_said_as_such(project: Path) -> None:
    repo = project / "model_repository"
    commit(repo)
    (repo / "notes.txt").write_text("more\n")
    assert "] 1 file of " in trb("commit", str(repo), "-m", "Notes")


def differ(project: Path, a: str, b: str) -> process.ProcessFailed:
    with pytest.raises(process.ProcessFailed) as caught:
        trb("diff", a, b, cwd=project)
    assert "Traceback" not in caught.value.stderr
    assert caught.value.stderr.count("error: ") == caught.value.stderr.count("fix: ") == 1
    return caught.value


def test_a_difference_is_of_repositories_in_git_too(project: Path) -> None:
    repo = project / "model_repository"
    commit(repo)
    said = trb("diff", "HEAD:model_repository", "model_repository", cwd=project)
    assert said == "no difference for a client\n"
    (project / "src").mkdir()
    (project / "src" / "caf.txt").write_bytes(b"caf\xe9")
    (project / "broken" / "model" / "1").mkdir(parents=True)
    (project / "broken" / "model" / "config.pbtxt").write_bytes(b"name: {{{ caf\xe9")
    git(project, "add", "src", "broken")
    git(project, "commit", "-q", "-m", "More", "--", "src", "broken")
    for what in ("src", "HEAD:src", "HEAD:src/caf.txt", "HEAD:broken", "broken", "nothing"):
        failed = differ(project, what, "model_repository")
        assert (kind(failed.stderr), what in failed.stderr) == (Code.REPOSITORY_UNREADABLE, True), (
            failed.stderr
        )
        assert "trb-diff-" not in failed.stderr
    for what in ("HEAD:nothing", "nobranch:model_repository"):
        assert differ(project, what, "model_repository").code == Code.GIT_REFUSED.exit


def test_names_that_are_no_utf_8(project: Path) -> None:
    repo = project / "model_repository"
    name = os.fsencode(repo / "caf") + b"\xe9.txt"
    Path(os.fsdecode(name)).write_text("x")
    assert "model_repository/caf\ufffd.txt" in commit(repo)["changed"]  # type: ignore[operator]
    assert status(project) == USERS_STATE


def test_refuses_what_check_finds_wrong_unless_forced(project: Path) -> None:
    repo = project / "model_repository"
    (repo / "sentiment_model" / "1" / "model.onnx").unlink()
    message = refused(repo, Code.FAILED_CHECKS)
    assert "model.onnx" in message and "--force" in message
    assert commit(repo, "--force")["created"] is True
    trailer = git(project, "log", "-1", "--format=%(trailers:key=Altered-File,valueonly)")
    assert trailer.split() == ["sentiment_model/1/model.onnx"]


def test_a_lost_manifest_is_refused(project: Path) -> None:
    repo = project / "model_repository"
    (repo / "manifest.json").unlink()
    assert "manifest.json" in refused(repo, Code.FAILED_CHECKS)
    assert commit(repo, "--force")["created"] is True


def test_provenance_names_altered_files(project: Path) -> None:
    repo = project / "model_repository"
    whole = call("provenance", repo, "--json")
    assert (whole.returncode, json.loads(whole.stdout)[0]["altered"]) == (0, [])
    name = "sentiment_tokenizer/1/model.py"
    content = (repo / name).read_bytes()
    (repo / name).unlink()
    (repo / name).write_bytes(content + b"#")
    altered = call("provenance", repo, "--json")
    assert (altered.returncode, json.loads(altered.stdout)[0]["altered"]) == (1, [name])
    assert name in call("provenance", repo).stdout


def test_a_merge_under_way_is_not_disturbed(project: Path) -> None:
    git(project, "stash", "-q")
    git(project, "checkout", "-q", "-b", "side")
    (project / "app.py").write_text("side\n")
    git(project, "commit", "-q", "-am", "Side")
    git(project, "checkout", "-q", "main")
    (project / "app.py").write_text("main\n")
    git(project, "commit", "-q", "-am", "Main")
    with pytest.raises(process.ProcessFailed):
        git(project, "merge", "side")
    assert "a merge is in progress" in refused(project / "model_repository", Code.GIT_REFUSED)


@pytest.mark.parametrize("name", ["index", "HEAD", "refs/heads/main"])
def test_another_git_process_at_work_is_waited_for(name: str, project: Path) -> None:
    lock = project / ".git" / f"{name}.lock"
    lock.touch()
    message = refused(project / "model_repository", Code.GIT_REFUSED)
    assert str(lock) in message and "remove this file" in message
    lock.unlink()
    assert commit(project / "model_repository")["created"] is True


@pytest.mark.parametrize("branch", [(), ("--branch", "deploy")])
def test_a_commit_that_comes_in_between_is_not_undone(project: Path, branch: tuple[str, ...]) -> None:
    """While git-lfs, or here another filter, still reads the files."""
    git(project, "branch", "deploy")
    tip = branch[-1] if branch else "main"
    script = project.parent / "filter.sh"
    script.write_text(
        "cat; test -e ../once && exit; touch ../once\n"
        "env -u GIT_INDEX_FILE -u GIT_DIR -u GIT_WORK_TREE sh -c '\n"
        "  commit=$(git commit-tree -p $0 -m Meanwhile $(cat ../tree))\n"
        "  git update-ref refs/heads/$0 $commit' "
        f"{tip}\n"
    )
    (project / "app.py").write_text("meanwhile\n")
    git(project, "add", "app.py")
    (project.parent / "tree").write_text(git(project, "write-tree"))
    git(project, "reset", "-q", "--", "app.py")
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "attributes").write_text(
        "smoke.json filter=slow\nmanifest.json filter=slow\n"
    )
    git(project, "config", "filter.slow.clean", f"sh {script}")
    with pytest.raises(process.ProcessFailed) as caught:
        trb("commit", str(project / "model_repository"), "-m", "Deploy", *branch)
    assert caught.value.code == Code.GIT_REFUSED.exit
    assert "another commit came in between" in caught.value.stderr
    assert git(project, "log", "-1", "--format=%s", tip) == "Meanwhile"
    assert git(project, "show", f"{tip}:app.py") == "meanwhile"
    assert git(project, "worktree", "list").count("\n") == 0
    assert commit(project / "model_repository", *branch)["created"] is True
    assert git(project, "show", f"{tip}:app.py") == "meanwhile"


def test_the_first_commit_of_all_to_another_branch(project: Path, tmp_path: Path) -> None:
    repo = Path(shutil.copytree(project / "model_repository", tmp_path / "fresh" / "model_repository"))
    said = commit(repo, "--branch", "deploy")
    assert git(repo.parent, "rev-list", "deploy") == said["commit"]
    assert git(repo.parent, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(repo.parent, "ls-files") == ""
    assert commit(repo, "--branch", "deploy")["created"] is False


def test_a_hook_sees_the_branch_that_is_committed_to(project: Path) -> None:
    repo = project / "model_repository"
    hook(project, "prepare-commit-msg", 'echo "on $(git symbolic-ref --short HEAD)" >> "$1"')
    commit(repo)
    assert "on main" in git(project, "log", "-1", "--format=%B")


def test_without_an_identity_it_says_how_to_set_one(project: Path) -> None:
    (Path(os.environ["HOME"]) / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    assert "git config user.name" in refused(project / "model_repository", Code.GIT_REFUSED)


def test_signed_by_an_ssh_key_or_not_at_all(project: Path) -> None:
    repo = project / "model_repository"
    git(project, "config", "gpg.format", "ssh")
    assert "user.signingkey" in refused(repo, Code.GIT_REFUSED, "--sign")
    git(project, "config", "user.signingkey", "/nowhere/key")
    assert "or leave out --sign" in refused(repo, Code.GIT_REFUSED, "--sign")
    git(project, "config", "commit.gpgsign", "true")
    assert "or unset commit.gpgsign" in refused(repo, Code.GIT_REFUSED)
    git(project, "config", "--unset", "commit.gpgsign")
    key = project.parent / "key"
    process.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
    git(project, "config", "user.signingkey", str(key))
    commit(repo, "--sign")
    assert "BEGIN SSH SIGNATURE" in git(project, "cat-file", "commit", "HEAD")


def test_push_takes_the_lfs_objects_along(project: Path, tmp_path: Path) -> None:
    repo = project / "model_repository"
    assert "git remote add" in refused(repo, Code.GIT_REFUSED, "--push")
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    git(project, "remote", "add", "origin", f"file://{remote}")
    said = commit(repo, "--push")
    assert said["pushed"] == "origin"
    assert git(remote, "rev-parse", "main") == said["commit"]
    (library,) = said["large"]  # type: ignore[misc]
    oid = git(project, "cat-file", "-p", f"HEAD:model_repository/{library}").split("sha256:")[1].split()[0]
    assert (remote / "lfs" / "objects" / oid[:2] / oid[2:4] / oid).is_file()
    # Where the remote has moved on, the commit stays and the remedy says what to do.
    process.run(
        ["git", "-c", "filter.lfs.required=false", "clone", "-q", str(remote), str(tmp_path / "other")]
    )
    (tmp_path / "other" / "x").write_text("x")
    git(tmp_path / "other", "add", "x")
    git(tmp_path / "other", "commit", "-q", "-m", "Other")
    git(tmp_path / "other", "push", "-q", "origin", "main")
    (repo / "notes.txt").write_text("more\n")
    with pytest.raises(process.ProcessFailed) as caught:
        trb("commit", str(repo), "-m", "More", "--push")
    assert caught.value.code == Code.GIT_PUSH_FAILED.exit
    assert "git pull --rebase origin main" in caught.value.stderr


def test_external_weights_come_back_verified(project: Path, tmp_path: Path) -> None:
    repo = project / "model_repository"
    store = tmp_path / "store"
    external = ("--weights", "external", "--weights-url", f"file://{store}")
    said = commit(repo, *external)
    (library,) = said["large"]  # type: ignore[misc]
    fact = json.loads((repo / "manifest.json").read_text())["files"][library]
    assert fact["url"] == f"file://{store}/{fact['sha256']}"
    assert f"model_repository/{library}" not in in_tree(project)
    assert status(project) == USERS_STATE
    assert commit(repo)["created"] is False
    clone = tmp_path / "clone"
    process.run(["git", "clone", "-q", str(project), str(clone)])
    target = clone / "model_repository" / library
    assert not target.exists()
    with pytest.raises(process.ProcessFailed) as caught:
        trb("check", str(clone / "model_repository"))
    assert "trb fetch" in caught.value.stdout
    with pytest.raises(process.ProcessFailed) as caught:
        trb("serve", str(clone / "model_repository"))
    assert caught.value.code == Code.NOT_FOUND.exit and "get it first: trb fetch" in caught.value.stderr
    assert f"fetched {library}" in trb("fetch", str(clone / "model_repository"))
    assert target.read_bytes() == (repo / library).read_bytes()
    assert "nothing to fetch" in trb("fetch", str(clone / "model_repository"))
    trb("check", str(clone / "model_repository"))
    # Another file of that name and size is not taken for it.
    (store / fact["sha256"]).write_bytes(bytes(fact["bytes"]))
    assert any("copied" in note for note in commit(repo, *external)["notes"])  # type: ignore[attr-defined]
    assert files.hash_file(store / fact["sha256"]) == fact["sha256"]
    assert commit(repo, "--weights", "external")["created"] is False  # they are there already
    message = refused(repo, Code.USAGE, "--weights", "external", "--weights-url", str(store))
    assert f"file://{store}" in message
    # A file that was exchanged there does not get in.
    target.unlink()
    (store / fact["sha256"]).write_bytes(b"evil")
    with pytest.raises(process.ProcessFailed) as caught:
        trb("fetch", str(clone / "model_repository"))
    assert caught.value.code == Code.DOWNLOAD_FAILED.exit and "the manifest says" in caught.value.stderr
    assert not target.exists()


@contextmanager
def web(folder: Path) -> Iterator[str]:
    """A web server on a free port of loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_external_weights_on_a_web_server(project: Path, tmp_path: Path) -> None:
    repo, store = project / "model_repository", tmp_path / "store"
    store.mkdir()
    with web(store) as url:
        external = ("--weights", "external", "--weights-url", f"{url}/weights")
        # A web server is only read: the user puts the file there.
        message = refused(repo, Code.DOWNLOAD_FAILED, *external)
        library = next(repo.glob("sentiment_tokenizer/1/vendor/tokenizers/*.so"))
        assert "trb cannot upload to a web server" in message and str(library) in message
        (store / "weights").mkdir()
        (store / "weights" / files.hash_file(library)).write_bytes(bytes(library.stat().st_size))
        assert "is another file" in refused(repo, Code.DOWNLOAD_FAILED, *external)
        shutil.copyfile(library, store / "weights" / files.hash_file(library))
        commit(repo, *external)
        process.run(["git", "clone", "-q", str(project), str(tmp_path / "clone")])
        clone = tmp_path / "clone" / "model_repository"
        trb("fetch", str(clone))
        assert (clone / library.relative_to(repo)).read_bytes() == library.read_bytes()
        (clone / library.relative_to(repo)).unlink()
        shutil.rmtree(store / "weights")
        with pytest.raises(process.ProcessFailed) as caught:
            trb("fetch", str(clone))
        assert caught.value.code == Code.DOWNLOAD_FAILED.exit
    with pytest.raises(process.ProcessFailed) as caught:  # and now there is no server at all
        trb("fetch", str(clone))
    assert caught.value.code == Code.DOWNLOAD_FAILED.exit


def bare(project: Path) -> Path:
    remote = project.parent / "remote.git"
    git(project.parent, "init", "-q", "--bare", str(remote))
    git(project, "remote", "add", "origin", f"file://{remote}")
    return remote


def test_a_new_branch_with_nothing_new_to_commit_is_created_and_pushed(project: Path) -> None:
    repo, remote = project / "model_repository", bare(project)
    first = commit(repo)
    said = commit(repo, "--branch", "deploy", "--push")
    assert (said["created"], said["new_branch"], said["commit"]) == (False, True, first["commit"])
    assert (said["pushed"], said["sent"]) == ("origin", True)
    assert git(remote, "rev-parse", "deploy") == git(project, "rev-parse", "deploy") == first["commit"]
    again = commit(repo, "--branch", "deploy", "--push")
    assert (again["created"], again["new_branch"], again["sent"]) == (False, False, False)
    assert "nothing to push" in trb("commit", str(repo), "-m", "x", "--branch", "deploy", "--push")
    assert "created the branch" in trb("commit", str(repo), "-m", "x", "--branch", "local")
    assert git(project, "rev-parse", "local") == first["commit"]
    shutil.rmtree(remote)
    with pytest.raises(process.ProcessFailed) as caught:
        trb("commit", str(repo), "-m", "x", "--branch", "deploy", "--push")
    assert caught.value.code == Code.GIT_PUSH_FAILED.exit
    assert "is made" not in caught.value.stderr


def test_what_trb_writes_is_committed_even_if_all_dot_files_are_ignored(
    project: Path, tmp_path: Path
) -> None:
    repo = project / "model_repository"
    (project / ".gitignore").write_text(".*\n")
    (repo / ".mine").write_text("ignored by the user's own rule")
    commit(repo, "--weights", "external", "--weights-url", f"file://{tmp_path}/store")
    tree = in_tree(project)
    assert {"model_repository/.gitattributes", "model_repository/.gitignore"} <= tree
    assert "model_repository/sentiment/1/.gitkeep" in tree
    assert "model_repository/.mine" not in tree
    (repo / ".gitignore").write_text("# the user's own\n")
    commit(repo, "--weights", "git")
    assert "model_repository/.gitignore" not in in_tree(project)


@pytest.mark.parametrize("kind_of", ["folder", "file"])
def test_a_git_repository_inside_a_model_is_refused(project: Path, kind_of: str) -> None:
    repo = project / "model_repository"
    nested = repo / "sentiment_model" / "1" / ".git"
    if kind_of == "folder":
        git(nested.parent, "init", "-q")
    else:
        nested.write_text("gitdir: /nowhere\n")
    assert str(nested) in refused(repo, Code.GIT_REFUSED)
    assert str(nested) in refused(repo, Code.GIT_REFUSED, "--force")
    assert not (repo / ".gitattributes").exists()


@pytest.mark.parametrize("weights", ["lfs", "external"])
def test_a_threshold_does_not_take_what_explains_the_repository_out_of_git(
    project: Path, tmp_path: Path, weights: str
) -> None:
    repo = project / "model_repository"
    url = ("--weights-url", f"file://{tmp_path}/store") if weights == "external" else ()
    said = commit(repo, "--threshold", "10", "--weights", weights, *url)
    large = {*said["large"]}  # type: ignore[misc]
    kinds = {Path(name).suffix for name in large}
    assert ".onnx" in kinds and ".so" in kinds
    assert not kinds & {".json", ".pbtxt", ".py", ".txt", ".gitattributes"}
    for name in listed(repo) - large:
        content = (project / "model_repository" / name).read_bytes()
        shown = subprocess.run(
            ["git", "-C", str(project), "show", f"HEAD:model_repository/{name}"],
            capture_output=True,
            check=True,
        )
        assert shown.stdout == content, name
    assert any("manifest.json" in note for note in said["notes"])  # type: ignore[attr-defined]


def test_what_a_killed_trb_left_half_written_is_not_committed(project: Path) -> None:
    repo = project / "model_repository"
    (repo / "sentiment" / ".config.pbtxt.trb").write_text("half")
    (repo / ".manifest.json.trb").write_text("half")
    (repo / "sentiment_model" / "1" / ".trb-x7").mkdir()
    (repo / "sentiment_model" / "1" / ".trb-x7" / "file").write_text("half")
    said = commit(repo)
    own = {f"model_repository/{name}" for name in (*listed(repo), ".gitattributes")}
    assert set(said["changed"]) == own  # type: ignore[call-overload]


def test_what_a_killed_commit_left_of_git_s_files_goes(project: Path) -> None:
    repo = project / "model_repository"
    for name in (".gitattributes", ".gitignore"):
        (repo / f".{name}.trb-0123456789abcdef").write_text("half")
    commit(repo)
    assert [*repo.glob(".*.trb-*")] == []


@pytest.mark.parametrize("written", [(), ("HEAD",), ("HEAD", "commondir", "gitdir", "locked")])
def test_a_work_tree_that_a_killed_git_had_made_by_half_is_removed(
    project: Path, written: tuple[str, ...]
) -> None:
    """git ends with an error at such a folder as soon as it is asked about work trees."""
    half = project / ".git" / "worktrees" / "trb-commit-gone"
    half.mkdir(parents=True)
    for name in written:
        (half / name).touch()  # opened, and nothing was written yet
    assert commit(project / "model_repository", "--branch", "deploy")["created"] is True
    assert not half.exists()
    git(project, "fsck", "--strict")


@pytest.mark.parametrize("branch", [(), ("--branch", "deploy")])
def test_what_a_killed_commit_left_is_removed_by_the_next(project: Path, branch: tuple[str, ...]) -> None:
    repo = project / "model_repository"
    reached, go_on = project.parent / "reached", project.parent / "go_on"
    hook(project, "pre-commit", f"touch {reached}; {WAIT.format(go_on)}")
    child = start("commit", str(repo), "-m", "Killed", *branch)
    try:
        wait_for(reached)
    finally:
        child.kill()
        child.wait()
    tip = process_output(project, "rev-parse", "--quiet", "--verify", branch[-1] if branch else "main")
    assert [*(project / ".git").glob("trb-*")]
    hook(project, "pre-commit", "")
    said = commit(repo, *branch)
    assert said["created"] is True
    assert [*(project / ".git").glob("trb-*")] == []
    assert git(project, "worktree", "list").count("\n") == 0
    assert [*(project / ".git" / "worktrees").glob("*")] == []
    # The git that the killed trb had started goes on with an index that is gone: it commits nothing.
    go_on.touch()
    time.sleep(1)
    assert git(project, "rev-parse", branch[-1] if branch else "main") == said["commit"] != tip.strip()
    assert status(project) == USERS_STATE | ({"?? model_repository/"} if branch else set())


def start(*arguments: str) -> subprocess.Popen[bytes]:
    argv = [*ARGV, *arguments]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_commit_that_runs_keeps_its_folder(project: Path) -> None:
    """Beside another, of another branch."""
    repo = project / "model_repository"
    reached, go_on = project.parent / "reached", project.parent / "go_on"
    hook(project, "pre-commit", f"test -e {reached} && exit; touch {reached}; {WAIT.format(go_on)}")
    child = start("commit", str(repo), "-m", "Slow", "--branch", "slow")
    try:
        wait_for(reached)
        assert commit(repo, "--branch", "quick")["created"] is True
        go_on.touch()
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
    assert git(project, "log", "-1", "--format=%s", "slow") == "Slow"
    assert [*(project / ".git").glob("trb-*")] == []


@pytest.mark.parametrize("branch", [(), ("--branch", "deploy")])
def test_a_filter_that_rewrites_our_files_is_refused(project: Path, branch: tuple[str, ...]) -> None:
    repo = project / "model_repository"
    attributes = project / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("smoke.json filter=shout\n")
    git(project, "config", "filter.shout.clean", "tr a-z A-Z")
    message = refused(repo, Code.GIT_REFUSED, *branch)
    assert "smoke.json" in message and "filter=shout" in message
    said = commit(repo, "--force", *branch)
    assert any("smoke.json" in note for note in said["notes"])  # type: ignore[attr-defined]


def test_line_ends_that_git_rewrites_are_refused(project: Path) -> None:
    repo = project / "model_repository"
    attributes = project / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("notes.txt text\n")
    git(project, "config", "core.autocrlf", "input")
    (repo / "notes.txt").write_bytes(b"a\r\nb\r\n")
    manifest = json.loads((repo / "manifest.json").read_text())
    record = manifest["files"].setdefault("notes.txt", {})
    record |= {"sha256": files.hash_file(repo / "notes.txt"), "bytes": 6}
    (repo / "manifest.json").write_text(json.dumps(manifest))
    assert "text" in refused(repo, Code.GIT_REFUSED)


@pytest.mark.parametrize("branch", [(), ("--branch", "deploy")])
@pytest.mark.parametrize("change", ["echo >> $f; git add -f $f", "git rm -q --cached $f"])
def test_a_hook_that_rewrites_our_files_is_refused(
    project: Path, branch: tuple[str, ...], change: str
) -> None:
    repo = project / "model_repository"
    before = (repo / "sentiment" / "config.pbtxt").read_bytes()
    hook(project, "pre-commit", f"f=model_repository/sentiment/config.pbtxt; {change}")
    hook(project, "post-commit", "touch after.txt")
    message = refused(repo, Code.GIT_REFUSED, *branch)
    assert "sentiment/config.pbtxt" in message and "pre-commit" in message
    assert not (project / "after.txt").exists()
    assert git(project, "worktree", "list").count("\n") == 0
    (repo / "sentiment" / "config.pbtxt").write_bytes(before)
    said = commit(repo, "--force", *branch)
    assert any("sentiment/config.pbtxt" in note for note in said["notes"])  # type: ignore[attr-defined]


def test_an_editor_of_the_users_is_not_started_and_the_message_is_as_given(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_EDITOR", "false")
    git(project, "config", "commit.verbose", "true")
    git(project, "config", "commit.status", "true")
    trb("commit", str(project / "model_repository"), "-m", "Subject\n\n# a line with a hash\nText")
    body = git(project, "log", "-1", "--format=%B")
    assert body.startswith("Subject\n\n# a line with a hash\nText\n\nEndpoint: ")
    assert len(body.split("\n\n")) == 3


def test_a_value_of_many_lines_is_one_trailer(project: Path) -> None:
    repo = project / "model_repository"
    manifest = json.loads((repo / "manifest.json").read_text())
    manifest["endpoints"]["sentiment"]["provenance"] = {
        "source_run": "run\n\nSigned-off-by: nobody\r\n---\n",
        "dataset_id": "\n\t",
        "labels": {"team": "a=b: c", "note": "line\u2028end\x00\x1b[31m # ü"},
    }
    (repo / "manifest.json").write_text(json.dumps(manifest))
    git(project, "config", "trailer.separators", "#")
    commit(repo)
    git(project, "config", "--unset", "trailer.separators")
    message = git(project, "log", "-1", "--format=%B") + "\n"
    parsed = process.run(["git", "interpret-trailers", "--parse"], cwd=project, stdin=message)
    trailers = [tuple(line.split(": ", 1)) for line in parsed.splitlines()]
    assert [key for key, _ in trailers] == [
        *("Endpoint", "Content-Sha256", "Model-Sha256", "Source-Sha256", "Options-Digest", "Source-Run"),
        *("Label", "Label", "Trb-Version"),
    ]
    assert ("Source-Run", "run Signed-off-by: nobody ---") in trailers
    assert ("Label", "team=a=b: c") in trailers
    assert ("Label", "note=line end [31m # ü") in trailers


@pytest.mark.parametrize("place", [".gitattributes", ".git/info/attributes"])
def test_a_rule_of_the_users_for_git_lfs_travels_with_the_commit(
    place: str, project: Path, tmp_path: Path
) -> None:
    repo = project / "model_repository"
    (project / place).write_text("*.onnx filter=lfs diff=lfs merge=lfs -text\n")  # in no commit
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(remote))
    git(project, "remote", "add", "origin", str(remote))
    said = commit(repo, "--push")
    weights = sorted(path.relative_to(repo).as_posix() for path in repo.rglob("*.onnx"))
    assert set(weights) < set(said["large"])  # type: ignore[call-overload]
    settings = [word for value in LFS for word in ("-c", f"filter.lfs.{value}")]
    process.run(["git", *settings, "clone", "-q", str(remote), str(tmp_path / "clone")])
    for name in weights:
        assert (tmp_path / "clone" / "model_repository" / name).read_bytes() == (repo / name).read_bytes()
    (project / place).unlink()
    assert not set(weights) & set(commit(repo)["large"])  # type: ignore[call-overload]


def test_what_trb_reads_stays_in_git_whatever_the_users_rules(project: Path) -> None:
    repo = project / "model_repository"
    (project / ".gitattributes").write_text("*.json filter=lfs diff=lfs merge=lfs -text\n")
    said = commit(repo)
    assert any("manifest.json" in note and "a rule of yours" in note for note in said["notes"])  # type: ignore[attr-defined]
    assert json.loads(git(project, "show", "HEAD:model_repository/manifest.json"))["files"]
    assert "no difference" in trb("diff", "HEAD:model_repository", "model_repository", cwd=project)
    (project / ".gitattributes").write_text("*.onnx filter=lfs diff=lfs merge=lfs -text\n")
    assert commit(repo, "--weights", "git")["large"] == []
    assert commit(repo, "--weights", "git")["changed"] == []
    assert not git(project, "show", "HEAD:model_repository/sentiment_model/1/weights.onnx").startswith("vers")


def test_a_revision_is_read_from_a_folder_below_the_top(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "services").mkdir()
    repo = Path(shutil.move(project / "model_repository", project / "services" / "model_repository"))
    commit(repo)
    for named in ("HEAD:./model_repository", "HEAD:services/model_repository"):
        assert "no difference" in trb("diff", named, "model_repository", cwd=repo.parent)
    monkeypatch.chdir(repo.parent)
    with revision.opened("HEAD", weights=False) as found:
        assert found.name.endswith(":services/model_repository")
        assert found.sha256("sentiment_model/1/weights.onnx")


def test_a_rule_of_the_users_that_is_stronger_is_said(project: Path) -> None:
    repo = project / "model_repository"
    (library,) = commit(repo)["large"]  # type: ignore[misc]
    (repo / library).with_name(".gitattributes").write_text("*.so !filter !diff !merge\n")
    said = commit(repo)
    assert said["large"] == []
    assert any(library in note and "a rule of yours" in note for note in said["notes"])  # type: ignore[attr-defined]
    assert len(git(project, "ls-files", "-s", f"model_repository/{library}")) > 0
    size = git(project, "cat-file", "-s", f"HEAD:model_repository/{library}")
    assert int(size) == (repo / library).stat().st_size

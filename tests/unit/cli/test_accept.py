"""``trb accept`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from cli import call

from triton_repo_builder.base.errors import Code
from triton_repo_builder.ship.vcs import earlier, git

WHY = "two instances:\n the tokenizer was the bottleneck"


@pytest.fixture(autouse=True)
def without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "content", lambda root, path, matches: None)
    monkeypatch.setattr(earlier, "user", lambda root: "Jo <jo@example.org>")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A file of a repository that was edited: the folder is the current one of a command."""
    tiny.tensor_model(tmp_path / "net.onnx")
    built = call("build", "--model", "net.onnx", "--no-golden", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    file = tmp_path / "model_repository" / "net" / "config.pbtxt"
    file.write_text(file.read_text() + "# mine\n")
    return file


@pytest.mark.parametrize(
    "places",
    [
        [],
        ["model_repository"],
        ["model_repository/net/config.pbtxt"],
        ["model_repository", "net/config.pbtxt"],
        ["model_repository", "model_repository/net"],
        ["net/config.pbtxt"],
    ],
)
def test_a_file_is_named_from_anywhere(places: list[str], net: Path, tmp_path: Path) -> None:
    done = call("accept", *places, "--why", WHY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "accepted 1 edit by Jo <jo@example.org>, of which trb build cannot keep those without a diff"
        in done.stdout
    )
    assert (
        "no diff can be shown: what trb built is not in git; a later build has none to apply" in done.stderr
    )
    document = json.loads((tmp_path / "model_repository" / "manifest.json").read_text())
    edit = document["endpoints"]["net"]["edits"]["net/config.pbtxt"]
    why = "two instances: the tokenizer was the bottleneck"
    assert edit["approvals"] == [{"by": "Jo <jo@example.org>", "why": why}]
    assert call("check", cwd=tmp_path).returncode == 0


def test_a_diff_can_be_added_afterwards(net: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "model_repository" / "manifest.json"

    def accept(*more: str) -> str:
        done = call("accept", "--why", "mine", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    accept()
    assert "nothing to accept" in accept()
    assert "accepted 1 edit by Jo <jo@example.org>, which trb build keeps" in accept("--model", "net.onnx")
    edit = json.loads(manifest.read_text())["endpoints"]["net"]["edits"]["net/config.pbtxt"]
    assert "+# mine" in edit["diff"]
    assert "nothing to accept" in accept("--model", "net.onnx")
    built = call("build", "--model", "net.onnx", "--no-golden", "--instances", "3", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert "# mine" in net.read_text() and "count: 3" in net.read_text()


def test_the_built_text_is_rendered_again(net: Path, tmp_path: Path) -> None:
    before = tiny.tree(tmp_path)
    done = call("accept", "--dry-run", "--model", "net.onnx", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--- net/config.pbtxt (as trb built it)\n+++ net/config.pbtxt\n@@" in done.stdout
    assert "\n+# mine\n" in done.stdout
    assert "dry run, 1 edit to accept; nothing was recorded" in done.stdout
    assert tiny.tree(tmp_path) == before


def test_json(net: Path, tmp_path: Path) -> None:
    done = call("accept", "--why", "mine", "--model", "net.onnx", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert (document["written"], document["by"], document["why"]) == (True, "Jo <jo@example.org>", "mine")
    (edit,) = document["edits"]
    assert (edit["path"], edit["endpoint"], edit["version"]) == ("net/config.pbtxt", "net", 1)
    assert "+# mine" in edit["diff"]
    again = json.loads(call("accept", "--why", "mine", "--json", cwd=tmp_path).stdout)
    assert (again["written"], again["edits"]) == (False, [])


@pytest.mark.parametrize("why", [[], ["--why", " "]])
def test_a_reason_is_needed(why: list[str], net: Path, tmp_path: Path) -> None:
    before = tiny.tree(tmp_path)
    done = call("accept", *why, cwd=tmp_path)
    assert done.returncode == Code.USAGE.exit
    assert done.stderr.startswith("error: --why: is missing or empty [usage]\n  fix: ")
    assert tiny.tree(tmp_path) == before


def test_nothing_to_accept(net: Path, tmp_path: Path) -> None:
    assert call("accept", "--why", "mine", cwd=tmp_path).returncode == 0
    done = call("accept", "--why", "mine", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "model_repository: nothing to accept, every file is as recorded\n",
    )


def test_a_build_of_all_keeps_and_names_edits(net: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "net.onnx").rename(tmp_path / "models" / "net.onnx")
    assert call("accept", "--why", "mine", "--model", "models/net.onnx", cwd=tmp_path).returncode == 0
    done = call("build", "--all", "models", "--no-golden", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the accepted edit of net/config.pbtxt is kept: mine (Jo)" in done.stderr
    assert net.read_text().endswith("# mine\n")
    net.write_text(net.read_text().replace("max_batch_size", "# why\nmax_batch_size"))
    done = call("build", "--all", "models", "--no-golden", cwd=tmp_path)
    assert done.returncode == Code.SOME_FAILED.exit
    assert "[edited-file]" in done.stderr and "trb accept" in done.stderr


def test_an_endpoint_that_was_not_edited_by_hand_has_no_note(net: Path, tmp_path: Path) -> None:
    done = call("build", "--model", "net.onnx", "--no-golden", cwd=tmp_path)
    assert done.returncode == Code.EDITED_FILE.exit
    assert "trb accept model_repository --why REASON" in done.stderr
    done = call("build", "--model", "net.onnx", "--no-golden", "--force", cwd=tmp_path)
    assert done.returncode == 0 and "accepted edit" not in done.stderr


def test_an_added_file_is_named_by_provenance_until_it_is_accepted(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "last_commit", lambda root: "")
    assert call("accept", "--why", "mine", cwd=tmp_path).returncode == 0
    (net.parent / "1" / "extra.py").write_text("mine = 1\n")
    shown = call("provenance", cwd=tmp_path)
    assert shown.returncode == 1
    assert "net/1/extra.py was not written by trb" in shown.stdout
    altered = json.loads(call("provenance", "--json", cwd=tmp_path).stdout)[0]["altered"]
    assert altered == ["net/1/extra.py"]
    done = call("accept", "--why", "mine", cwd=tmp_path)
    assert "net/1/extra.py: added, 9 bytes" in done.stdout
    assert "accepted 1 edit by Jo <jo@example.org>, which trb build keeps" in done.stdout
    assert call("provenance", cwd=tmp_path).returncode == 0

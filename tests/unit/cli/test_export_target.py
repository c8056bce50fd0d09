"""``trb export TARGET``: the folder of a platform's files, by a target that only these tests have."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import tuned_deployments as deployments
from tests.support.cli import call, kind
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.targets import TARGETS, routes
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.routes import Backend, Routes
from triton_repo_builder.ship.vcs import git

TARGET = "compose"
CHANGED = f'name = "bert"\n[repository]\nrevision = "sha256:{"a" * 64}"\n'


def render(deployment: Deployment) -> dict[str, str]:
    if deployment.spec.server.gpus:
        raise TrbError(Code.USAGE, "no GPUs here", where=str(deployment.file), remedy="gpus = 0")
    return {"b/second.yml": f"name: {deployment.name}\n", "first.yml": f"{deployment.revision}\n"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(git, "last_commit", lambda folder: "")
    module = ModuleType(TARGET)
    module.render = render  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, f"triton_repo_builder.ship.targets.{TARGET}", module)
    deployments.folder(tmp_path)
    return tmp_path


def paths(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_files_go_to_a_folder_of_the_targets_name(project: Path) -> None:
    done = call("export", TARGET, cwd=project)
    assert done.returncode == 0, done.stderr
    output = project / "deploy" / TARGET
    assert paths(output) == ["b/second.yml", "export.json", "first.yml"]
    assert json.loads((output / "export.json").read_text())["files"].keys() == {"b/second.yml", "first.yml"}
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    again = call("export", TARGET, cwd=project)
    assert "up to date" in again.stdout
    assert before == {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}


def test_check_writes_nothing_and_fails_until_the_folder_is_right(project: Path) -> None:
    arguments = ("export", TARGET, "-o", "out")
    assert call(*arguments, "--check", cwd=project).returncode == 1
    assert not (project / "out").exists()
    assert call(*arguments, cwd=project).returncode == 0
    assert call(*arguments, "--check", cwd=project).returncode == 0
    (project / "model_repository" / "sentiment" / "config.pbtxt").open("a").write("# changed\n")
    done = call(*arguments, "--check", cwd=project)
    assert done.returncode == 1 and "differs  out/first.yml" in done.stdout
    report = json.loads(call(*arguments, "--check", "--json", cwd=project).stdout)
    assert report["changed"] == {"export.json": "differs", "first.yml": "differs"}
    assert report["edited"] == []


def test_an_edited_file_stays_without_force(project: Path) -> None:
    arguments = ("export", TARGET, "-o", "out")
    call(*arguments, cwd=project)
    edited = project / "out" / "b" / "second.yml"
    edited.write_text("name: mine\n")
    done = call(*arguments, cwd=project)
    assert done.returncode != 0 and "--force" in done.stderr
    assert edited.read_text() == "name: mine\n"
    assert "edited: b/second.yml" in call(*arguments, "--check", cwd=project).stderr
    assert call(*arguments, "--force", cwd=project).returncode == 0
    assert edited.read_text() == "name: bert\n"


def test_another_file_of_a_deployment(project: Path) -> None:
    (project / "staging.toml").write_text('name = "staging"\n')
    assert call("export", TARGET, "staging.toml", "-o", "out", cwd=project).returncode == 0
    assert (project / "out" / "b" / "second.yml").read_text() == "name: staging\n"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ('name = "bert"\n[servers]\n', Code.USAGE, "did you mean 'server'?"),
        (
            f'name = "bert"\n[repository]\nrevision = "sha256:{"a" * 64}"\n',
            Code.DIGEST_MISMATCH,
            "changed since",
        ),
        ('name = "bert"\n[autoscaling]\nmost = 4\n', Code.USAGE, "trb tune --slo"),
        ('name = "bert"\n[exposure]\nadmin_key = "none"\n', Code.NOT_FOUND, "'exposure.admin_key'"),
        ('name = "bert"\n[server]\ngpus = 1\n', Code.USAGE, "no GPUs here"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--check"]])
def test_each_mistake_is_named_before_anything_is_written(
    project: Path, flags: list[str], text: str, code: Code, words: str
) -> None:
    (project / "deploy.toml").write_text(text)
    done = call("export", TARGET, "-o", "out", *flags, cwd=project)
    assert kind(done.stderr) is code and words in done.stderr
    assert not (project / "out").exists()


def test_without_a_file_the_command_that_writes_one_is_named(tmp_path: Path) -> None:
    done = call("export", TARGET, cwd=tmp_path)
    assert kind(done.stderr) is Code.NOT_FOUND and "trb deploy init" in done.stderr


def test_a_folder_with_other_files_is_left_alone(project: Path) -> None:
    (project / "out").mkdir()
    (project / "out" / "mine.txt").write_text("mine")
    done = call("export", TARGET, "-o", "out", cwd=project)
    assert kind(done.stderr) is Code.OUTPUT_FOREIGN
    assert paths(project / "out") == ["mine.txt"]


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_says_what_it_writes(target: str) -> None:
    shown = " ".join(call("export", target, "--help").stdout.split())
    assert TARGETS[target] in shown and "--check" in shown


ROUTES = Routes(stable=(Backend(http="http://s:8000"),), body_limit=1 << 20, grpc=False)


def test_a_canary_is_no_edit(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """trb canary changes weights in a file of the export; --force must not send them to the old version."""
    limit = [1 << 20]
    module = sys.modules[f"triton_repo_builder.ship.targets.{TARGET}"]

    def with_routes(deployment: Deployment) -> dict[str, str]:
        shared = replace(ROUTES, body_limit=limit[0])
        return {**render(deployment), "traefik/routes.yml": routes.text(shared)}

    monkeypatch.setattr(module, "render", with_routes)
    assert call("export", TARGET, cwd=project).returncode == 0
    file = project / "deploy" / TARGET / "traefik" / "routes.yml"
    for weight in (0, 10, 100):
        split = routes.text(replace(ROUTES, canary=(Backend(http="http://c:8000"),), weight=weight))
        file.write_text(split)
        assert call("export", TARGET, "--check", cwd=project).returncode == 0
        for more in ((), ("--force",)):
            done = call("export", TARGET, *more, cwd=project)
            assert (done.returncode, file.read_text()) == (0, split), done.stderr
        limit[0] = 2 << 20
        for more in ((), ("--force",), ("--check",)):
            done = call("export", TARGET, *more, cwd=project)
            assert kind(done.stderr) == Code.REPOSITORY_BUSY
            assert f"a canary has {weight} % of the traffic" in done.stderr
            assert file.read_text() == split
        limit[0] = 1 << 20
    file.write_text(split + "# mine\n")
    assert kind(call("export", TARGET, cwd=project).stderr) == Code.EDITED_FILE
    assert call("export", TARGET, "--force", cwd=project).returncode == 0
    assert file.read_text() == routes.text(ROUTES)

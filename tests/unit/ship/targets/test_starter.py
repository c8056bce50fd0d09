"""``trb deploy init``: a file that reads back to the same spec, and nothing written if anything is wrong."""

from __future__ import annotations

import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import tuned_deployments as deployments
from tests.support.cli import call, kind
from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.ship.targets import export, facts, spec, starter

SHA = "a" * 64


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(deployments.GOLDEN, tmp_path / "model_repository")
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_writes_a_file_that_exports_read_and_a_private_key(project: Path) -> None:
    done = call("deploy", "init", cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "wrote    deploy.toml"
    assert "keep it out of git" in done.stdout.splitlines()[1]
    deployment = export.read(project / "deploy.toml")
    assert deployment.name == "sentiment"
    assert deployment.spec.repository.revision == f"sha256:{deployment.revision}"
    assert stat.S_IMODE((project / "admin_key").stat().st_mode) == 0o600


def test_another_release_than_the_one_of_the_build_is_noted(project: Path) -> None:
    """The golden repository is of 24.10; NVIDIA's image is the newest."""
    newest = releases.newest().name
    done = call("deploy", "init", cwd=project)
    assert (
        f"note: the repository was built for tritonserver 24.10, and {facts.OFFICIAL}:{newest}" in done.stderr
    )
    exported = call("export", "compose", cwd=project)
    assert exported.returncode == 0 and "was built for tritonserver 24.10" in exported.stderr
    assert "note" not in call("export", "oci", cwd=project).stderr
    image = "registry.example/tritonserver:24.10-cpu"
    done = call("deploy", "init", "--image", image, "--force", cwd=project)
    assert done.returncode == 0 and not done.stderr


def test_it_is_the_same_but_for_the_key(project: Path) -> None:
    call("deploy", "init", cwd=project)
    first, key = ((project / name).read_bytes() for name in ("deploy.toml", "admin_key"))
    call("deploy", "init", "--force", cwd=project)
    assert (project / "deploy.toml").read_bytes() == first
    # A key that servers have is not made anew.
    assert (project / "admin_key").read_bytes() == key


def test_a_file_elsewhere_has_paths_relative_to_itself(project: Path) -> None:
    done = call("deploy", "init", "-o", "deploy/staging.toml", cwd=project)
    assert done.returncode == 0, done.stderr
    assert 'path = "../model_repository"' in (project / "deploy" / "staging.toml").read_text()
    assert files(project / "deploy") == {"staging.toml", "admin_key"}
    assert export.read(project / "deploy" / "staging.toml").endpoints == ("sentiment",)


def test_what_is_known_is_stated(project: Path) -> None:
    source = f"oci://registry.example/models/bert@sha256:{SHA}"
    arguments = ("--name", "bert", "--image", "registry.example/bert:3", "--gateway-image", "gw:1")
    done = call("deploy", "init", *arguments, "--source", source, cwd=project)
    assert done.returncode == 0, done.stderr
    read = spec.read(project / "deploy.toml")
    assert (read.name, read.server.image, read.gateway.image) == ("bert", "registry.example/bert:3", "gw:1")
    assert read.repository.source.location == source


def test_a_bucket_without_a_revision_gets_the_repositorys(project: Path) -> None:
    done = call("deploy", "init", "--source", "s3://models/bert", cwd=project)
    assert done.returncode == 0, done.stderr
    deployment = export.read(project / "deploy.toml")
    assert deployment.spec.repository.source.location == f"s3://models/bert@sha256:{deployment.revision}"


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [("Senti_Ment", "senti-ment"), ("9x", "m-9x"), ("ü" * 3, "m"), ("a" * 60, "a" * 40), ("x__", "x")],
)
def test_an_endpoints_name_becomes_one_that_platforms_take(endpoint: str, name: str) -> None:
    made = starter._name(endpoint)
    assert made == name
    spec.Name().check(made)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--name", "Bert"], "'name'"),
        (["--source", "models"], "--source"),
        (["--source", f"s3://models/bert@sha256:{SHA}"], "is another revision"),
        (["--source", "image"], "'repository.source' is image"),
        (["--image", "a b"], "'server.image'"),
        (["nowhere"], "nowhere"),
    ],
)
def test_nothing_is_written_if_anything_is_wrong(project: Path, arguments: list[str], where: str) -> None:
    done = call("deploy", "init", *arguments, cwd=project)
    assert done.returncode != 0
    assert where in done.stderr
    assert files(project) == {"model_repository"}


def test_a_file_stays_without_force(project: Path) -> None:
    (project / "deploy.toml").write_text("mine")
    done = call("deploy", "init", cwd=project)
    assert kind(done.stderr) is Code.OUTPUT_FOREIGN and "--force" in done.stderr
    assert (project / "deploy.toml").read_text() == "mine"
    assert files(project) == {"model_repository", "deploy.toml"}
    assert call("deploy", "init", "--force", cwd=project).returncode == 0
    assert export.read(project / "deploy.toml").name == "sentiment"


def test_no_key_stays_behind_if_the_file_cannot_be_written(project: Path) -> None:
    (project / "deploy.toml").mkdir()
    assert call("deploy", "init", "--force", cwd=project).returncode != 0
    assert files(project) == {"model_repository", "deploy.toml"}


def test_a_key_that_others_can_read_is_not_taken(project: Path) -> None:
    (project / "admin_key").write_text("a-key-that-only-tests-have\n")
    (project / "admin_key").chmod(0o644)
    done = call("deploy", "init", cwd=project)
    assert done.returncode != 0 and "chmod 600" in done.stderr
    assert not (project / "deploy.toml").exists()


def test_every_key_is_in_the_file_and_defaults_are_comments() -> None:
    text = starter.text(spec.Spec(name="bert"))
    stated = [line for line in text.splitlines() if line and line[0] not in "#["]
    assert stated == ['name = "bert"']
    uncommented = "\n".join(
        line.removeprefix("# ") if " = " in line and line.startswith("# ") else line
        for line in text.splitlines()
    )
    # The defaults that the file shows are those without it.
    here = Path("deploy.toml")
    assert spec.parse(uncommented, here) == spec.parse(text, here)


def whole(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


@given(
    replicas=whole(1, 1000),
    memory=whole(64, 1 << 20),
    seconds=st.decimals(1, 2_592_000, places=3),
    requests=whole(1, 10_000_000),
    cpus=st.floats(0.1, 1024),
    ms=st.decimals(1, 2_592_000_000, places=3),
    path=st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20),
)
def test_what_is_written_reads_back(
    replicas: int, memory: int, seconds: float, requests: int, cpus: float, ms: float, path: str
) -> None:
    here = Path("deploy.toml")
    default = spec.Spec(name="bert", objective=Objective(percentile="p95", ms=float(ms)))
    changed = replace(
        default,
        server=replace(
            default.server, replicas=replicas, memory=memory << 20, start=float(seconds), cpus=cpus
        ),
        canary=replace(default.canary, requests=requests, steps=(1, 100)),
        repository=replace(default.repository, path=Path(path)),
    )
    read = spec.parse(starter.text(changed), here)
    assert read.objective.ms == pytest.approx(float(ms))
    assert replace(read, objective=changed.objective) == changed

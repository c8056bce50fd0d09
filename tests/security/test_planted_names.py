"""Names that another user, or the author of a clone, can foresee: no command writes through a link of theirs.

Each link leads to a victim; after the command the victim is as it was, and so is everything beside it.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny

from tests.support import cli, serve_repository, sleeper
from tests.support.interrupted import command
from triton_repo_builder.base import files, process, user_file
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check import installed
from triton_repo_builder.measure.tune import study
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.background import registry
from triton_repo_builder.run.serve.loading import start

PRECIOUS = b"precious\n"
PREDICTABLE = (
    ".manifest.json.trb",
    "..gitattributes.trb",
    "..gitignore.trb",
    "net/.config.pbtxt.trb",
    "net/.smoke.json.trb",
    ".manifest.json.trb-",
)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file that nothing may change; it is alone in its folder."""
    file = tmp_path / "home" / "authorized_keys"
    file.parent.mkdir()
    file.write_bytes(PRECIOUS)
    yield file
    assert file.read_bytes() == PRECIOUS
    assert [*file.parent.iterdir()] == [file]


def plant(name: Path, victim: Path) -> Path:
    """A link to the victim, and one to a file that is not there yet beside it."""
    name.parent.mkdir(parents=True, exist_ok=True)
    name.symlink_to(victim)
    name.with_name(f"{name.name}.new").symlink_to(victim.with_name("planted"))
    return name


@pytest.fixture
def repo(tmp_path: Path, victim: Path) -> Path:
    """A repository of two versions in a clone, with a link for every name that trb once used."""
    project = tmp_path / "project"
    model = tiny.tensor_model(tmp_path / "net.onnx")
    root = project / "models"
    cli.trb("build", "--model", model, "--output", root)
    cli.trb("build", "--model", model, "--output", root, "--version", "next", "--force")
    for name in PREDICTABLE:
        plant(root / name, victim)
        plant(project / name.split("/")[-1], victim)
    process.run(["git", "init", "-q", str(project)])
    for name, value in (("user.name", "T"), ("user.email", "t@example.com")):
        process.run(["git", "-C", str(project), "config", name, value])
    return root


def test_commands_that_write_a_repository(repo: Path, tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    for arguments in (
        ("promote", "net", repo, "--version", "2"),
        ("rollback", "net", repo),
        ("build", "--model", model, "--output", repo, "--instances", "2", "--force"),
        ("commit", repo, "-m", "Deploy", "--weights", "git", "--force"),
        ("remove", "net", "--output", repo, "--force"),
    ):
        done = cli.call(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)


def test_git_attributes(repo: Path, victim: Path) -> None:
    """A tracked link in the place of the file itself is replaced."""
    (repo / ".gitattributes").symlink_to(victim)
    assert cli.call("commit", repo, "-m", "Deploy", "--weights", "git", "--force").returncode == 0
    assert not (repo / ".gitattributes").is_symlink()


@pytest.mark.parametrize("name", ["report.xml", "report.xml.new"])
def test_a_file_that_the_user_names(tmp_path: Path, victim: Path, name: str) -> None:
    plant(tmp_path / "clone" / "report.xml", victim)
    file = tmp_path / "clone" / name
    user_file.write(file, b"report")
    assert (file.is_symlink(), file.read_bytes()) == (False, b"report")
    user_file.write(Path(os.devnull), b"report")


def test_a_typed_client(tmp_path: Path, victim: Path) -> None:
    root = tmp_path / "models"
    tiny.put(tiny.tensor_model(tmp_path / "net.onnx"), root, golden=True)
    file = plant(tmp_path / "client.py", victim)
    done = cli.call("client", "net", root, "--output", file, "--force")
    assert done.returncode == 0, done.stderr
    assert b"class" in file.read_bytes()


@pytest.mark.server
def test_the_kept_log_of_a_server(tmp_path: Path, victim: Path) -> None:
    """Its name was that of the server's folder, which everybody sees."""
    root = tmp_path / "models"
    serve_repository.python(root, "raises", serve_repository.RAISES)
    planted = threading.Event()
    done = threading.Event()

    def planter() -> None:
        while not done.wait(0.01):
            for folder in (tmp_path / "tmp").glob("trb-*/"):
                name = folder.with_name(f"{folder.name}.log")
                if not os.path.lexists(name):
                    name.symlink_to(victim)
                    planted.set()

    thread = threading.Thread(target=planter)
    thread.start()
    try:
        failed = cli.process(tmp_path, "serve", str(root), *serve_repository.FREE)
    finally:
        done.set()
        thread.join()
    assert cli.kind(failed.stderr) == Code.MODEL_FAILED
    assert planted.is_set()
    (log,) = (file for file in (tmp_path / "tmp").glob("trb-*.log") if not file.is_symlink())
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "boom" in log.read_text()


def test_a_log_that_the_user_names(tmp_path: Path, victim: Path) -> None:
    """In a folder like /tmp a link is refused; in the user's own it is the user's."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder in (shared, own):
        folder.mkdir()
    shared.chmod(0o1777)
    plant(shared / "server.log", victim)
    for name in ("server.log", "server.log.new"):
        with pytest.raises(TrbError) as caught:
            start.log_file(ServeOptions(log_file=shared / name), tmp_path)
        assert caught.value.code is Code.OUTPUT_NOT_WRITABLE
        assert "another user" in caught.value.message
    log = own / "today.log"
    (own / "current.log").symlink_to(log)
    assert start.log_file(ServeOptions(log_file=own / "current.log"), tmp_path).path == log.resolve()


def test_the_log_of_a_process(tmp_path: Path, victim: Path) -> None:
    log = plant(tmp_path / "state" / "x.messages", victim)
    with pytest.raises(OSError):
        process.spawn(["true"], log=log, env={})
    child = process.spawn(["echo", "said"], log=tmp_path / "own.messages", env=dict(os.environ))
    assert child.wait(60) == 0
    assert stat.S_IMODE((tmp_path / "own.messages").stat().st_mode) == 0o600


def test_the_state_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert stat.S_IMODE(registry.folder().stat().st_mode) == 0o700
    registry.folder().chmod(0o755)
    assert stat.S_IMODE(registry.folder().stat().st_mode) == 0o700


def test_an_entry_of_the_state_folder(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = registry.folder() / "0.json"
    entry = registry.Background(
        pid=1,
        born="",
        name="n",
        repository="r",
        engine="embedded",
        server_pid=1,
        urls={},
        log="",
        started=0.0,
    )
    registry.write(file, entry)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    plant(registry.folder() / f"1{registry.PART}", victim)
    with pytest.raises(TrbError):
        registry.write(registry.folder() / "1.json", entry)


def test_the_packages_of_an_image(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plant(tmp_path / "cache" / "trb" / "images" / "a+b:1.txt", victim)
    installed.record("a/b:1", ["numpy==1.26.4"])
    assert installed.requirements("a/b:1") == ["numpy==1.26.4"]


def test_the_log_of_a_search(tmp_path: Path, victim: Path) -> None:
    for number, target in enumerate((victim, victim.with_name("planted"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / study.LOG).symlink_to(target)
        with pytest.raises(TrbError) as caught:
            study.Search((), {}, folder, 0)
        assert caught.value.code is Code.OUTPUT_NOT_WRITABLE


def test_onnxruntime_leaves_no_session_in_the_shared_folder(tmp_path: Path, victim: Path) -> None:
    """Its telemetry writes TMPDIR/.ses, through a link: turned off, in model processes as well."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / ".ses").symlink_to(victim)
    model = tiny.tensor_model(tmp_path / "net.onnx")
    done = cli.process(tmp_path, "build", "--model", str(model), "--output", str(tmp_path / "models"))
    assert done.returncode == 0, done.stderr


@pytest.mark.server
def test_what_a_server_writes(tmp_path: Path, victim: Path) -> None:
    """From its start to its end, also if every name in TMPDIR that is foreseen is taken."""
    root = sleeper.write(tmp_path)
    (tmp_path / "tmp").mkdir()
    names = [".ses", "server.log", "trb.log", "trb-.log", *PREDICTABLE]
    for name in names:
        (tmp_path / "tmp" / name.replace("/", "_")).symlink_to(victim)
    with command(tmp_path, "serve", root, *serve_repository.FREE, "--json") as trb:
        trb.says('"server_pid"')
        private = [*trb.tmp.glob("trb-*/")]
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in private] == [0o700]
        trb.process.terminate()
        assert trb.process.wait(60) == 0


def test_a_new_file_is_made_under_a_name_that_nobody_foresees(tmp_path: Path, victim: Path) -> None:
    """``files.write`` and ``files.create``, the door that everything else uses."""
    target = plant(tmp_path / "models" / "manifest.json", victim)
    files.write(target, b"{}")
    assert (target.is_symlink(), target.read_bytes()) == (False, b"{}")
    with pytest.raises(FileExistsError):
        files.create(plant(tmp_path / "models" / "other", victim), b"{}")

"""The commands whose system calls are broken: how each begins, and its old and its new state."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import reseal
import tiny
import two_versions

from tests.reliability import forked, strace
from triton_repo_builder.endpoint.render.vendor_tokenizers import ELF_X86_64
from triton_repo_builder.repository.journal import seal

REPO = "repo"
STAGING = (f"{REPO}/", REPO, f".{REPO}.trb-")
GIT = (*STAGING, ".git", "tmp/")
_WHEEL = "tokenizers-0.1-cp39-abi3-manylinux2014_x86_64.whl"
_BUILD = ("build", "--no-golden", "--tokenizers-wheel", _WHEEL, "--output", REPO, "--model")
_ONE, _TWO = "one/sentiment", "two/sentiment"
_COMMIT = ("commit", REPO, "-m", "Deploy", "--weights", "git")
_GITCONFIG = """[user]
name = A User
email = user@example.org
[init]
defaultBranch = main
[core]
compression = 0
looseCompression = 0
[gc]
auto = 0
"""
OF_GIT = (".gitattributes", ".gitignore")
"""Files that a commit writes into the repository; they are not the repository's."""
Setup = Sequence[Sequence[str]]
"""Commands of trb, or of git if they begin so."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One command, and the state in which it starts."""

    name: str
    setup: Setup
    argv: tuple[str, ...]
    again: tuple[str, ...] = ()
    """The command that a user runs after a failure, if it is not the same."""
    parts: tuple[str, ...] = STAGING
    """How paths of the repository, its staging and git's folder begin, from the folder of a run."""
    passing: Setup = ()
    """Further commands after which the repository is in a good state, too: a step of the command."""
    each: Setup = ()
    """Commands before each run."""
    look: Literal["files", "git", "remote"] = "files"
    """What has an old and a new state."""
    calls: tuple[str, ...] = strace.CALLS


FIRST = [(*_BUILD, _ONE)]
SECOND = [*FIRST, (*_BUILD, _TWO, "--version", "next")]
THIRD = [*SECOND, (*_BUILD, _TWO, "--version", "next", "--instances", "3")]
_KEPT = (*_BUILD, _ONE, "--version", "next", "--instances", "2")
_MOVED = [*FIRST, ("mv", REPO, "old"), (*_BUILD, _TWO)]
_OLD, _NEW = "oci://{registry}/models/{base}:1", "oci://{registry}/models/{run}:1"

SCENARIOS = (
    Scenario(name="build (first)", setup=[], argv=(*_BUILD, _ONE)),
    Scenario(name="build (again)", setup=FIRST, argv=(*_BUILD, _TWO, "--instances", "2")),
    Scenario(name="build --version next", setup=FIRST, argv=(*_BUILD, _TWO, "--version", "next")),
    Scenario(name="build --keep", setup=THIRD, argv=(*_KEPT, "--keep", "1"), passing=[_KEPT]),
    Scenario(
        name="remove",
        setup=[*FIRST, (*_BUILD, _TWO, "--name", "other")],
        argv=("remove", "sentiment", "--output", REPO),
    ),
    Scenario(name="promote", setup=SECOND, argv=("promote", "sentiment", REPO, "--version", "2")),
    Scenario(
        name="rollback",
        setup=[*SECOND, ("promote", "sentiment", REPO, "--version", "2")],
        argv=("rollback", "sentiment", REPO),
    ),
    Scenario(name="commit (first)", setup=FIRST, argv=_COMMIT, parts=GIT, look="git"),
    Scenario(
        name="commit --branch",
        setup=[*FIRST, _COMMIT, (*_BUILD, _TWO)],
        argv=(*_COMMIT, "--branch", "deploy"),
        parts=GIT,
        look="git",
    ),
    Scenario(
        name="commit --push",
        setup=[
            *FIRST,
            _COMMIT,
            ("git", "init", "-q", "--bare", "remote.git"),
            ("git", "remote", "add", "origin", "remote.git"),
            (*_BUILD, _TWO),
        ],
        argv=(*_COMMIT, "--push"),
        parts=(*GIT, "remote.git"),
        look="git",
    ),
    Scenario(
        name="push",
        setup=_MOVED,
        each=[("push", _NEW, "old")],
        argv=("push", _NEW, REPO),
        look="remote",
        calls=strace.READS,
    ),
    Scenario(name="pull", setup=[*_MOVED, ("push", _OLD, REPO), ("rm", REPO)], argv=("pull", _OLD, REPO)),
    Scenario(
        name="pull --force",
        setup=[*FIRST, ("push", _OLD, REPO), (*_BUILD, _TWO)],
        argv=("pull", _OLD, REPO, "--force"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class State:
    """What is there: of the repository, and of git or of the store."""

    files: str
    """Digest over all files of the repository."""
    beside: str = ""
    """The tips of git's branches; what a pull from the store brings."""


def environment(root: Path) -> dict[str, str]:
    """Variables of a command: temporary files and home in the run's folder, always the same commit dates."""
    date = "2026-01-01T00:00:00 +0000"
    return {
        "TMPDIR": str(root / "tmp"),
        "HOME": str(root / "home"),
        "XDG_STATE_HOME": str(root / "home"),
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def sources(root: Path) -> None:
    """Two small exported models, a library that travels with them, a home, a folder for temporary files."""
    two_versions.make(root)
    _wheel(root / _WHEEL)
    for name in ("tmp", "home"):
        (root / name).mkdir()
    (root / "home" / ".gitconfig").write_text(_GITCONFIG)


def _wheel(path: Path) -> None:
    """Stands for the tokenizers library, whose 10 MB would be thousands of calls that are all alike."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tokenizers/__init__.py", "from .tokenizers import Tokenizer\n")
        archive.writestr("tokenizers/tokenizers.abi3.so", ELF_X86_64 + bytes(13) + b"\x3e\0" + bytes(200))
        archive.writestr("tokenizers-0.1.dist-info/METADATA", "Name: tokenizers\nVersion: 0.1\n")


def prepare(root: Path, commands: Setup) -> None:
    """Run the commands, each of which has to succeed."""
    for command in commands:
        if command[0] == "rm":
            shutil.rmtree(root / command[1])
        elif command[0] == "mv":
            (root / command[1]).rename(root / command[2])
        elif command[0] == "git":
            git(root, *command[1:])
        else:
            ended = forked.trb(filled(command, root), root, env=environment(root))
            if ended.code:
                raise SystemExit(f"trb {' '.join(command)} exits {ended.code}:\n{ended.output}")


def filled(command: Sequence[str], root: Path) -> list[str]:
    """A command with the registry's address, and names there: of this run, and of the state it began with."""
    registry, base = os.environ.get("TRB_REGISTRY", ""), root.name.split(".")[0]
    return [word.format(registry=registry, run=root.name, base=base) for word in command]


def copied(base: Path, target: Path) -> Path:
    """A copy with all times, the hard links of the repository, and staging folders with valid seals."""
    subprocess.run(["cp", "-a", str(base), str(target)], check=True)
    for folder in leftovers(target):
        facts = folder.stat()
        if (folder / seal.MARK).exists():
            reseal.reseal(folder, target / "home")
        os.utime(folder, (facts.st_atime, facts.st_mtime))
    return target


def look(root: Path, scenario: Scenario) -> State:
    """The state of a run's folder."""
    beside = ""
    if scenario.look == "git" and (root / ".git").exists():
        beside = git(root, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")
        if (root / "remote.git").exists():
            beside += "|" + git(root / "remote.git", "for-each-ref", "--format=%(refname) %(objectname)")
    if scenario.look == "remote":
        argv = filled(("pull", _NEW, "tmp/pulled"), root)
        ended = forked.trb(argv, root, env=environment(root))
        beside = _digest(root / "tmp" / "pulled") if ended.code == 0 else ended.output
        shutil.rmtree(root / "tmp" / "pulled", ignore_errors=True)
    return State(files=_digest(root / REPO), beside=beside)


def _digest(folder: Path) -> str:
    files = sorted(tiny.tree(folder).items()) if folder.exists() else []
    files = [(path, digest) for path, digest in files if path not in OF_GIT]
    return hashlib.sha256(repr(files).encode()).hexdigest()


def git(folder: Path, *arguments: str) -> str:
    """git's output, errors included; a failure is part of what is looked at."""
    root = folder if (folder / "home").exists() else folder.parent
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + (f"exit {done.returncode}: {done.stderr}" if done.returncode else "")


def leftovers(root: Path) -> list[Path]:
    """Folders beside the repository that a killed command left."""
    return sorted(path for path in root.iterdir() if path.name.startswith(f".{REPO}.trb-"))

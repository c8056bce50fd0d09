"""Unit tests start no process, know no ``$HOME`` and reach no network: what they need they make."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from triton_repo_builder.base import hardware, process
from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.model.graph import isolated, sessions

# The same examples everywhere, and no limit on time: a busy machine is no bug.
settings.register_profile("trb", deadline=None, derandomize=True, database=None)
settings.load_profile("trb")


@pytest.fixture(autouse=True)
def sealed(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.getbasetemp() / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(process, "run", _no_process)
    monkeypatch.setattr(process, "spawn", _no_process)
    monkeypatch.setattr(process, "spawn_python", _no_process)
    monkeypatch.setattr(isolated, "start", lambda: None)
    monkeypatch.setattr(isolated, "ask", _here)
    monkeypatch.setattr(hardware, "here", lambda: Hardware(cores=2, gpus=()))
    connect = socket.socket.connect

    def only_here(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost", "::1"):
            raise AssertionError(f"a unit test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", only_here)


def _here(name: str, *arguments: Any, **limits: Any) -> Any:
    """What the process that runs users' graphs answers, computed in this one."""
    sessions.close(isolated.SESSIONS.done)
    try:
        return sessions.CALLS[name](*arguments)
    except Exception as error:
        raise isolated.Failed(str(error)) from error


def _no_process(*args: object, **kwargs: object) -> NoReturn:
    raise AssertionError(f"a unit test tried to start {args[0] if args else kwargs}")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Where a repository goes."""
    return tmp_path / "model_repository"

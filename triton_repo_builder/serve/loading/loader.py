"""Loads on a server that runs; one that never ends is noticed where the server's processes can be seen."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from triton_repo_builder.client import HttpClient
from triton_repo_builder.serve.loading import load_models, load_unload
from triton_repo_builder.serve.processes.stubs import Stubs


class Hung(Exception):
    """A model's Python process ended while it started, so that the server never ends the load."""


class Loader:
    """Loads on the server at one address. Raises ``TrbError`` UNREACHABLE where none answers."""

    def __init__(self, base: str) -> None:
        self._server = load_unload.find(base)
        # Paths as the server has them in the arguments of its stubs: not resolved.
        self._stubs = Stubs(self._server.pid, str(self._server.repository.path))

    def load(self, model: str, timeout: float) -> str:
        """The server's reason where the load fails, else nothing. Raises ``Hung``, OSError."""
        if not self._server.pid:
            return HttpClient(self._server.base, timeout).load(model)
        dead = frozenset(stub.pid for stub in self._stubs.scan() if stub.dead)
        loaded = load_models.load(
            self._server.base,
            (model,),
            self._stubs,
            timeout=timeout,
            alive=self._alive,
            progress=lambda text: None,
            ignore=dead,
        )
        if loaded.hung:
            raise Hung("; ".join(f"{failure.model}: {failure.cause}" for failure in loaded.hung))
        if not self._alive():
            raise ConnectionError("it ended")
        if loaded.unfinished:
            raise TimeoutError(f"no answer within {timeout:g} s")
        return loaded.answers[model]

    def _alive(self) -> bool:
        return Path(f"/proc/{self._server.pid}").exists()

    def open(self, models: Collection[str]) -> str:
        """A version of these models that the server has not done loading; empty where there is none."""
        return next(
            (
                f"version {entry.version} of {entry.name}"
                for entry in HttpClient(self._server.base, 10).index_or_empty()
                if entry.name in models and entry.state == "LOADING"
            ),
            "",
        )

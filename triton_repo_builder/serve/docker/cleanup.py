"""What one server is called in Docker, and the guard that removes it when we cannot."""

from __future__ import annotations

import os
import re
import secrets
import sys
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_repo_builder import process
from triton_repo_builder.process import Process
from triton_repo_builder.serve import workdir
from triton_repo_builder.serve.docker import daemon, supervisor

UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+")
"""What Docker does not take in a name."""


class Leash:
    """Names chosen before anything has them, so that all can be removed whenever and by whomever."""

    def __init__(self, repository: Path) -> None:
        self.container = f"trb-{UNNAMED.sub('-', repository.name)}-{secrets.token_hex(4)}"
        self.helper = f"{self.container}-copy"
        self.volume = f"{self.container}-models"
        self._guard: Process = process.leashed(
            [sys.executable, supervisor.__file__, self.container, self.helper, self.volume], env=os.environ
        )

    @cached_property
    def folder(self) -> Path:
        """For what belongs to this server; there once the guard is ready. Raises ``TrbError``.

        Only then may anything be made.
        """
        return workdir.folder(self._guard)

    def clear(self, client: Any) -> None:
        """Remove everything ourselves, and let the guard go. Never raises."""
        for name in (self.container, self.helper):
            with suppress(*daemon.errors()):
                client.api.remove_container(name, force=True, v=True)
        with suppress(*daemon.errors()):
            client.api.remove_volume(self.volume, force=True)
        process.send(self._guard, b"x")
        self._end()

    def abandon(self) -> None:
        """Leave it to the guard, which also finds what is only about to be made."""
        self._end()

    def _end(self) -> None:
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()

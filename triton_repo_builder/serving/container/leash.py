"""What one server is called in Docker, and the guard that removes it when we cannot."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from triton_repo_builder import process
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.process import Process
from triton_repo_builder.serving.container import daemon, guard

UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+")
"""What Docker does not take in a name."""
ARMING = 20.0


class Leash:
    """Names chosen before anything has them, so that all can be removed whenever and by whomever."""

    def __init__(self, repository: Path) -> None:
        self.container = f"trb-{UNNAMED.sub('-', repository.name)}-{secrets.token_hex(4)}"
        self.helper = f"{self.container}-copy"
        self.volume = f"{self.container}-models"
        self.folder = Path(tempfile.mkdtemp(prefix="trb-"))
        self._guard: Process = process.spawn(
            [sys.executable, guard.__file__, str(self.folder), self.container, self.helper, self.volume],
            log=self.folder / "guard.log",
            env=os.environ,
            leash=True,
        )

    def armed(self) -> None:
        """Return when the guard is ready: only then may anything be made. Raises ``TrbError``."""
        deadline = time.monotonic() + ARMING
        while not (self.folder / guard.ARMED).exists():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "guard.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise TrbError(
                    Exit.SERVER_DIED,
                    f"the process that would clean up after trb does not start: {''.join(said)}",
                    remedy="report this as a bug of trb",
                )
            time.sleep(0.01)

    def clear(self, client: Any) -> None:
        """Remove everything ourselves, and let the guard go. Never raises."""
        for name in (self.container, self.helper):
            with suppress(*daemon.errors()):
                client.api.remove_container(name, force=True, v=True)
        with suppress(*daemon.errors()):
            client.api.remove_volume(self.volume, force=True)
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.write(b"x")
            self._guard.stdin.flush()
        self._end()

    def abandon(self) -> None:
        """Leave it to the guard, which also finds what is only about to be made."""
        self._end()

    def _end(self) -> None:
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

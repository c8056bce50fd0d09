"""Start ``trb serve`` in the background and wait until its server is ready or has failed."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

from triton_repo_builder import process
from triton_repo_builder.serve.background import registry
from triton_repo_builder.serve.background.registry import Background

TICK = 0.05
RUN = "import sys; sys.path = [p for p in sys.path if p]; from triton_repo_builder.cli import main; main()"
"""``python -m`` would import from the folder that the user happens to work in."""


def start(arguments: list[str], tell: Callable[[str], None]) -> Background | int:
    """Run ``trb serve ARGUMENTS`` apart from this terminal; what it became, or its exit code.

    ``tell`` gets its messages, the error included, line by line. Interrupting this stops it again.
    """
    file = registry.folder() / f"{secrets.token_hex(6)}.json"
    messages = file.with_suffix(registry.MESSAGES)
    argv = [sys.executable, "-c", RUN, "serve", *arguments, "--supervise", str(file)]
    child = process.spawn(argv, log=messages, env=os.environ)
    told = 0
    try:
        while True:
            ended = child.poll()
            entry = registry.read(file)
            told = _relay(messages, told, tell, last=ended is not None)
            if entry is not None:
                return entry
            if ended is not None:
                registry.forget(file)
                return ended
            time.sleep(TICK)
    except BaseException:
        child.terminate()
        child.wait()
        registry.forget(file)
        raise


def _relay(messages: Path, told: int, tell: Callable[[str], None], *, last: bool) -> int:
    """Hand on the whole lines that are new; the position up to which that is done."""
    new = messages.read_bytes()[told:]
    end = len(new) if last else new.rfind(b"\n") + 1
    for line in new[:end].decode("utf-8", "replace").splitlines():
        tell(line)
    return told + end

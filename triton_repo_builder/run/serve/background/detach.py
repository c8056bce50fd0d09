"""Start ``trb serve`` in the background and wait until its server is ready or has failed."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.serve.background import log_follow, registry
from triton_repo_builder.run.serve.background.registry import Background

TICK = 0.05
_MESSAGE = 1 << 13
"""Bytes that an error message and its context need at most, in nearly all cases."""


def start(arguments: list[str], tell: Callable[[str], None]) -> Background | int:
    """Run ``trb serve ARGUMENTS`` detached from this terminal; return the server, or the exit code.

    ``tell`` gets its messages, errors included, line by line. An interrupt stops it again.
    """
    file = registry.folder() / f"{secrets.token_hex(6)}.json"
    messages = file.with_suffix(registry.MESSAGES)
    argv = process.python("triton_repo_builder", "serve", *arguments, "--supervise", str(file))
    child = process.spawn(argv, log=messages, env=os.environ)
    position = 0

    def tell_lines(text: str) -> None:
        for line in text.splitlines():
            tell(line)

    try:
        while True:
            ended = child.poll()
            entry = registry.read(file)
            position = log_follow.relay(messages, position, tell_lines, last=ended is not None)
            if entry is not None:
                return entry
            if ended is not None:
                registry.forget(file)
                if ended and not position:
                    raise _no_message(ended)
                return ended
            time.sleep(TICK)
    except BaseException:
        child.terminate()
        child.wait()
        registry.forget(file)
        raise


def _no_message(ended: int) -> TrbError:
    """The error for a server that ended without a message: the disk of its messages is full, most likely."""
    probe = registry.folder() / f"{secrets.token_hex(6)}.part"
    try:
        files.create(probe, bytes(_MESSAGE), mode=0o600)
    except OSError as error:
        return registry.unwritable(error)
    finally:
        with suppress(OSError):
            probe.unlink()
    return TrbError(
        Code.SERVER_DIED,
        f"trb serve ended with exit code {ended}, and said nothing",
        remedy="run it without --detach, and see what it says",
    )

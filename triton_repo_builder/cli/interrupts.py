"""SIGTERM, and SIGHUP from a terminal that closes, end a command as Ctrl-C does: it cleans up, and exits 130.

Kubernetes, systemd and ``timeout`` send SIGTERM; by default it would end the process between two statements.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_RECEIVED: set[int] = set()


def received(number: int) -> bool:
    """Whether this signal of ``SIGNALS`` has come: to the code that cleans up all look like Ctrl-C."""
    return number in _RECEIVED


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` in the main thread for each of ``SIGNALS``.

    A signal that is ignored already stays ignored: ``nohup`` does that with SIGHUP.
    """
    if threading.current_thread() is not threading.main_thread():  # Python allows it nowhere else
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _RECEIVED.clear()
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])


@contextmanager
def ctrl_c_in_background() -> Iterator[None]:
    """Let SIGINT end a server that a script started in the background: its shell ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: Any) -> None:
    _RECEIVED.add(number)
    _drop_lost_terminal()
    # A closing terminal sends SIGHUP, and so does its shell: the second would end what the first has begun.
    if not _cleaning_up():
        raise KeyboardInterrupt


def _cleaning_up() -> bool:
    """Whether the main thread handles an interrupt already: the handler sees the exceptions of its frames."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _drop_lost_terminal() -> None:
    """Discard output if its terminal is gone: a message must not end the roll-back."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError as error:
            if error.errno != errno.EIO:  # such as one that was closed, whose number a lock may have now
                continue
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)

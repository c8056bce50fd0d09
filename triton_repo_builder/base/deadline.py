"""Work that somebody else may keep from ending: a store that drips, a pattern without an end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TypeVar, cast

Result = TypeVar("Result")


class Exceeded(Exception):
    """The time is over. Not ``TimeoutError``, which the action itself may raise, for a socket say."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raise ``Exceeded`` in a block of Python's own functions that has not ended by then.

    ``re`` holds the interpreter's lock while it matches, and looks for signals, which only the main thread
    gets: in another one the block is not interrupted. An alarm that somebody else has set is kept.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise Exceeded

    begin, left, interval = time.monotonic(), 0.0, 0.0
    handler = signal.signal(signal.SIGALRM, over)
    try:
        left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, handler)
        if left:
            rest = max(left - (time.monotonic() - begin), 0.001)
            signal.setitimer(signal.ITIMER_REAL, rest, interval)


def within(seconds: float, action: Callable[[], Result]) -> Result:
    """The result of an action; raises its errors, and ``Exceeded`` if it has not ended by then.

    Neither a library nor a socket that gets a byte at a time can be interrupted: such an action goes on in
    its thread, which ends with this process.
    """
    outcome: list[tuple[Result | None, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((action(), None))
        except BaseException as error:
            outcome.append((None, error))

    worker = Thread(target=work, daemon=True)
    worker.start()
    worker.join(seconds)
    if not outcome:
        raise Exceeded
    result, error = outcome[0]
    if error is not None:
        raise error
    return cast("Result", result)

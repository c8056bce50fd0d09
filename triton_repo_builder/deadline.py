"""Work that somebody else may keep from ending: a store that drips, a pattern without an end."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar, cast

Result = TypeVar("Result")


class Exceeded(Exception):
    """The time is over. Not ``TimeoutError``, which the action itself may raise, for a socket say."""


def within(seconds: float, action: Callable[[], Result]) -> Result:
    """The result of an action; raises what it raises, and ``Exceeded`` if it has not ended by then.

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

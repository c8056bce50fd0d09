"""Retries after a server's 5xx or a dropped connection, with growing pauses.

For registries and web servers. The libraries of buckets do it by themselves; ``Hints.tries`` says how often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from triton_repo_builder.base.errors import TrbError

PAUSES = (0.3, 1.0, 3.0)
"""Seconds before the second try and each one after it."""
TRIES = len(PAUSES) + 1
DROPPED = frozenset(
    {
        *("ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError", "RemoteDisconnected"),
        *("ConnectionClosedError", "ServerDisconnectedError", "ProtocolError", "IncompleteRead"),
        *("ChunkedEncodingError", "ClientPayloadError", "ClientOSError", "ResponseStreamingError"),
    }
)
"""Exceptions of a connection that was open; a failure to connect is final."""
_MARK = "trb_tried"
Result = TypeVar("Result")


def patiently(action: Callable[[], Result]) -> Result:
    """Call until success, a final failure, or TRIES tries; then raises ``TrbError``."""
    for pause in PAUSES:
        try:
            return action()
        except Exception as error:
            # A request inside of this action that was tried so often is not worth more.
            if not passing(error) or any(hasattr(inner, _MARK) for inner in _causes(error)):
                raise
        time.sleep(pause)
    try:
        return action()
    except Exception as error:
        if not passing(error):
            raise
        setattr(error, _MARK, True)
        if not isinstance(error, TrbError):
            raise
        message = f"{error.message} (tried {TRIES} times)"
        raise TrbError(error.code, message, where=error.where, remedy=error.remedy) from error


def passing(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    causes = _causes(error)
    return any(500 <= _status(inner) < 600 or type(inner).__name__ in DROPPED for inner in causes)


def tried(error: BaseException, library: int = 0) -> str:
    """The number of tries, for the end of a message; empty if the failure was not tried again.

    ``library``: least number of tries by its library; 0 if ``patiently`` tries.
    """
    if not passing(error):
        return ""
    for inner in _causes(error):
        metadata = _metadata(inner)
        if "RetryAttempts" in metadata:  # botocore's own count
            return f" (tried {int(metadata['RetryAttempts']) + 1} times)"
    return f" (tried {f'at least {library}' if library else TRIES} times)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes: each library wraps the next one's exceptions in its own way."""
    rest, seen = [error], set()
    while rest:
        inner = rest.pop()
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        below = (inner.__cause__, inner.__context__, getattr(inner, "reason", None), *inner.args)
        rest += [each for each in below if isinstance(each, BaseException)]


def _status(error: BaseException) -> int:
    """HTTP status; 0 if the exception has none."""
    named = (getattr(error, name, None) for name in ("status", "status_code", "code"))
    values = (_metadata(error).get("HTTPStatusCode"), *named)
    return next((int(text) for text in map(str, values) if text.isdecimal()), 0)


def _metadata(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return metadata if isinstance(metadata, dict) else {}

"""The record of a request, for metrics and logs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from triton_repo_builder.run.gateway.call import Call
from triton_repo_builder.run.gateway.triton import Metadata

UNMATCHED = "unmatched"
"""Route of a request to a path that does not exist."""
HEALTH = "/health"
"""Path that proxies ask all the time: its answer is not a failure, whatever it says."""
GONE = 499
"""Status in logs of a request whose client has gone (nginx's number)."""
ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
TRACE = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]{0,200})?"
)
STATE = re.compile(rb"[ -~]{1,512}")


@dataclass(slots=True)
class Access:
    """A request from its first byte to its last."""

    id: str
    path: str = UNMATCHED
    """Path of its route."""
    owner: str = ""
    """Owner of its API key."""
    status: int = 0
    error: str = ""
    """Code of its error: ``invalid_value``, ``timeout``, …; empty if it has none."""
    at: str = ""
    """The field of the request that the error is about."""
    call: Call | None = None
    started: float = field(default_factory=time.perf_counter)
    read: float = 0.0
    """Seconds until its body was there."""
    handled: float = 0.0
    """Seconds in the route's handler."""
    written: float = 0.0
    """Seconds until the client had taken the answer."""
    held: int = 0
    """Bytes of its body."""
    span: Any = None
    """The request's ``tracing.Span``, if it is traced."""
    entered: bool = False
    """Whether it counts as a request under way (``Admission``)."""

    @property
    def model(self) -> str:
        """The endpoint's name; empty if none was asked."""
        return self.call.model if self.call is not None else ""


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """The client's id of a request, if it fits into a header and a line of a log; else a new one."""
    stated = headers.get(b"x-request-id", b"")
    return stated.decode() if ID.fullmatch(stated) else os.urandom(16).hex()


def trace(headers: Mapping[bytes, bytes]) -> Metadata:
    """The W3C trace that a request belongs to, for Triton: unchanged, or nothing if it is not valid."""
    parent = headers.get(b"traceparent", b"")
    if not parent or not TRACE.fullmatch(parent):
        return ()
    state = headers.get(b"tracestate", b"")
    if not STATE.fullmatch(state):
        return (("traceparent", parent.decode()),)
    return ("traceparent", parent.decode()), ("tracestate", state.decode())


class Log:
    """Lines on standard error: warnings and failures, and each request if a format is chosen."""

    def __init__(self, format: str) -> None:
        self.format = format

    def warning(self, message: str) -> None:
        """A line that an operator should read."""
        if self.format == "json":
            _write(orjson.dumps({"time": _now(), "level": "warning", "message": message}).decode())
        else:
            _write(f"warning: {message}")

    def note(self, message: str) -> None:
        """A line about what has changed."""
        if self.format == "json":
            _write(orjson.dumps({"time": _now(), "level": "info", "message": message}).decode())
        else:
            _write(message)

    def request(self, access: Access) -> None:
        """The line of a request that is over."""
        if self.format == "none" and (access.status < 500 or access.path == HEALTH):
            return
        call = access.call
        milliseconds = round((time.perf_counter() - access.started) * 1000, 3)
        fields = {
            "id": access.id,
            "route": access.path,
            "model": access.model,
            "status": access.status,
            "error": access.error,
            "field": access.at,
            "items": call.rows if call else 0,
            "tokens": call.tokens if call else 0,
            "ms": milliseconds,
            "infer_ms": round(call.inferred * 1000, 3) if call else 0,
            "owner": access.owner,
            "gone": access.status == GONE,
            "trace": call.metadata[0][1].split("-")[1] if call and call.metadata else "",
        }
        if self.format == "json":
            level = "error" if access.status >= 500 else "info"
            about = {"time": _now(), "level": level, "message": f"{access.path} {access.status}"}
            _write(orjson.dumps({**about, **fields}).decode())
        else:
            said = " ".join(f"{name}={value}" for name, value in fields.items() if value)
            _write(f"{_now()} {said}")


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def _write(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:  # its reader has gone; requests are answered nevertheless
        pass

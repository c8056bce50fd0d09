"""The few HTTP calls that serving needs. No proxy settings apply: the server is on this machine."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from triton_repo_builder.errors import Code, TrbError

TICK = 0.05
UNLOADED = "unloaded"
"""The reason that the index gives for what is not loaded because someone wanted that."""


def call(url: str, body: Mapping[str, Any] | None = None, *, timeout: float = 10.0) -> tuple[int, Any]:
    """GET, or POST where there is a body; status and JSON (the text where it is none). Raises OSError."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
    try:
        if body is None:
            connection.request("GET", parts.path)
        else:
            # Without a content type of its own the server parses the body as a query string.
            connection.request("POST", parts.path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer: {error!r}") from None
    finally:
        connection.close()
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, text


def ready(base: str) -> bool:
    """Whether the server says that it is ready."""
    try:
        return call(f"{base}/v2/health/ready", timeout=2)[0] == 200
    except OSError:
        return False


def load(base: str, model: str, timeout: float) -> str:
    """Load a model and what it needs; the server's reason where that fails, else nothing."""
    status, answer = call(f"{base}/v2/repository/models/{quote(model)}/load", {}, timeout=timeout)
    return "" if status == 200 else error_text(answer)


def unload(base: str, model: str, timeout: float, *, steps: bool = False) -> str:
    """Unload a model; the server goes on with that in the background.

    With ``steps`` also the models it is made of that nothing else that is loaded needs.
    """
    body = {"parameters": {"unload_dependents": True}} if steps else {}
    status, answer = call(f"{base}/v2/repository/models/{quote(model)}/unload", body, timeout=timeout)
    return "" if status == 200 else error_text(answer)


def known(base: str, timeout: float = 10.0) -> tuple[str, ...]:
    """Every model of the server's repository, loaded or not."""
    return tuple(dict.fromkeys(entry["name"] for entry in entries(base, timeout)))


def loaded(base: str, timeout: float = 10.0) -> tuple[str, ...]:
    """Every model that answers now."""
    return tuple(name for name, (state, _) in index(base, timeout).items() if state == "READY")


def settled(base: str, model: str, patience: float) -> dict[int, str]:
    """The state of each version once none is on its way, or ``patience`` seconds have passed."""
    deadline = time.monotonic() + patience
    while True:
        mine = [entry for entry in entries(base) if entry["name"] == model]
        states = {int(entry["version"] or 0): entry["state"] for entry in mine}
        if not {*states.values()} & {"LOADING", "UNLOADING"} or time.monotonic() > deadline:
            return states
        time.sleep(TICK)


def ready_versions(base: str, timeout: float = 10.0) -> frozenset[tuple[str, str]]:
    """Model and version of all that answers now."""
    return frozenset((e["name"], e["version"]) for e in entries(base, timeout) if e["state"] == "READY")


def failed(base: str, model: str, version: int) -> bool:
    """Whether the server remembers that this version could not be loaded."""
    mine = [e for e in entries(base) if (e["name"], e["version"]) == (model, str(version))]
    return any(is_failure(entry) for entry in mine)


def is_failure(entry: Mapping[str, str]) -> bool:
    """Whether an entry of the index is of a load that failed."""
    return entry["state"] == "UNAVAILABLE" and entry["reason"] not in ("", UNLOADED)


def index(base: str, timeout: float = 10.0) -> dict[str, tuple[str, str]]:
    """State and reason of each model that the server ever tried; a ready version wins over others."""
    states: dict[str, tuple[str, str]] = {}
    for entry in entries(base, timeout):
        if entry["state"] and states.get(entry["name"], ("", ""))[0] != "READY":
            states[entry["name"]] = (entry["state"], entry["reason"])
    return states


def entries(base: str, timeout: float = 10.0) -> tuple[dict[str, str], ...]:
    """The server's index: name, version, state and reason of each version it ever tried, empty where none."""
    status, answer = call(f"{base}/v2/repository/index", {}, timeout=timeout)
    keys = ("name", "version", "state", "reason")
    return tuple(
        {key: str(entry.get(key, "")) for key in keys} for entry in (answer if status == 200 else ())
    )


def model(base: str, name: str, what: str = "") -> dict[str, Any]:
    """Metadata of a model, or its ``/config``."""
    status, answer = call(f"{base}/v2/models/{quote(name)}{what}")
    if status != 200 or not isinstance(answer, dict):
        raise TrbError(Code.SERVER_DIED, f"the server does not describe it: {error_text(answer)}", where=name)
    return answer


def error_text(answer: Any) -> str:
    """The reason in an error answer."""
    return str(answer.get("error", answer)) if isinstance(answer, dict) else str(answer)

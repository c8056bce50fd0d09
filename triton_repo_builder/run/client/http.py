"""Triton's HTTP endpoint, without a third-party HTTP library: what ``curl`` can do.

No proxy settings apply: servers are called directly. numpy is loaded with the first tensor only.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.client import admin_key
from triton_repo_builder.run.client.values import (
    BROKEN,
    JSON,
    REFUSED,
    Body,
    IndexEntry,
    NoAnswer,
    RequestFailed,
    document,
    understood,
)

if TYPE_CHECKING:
    from triton_repo_builder.run.client.codec import Array

HEADER_LENGTH = "inference-header-content-length"
TICK = 0.05
"""Seconds between two looks at the index."""
LARGEST = 2**31 - 1
"""Bytes of an answer with tensors, as over gRPC."""
DOCUMENT = 64 << 20
"""Bytes of any other answer."""
PATIENCE = 10
"""How often the time limit of one read an answer may take as a whole."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A response of any status; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class HttpClient:
    """Triton's HTTP endpoint at ``url`` (``http://host:port``). A connection per request, so thread-safe."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self.timeout = timeout
        self._parts = urllib.parse.urlsplit(self.url)

    @property
    def host(self) -> str:
        """The host name or address of the url."""
        return self._parts.hostname or ""

    def send(self, method: str, path: str, body: Body | None = None) -> Answer:
        """Send one request unchanged; raises ``NoAnswer`` only, also for an answer without end."""
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        headers = dict(body.headers) if body else {}
        try:
            connection = kind(self.host, self._parts.port, timeout=self.timeout)
            try:
                connection.request(method, self._parts.path + path, body.data if body else None, headers)
                answer = connection.getresponse()
                lower = {name.lower(): value for name, value in answer.getheaders()}
                most = LARGEST if path.endswith("/infer") else DOCUMENT
                return Answer(status=answer.status, headers=lower, data=self._read(answer, most))
            finally:
                connection.close()
        except TimeoutError:
            raise NoAnswer(f"no answer within {self.timeout:g} s") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # A connection that is cut is a BadStatusLine for http.client, too.
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                raise NoAnswer("no HTTP server answers; is this the gRPC port?") from None
            raise NoAnswer(f"no answer: {str(error) or type(error).__name__}") from None

    def _read(self, answer: http.client.HTTPResponse, most: int) -> bytes:
        deadline = time.monotonic() + PATIENCE * self.timeout
        data = bytearray()
        while piece := answer.read1(1 << 20):
            data += piece
            if len(data) > most:
                raise NoAnswer(f"the answer has more than {most:,} bytes")
            if time.monotonic() > deadline:
                raise NoAnswer(f"the answer did not end within {PATIENCE * self.timeout:g} s")
        if answer.length:
            raise http.client.IncompleteRead(bytes(data), answer.length)
        return bytes(data)

    def call(self, method: str, path: str, body: Body | None = None) -> Any:
        """One request whose answer is JSON; raises ``RequestFailed`` unless the status is 200."""
        return document(self._accepted(method, path, body).data)

    def _accepted(self, method: str, path: str, body: Body | None) -> Answer:
        answer = self.send(method, path, body)
        if answer.status != 200:
            raise _refusal(answer.status, answer.data)
        return answer

    # --- the server and its models

    def live(self) -> bool:
        """Whether the server is up."""
        return self.send("GET", "/v2/health/live").status == 200

    def ready(self, model: str = "") -> bool:
        """Whether the server, or one model, is ready."""
        path = f"/v2/models/{_quote(model)}/ready" if model else "/v2/health/ready"
        return self.send("GET", path).status == 200

    def answers_live(self) -> bool:
        """``live``, and False if nothing answers."""
        try:
            return self.live()
        except RequestFailed:
            return False

    def answers_ready(self) -> bool:
        """``ready``, and False if nothing answers."""
        try:
            return self.ready()
        except RequestFailed:
            return False

    def version(self) -> str:
        """The server's version, e.g. ``2.51.0``."""
        with understood():
            return str(self.call("GET", "/v2").get("version", ""))

    def metadata(self, model: str) -> dict[str, Any]:
        """A model's platform, versions, inputs and outputs, as the protocol has them."""
        metadata: dict[str, Any] = self.call("GET", f"/v2/models/{_quote(model)}")
        return metadata

    def config(self, model: str) -> ModelConfig:
        """A model's effective configuration."""
        config = ModelConfig(self.call("GET", f"/v2/models/{_quote(model)}/config"))
        with understood():
            config.check()
        return config

    def steps_of(self, model: str) -> tuple[str, ...]:
        """The steps of an ensemble; empty also if the server keeps its configurations to itself."""
        try:
            return tuple(step.model_name for step in self.config(model).steps)
        except RequestFailed:
            return ()

    def endpoint(self, model: str, config: ModelConfig | None = None) -> Endpoint:
        """A model's inputs and outputs; facts that only the configuration states, if that is given."""
        with understood():
            return Endpoint.of_server(self.metadata(model), config, model)

    def describe(self, model: str) -> Endpoint:
        """A model that should be served, whole; raises ``TrbError`` SERVER_DIED."""
        try:
            return self.endpoint(model, self.config(model))
        except RequestFailed as error:
            raise _undescribed(model, error) from None

    def served_versions(self, model: str) -> tuple[str, ...]:
        """The versions of a model that should be served; raises ``TrbError`` SERVER_DIED."""
        try:
            with understood():
                return tuple(map(str, self.metadata(model).get("versions") or ()))
        except RequestFailed as error:
            raise _undescribed(model, error) from None

    def infer(self, model: str, body: Body) -> dict[str, Array]:
        """Send an encoded request (``encode_json`` or ``encode_binary``) and decode the outputs."""
        from triton_repo_builder.run.client.codec import decode

        answer = self._accepted("POST", f"/v2/models/{_quote(model)}/infer", body)
        with understood():
            header = int(answer.headers.get(HEADER_LENGTH, len(answer.data)))
        return decode(answer.data, header)

    # --- the server's repository

    def index(self) -> tuple[IndexEntry, ...]:
        """Every version that the server knows, also versions that failed to load.

        Raises ``RequestFailed``; ``TrbError`` ADMIN_KEY if the server wants its key for that.
        """
        entries = document(self._admin("/v2/repository/index", b"{}").data)
        with understood():
            return tuple(
                IndexEntry(**{key: str(entry.get(key, "")) for key in ("name", "version", "state", "reason")})
                for entry in entries
            )

    def index_or_empty(self) -> tuple[IndexEntry, ...]:
        """``index``, and empty if the server refuses to list its models to anybody. Raises ``NoAnswer``."""
        try:
            return self.index()
        except NoAnswer:
            raise
        except RequestFailed:
            return ()

    def states(self) -> dict[str, tuple[str, str]]:
        """State and reason of each model the server ever tried; a ready version wins over others."""
        states: dict[str, tuple[str, str]] = {}
        for entry in self.index_or_empty():
            if entry.state and states.get(entry.name, ("", ""))[0] != "READY":
                states[entry.name] = (entry.state, entry.reason)
        return states

    def ready_models(self) -> tuple[str, ...]:
        """Names of the models that are ready now."""
        return tuple(dict.fromkeys(entry.name for entry in self.index_or_empty() if entry.ready))

    def load(self, model: str, parameters: Mapping[str, Any] | None = None) -> str:
        """Load a model and its dependencies; the server's reason if that fails, else empty."""
        return self._control(model, "load", parameters)

    def unload(self, model: str, *, steps: bool = False) -> str:
        """Unload a model, which goes on in the background; the server's reason if it refuses, else empty.

        With ``steps`` also the models it is composed of that nothing else loaded needs.
        """
        return self._control(model, "unload", {"unload_dependents": True} if steps else None)

    def _control(self, model: str, action: str, parameters: Mapping[str, Any] | None) -> str:
        text = json.dumps({"parameters": parameters} if parameters else {})
        path = f"/v2/repository/models/{_quote(model)}/{action}"
        try:
            self._admin(path, text.encode())
        except NoAnswer:
            raise
        except RequestFailed as error:
            return error.message
        return ""

    def _admin(self, path: str, data: bytes) -> Answer:
        """POST to an API that the server may restrict. Raises as ``index``."""
        try:
            return self._accepted("POST", path, Body(data=data, headers=JSON | admin_key.headers(self.url)))
        except RequestFailed as error:
            admin_key.check(self.url, error)
            raise

    def wait_until_settled(self, model: str, patience: float) -> dict[int, str]:
        """The state of each version once none is loading or unloading, or after ``patience`` seconds."""
        deadline = time.monotonic() + patience
        while True:
            entries = [entry for entry in self.index_or_empty() if entry.name == model]
            with understood():
                states = {int(entry.version or 0): entry.state for entry in entries}
            if not {*states.values()} & {"LOADING", "UNLOADING"} or time.monotonic() > deadline:
                return states
            time.sleep(TICK)


PLAIN = "!$&'()*+,;=:@"
"""Characters that a path may hold unencoded (RFC 3986): the server does not decode them if encoded."""


def _quote(model: str) -> str:
    return urllib.parse.quote(model, safe=PLAIN)


def _undescribed(model: str, error: RequestFailed) -> TrbError:
    return TrbError(Code.SERVER_DIED, f"the server does not describe it: {error.message}", where=model)


def _refusal(status: int, data: bytes) -> RequestFailed:
    text = data.decode("utf-8", "replace")
    try:
        text = str(load_json(text)["error"])
    except DAMAGED:
        text = " ".join(text[:500].split()).removeprefix(f"{status} ")  # "404 page not found\n", or a page
    return RequestFailed(REFUSED if 400 <= status < 500 else BROKEN, str(status), text)

"""Triton's HTTP endpoint, without a third-party HTTP library: what ``curl`` can do."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.client.codec import JSON, decode, document
from triton_repo_builder.client.values import (
    BROKEN,
    REFUSED,
    SILENT,
    Array,
    Body,
    Counts,
    IndexEntry,
    Metadata,
    RequestFailed,
    read_metadata,
)

HEADER_LENGTH = "inference-header-content-length"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back, whatever its status; header names in lower case."""

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
        """One request as it is; raises only where nothing is answered."""
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        headers = dict(body.headers) if body else {}
        try:
            connection = kind(self.host, self._parts.port, timeout=self.timeout)
            try:
                connection.request(method, self._parts.path + path, body.data if body else None, headers)
                answer = connection.getresponse()
                lower = {name.lower(): value for name, value in answer.getheaders()}
                return Answer(status=answer.status, headers=lower, data=answer.read())
            finally:
                connection.close()
        except TimeoutError:
            raise RequestFailed(SILENT, "", f"no answer within {self.timeout:g} s") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # A connection that is cut is a BadStatusLine for http.client, too.
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                raise RequestFailed(SILENT, "", "no HTTP server answers; is this the gRPC port?") from None
            raise RequestFailed(SILENT, "", f"no answer: {str(error) or type(error).__name__}") from None

    def call(self, method: str, path: str, body: Body | None = None) -> Any:
        """One request whose answer is JSON; raises unless the status is 200."""
        return document(self._accepted(method, path, body).data)

    def _accepted(self, method: str, path: str, body: Body | None) -> Answer:
        answer = self.send(method, path, body)
        if answer.status != 200:
            raise _refusal(answer.status, answer.data)
        return answer

    def live(self) -> bool:
        """Whether the server says that it is up."""
        return self.send("GET", "/v2/health/live").status == 200

    def ready(self, model: str = "") -> bool:
        """Whether the server, or one model, says that it is ready."""
        path = f"/v2/models/{_quote(model)}/ready" if model else "/v2/health/ready"
        return self.send("GET", path).status == 200

    def version(self) -> str:
        """The server's version, e.g. ``2.51.0``."""
        return str(self.call("GET", "/v2").get("version", ""))

    def metadata(self, model: str) -> Metadata:
        """A model's inputs and outputs."""
        return read_metadata(self.call("GET", f"/v2/models/{_quote(model)}"))

    def config(self, model: str) -> dict[str, Any]:
        """A model's effective configuration."""
        config: dict[str, Any] = self.call("GET", f"/v2/models/{_quote(model)}/config")
        return config

    def index(self) -> tuple[IndexEntry, ...]:
        """Every model that the server knows, also those that failed to load."""
        entries = self.call("POST", "/v2/repository/index", Body(data=b"{}", headers=JSON))
        return tuple(
            IndexEntry(**{key: str(entry.get(key, "")) for key in ("name", "version", "state", "reason")})
            for entry in entries
        )

    def counts(self, model: str) -> Counts:
        """A model's statistics, all its versions together."""
        stats = self.call("GET", f"/v2/models/{_quote(model)}/stats")["model_stats"]
        return Counts(
            rows=sum(int(entry.get("inference_count", 0)) for entry in stats),
            executions=sum(int(entry.get("execution_count", 0)) for entry in stats),
            cached=sum(
                int(entry.get("inference_stats", {}).get("cache_hit", {}).get("count", 0)) for entry in stats
            ),
        )

    def infer(self, model: str, body: Body) -> dict[str, Array]:
        """Send an encoded request (``encode_json`` or ``encode_binary``) and decode the outputs."""
        answer = self._accepted("POST", f"/v2/models/{_quote(model)}/infer", body)
        header = int(answer.headers.get(HEADER_LENGTH, len(answer.data)))
        return decode(answer.data, header)


def _quote(model: str) -> str:
    return urllib.parse.quote(model, safe="")


def _refusal(status: int, data: bytes) -> RequestFailed:
    text = data.decode("utf-8", "replace")
    try:
        text = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        text = text[:500]
    return RequestFailed(REFUSED if 400 <= status < 500 else BROKEN, str(status), text)

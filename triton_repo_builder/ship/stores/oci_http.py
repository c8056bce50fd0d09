"""The one door to ``requests``: answers have a maximum and a time limit, a login stays with its registry."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests

from triton_repo_builder.base import transfer
from triton_repo_builder.base.errors import Code, TrbError

LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3})(:\d+)?")
TIMEOUT = (10, 300)
"""Seconds to connect, and between two pieces of an answer."""
BLOCK = 1 << 20
ERROR = 1 << 16
"""Bytes of an error's document that are read; the rest is left."""
REDIRECTS = 5
READING = ("GET", "HEAD")
_OPTIONS: Mapping[str, Any] = {"timeout": TIMEOUT, "stream": True}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A response of any status."""

    method: str
    status: int
    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes = b""
    """The document; of an error its first ``ERROR`` bytes; empty if it comes in ``pieces``."""
    pieces: Iterator[bytes]
    following: str = ""
    """The next page, as the header ``Link`` names it."""


class Web:
    """The registry at ``registry`` (``HOST[:PORT]``), and the addresses that it refers to."""

    def __init__(self, registry: str, where: str) -> None:
        self._registry, self._where = registry, where
        # As in docker: a registry on this machine may use plain HTTP, any other one TLS.
        self.scheme = "http" if LOCAL.fullmatch(registry) else "https"
        self._own, self._others = _session(), _session()

    def use_login(self, user: str, password: str) -> None:
        """Send a name and a password to the registry from now on."""
        self._own.auth = (user, password)

    def use_token(self, token: str) -> None:
        """Send a token to the registry from now on."""
        self._own.headers["Authorization"] = f"Bearer {token}"

    def send(self, method: str, url: str, *, stream: bool = False, **options: Any) -> Answer:
        """One request, and its redirects.

        With ``stream`` the body of a good answer comes in pieces; the caller limits their number.
        Raises ``TrbError`` STORAGE_FAILED, STORAGE_UNREACHABLE, DIGEST_MISMATCH for an answer that is too
        large, and what ``requests`` raises.
        """

        def once() -> Answer:
            return self._answer(method, self._open(method, url, options), stream)

        return transfer.within(transfer.PATIENCE, once, self._where)

    def upload(self, url: str, body: Any, headers: Mapping[str, str]) -> Answer:
        """PUT a body without a time limit; it cannot be sent twice."""
        answer = self._session(url).put(self._allowed(url), data=body, headers=headers, **_OPTIONS)
        return transfer.within(
            transfer.PATIENCE, lambda: self._answer("PUT", answer, stream=False), self._where
        )

    def token(self, realm: str, query: Mapping[str, str], **options: Any) -> Answer:
        """Ask the service ``realm`` for a token; a login goes nowhere else."""
        method = "POST" if "data" in options else "GET"

        def once() -> Answer:
            url = self._allowed(realm)
            answer = self._others.request(method, url, params=query, **_OPTIONS, **options)
            return self._answer(method, answer, stream=False)

        return transfer.within(transfer.PATIENCE, once, self._where)

    def _open(self, method: str, url: str, options: Mapping[str, Any]) -> requests.Response:
        for _ in range(REDIRECTS + 1):
            answer = self._session(url).request(method, self._allowed(url), **_OPTIONS, **options)
            moved = answer.status_code in (307, 308) or (
                answer.status_code in (301, 302, 303) and method in READING
            )
            if not moved or "Location" not in answer.headers:
                return answer
            answer.close()
            url = urljoin(url, answer.headers["Location"])
        raise self._refused(f"redirects more than {REDIRECTS} times")

    def _session(self, url: str) -> requests.Session:
        """The session for a URL: only requests to the registry itself have the login."""
        parts = urlsplit(url)
        return self._own if (parts.scheme, parts.netloc) == (self.scheme, self._registry) else self._others

    def _allowed(self, url: str) -> str:
        """The address, unless it leads away from HTTP, or from TLS to plain HTTP."""
        if urlsplit(url).scheme in ("https", *(("http",) if LOCAL.fullmatch(self._registry) else ())):
            return url
        raise self._refused(f"refers to {url[:200]!r}")

    def _answer(self, method: str, answer: requests.Response, stream: bool) -> Answer:
        # ``requests`` would unpack by itself, without a limit: nobody was asked to pack.
        if (packed := answer.headers.get("Content-Encoding", "identity").lower()) != "identity":
            answer.close()
            raise self._refused(f"sends a document packed with {packed[:20]!r}, which trb did not ask for")
        pieces, good = _pieces(answer), answer.status_code < 300
        body = b""
        if not (good and stream):
            with closing(pieces):
                body = transfer.document(pieces, self._where) if good else next(pieces, b"")[:ERROR]
        return Answer(
            method=method,
            status=answer.status_code,
            headers=answer.headers,
            body=body,
            pieces=pieces,
            following=answer.links.get("next", {}).get("url", ""),
        )

    def _refused(self, reason: str) -> TrbError:
        return TrbError(
            Code.STORAGE_FAILED,
            f"the registry {reason}",
            where=self._where,
            remedy="do not use this registry, or ask its administrator",
        )


def _session() -> requests.Session:
    session = requests.Session()
    session.headers.update({"User-Agent": "trb", "Accept-Encoding": "identity"})
    session.auth = _nobody
    # Even without redirects ``requests`` looks where one leads, and reads its body, which may have no end.
    session.get_redirect_target = lambda answer: None
    return session


def _nobody(request: Any) -> Any:
    """No login: without this ``requests`` looks for one in ~/.netrc."""
    return request


def _pieces(answer: requests.Response) -> Generator[bytes]:
    with closing(answer):
        yield from answer.iter_content(BLOCK)

"""A small client of the OCI distribution API: blobs and manifests, streamed, with the usual logins.

The registry clients on PyPI upload from memory or from a file; a layer here is a tar stream made on the fly.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from http.client import responses
from typing import Any
from urllib.parse import urljoin

from triton_repo_builder.base import transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.ship.stores import retries
from triton_repo_builder.ship.stores.failures import AGAIN
from triton_repo_builder.ship.stores.location import Image
from triton_repo_builder.ship.stores.oci_http import READING, Answer, Web
from triton_repo_builder.ship.stores.oci_layers import Reader
from triton_repo_builder.ship.stores.revision import mismatch
from triton_repo_builder.ship.stores.store import Hints

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ACCEPTED = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
REPAIR = "push the same files again: that repairs it, or reports what the registry's administrator must do"
PAGES = 1000
"""Pages of a list of tags."""
HINTS = Hints(
    credentials="log in with 'docker login REGISTRY' (or podman, oras): trb uses what that stores",
    unreachable="check the network and the registry's name and port",
    ca_variables=("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    plain_http="check the port; plain HTTP is only for a registry on this machine (localhost or 127.…)",
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class _Busy(Exception):
    """A 5xx."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer
        self.status = answer.status


class Client:
    """One image name in one registry."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._web = Web(image.registry, str(image))

    @property
    def _base(self) -> str:
        return f"{self._web.scheme}://{self._image.registry}/v2/{self._image.repository}/"

    def manifest(self, reference: str) -> tuple[str, bytes] | None:
        """``sha256:…`` and the document; None if there is none. Raises DIGEST_MISMATCH."""
        answer = self._ask("GET", f"manifests/{reference}", headers={"Accept": ", ".join(ACCEPTED)})
        if answer.status == 404:
            return None
        self._check(answer, 200)
        actual = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        meant = reference if ":" in reference else answer.headers.get("Docker-Content-Digest", "")
        if meant.startswith("sha256:") and meant != actual:
            raise mismatch(str(self._image), actual, meant, REPAIR)
        return actual, answer.body

    def put_manifest(self, reference: str, document: bytes) -> None:
        """Write a manifest; under a tag this moves the tag."""
        answer = self._ask("PUT", f"manifests/{reference}", data=document, headers={"Content-Type": MANIFEST})
        self._check(answer, 201)

    def delete_manifest(self, digest: str) -> None:
        """Remove a manifest with its tags; the registry's garbage collector removes the blobs."""
        answer = self._ask("DELETE", f"manifests/{digest}")
        if answer.status in (404, 405) and (answer.status == 405 or b"UNSUPPORTED" in answer.body):
            raise TrbError(
                Code.STORAGE_FAILED,
                f"the registry lets nobody delete: {_reason(answer)}",
                where=str(self._image),
                remedy="ask its administrator to allow it (docker-registry: storage.delete.enabled: true)",
            )
        if answer.status != 404:
            self._check(answer, 202)

    def tags(self) -> list[str]:
        """Every tag of the image name; none if there is no such name."""
        names: list[str] = []
        path = "tags/list"
        for _ in range(PAGES):
            answer = self._ask("GET", path)
            if answer.status == 404:
                return names
            self._check(answer, 200)
            try:
                names += map(str, load_json(answer.body).get("tags") or ())
            except DAMAGED as error:
                raise self._odd(f"a list of tags that cannot be read: {error}") from None
            path = urljoin(urljoin(self._base, path), answer.following) if answer.following else ""
            if not path.startswith(self._base):  # no login goes to another server
                return names
        raise self._odd(f"more than {PAGES} pages of tags")

    def size(self, digest: str) -> int | None:
        """Bytes of a blob; None if it is not there."""
        answer = self._ask("HEAD", f"blobs/{digest}")
        if answer.status == 404:
            return None
        self._check(answer, 200)
        return int(answer.headers.get("Content-Length", -1))

    def put_blob(self, digest: str, blocks: Iterator[bytes], size: int) -> None:
        """Send a blob; the registry refuses it if its digest is another."""
        begun = self._ask("POST", "blobs/uploads/", headers={"Content-Length": "0"})
        self._check(begun, 202)
        if "Location" not in begun.headers:
            raise self._odd("no place to upload to")
        target = urljoin(self._base, begun.headers["Location"])
        target += f"{'&' if '?' in target else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        body: Any = Reader(blocks, size) if size else b""
        self._check(self._web.upload(target, body, headers), 201)

    def blob(self, digest: str) -> Iterator[bytes]:
        """A blob in pieces. The caller verifies its size and its digest."""
        answer = self._ask("GET", f"blobs/{digest}", stream=True)
        self._check(answer, 200)
        return self._body(answer)

    def digest(self, digest: str, size: int) -> str:
        """Digest of the bytes that the registry really has under this digest; empty for a larger blob."""
        # HEAD proves nothing: a registry that remembers sizes answers for a blob whose file is gone.
        answer = self._ask("GET", f"blobs/{digest}", stream=True)
        if answer.status == 404:
            return ""
        self._check(answer, 200)
        try:
            return f"sha256:{transfer.digest(transfer.bounded(self._body(answer), size, str(self._image)))}"
        except TrbError:
            return ""

    def _body(self, answer: Answer) -> Iterator[bytes]:
        try:
            yield from answer.pieces
        except Exception as error:
            # The registry itself ended it: it remembers another size than its file has now.
            if type(error).__name__ != "ChunkedEncodingError" or "IncompleteRead" not in str(error):
                raise
            raise TrbError(
                Code.DIGEST_MISMATCH,
                "a blob breaks off before its end",
                where=str(self._image),
                remedy=f"run the same command again; if it stays so, {REPAIR}",
            ) from error

    def _ask(self, method: str, path: str, **options: Any) -> Answer:
        """One request; a read is tried again after a 5xx or a dropped connection."""
        if method not in READING:
            return self._once(method, path, **options)

        def ask() -> Answer:
            answer = self._once(method, path, **options)
            if answer.status >= 500:
                raise _Busy(answer)
            return answer

        try:
            return retries.patiently(ask)
        except _Busy as busy:
            return busy.answer

    def _once(self, method: str, path: str, **options: Any) -> Answer:
        """One request, repeated over TLS or with a login if the registry asks for that."""
        answer = self._web.send(method, urljoin(self._base, path), **options)
        if answer.status == 400 and self._web.scheme == "http" and b"HTTPS" in answer.body:
            # The answer of Go's server and nginx on a TLS port. Nothing secret was sent so far.
            self._web.scheme = "https"
            answer = self._web.send(method, urljoin(self._base, path), **options)
        if answer.status == 401 and self._log_in(answer.headers.get("WWW-Authenticate", "")):
            answer = self._web.send(method, urljoin(self._base, path), **options)
        return answer

    def _log_in(self, challenge: str) -> bool:
        """Answer a challenge with the login that ``docker login`` stored, else anonymously."""
        stored = credentials(self._image.registry)
        kind, _, rest = challenge.partition(" ")
        login = (stored["Username"], stored["Password"]) if stored.get("Password") else None
        if kind.lower() == "basic" and login:
            self._web.use_login(*login)
            return True
        parameters = dict(_CHALLENGE.findall(rest))
        if kind.lower() != "bearer" or "realm" not in parameters:
            return False
        query = {key: parameters[key] for key in ("service", "scope") if key in parameters}
        if stored.get("IdentityToken"):
            form = {**query, "grant_type": "refresh_token", "refresh_token": stored["IdentityToken"]}
            answer = self._web.token(parameters["realm"], {}, data={**form, "client_id": "trb"})
        else:
            options = {"auth": login} if login else {}
            answer = self._web.token(parameters["realm"], query, **options)
        self._check(answer, 200)
        try:
            token = load_json(answer.body)
            self._web.use_token(str(token.get("token") or token["access_token"]))
        except DAMAGED:
            raise self._odd("a token that cannot be read") from None
        return True

    def _odd(self, content: str) -> TrbError:
        return TrbError(
            Code.STORAGE_FAILED, f"the registry sends {content}", where=str(self._image), remedy=REPAIR
        )

    def _check(self, answer: Answer, expected: int) -> None:
        if answer.status == expected:
            return
        reason = _reason(answer)
        if answer.status >= 500 and answer.method in READING:
            reason += f" (tried {retries.TRIES} times)"
        where = str(self._image)
        if answer.status in (401, 403):
            raise TrbError(
                Code.ACCESS_DENIED, f"access denied: {reason}", where=where, remedy=HINTS.credentials
            )
        if answer.status == 404:
            raise TrbError(
                Code.STORAGE_MISSING,
                f"the registry has no such image name: {reason}",
                where=where,
                remedy="check the name; in some registries it must be created first",
            )
        raise TrbError(
            Code.STORAGE_FAILED,
            f"the registry refused: {reason}",
            where=where,
            remedy=AGAIN,
        )


def credentials(registry: str) -> dict[str, str]:
    """Credentials that ``docker login`` stored for a registry, under the names that its API uses."""
    from triton_repo_builder.run.serve.docker import daemon

    return {key[:1].upper() + key[1:]: value for key, value in daemon.stored_credentials(registry).items()}


def _reason(answer: Answer) -> str:
    status = f"{answer.status} {responses.get(answer.status, '')}".strip()
    try:
        errors = load_json(answer.body)["errors"]
        return f"{status}: " + "; ".join(f"{e.get('code')} {e.get('message', '')}".strip() for e in errors)
    except DAMAGED:
        return status

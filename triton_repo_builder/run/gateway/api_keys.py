"""API keys from a file: hashed in memory, compared in constant time, read again on change.

A line has a key, or ``sha256:`` and its digest in hex, and then, if you like, its owner's name for the logs.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.gateway.access import Log
from triton_repo_builder.run.gateway.refusal import Headers, Refusal

HASHED = "sha256:"
MOST = 1000
"""Keys of a file: every request is compared with each of them."""
LARGEST = 1 << 20
SHORTEST = 16
"""Characters of a plain key."""
BEARER = b"bearer "


class Unauthorized(Refusal):
    """A request without a valid key."""

    def __init__(self, message: str) -> None:
        super().__init__(401, message, code="invalid_api_key")

    @property
    def headers(self) -> Headers:
        """The scheme that is expected (RFC 9110)."""
        return [(b"www-authenticate", b"Bearer")]


class NoKeys(TrbError):
    """A file of nothing but comments and empty lines."""


@dataclass(frozen=True)
class Key:
    """A key's digest and its owner."""

    digest: bytes
    owner: str = ""


class ApiKeys:
    """The current keys of a file."""

    def __init__(self, path: Path) -> None:
        """Raises ``TrbError``: NOT_FOUND, USAGE with the line, and USAGE if others can read or change it."""
        self.path = path
        self._stamp = _stamp(path)
        self._keys = read(path)

    def owner(self, headers: Mapping[bytes, bytes]) -> str:
        """The owner of a request's key. Raises ``Refusal`` 401."""
        key = presented(headers)
        if not key:
            raise Unauthorized("no API key: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`")
        digest = hashlib.sha256(key).digest()
        match = None
        for each in self._keys:  # all of them: the time says nothing of which it was
            if hmac.compare_digest(each.digest, digest):
                match = each
        if match is None:
            raise Unauthorized("the API key is not valid")
        return match.owner

    def refresh(self, log: Log) -> None:
        """Read the file again if it has changed; one without keys leaves none.

        A broken file, or none, leaves the keys as they are, with a warning.
        """
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = read(self.path)
        except NoKeys:
            self._keys = ()
            log.warning(f"{self.path} has no API key any more: requests that need one are refused")
        except TrbError as error:
            log.warning(f"the API keys stay as they were: {error.where}: {error.message}")
        else:
            count = len(self._keys)
            log.note(f"{count} API key{'s' if count > 1 else ''} read from {self.path}")


def presented(headers: Mapping[bytes, bytes]) -> bytes:
    """The key that a request has sent; empty if none."""
    stated = headers.get(b"authorization", b"")
    if stated[: len(BEARER)].lower() == BEARER:
        return stated[len(BEARER) :].strip()
    return headers.get(b"x-api-key", b"").strip()


def read(path: Path) -> tuple[Key, ...]:
    """The keys of a file. Raises ``TrbError``."""
    try:
        with path.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise TrbError(
            Code.NOT_FOUND,
            f"the API keys cannot be read: {error.strerror}",
            where=str(path),
            remedy="correct the path, or its rights",
        ) from None
    keys, plain = _parsed(path, data)
    others = 0o022 if not plain else 0o066
    if facts.st_mode & others or facts.st_uid not in (0, os.geteuid()):
        does = "change" if not plain else "read or change"
        raise TrbError(
            Code.USAGE,
            f"other users may {does} the API keys (mode {facts.st_mode & 0o777:o})",
            where=str(path),
            remedy=f"keep it to yourself: chmod 600 {path}; a file of sha256: lines alone may be read by all",
        )
    return keys


def _parsed(path: Path, data: bytes) -> tuple[tuple[Key, ...], bool]:
    """The keys, and whether any of them is in plain text."""
    plain = False
    keys: list[Key] = []
    if len(data) > LARGEST:
        raise _wrong(path, "has over 1 MiB", "that is no file of keys")
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        key, owner = words[0], words[1].strip() if len(words) > 1 else ""
        if key.startswith(HASHED):
            if not re.fullmatch("[0-9a-fA-F]{64}", key[len(HASHED) :]):
                raise _wrong(path, f"line {number}: not 64 digits of hex after {HASHED}", HOW)
            digest = bytes.fromhex(key[len(HASHED) :])
        else:
            if len(key) < SHORTEST or not key.isascii() or not key.isprintable():
                raise _wrong(
                    path, f"line {number}: a key has {SHORTEST} or more printable ASCII characters", HOW
                )
            plain, digest = True, hashlib.sha256(key.encode()).digest()
        keys.append(Key(digest, "".join(filter(str.isprintable, owner))[:64]))
    if not keys:
        raise NoKeys(Code.USAGE, "has no key", where=str(path), remedy=HOW)
    if len(keys) > MOST:
        raise _wrong(
            path, f"has {len(keys)} keys; at most {MOST} are allowed", "put a proxy in front for more"
        )
    return tuple(keys), plain


HOW = "a line is KEY or sha256:HEX, then its owner; docs/gateway.md says how to make one"


def _wrong(path: Path, message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=str(path), remedy=remedy)


def _stamp(path: Path) -> tuple[int, ...]:
    """Changes when the file does, or another one takes its place; empty if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return ()
    return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_mode

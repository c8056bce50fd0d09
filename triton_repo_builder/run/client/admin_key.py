"""The key of a server that restricts its administrative APIs: read from a file, sent where it is needed.

A command talks to its server through many short-lived clients, some of them in threads. So the key is kept
here, by the server's address, and ``HttpClient`` asks for it only where a restricted API is called.
"""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path

from triton_repo_builder.base import files, private_file
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client.values import RequestFailed

HEADER = "admin-key"
"""The header over HTTP, and the name of the key in tritonserver's options."""
GRPC_HEADER = f"triton-grpc-protocol-{HEADER}"
"""The header over gRPC. No method that ``GrpcClient`` calls is restricted."""
SHORTEST, LONGEST = 16, 1024
ASKED = re.compile(r"is restricted, expecting header '([^']+)'")
"""Triton's answer without the key and with a wrong one."""
_KEYS: dict[tuple[str, int], str] = {}


def read(path: Path) -> str:
    """The key in a file: 16 to 1024 printable ASCII characters without blanks. Raises ``TrbError``."""
    try:
        # The limit is on bytes, so that no wrong file is read whole.
        content, exposure = private_file.read(path, LONGEST + 3)
    except OSError as error:
        raise files.unreadable(path, error) from None
    if exposure:
        raise private_file.refused(path, exposure, Code.USAGE)
    key = content.decode("latin-1").removesuffix("\n").removesuffix("\r")
    if not SHORTEST <= len(key) <= LONGEST or not re.fullmatch("[!-~]*", key):
        raise TrbError(
            Code.USAGE,
            f"a key is one line of {SHORTEST} to {LONGEST} ASCII characters without blanks",
            where=str(path),
            remedy=f"make one: (umask 077; openssl rand -hex 32 > {path})",
        )
    return key


def remember(url: str, key: str) -> None:
    """Send this key to the restricted APIs of the server at ``url`` from now on."""
    _KEYS[_address(url)] = key


def forget(url: str) -> None:
    """Send it no more."""
    _KEYS.pop(_address(url), None)


def headers(url: str) -> dict[str, str]:
    """The HTTP headers for a restricted API of that server; empty without a key for it."""
    key = _KEYS.get(_address(url)) if _KEYS else None
    return {HEADER: key} if key else {}


def check(url: str, error: RequestFailed) -> None:
    """Raise ``TrbError`` ADMIN_KEY if the server refused because of the key."""
    restricted = ASKED.search(error.message)
    if restricted is None or restricted[1] != HEADER:
        return
    if headers(url):
        raise TrbError(
            Code.ADMIN_KEY,
            "the server does not accept this admin key",
            where=url,
            remedy="name the file of the server's own key with --admin-key or TRB_ADMIN_KEY_FILE",
        )
    raise TrbError(
        Code.ADMIN_KEY,
        "the server lists, loads and unloads models for holders of its admin key only",
        where=url,
        remedy="name the file of the key with --admin-key or TRB_ADMIN_KEY_FILE; a server that was started "
        "without one has a key that nobody knows: start it again with 'trb serve --admin-key FILE'",
    )


def refuse_other(url: str, answer: str) -> None:
    """Raise ``TrbError`` ADMIN_KEY if the server asks for a key by another name than ours."""
    restricted = ASKED.search(answer)
    if restricted is not None:
        name = restricted[1].removeprefix("triton-grpc-protocol-")
        raise TrbError(
            Code.ADMIN_KEY,
            f"the server wants a key called '{name}' for this, and trb sends only one called '{HEADER}'",
            where=url,
            remedy=f"start it with --http-restricted-api=…:{HEADER}=KEY, as trb serve --admin-key does, then "
            "name the file of the key with --admin-key or TRB_ADMIN_KEY_FILE",
        )


def _address(url: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:  # HttpClient says what is wrong with it
        port = None
    return (parts.hostname or "", port or (443 if parts.scheme == "https" else 80))

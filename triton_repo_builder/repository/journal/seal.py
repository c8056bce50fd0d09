"""Proof that a staging folder and its journals were left by this user's own ``trb``, and here.

A clone, an archive or a shared folder may hold anything under the names that recovery looks for. So each
staging folder gets a mark, and each journal a seal: an HMAC over the content and the folder's inode, which no
copy of a folder has. The key is kept in ``transfer.state_folder()``, where only this user can read it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import TrbError

MARK = ".trb"
"""The file in a staging folder that says whose it is."""
_KEY = "recovery.key"
_SIZE = 32
"""Bytes of the key."""


def mark(folder: Path) -> None:
    """Mark a new staging folder as this user's.

    Without a place for the key nothing is marked; then no later command follows what a killed one left.
    """
    if key := _key(create=True):
        files.create(folder / MARK, _seal(key, folder, MARK, b"").encode(), mode=0o600)
        files.sync(folder / MARK)
        files.sync(folder)


def is_ours(folder: Path) -> bool:
    """Whether a folder is a staging folder that this user's ``trb`` made in this place."""
    try:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            return False
        seal = files.read(folder / MARK, limit=1024).decode("ascii")
        key = _key(create=False)
        return key is not None and hmac.compare_digest(seal, _seal(key, folder, MARK, b""))
    except (OSError, ValueError):  # gone meanwhile, too
        return False


def write(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    """Write a journal into a marked folder, on disk when this returns. Raises ``TrbError``."""
    content = json.dumps(document)
    key = _key(create=False)
    seal = _seal(key, folder, name, content.encode()) if key else ""
    files.write(folder / name, json.dumps({"seal": seal, "journal": content}).encode(), private=True)
    files.sync(folder)


def read(folder: Path, name: str) -> Any:
    """The document of a journal. Raises ``OSError``, and of ``files.DAMAGED`` if its seal is not right."""
    sealed = files.load_json(files.read(folder / name))
    key = _key(create=False)
    content = str(sealed["journal"])
    if key is None or not hmac.compare_digest(
        str(sealed["seal"]).encode(), _seal(key, folder, name, content.encode()).encode()
    ):
        raise ValueError("its seal is not that of this user's trb")
    return files.load_json(content)


def _seal(key: bytes, folder: Path, name: str, content: bytes) -> str:
    inode = folder.lstat().st_ino
    return hmac.new(key, f"{name}\0{inode}\0".encode() + content, hashlib.sha256).hexdigest()


def _key(*, create: bool) -> bytes | None:
    """This user's key; None if there is none, or if others could have written or read it."""
    try:
        file = transfer.state_folder() / _KEY
        if create and not file.exists():
            files.write(file, secrets.token_bytes(_SIZE), private=True, replace=False)
            files.sync(file.parent)
        with files.opened(file) as stream:
            facts = os.fstat(stream.fileno())
            key = stream.read(_SIZE + 1)
    except (OSError, RuntimeError, TrbError):
        return None
    others = facts.st_uid != os.geteuid() or facts.st_mode & 0o077
    return None if others or len(key) != _SIZE else key

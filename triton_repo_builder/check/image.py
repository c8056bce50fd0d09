"""Backends, Python modules and GPUs of the image that serves a repository."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Image:
    """Empty or None where nothing is known beyond the stock image of the release."""

    backends: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    gpus: int | None = None


STOCK = Image()

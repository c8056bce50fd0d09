"""Labels of a classifier's scores, by the manifest, gateway.toml or the repository's labels.txt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from triton_repo_builder.run.gateway.call import Host
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.triton import Answer

FILE = "labels.txt"


def labels(gateway: Host, served: Served) -> Sequence[str]:
    """The names of the scores, in their order; empty if they are not known.

    Raises ``Refusal`` if gateway.toml names another number of them.
    """
    check(served)
    listed = served.facts.get("labels")
    if listed:
        return [str(label) for label in listed]
    repo = gateway.discovery.repo
    file = repo / served.model / FILE if repo is not None else None
    return _lines(file, file.stat().st_mtime_ns) if file is not None and file.is_file() else ()


def check(served: Served) -> None:
    """Raises ``Refusal`` if gateway.toml names more or fewer labels than there are scores."""
    if served.fault:
        raise invalid(f"{served.fault}: whoever runs the gateway must correct gateway.toml", "model")


@lru_cache(maxsize=64)
def _lines(file: Path, changed: int) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8").splitlines())


def predictions(answer: Answer, names: Sequence[str]) -> list[dict[str, Any]]:
    """The labels of one row, best first; only the endpoint's best if the names are not known."""
    scores = answer["scores"].reshape(-1)
    if np.isnan(scores).any():
        raise Refusal(502, "score is NaN", code="backend")
    if len(names) != len(scores):
        return [{"score": answer["score"].reshape(-1)[0], "label": answer["label"].reshape(-1)[0].decode()}]
    order = np.argsort(-scores, kind="stable").tolist()
    return [{"score": scores[place], "label": names[place]} for place in order]

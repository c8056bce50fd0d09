"""Conversions of ``trb build --convert``, kept by the digests of the weights and of the converter."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from triton_repo_builder import __version__
from triton_repo_builder.base import files
from triton_repo_builder.model.read import conversion
from triton_repo_builder.produce.convert import environment, weights
from triton_repo_builder.produce.convert.convert import MODEL, WORKER, Progress, convert
from triton_repo_builder.repository.journal import turn
from triton_repo_builder.repository.manifest import HubModel


def converted(folder: Path, home: Path, *, hub: HubModel | None, progress: Progress, tell: Progress) -> Path:
    """The kept conversion of a folder's weights, made if there is none. Raises ``TrbError``."""
    progress("taking checksums")
    source = weights.find(folder, None)
    read = ("config.json", *source.files, *source.companions)
    facts = {
        "trb": __version__,
        "files": {name: files.hash_file(folder / name) for name in sorted(set(read))},
        "tools": [files.hash_file(file) for file in (WORKER, environment.REQUIREMENTS)],
        "hub": hub.to_json() if hub else None,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    target = home / digest
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.explain(error, home, how="with XDG_CACHE_HOME", kept="nothing was converted") from None
    with turn.taken(home, tell):
        if not (target / conversion.FILE).is_file() or conversion.of(target / MODEL) is None:
            convert(folder, target, hub=hub, progress=progress, tell=tell)
    return target

"""The files of ``trb export TARGET``: each target is a module with ``render(deployment)``, path → text.

A file that need not fit into memory is a ``Stream``.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from triton_repo_builder.ship.rendered import Rendered, Stream, rendered
from triton_repo_builder.ship.targets import facts, spec
from triton_repo_builder.ship.targets.facts import Deployment

INDEX = "export.json"


def read(file: Path) -> Deployment:
    """The deployment of a ``deploy.toml``. Raises ``TrbError``."""
    return facts.read(file, spec.read(file))


def render(target: str, deployment: Deployment) -> Rendered:
    """The files; the same input gives the same bytes. Raises ``TrbError`` for what the target cannot do."""
    module = importlib.import_module(f"triton_repo_builder.ship.targets.{target}")
    files: dict[str, str | Stream] = module.render(deployment)
    return rendered(
        {path: file.encode() if isinstance(file, str) else file for path, file in files.items()}, INDEX
    )

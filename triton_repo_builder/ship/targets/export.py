"""The files of ``trb export TARGET``: each target is a module with ``render(deployment)``, path → text.

A file that need not fit into memory is a ``Stream``.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from triton_repo_builder.ship.rendered import Rendered, Stream, rendered
from triton_repo_builder.ship.targets import facts, spec
from triton_repo_builder.ship.targets.facts import Deployment

INDEX = "export.json"
WITH_SECRETS = ("compose", "swarm")
"""Targets whose files name those of secrets; the others name a Secret of the platform, or none."""


def read(file: Path, output: Path = Path(), target: str = "") -> Deployment:
    """The deployment of a ``deploy.toml``, whose files go to ``output``. Raises ``TrbError``.

    For a ``target`` that needs no file of a secret, none need be there.
    """
    secrets = not target or target in WITH_SECRETS
    return replace(facts.read(file, spec.read(file), secrets=secrets), output=output)


def preflight(target: str, deployment: Deployment) -> None:
    """Compare with this machine what only it can tell. Raises ``TrbError`` for a port that is taken."""
    module = _module(target)
    if hasattr(module, "preflight"):
        module.preflight(deployment)


def notes(target: str, deployment: Deployment) -> tuple[str, ...]:
    """Remarks on a deployment whose files are valid, but perhaps not what is meant."""
    module = _module(target)
    # An image of the repository alone has no server.
    general = () if target == "oci" else facts.notes(deployment)
    return (*general, *(module.notes(deployment) if hasattr(module, "notes") else ()))


def render(target: str, deployment: Deployment) -> Rendered:
    """The files; the same input gives the same bytes. Raises ``TrbError`` for what the target cannot do."""
    files: dict[str, str | Stream] = _module(target).render(deployment)
    return rendered(
        {path: file.encode() if isinstance(file, str) else file for path, file in files.items()}, INDEX
    )


def _module(target: str) -> ModuleType:
    return importlib.import_module(f"triton_repo_builder.ship.targets.{target}")

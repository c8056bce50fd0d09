"""A version proves itself on a server of its own, before one that has clients touches it.

A Python process that dies while its model loads cannot be undone on a running server: Triton keeps that load
open for ever, and requests in flight may never be answered. On a server of its own it costs nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.repository import manifest
from triton_repo_builder.repository.importable import CACHE
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.run import smoke
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.ship.deploy import promote
from triton_repo_builder.ship.deploy.promote import Move

OF_THIS_MACHINE = (Code.DISK_FULL, Code.OUTPUT_NOT_WRITABLE)
"""Failures that say nothing of what was to be proven."""


def run(move: Move, options: smoke.SmokeOptions) -> tuple[smoke.Check, ...] | None:
    """The checks that fail on a server that serves the new version; None if no engine is installed here.

    Raises ``TrbError`` if that server does not start.
    """
    with staging.temporary("preflight") as folder:
        root = folder / "model_repository"
        with staging.filling():
            _lay_out(move, root)
        return of_folder(root, move.name, options)


def of_folder(root: Path, name: str, options: smoke.SmokeOptions) -> tuple[smoke.Check, ...] | None:
    """``run`` for the endpoint ``name`` of a repository."""
    from triton_repo_builder.run import serve

    ports = ServeOptions(http_port=0, grpc_port=0, metrics_port=0, models=(name,))
    try:
        server = serve.start(root, ports, engine="embedded")
    except TrbError as error:
        if error.code == Code.ENGINE_MISSING:
            return None
        raise
    with server:
        report = smoke.run(server.urls, repository.read(root), options)
    return report.not_passed


def _lay_out(move: Move, root: Path) -> None:
    """The endpoint alone, as it is once the new version is served; large files are links."""
    for model in move.models:
        shutil.copytree(
            move.root / model / str(move.new),
            root / model / str(move.new),
            copy_function=lambda source, target: files.keep(Path(source).resolve(), Path(target)),
            ignore=shutil.ignore_patterns(CACHE),
        )
    for path, content in versions.serving(move.new_files, (move.new,)).items():
        files.write(root / path, content)
    promoted_manifest = promote.promoted(move)
    folders = tuple(f"{model}/" for model in move.models)
    recorded = {path: record for path, record in promoted_manifest.files.items() if path.startswith(folders)}
    endpoints = {move.name: promoted_manifest.endpoints[move.name]}
    manifest.write(root, replace(promoted_manifest, endpoints=endpoints, files=recorded))

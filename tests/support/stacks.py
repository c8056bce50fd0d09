"""A small repository with its deploy.toml, for tests of the exports."""

from __future__ import annotations

from pathlib import Path

from tests.support import serve_repository as made
from triton_repo_builder.ship.targets import export
from triton_repo_builder.ship.targets.facts import Deployment

KEY = "a-key-of-the-tests-0123"


def folder(root: Path, text: str = "", name: str = "bert") -> Path:
    """``deploy.toml`` with a repository of two Python models and a key beside it; ``text``: tables."""
    made.whole(root / "model_repository")
    (root / "admin_key").write_text(f"{KEY}\n")
    (root / "admin_key").chmod(0o600)
    file = root / "deploy.toml"
    file.write_text(f'name = "{name}"\n{text}')
    return file


def deployment(root: Path, text: str = "", *, target: str = "compose") -> Deployment:
    """The deployment, whose files would go to ``deploy/TARGET``."""
    return export.read(folder(root, text), root / "deploy" / target)

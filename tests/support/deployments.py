"""Deployments of the golden repository: a folder with model_repository, deploy.toml and a key."""

from __future__ import annotations

import shutil
from pathlib import Path

from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets import export
from triton_repo_builder.ship.targets.facts import Deployment

GOLDEN = Path(__file__).resolve().parents[2] / "model_repository"
KEY = "the-key-of-a-test-0123456789"
GATEWAY = "registry.example/trb-gateway:24.10"
DIGEST = "0123456789abcdef" * 4
OCI = f"oci://registry.example:5000/models/sentiment@sha256:{DIGEST}"
GIT = f"git+https://git.example/team/models.git@{DIGEST[:40]}#sentiment/model_repository"
SCALED = "[autoscaling]\nmost = 8\npending_batches = 1.3\n"
"""Autoscaling by a stated number: nothing is simulated."""


def bucket(scheme: str) -> str:
    """The golden repository's place in a bucket."""
    return f"{scheme}://models/sentiment@sha256:{revision.collect(GOLDEN).index.digest}"


def written(
    folder: Path, *, source: str, tables: str = "", name: str = "sentiment", repository: bool = True
) -> Path:
    """``deploy.toml`` beside a copy of the golden repository. ``tables``: TOML after ``[repository]``."""
    if repository:
        shutil.copytree(GOLDEN, folder / "model_repository", dirs_exist_ok=True)
    key = folder / "admin_key"
    key.write_text(f"{KEY}\n")
    key.chmod(0o600)
    file = folder / "deploy.toml"
    file.write_text(
        f'name = "{name}"\n[repository]\npath = "model_repository"\nsource = "{source}"\n{tables}'
    )
    return file


def read(folder: Path, *, source: str, tables: str = "", name: str = "sentiment") -> Deployment:
    """The deployment of such a file."""
    return export.read(written(folder, source=source, tables=tables, name=name))


def server(image: str = "registry.example/sentiment:3", more: str = "") -> str:
    """The table ``[server]``."""
    return f'[server]\nimage = "{image}"\n{more}\n'


def gateway(image: str = GATEWAY) -> str:
    """The table ``[gateway]``."""
    return f'[gateway]\nimage = "{image}"\n'

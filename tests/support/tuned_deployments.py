"""A repository with its ``deploy.toml``, and a report of ``trb tune`` that fits it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from triton_repo_builder.repository import read
from triton_repo_builder.ship.targets import export, facts
from triton_repo_builder.ship.targets.facts import Deployment

GOLDEN = Path(__file__).resolve().parents[2] / "model_repository"
HEAD = 'name = "bert"\n'


def folder(root: Path, text: str = "", head: str = HEAD) -> Path:
    """``deploy.toml`` with this text beside the golden repository and a key; the file's path."""
    if not (root / "model_repository").exists():
        shutil.copytree(GOLDEN, root / "model_repository")
    key = root / "admin_key"
    if not key.exists():
        key.write_text("a-key-that-only-tests-have\n")
        key.chmod(0o600)
    file = root / "deploy.toml"
    file.write_text(head + text)
    return file


def deployment(root: Path, text: str = "", head: str = HEAD) -> Deployment:
    """The deployment of such a file."""
    return export.read(folder(root, text, head))


def report(file: Path, repository: Path = GOLDEN, *, capacity: float = 90.0, **changes: Any) -> Path:
    """A report of ``trb tune`` for p99 within 200 ms, of the models of a repository."""
    models = [model for model in read(repository).models if model.stated and not model.steps]
    stages = [
        {
            "model": batcher.model,
            "instances": batcher.instances,
            "max_batch": batcher.max_batch,
            "delay_ms": batcher.delay_us / 1000,
            "threads": 1,
            "batch_ms": {"1": 20.0, "32": 300.0} if number else {"1": 0.5, "32": 2.0},
        }
        # The tokenizer is the first stage.
        for number, batcher in enumerate(facts.batcher(model) for model in reversed(models))
    ]
    service = {
        "stages": stages,
        "overhead_ms": 1.0,
        "cores": 0,
        "spread": [[0.0, 0.8], [0.5, 1.0], [1.0, 1.2]],
        "contention": 1.0,
    }
    document = {
        "trials": [],
        "objective": {"percentile": "p99", "ms": 200.0},
        "chosen": "best",
        "compared": [{"name": "best", "capacity": capacity, "latency_ms": 180.0}],
        "service": service,
    }
    file.write_text(json.dumps({**document, **changes}))
    return file

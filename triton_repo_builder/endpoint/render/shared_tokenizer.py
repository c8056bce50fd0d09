"""Tokenizer models that are the same are stored once: such a model is called by its content.

The name depends on the model's content only. So it is the same whichever endpoint is built first, and
endpoints built on different days share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.plan.model import ModelPlan, RepositoryPlan
from triton_repo_builder.repository.provenance import SHARED

SUFFIX = "_tokenizer"
DIGITS = 10
"""Hex digits of the content's sha256 in the name."""


def share(plan: RepositoryPlan, rendered: Sequence[File]) -> tuple[RepositoryPlan, tuple[File, ...]]:
    """Rename the tokenizer model to ``tokenizer_<content>`` in the plan and the files; others stay."""
    tokenizer = next((model for model in plan.models if model.name == plan.endpoint.name + SUFFIX), None)
    if tokenizer is None:
        return plan, tuple(rendered)
    marked = replace(tokenizer, parameters=(*tokenizer.parameters, (SHARED, "tokenizer")))
    name = f"{SUFFIX.removeprefix('_')}_{_digest(marked, rendered)[:DIGITS]}"
    models = tuple(
        _renamed(marked if model is tokenizer else model, tokenizer.name, name) for model in plan.models
    )
    root = f"{tokenizer.name}/"
    moved = tuple(
        replace(file, path=f"{name}/{file.path.removeprefix(root)}") if file.path.startswith(root) else file
        for file in rendered
    )
    return replace(plan, models=models, shared=(*plan.shared, name)), moved


def _renamed(model: ModelPlan, old: str, new: str) -> ModelPlan:
    step = tuple(replace(s, model_name=new) if s.model_name == old else s for s in model.step)
    return replace(model, name=new if model.name == old else model.name, step=step)


def _digest(model: ModelPlan, rendered: Sequence[File]) -> str:
    """Digest of the configuration without the name, and of every file below the model's folder."""
    digest = hashlib.sha256(json.dumps(asdict(replace(model, name=""))).encode())
    root = f"{model.name}/"
    for file in sorted(rendered, key=lambda file: file.path):
        if file.path.startswith(root):
            content = _installed(file.source) if "/vendor/" in file.path and file.source else file.sha256()
            digest.update(f"{file.path.removeprefix(root)}\0{content}\0".encode())
    return digest.hexdigest()


@cache
def _installed(path: Path) -> str:
    """Hundreds of models vendor the same library, which does not change while trb runs."""
    return files.hash_file(path)

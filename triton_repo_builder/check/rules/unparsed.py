"""The files of a model whose config.pbtxt does not parse: one mistake must not hide those in a model.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from triton_repo_builder.check.context import ModelContext, RepositoryContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.rules import layout, onnx_models, python_models
from triton_repo_builder.repository import Model
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.pbtxt_document import Document

_FIELDS = ("backend", "platform", "default_model_filename")
_QUOTES = "\"'\u201c\u201d\u201e\u00ab\u00bb"


def check(repo: RepositoryContext, model: Model) -> Iterator[Finding]:
    """Checks that do not depend on the unreadable fields."""
    if model.text is None:
        return
    fields = Document(model.text).fields.by_name
    stated = {name: fields[name][0].value.strip(_QUOTES) for name in _FIELDS if name in fields}
    # A misspelt backend leaves it to the files.
    for raw in (stated, {key: value for key, value in stated.items() if key == "default_model_filename"}):
        context = ModelContext(repo=repo, model=replace(model, config=ModelConfig(raw)))
        if context.backend in ("python", "onnxruntime"):
            break
    yield from layout.files(context)
    yield from python_models.check(context)
    yield from onnx_models.files(context)

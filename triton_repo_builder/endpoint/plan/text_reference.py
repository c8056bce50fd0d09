"""The reference distribution of a text endpoint: whose texts it is of, and which models export it."""

from __future__ import annotations

from collections.abc import Collection

from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.golden import reference as golden
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.golden.text import TokenizerSettings
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest
from triton_repo_builder.repository import reference
from triton_repo_builder.repository.cases import CaseFile
from triton_repo_builder.repository.reference import (
    ANSWERS,
    CONFIDENCE,
    TEXT_TOKENS,
    UNKNOWN_TOKENS,
    Reference,
)

OF_TEXTS = (TEXT_TOKENS, UNKNOWN_TOKENS)
OF_ANSWERS = (ANSWERS, CONFIDENCE)


def measure(
    request: PlanRequest,
    settings: TokenizerSettings,
    model: OriginalModel | None,
    cases: CaseFile | None,
) -> Reference | None:
    """Distributions of the file of ``--reference``, else of golden cases. Raises ``TrbError``."""
    source, task, file = request.source, request.task, request.options.reference
    measured = golden.Measured(source=source, task=task, settings=settings, unknown_id=None)
    if file is not None:
        return golden.of_file(file, measured, model)
    return golden.of_cases(cases, measured) if model is not None else None


def files(request: PlanRequest, measured: Reference | None) -> tuple[File, ...]:
    """The tokenizer's part, and that of the model that counts the answers."""
    if measured is None:
        return ()
    parts = (
        _part(request, "tokenizer", measured, OF_TEXTS),
        _part(request, "postprocess", measured, OF_ANSWERS),
    )
    return tuple(part for part in parts if part is not None)


def note(request: PlanRequest, measured: Reference | None) -> str:
    """Number of the user's texts that were taken; empty without a file of them."""
    if measured is None or request.options.reference is None:
        return ""
    counts = [measured.distributions[name].texts for name in (TEXT_TOKENS, ANSWERS) if name in measured.distributions]
    answered = f", {counts[1]} answered" if len(counts) > 1 else ""
    return f"reference of {measured.source}: {counts[0]} texts tokenized{answered}"


def _part(
    request: PlanRequest, role: str, measured: Reference, metrics: Collection[str]
) -> File | None:
    """``reference.json`` of one model; None if there is nothing in it."""
    distributions = {name: each for name, each in measured.distributions.items() if name in metrics}
    if not distributions or (role == "postprocess" and request.task.post is None):
        return None
    content = reference.dump(Reference(source=measured.source, distributions=distributions))
    path = f"{request.name}_{role}/{request.options.version}/{reference.FILE}"
    return File(path=path, content=content.encode())

"""The reference distribution of a text endpoint: whose texts it is of, and which models export it."""

from __future__ import annotations

from dataclasses import replace

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
    Distribution,
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
    """Distributions of the file of ``--reference``, else of golden cases; None without metrics.

    Raises ``TrbError`` if the file has no texts for this endpoint.
    """
    if request.options.metrics == "off":
        return None
    source, task, file = request.source, request.task, request.options.reference
    measured = golden.Measured(source=source, task=task, settings=settings)
    if file is not None:
        return golden.of_file(file, measured, model)
    return golden.of_cases(cases, measured) if model is not None else None


def files(request: PlanRequest, measured: Reference | None) -> tuple[File, ...]:
    """``reference.json`` of the tokenizer, and of the model after the graph if there is one.

    Without one the tokenizer exports the answers' part for the graph's model, whose answers it samples. A
    tokenizer of several endpoints does not.
    """
    if measured is None:
        return ()
    tokens, answers = (
        {metric: each for metric, each in measured.distributions.items() if metric in metrics}
        for metrics in (OF_TEXTS, OF_ANSWERS)
    )
    after: dict[str, Distribution] = {}
    if request.task.post is not None:
        after = answers
    elif not request.options.share_tokenizer:
        model = f"{request.name}_model"
        tokens |= {metric: replace(each, model=model) for metric, each in answers.items()}
    return tuple(
        File(
            path=f"{request.name}_{role}/{request.options.version}/{reference.FILE}",
            content=reference.dump(replace(measured, distributions=distributions)).encode(),
        )
        for role, distributions in (("tokenizer", tokens), ("postprocess", after))
        if distributions
    )


def note(request: PlanRequest, measured: Reference | None) -> str:
    """Number of the user's texts that were taken; empty without a file of them."""
    if measured is None or request.options.reference is None:
        return ""
    counts = [
        measured.distributions[name].texts
        for name in (TEXT_TOKENS, ANSWERS)
        if name in measured.distributions
    ]
    answered = f", {counts[1]} answered" if len(counts) > 1 else ""
    return f"reference of {measured.source}: {counts[0]} texts tokenized{answered}"

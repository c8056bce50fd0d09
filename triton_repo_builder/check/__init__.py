"""``trb check``: reads a repository as the server would and says all at once what it would refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from triton_repo_builder.check.context import Site, Survey
from triton_repo_builder.check.finding import Finding, arrange
from triton_repo_builder.check.rules import (
    batching,
    ensemble_steps,
    ensembles,
    features,
    layout,
    manifest,
    onnx_models,
    python_models,
    syntax,
    tensors,
    warmup,
)
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.releases import Release
from triton_repo_builder.repository import Repository

CHECKS: tuple[Callable[[Site], Iterator[Finding]], ...] = (
    layout.check,
    features.check,
    batching.check,
    tensors.check,
    warmup.check,
    onnx_models.check,
    python_models.check,
    ensembles.check,
    ensemble_steps.check,
)


def check(repository: Repository, release: Release) -> list[Finding]:
    """Every finding, by file and line; reads graphs but no weights, starts nothing."""
    try:
        return arrange(_all(repository, release))
    except OSError as error:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"cannot be read: {error.strerror}",
            where=str(error.filename or repository.path),
            remedy="make it readable for the user that runs trb",
        ) from None


def _all(repository: Repository, release: Release) -> Iterator[Finding]:
    survey = Survey(repository=repository, release=release)
    for model in repository.models:
        if not layout.is_model(model):
            yield layout.not_a_model(model)
        elif model.error is not None:
            yield syntax.finding(model)
        else:
            site = survey.site(model)
            for run in CHECKS:
                yield from run(site)
    yield from manifest.check(repository)

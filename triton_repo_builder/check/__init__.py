"""``trb check``: read a repository as the server would, and report all that it would refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from triton_repo_builder import releases
from triton_repo_builder.check.context import ModelContext, RepositoryContext
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
from triton_repo_builder.files import unreadable
from triton_repo_builder.releases import Release
from triton_repo_builder.repository import Repository


class Rule(Protocol):
    """Everything that is checked of one topic."""

    def __call__(self, context: ModelContext, /) -> Iterator[Finding]:
        """The findings on a model whose config.pbtxt parses."""


RULES: dict[str, Rule] = {
    "layout": layout.check,
    "features": features.check,
    "batching": batching.check,
    "tensors": tensors.check,
    "warmup": warmup.check,
    "onnx_models": onnx_models.check,
    "python_models": python_models.check,
    "ensembles": ensembles.check,
    "ensemble_steps": ensemble_steps.check,
}
"""Rules by topic, the module in ``rules/``; the codes of their findings are in ``codes.py``."""


def check(repository: Repository, release: Release) -> list[Finding]:
    """Every finding, by file and line; reads graphs but no weights, starts nothing."""
    try:
        return arrange(_all(RepositoryContext(repository=repository, release=release)))
    except OSError as error:
        raise unreadable(repository.path, error, code=Code.REPOSITORY_UNREADABLE) from None


def refuse_errors(
    repository: Repository, undone: str, remedy: str, *, force: bool = False
) -> tuple[str, ...]:
    """Raise ``TrbError`` FAILED_CHECKS for what the release that it was built for refuses, and altered files.

    With ``force`` that is accepted; returns a line for each error.
    """
    entries = repository.manifest.endpoints.values() if repository.manifest else ()
    built_for = sorted({entry.served.triton_release for entry in entries if entry.served.triton_release})
    release = releases.get(built_for[0]) if built_for else releases.default()
    errors = [finding for finding in check(repository, release) if finding.severity == "error"]
    if errors and not force:
        shown = "".join(f"\n  {finding.where}: {finding.message}" for finding in errors[:5])
        raise TrbError(
            Code.FAILED_CHECKS,
            f"trb check finds errors ({len(errors)}), {undone}{shown}",
            where=str(repository.path),
            remedy=f"correct them (see 'trb check {repository.path}'), or {remedy} with --force",
        )
    return tuple(f"accepted (--force): {finding.where}: {finding.message}" for finding in errors)


def _all(repo: RepositoryContext) -> Iterator[Finding]:
    for model in repo.repository.models:
        if not layout.is_model(model):
            yield layout.not_a_model(model)
        elif model.error is not None:
            yield syntax.finding(model)
        else:
            for rule in RULES.values():
                yield from rule(repo.of(model))
    yield from layout.case_clashes(repo.repository)
    yield from manifest.check(repo.repository)

"""``trb check``: read a repository as the server would, and report everything that it would refuse."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.releases import Release
from triton_repo_builder.check.context import ModelContext, RepositoryContext, readable, report
from triton_repo_builder.check.finding import Finding, arrange
from triton_repo_builder.check.image import STOCK, Image
from triton_repo_builder.check.policies import Policy
from triton_repo_builder.check.rules import (
    backend_parameters,
    batching,
    ensemble_flow,
    ensemble_steps,
    ensembles,
    entries,
    features,
    layout,
    manifest,
    onnx_models,
    python_models,
    sequences,
    syntax,
    tensors,
    unparsed,
    warmup,
)
from triton_repo_builder.repository import CONFIG, MANIFEST, Model, Repository


class Rule(Protocol):
    """All checks of one topic."""

    def __call__(self, context: ModelContext, /) -> Iterator[Finding]:
        """The findings on a model whose config.pbtxt parses."""


RULES: dict[str, Rule] = {
    "syntax": syntax.check,
    "layout": layout.check,
    "features": features.check,
    "batching": batching.check,
    "sequences": sequences.check,
    "tensors": tensors.check,
    "warmup": warmup.check,
    "onnx_models": onnx_models.check,
    "backend_parameters": backend_parameters.check,
    "python_models": python_models.check,
    "ensembles": ensembles.check,
    "ensemble_steps": ensemble_steps.check,
    "ensemble_flow": ensemble_flow.check,
}
"""Rules by topic, the module in ``rules/``; the codes of their findings are in ``codes.py``."""


def check(
    repository: Repository,
    release: Release,
    *,
    image: Image = STOCK,
    policies: Sequence[Policy] = (),
    only: Collection[str] | None = None,
) -> list[Finding]:
    """Every finding, by file and line; reads graphs but no weights, starts nothing.

    With ``only``, findings on these entries of the repository alone; entries that they depend on are read.
    """
    repo = RepositoryContext(repository=repository, release=release, image=image)
    names = {model.name for model in repository.models}
    pipes = {str(pipe) for pipe in repository.pipes}
    findings = [finding for finding in _all(repo, policies, only) if finding.where not in pipes]
    findings += entries.pipes(repository)
    placed = [finding.found_in(repository.path, names) for finding in findings]

    def counts(finding: Finding) -> bool:
        """A manifest that has changed may be wrong about models that have not."""
        by_manifest = finding.code.startswith("manifest-") and MANIFEST in (only or ())
        return only is None or by_manifest or finding.entry(repository.path) in only

    return arrange(finding.without_outside(repository.path) for finding in placed if counts(finding))


def built_findings(repository: Repository) -> list[Finding]:
    """Every finding on the release that the repository was built for."""
    return check(repository, built_for(repository) or releases.default())


def built_for(repository: Repository) -> Release | None:
    """The oldest release that an endpoint was built for. Raises USAGE if it is not known."""
    names = repository.manifest.releases if repository.manifest else ()
    return releases.get(names[0]) if names else None


def refuse_errors(
    repository: Repository, undone: str, remedy: str, *, force: bool = False
) -> tuple[str, ...]:
    """Raise ``TrbError`` FAILED_CHECKS for altered files and for errors on the release that it was built for.

    With ``force``, return a line for each error instead.
    """
    errors = [finding for finding in built_findings(repository) if finding.severity == "error"]
    if errors and not force:
        shown = "".join(f"\n  {finding.where}: {finding.message}" for finding in errors[:5])
        raise TrbError(
            Code.FAILED_CHECKS,
            f"trb check finds errors ({len(errors)}), {undone}{shown}",
            where=str(repository.path),
            remedy=f"correct them (see 'trb check {repository.path}'), or {remedy} with --force",
        )
    return tuple(f"accepted (--force): {finding.where}: {finding.message}" for finding in errors)


def _all(
    repo: RepositoryContext, policies: Sequence[Policy], only: Collection[str] | None
) -> Iterator[Finding]:
    for model in repo.repository.models:
        if only is None or model.name in only:
            yield from _model(repo, model)
            if model.error is None:
                for policy in policies:
                    yield from policy.check(repo.of(model))
    path = repo.repository.path
    yield from readable(path, lambda: entries.links(repo.repository))
    yield from readable(path, lambda: entries.case_clashes(repo.repository))
    yield from readable(path, lambda: manifest.check(repo.repository, only))


def _model(repo: RepositoryContext, model: Model) -> Iterator[Finding]:
    if model.error is not None:
        yield syntax.finding(model)
        yield from readable(model.path, lambda: unparsed.check(repo, model))
    elif (model.path / CONFIG).is_dir():
        message = "config.pbtxt is a folder: the server dies when it reads it as a file"
        yield report("config-folder", str(model.path / CONFIG), message)
    elif not layout.is_model(model):
        yield layout.not_a_model(model)
    else:
        context = repo.of(model)
        for rule in RULES.values():
            yield from readable(model.path, functools.partial(rule, context))

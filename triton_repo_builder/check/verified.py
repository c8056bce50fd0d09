"""Comparison of a whole repository with its manifest, before it is served: ``trb serve --verify``."""

from __future__ import annotations

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check.rules import manifest as rule
from triton_repo_builder.repository import MANIFEST, Repository
from triton_repo_builder.repository.importable import CACHE


def check(repository: Repository) -> int:
    """Number of files, if all are as ``trb`` wrote them.

    Everything that ``trb check`` finds about the manifest is refused here, warnings too, and so is a model
    that the manifest does not know. Files outside of model folders (a README, git's own) are not served and
    not compared. Raises ``TrbError`` DIGEST_MISMATCH, NOT_FOUND.
    """
    if repository.manifest is None:
        raise TrbError(
            Code.NOT_FOUND,
            f"has no {MANIFEST}, so there is nothing to compare its files with",
            where=str(repository.path),
            remedy="build it with trb, or serve it without --verify",
        )
    files = repository.manifest.files
    wrong = [f"{finding.where}: {finding.message}" for finding in rule.check(repository)]
    wrong += [
        f"{folder}: bytecode that Triton's Python may run in place of the source"
        for model in repository.models
        for folder in sorted(model.path.rglob(CACHE))
    ]
    listed = {path.split("/")[0] for path in files if "/" in path}
    wrong += [
        f"{model.path}: {MANIFEST} does not list this model"
        for model in repository.models
        if model.stated and model.name not in listed
    ]
    if wrong:
        raise TrbError(
            Code.DIGEST_MISMATCH,
            "is not as trb built it:\n" + "\n".join(f"  {line}" for line in wrong),
            where=str(repository.path),
            remedy="record what you edited or added yourself (trb accept); else restore these files (git "
            "checkout, trb fetch, trb pull), or build the repository again",
        )
    return len(files)

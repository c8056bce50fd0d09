"""The rules of ``trb check`` on the files of a build, before any of them is written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from triton_repo_builder import check, repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.base.releases import Release
from triton_repo_builder.check.finding import Finding


def refuse_errors(endpoint: str, files: Iterable[File], release: Release) -> None:
    """Raise ``TrbError`` FAILED_CHECKS if the server would refuse the files to write."""
    errors = [finding for finding in findings(files, release) if finding.severity == "error"]
    if errors:
        raise TrbError(
            Code.FAILED_CHECKS,
            "trb check refuses what would be written:" + _listed(errors),
            where=endpoint,
            remedy="nothing was written; mend the model or the options as listed, or serve another release "
            "with --triton-release; if the model is right, this is a bug in trb: please report it",
        )


def findings(files: Iterable[File], release: Release) -> list[Finding]:
    """Findings of ``trb check`` in these files, without manifest.json, which is written last."""
    with tempfile.TemporaryDirectory(prefix="trb-check-") as folder:
        root = Path(folder).resolve()
        for file in files:
            _stage(file, root)
        reported = check.check(repository.read(root), release)
        return [finding.relative_to(root) for finding in reported if finding.code != "manifest-lost"]


def _stage(file: File, root: Path) -> None:
    """Links for the user's files, including weights: rules read only the graph."""
    path = root / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if "/vendor/" in file.path:
        path.touch()  # no rule looks into it; that a module is there is all that counts
    elif file.source is None:
        path.write_bytes(file.content)
    else:
        path.symlink_to(file.source.resolve())


def _listed(errors: Sequence[Finding]) -> str:
    lines = [f"{error.where}: {error.message} [{error.code}]; {error.remedy}" for error in errors]
    return "".join(f"\n  {line}" for line in lines)

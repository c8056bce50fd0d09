"""Make a running server serve what a revision says, and its folder hold it: one endpoint after the other.

Endpoints that are new or changed come first, what the revision no longer has goes last. Each endpoint goes
through whole states of the folder (``stages.py``), and back through them if a load or smoke fails; the others
are applied nevertheless. A killed apply leaves one of these states, from which the next one goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, Exit, TrbError
from triton_repo_builder.base.text import counted
from triton_repo_builder.produce.write import install, ownership
from triton_repo_builder.repository import integrity
from triton_repo_builder.repository.integrity import Altered, Disagreement
from triton_repo_builder.repository.journal import between, record, recovery, staging
from triton_repo_builder.run import smoke
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.serve.loading import load_unload
from triton_repo_builder.ship.deploy import drift
from triton_repo_builder.ship.deploy.drift import Action, Drift
from triton_repo_builder.ship.deploy.engine import Tell
from triton_repo_builder.ship.deploy.stage import RepositoryState
from triton_repo_builder.ship.deploy.transition import Transition
from triton_repo_builder.ship.options import ApplyOptions


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one endpoint."""

    drift: Drift
    error: TrbError | None = None
    loads: int = 0
    """Load requests to the server, also on the way back."""

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        error = self.error
        failed = {"code": error.code.kind, "error": error.message, "remedy": error.remedy} if error else None
        return {**self.drift.to_json(), "failed": failed, "loads": self.loads}


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The outcome of a revision."""

    folder: str
    outcomes: tuple[Outcome, ...]

    @property
    def drift(self) -> bool:
        """Whether there was anything to do."""
        return any(outcome.drift for outcome in self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The endpoints that serve what they served before."""
        return tuple(outcome for outcome in self.outcomes if outcome.error)

    @property
    def loads(self) -> int:
        """Loads that were asked of the server."""
        return sum(outcome.loads for outcome in self.outcomes)


def exit_code(applied: Applied, *, dry_run: bool) -> Exit | int:
    """0, 1 for a dry run that shows drift, or that of APPLY_FAILED."""
    if applied.failed:
        return Code.APPLY_FAILED.exit
    return Exit.CHECKS if dry_run and applied.drift else 0


def error(applied: Applied) -> TrbError:
    """One error for all endpoints that failed."""
    failed = applied.failed
    lines = "".join(f"\n{each.error}" for each in failed)
    names = ", ".join(outcome.drift.endpoint for outcome in failed)
    return TrbError(
        Code.APPLY_FAILED,
        f"{counted(len(failed), 'endpoint')} of {len(applied.outcomes)} could not be applied: {names}{lines}",
        where=applied.folder,
        remedy="correct that and apply again: what is applied already is not touched",
    )


def folder(url: str, to: Path | None) -> Path:
    """The folder that the server at ``url`` reads its models from. Raises ``TrbError`` UNREACHABLE, USAGE."""
    server = load_unload.find(url)
    served_from = server.repository.path if server.repository.models else None
    if to is not None:
        if served_from is not None and to.is_dir() and served_from.resolve() != to.resolve():
            raise TrbError(
                Code.USAGE,
                f"the server reads its models from {served_from}",
                where=str(to),
                remedy="leave --to out, or name that folder",
            )
        if not to.is_dir():
            raise TrbError(
                Code.NOT_FOUND,
                "no such folder",
                where=str(to),
                remedy="name the folder that the server reads",
            )
        return to
    if served_from is None:
        raise TrbError(
            Code.USAGE,
            "the folder that this server reads its models from cannot be found out from here",
            where=server.base,
            remedy="name it with --to FOLDER",
        )
    return served_from


def run(revision: Path, root: Path, urls: smoke.Urls, options: ApplyOptions, tell: Tell) -> Applied:
    """Apply the repository in the folder ``revision`` to ``root``, from which the server at ``urls`` runs.

    Raises ``TrbError`` REPOSITORY_UNREADABLE, REPOSITORY_BUSY, UNREACHABLE, OUTPUT_FOREIGN, DIGEST_MISMATCH
    for a revision that is not as it was built, DISK_FULL if there is no room to begin; failures of single
    endpoints are in the result.
    """
    with staging.exclusive(root):
        for line in recovery.recover(root, write=not options.dry_run):
            tell(line)
        current = _side(root)
        target = _side(revision) if repository.read_manifest(revision) is not None else None
        if target is None or not target.manifest.endpoints:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                "has no endpoint that trb built",
                where=str(revision),
                remedy="name a folder, URL or commit that trb build made",
            )
        _prove(revision, target)
        drifts = drift.compare(current, target, root, HttpClient(urls.http, 10), load_unload.find(urls.http))
        if options.dry_run:
            return Applied(folder=str(root), outcomes=tuple(Outcome(drift=each) for each in drifts))
        if any(drifts):
            load_unload.require_explicit(load_unload.find(urls.http))
        if any(each.action in (Action.LOAD, Action.PROMOTE) for each in drifts):
            smoke.reach(urls)  # smoke asks both; what nothing can prove later must not even begin
        with staging.staging(root) as held:
            transition = Transition(
                root=root,
                revision=revision,
                current=replace(current, state=install.linked(current.state, held)),
                target=target,
                urls=urls,
                options=options,
                tell=tell,
                stage=held,
            )
            return Applied(folder=str(root), outcomes=_outcomes(transition, drifts))


def _prove(revision: Path, target: RepositoryState) -> None:
    """Raise DIGEST_MISMATCH if the revision is not as it was built: by the bytes that were read of it."""
    recorded, state = target.manifest.files, target.state
    altered: tuple[Altered | Disagreement, ...] = tuple(
        Altered(path=path, missing=path not in state)
        for path, record in sorted(recorded.items())
        if path not in state or state[path].record.sha256 != record.sha256
    )
    if damage := altered or tuple(integrity.disagreements(revision, target.manifest)):
        raise integrity.not_as_built(damage, str(revision))


def _outcomes(transition: Transition, drifts: Sequence[Drift]) -> tuple[Outcome, ...]:
    """Every endpoint. Each marks the folder before it changes it; the mark goes when the last one is done."""
    root, target = transition.root, transition.target
    try:
        outcomes = tuple(_outcome(transition, each) for each in drifts)
        if not any(outcome.error for outcome in outcomes):
            install.install(root, {}, {}, (), target.manifest)
            between.clear(root)
    except BaseException:  # Ctrl-C, SIGTERM, a full disk: what failed of a single endpoint is an outcome
        transition.take_back()
        if not transition.changed:  # all of it went back
            record.end(transition.stage)
        raise
    if not transition.stuck:
        record.end(transition.stage)
    return outcomes


def _outcome(transition: Transition, change: Drift) -> Outcome:
    if not change:
        between.clear(transition.root, change.endpoint)
        return Outcome(drift=change)
    before = transition.loads
    transition.tell(f"{change.endpoint}: {change}")
    try:
        transition.apply(change)
    except (TrbError, RequestFailed, OSError) as error:
        failed = error if isinstance(error, TrbError) else _unanswered(transition, error)
        return Outcome(drift=change, error=failed, loads=transition.loads - before)
    between.clear(transition.root, change.endpoint)
    return Outcome(drift=change, loads=transition.loads - before)


def _unanswered(transition: Transition, error: RequestFailed | OSError) -> TrbError:
    """The error for a request before anything of an endpoint was changed, or for a file."""
    if isinstance(error, OSError) and error.errno and not isinstance(error, (ConnectionError, TimeoutError)):
        return files.explain(error, transition.root, kept=install.KEPT)
    return TrbError(
        Code.UNREACHABLE,
        f"does not answer: {error}; nothing was changed",
        where=transition.urls.http,
        remedy="see the server's log; start the server again, then run the same command again",
    )


def _side(root: Path) -> RepositoryState:
    manifest = ownership.previous(root)
    return RepositoryState(manifest=manifest, state=install.read(root, manifest.files))

"""A running server against a repository on disk, as findings of ``trb check --live``."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.check.context import RepositoryContext, report
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository import CONFIG, Model, Repository, as_loaded, pbtxt
from triton_repo_builder.run.client import HttpClient, NoAnswer, RequestFailed, statistics


def check(repository: Repository, url: str) -> list[Finding]:
    """Models and versions that are missing or not ready, others that run, and configurations that drifted."""
    http = HttpClient(url)
    try:
        findings = list(_all(repository, http))
    except NoAnswer as error:
        findings = [report("live-unreachable", http.url, str(error))]
    except RequestFailed as error:
        message = f"what answers does not list models as Triton does: {error}"
        findings = [report("live-unreachable", http.url, message)]
    names = {model.name for model in repository.models}
    return [finding.found_in(repository.path, names) for finding in findings]


def _all(repository: Repository, http: HttpClient) -> Iterator[Finding]:
    if not http.ready():
        yield report("live-not-ready", http.url, "the server answers, and is not ready")
    entries = http.index()
    checked = RepositoryContext(repository=repository, release=releases.of_server(http.version()))
    for model in repository.models:
        if not model.stated or model.error is not None:
            continue
        versions = {int(entry.version) for entry in entries if entry.name == model.name and entry.ready}
        reasons = sorted({entry.reason for entry in entries if entry.name == model.name and entry.reason})
        if not versions:
            why = f": {reasons[0].splitlines()[0]}" if reasons else ""
            yield report("live-missing", str(model.path), f"the server does not serve '{model.name}'{why}")
            continue
        if not http.ready(model.name):
            message = f"the server has loaded '{model.name}', and it is not ready: its process may have died"
            yield report("live-not-ready", str(model.path), message)
        if missing := sorted({*model.selected} - versions):
            message = f"the server does not serve version {_listed(missing)} of '{model.name}'"
            yield report("live-missing", str(model.path), message)
        if extra := sorted(versions - {*model.selected}):
            message = f"the server serves version {_listed(extra)} of '{model.name}', the repository does not"
            yield report("live-extra", str(model.path), message)
        yield from _drift(model, http, completes=_completes(checked, model))
    in_repository = {model.name for model in repository.models}
    # The server's list leaves out what is gone from its own folder; its statistics do not.
    running = {entry.name for entry in entries if entry.ready} | {*statistics.read_or_empty(http)}
    for name in sorted(running - in_repository):
        message = f"the server serves '{name}', which is not in the repository"
        yield report("live-extra", str(repository.path), message)


def _completes(checked: RepositoryContext, model: Model) -> bool:
    try:
        return checked.of(model).completes
    except OSError:  # a model.py that cannot be read: a finding of its own
        return False


def _drift(model: Model, http: HttpClient, *, completes: bool) -> Iterator[Finding]:
    try:
        loaded = http.config(model.name)
        changed = as_loaded.differences(model.config, loaded, None, completes=completes)
    except NoAnswer:
        raise
    except (RequestFailed, TrbError, pbtxt.PbtxtError) as error:
        yield report(
            "live-config", str(model.path / CONFIG), f"the server's configuration is unknown: {error}"
        )
        return
    for difference in changed:
        message = f"the server has another configuration of '{model.name}': {difference}"
        yield report("live-config", str(model.path / CONFIG), message)


def _listed(versions: list[int]) -> str:
    return ", ".join(map(str, versions))

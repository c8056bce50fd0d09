"""The chain of provenance: from a server, to a repository, to its commit, its run and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import MANIFEST, Repository, content, integrity, provenance
from triton_repo_builder.repository.integrity import Altered, NotAsBuilt
from triton_repo_builder.repository.provenance import Facts
from triton_repo_builder.run.client import HttpClient, RequestFailed, ready_versions
from triton_repo_builder.ship.vcs import git


@dataclass(frozen=True, kw_only=True)
class Link:
    """One endpoint of a repository, or one model of a server."""

    facts: Facts
    commit: str = ""
    """Hash of the last commit that changed the repository, with ``-dirty`` if files differ from it."""
    altered: tuple[NotAsBuilt, ...] = ()
    """Files of all its versions that are not as they were built, or that trb did not write; a manifest.json
    that is lost; versions whose files are as recorded, but not as their content digest says."""
    server: str = ""
    """The server's url, if the facts come from one."""
    agrees: bool | None = None
    """Whether the server serves the repository's content; None if unknown, or if only one was asked."""
    result: str = ""
    """The comparison's in words (``ship/deploy/verify.py``); empty if only one of them was asked."""
    reasons: tuple[str, ...] = ()
    """Reasons for the result."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **self.facts.to_json(),
            "commit": self.commit or None,
            "altered": [file.path for file in self.altered],
            "server": self.server or None,
            "server_agrees": self.agrees,
            "server_result": self.result or None,
            "server_reasons": list(self.reasons),
        }


def of_repository(repository: Repository) -> tuple[Link, ...]:
    """Every endpoint of a repository, with its files checked; without a manifest, from its configs."""
    commit, manifest = git.last_commit(repository.path), repository.manifest
    if manifest is None:
        lost = (Altered(path=MANIFEST, missing=True),)
        return tuple(
            Link(
                facts=Facts.of_config(model.name, model.config),
                commit=commit,
                altered=lost if provenance.built(model.config) else (),
            )
            for model in repository.endpoints
        )
    altered = [
        file
        for file in integrity.altered(repository.path, manifest.files)
        if not (file.missing and manifest.files[file.path].url)  # outside git, and not fetched yet
    ]
    links = []
    for name, entry in sorted(manifest.endpoints.items()):
        endpoint_files = {  # also of versions that wait: promote and rollback serve them next
            path
            for version in entry.versions.values()
            for path in content.paths(version, manifest.files, served=version is entry.served).values()
        }
        models = {model for version in entry.versions.values() for model in version.models}
        mine: tuple[NotAsBuilt, ...] = (
            *(file for file in altered if file.path in endpoint_files),
            *(
                file
                for model in sorted(models)
                for file in integrity.added(repository.path, manifest.files, model)
            ),
        )
        every = [(name, number) for number in entry.versions]
        links.append(
            Link(
                facts=Facts.of_entry(name, entry.served),
                commit=commit,
                altered=mine or tuple(integrity.disagreements(repository.path, manifest, only=every)),
            )
        )
    return tuple(links)


def of_server(url: str) -> tuple[Link, ...]:
    """Every ready model of a server, from its configuration. Raises ``TrbError`` UNREACHABLE."""
    http = HttpClient(url)
    try:
        links = []
        for name, versions in sorted(ready_versions(http.index()).items()):
            facts = Facts.of_config(name, http.config(name), versions)
            links.append(Link(facts=facts, server=http.url))
        return tuple(links)
    except RequestFailed as error:
        raise not_listed(http, error) from None


def not_listed(http: HttpClient, error: RequestFailed) -> TrbError:
    """The error for a server that does not list its models."""
    return TrbError(
        Code.UNREACHABLE,
        f"cannot list its models: {error}",
        where=http.url,
        remedy="name the HTTP url of a running tritonserver with --url",
    )

"""The chain behind what is served: from a server, to a repository, to its commit, its run and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton_repo_builder.client import HttpClient, RequestFailed, ready_versions
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.repository.provenance import Facts
from triton_repo_builder.vcs import git


@dataclass(frozen=True, kw_only=True)
class Link:
    """One endpoint of a repository, or one model of a server."""

    facts: Facts
    commit: str = ""
    """Hash of the last commit that changed the repository, with ``-dirty`` if files differ from it."""
    server: str = ""
    """The server's url, if the facts come from one."""
    agrees: bool | None = None
    """Whether the server serves what the repository has; None if only one was asked, or nobody can know."""
    result: str = ""
    """The comparison's in words (``deploy/verify.py``); empty if only one of them was asked."""
    reasons: tuple[str, ...] = ()
    """Why."""

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            **self.facts.to_json(),
            "commit": self.commit or None,
            "server": self.server or None,
            "server_agrees": self.agrees,
            "server_result": self.result or None,
            "server_reasons": list(self.reasons),
        }


def of_repository(repository: Repository) -> tuple[Link, ...]:
    """Every endpoint of a repository; of one that ``trb`` did not build, what its configs say."""
    commit = git.last_commit(repository.path)
    if repository.manifest is not None:
        entries = sorted(repository.manifest.endpoints.items())
        return tuple(Link(facts=Facts.of_entry(name, entry.served), commit=commit) for name, entry in entries)
    return tuple(
        Link(facts=Facts.of_config(model.name, model.config), commit=commit) for model in repository.endpoints
    )


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
        raise TrbError(
            Code.UNREACHABLE,
            f"cannot list its models: {error}",
            where=http.url,
            remedy="name the HTTP url of a running tritonserver with --url",
        ) from None

"""Whether a server runs what a revision says: its versions, its configurations as loaded, its files.

In order of strength: the content digest that the server repeats and every configuration as it has loaded
them; then the bytes of the files it reads, if they are on this machine. A server loads a file once, so one
that was altered afterwards leaves open which bytes it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base.text import counted
from triton_repo_builder.repository import (
    CASES,
    CONFIG,
    SHARED,
    as_loaded,
    content,
    importable,
    pbtxt,
)
from triton_repo_builder.repository.provenance import PREFIX
from triton_repo_builder.run.client import HttpClient, RequestFailed, ready_versions
from triton_repo_builder.run.serve.loading import load_unload
from triton_repo_builder.run.serve.loading.load_unload import Server
from triton_repo_builder.ship.deploy.expected import Expected, expected, hashed, listed
from triton_repo_builder.ship.deploy.revision import Revision, opened, quiet
from triton_repo_builder.ship.stores.store import Progress
from triton_repo_builder.ship.vcs import lineage
from triton_repo_builder.ship.vcs.lineage import Link

ORIGIN = f"parameter {PREFIX}"
NOT_LOADED = (f"/{CONFIG}", f"/{CASES}")
"""Files whose time says nothing: the server itself repeats the one, and does not read the other."""


class Result(Enum):
    """Whether one endpoint is what the revision says."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_SERVED = "not served"
    UNKNOWN = "cannot be known"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result for one endpoint, and what it rests on."""

    endpoint: str
    versions: tuple[int, ...]
    """Versions that the revision serves."""
    result: Result
    reasons: tuple[str, ...]
    """Differences, or why the result is unknown; for ``SAME``, the facts that were compared."""
    content: str
    """The content digest of the revision, hex; empty if it has none."""
    served_content: str = ""
    """The one that the server repeats."""

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "endpoint": self.endpoint,
            "versions": list(self.versions),
            "result": self.result.value,
            "reasons": list(self.reasons),
            "content": self.content or None,
            "served_content": self.served_content or None,
        }


def run(
    spec: str, url: str, names: Sequence[str] = (), *, strict: bool = False, progress: Progress = quiet
) -> tuple[Revision, tuple[Verdict, ...]]:
    """Open a revision (``ship/deploy/revision.py``) and verify it; its folder is gone afterwards."""
    with opened(spec, weights=False, progress=progress) as revision:
        if repository.read_manifest(revision.path) is not None:
            return revision, verify(revision, url, names, strict=strict)
    with opened(spec, weights=True, progress=progress) as revision:  # nothing else has its files' digests
        return revision, verify(revision, url, names, strict=strict)


def verify(
    revision: Revision, url: str, names: Sequence[str] = (), *, strict: bool = False
) -> tuple[Verdict, ...]:
    """Compare every endpoint of a revision, or these, with the server at ``url``.

    With ``strict`` nothing is the same unless the files that the server reads were compared. Raises
    ``TrbError`` UNREACHABLE, and those of ``expected``.
    """
    endpoints = expected(revision, names)
    server = load_unload.find(url)
    http = HttpClient(server.base)
    try:
        index = http.index()
    except RequestFailed as error:
        raise lineage.not_listed(http, error) from None
    ready = ready_versions(index)
    return tuple(_Comparison(server, http, ready, each).verdict(strict) for each in endpoints)


class _Comparison:
    """One endpoint against one server."""

    def __init__(
        self, server: Server, http: HttpClient, ready: Mapping[str, tuple[int, ...]], target: Expected
    ) -> None:
        self.server, self.http, self.ready, self.target = server, http, ready, target
        self.differs: list[str] = []
        self.unknown: list[str] = []
        self.served_content = ""

    def verdict(self, strict: bool) -> Verdict:
        """Compare everything; what differs outweighs what cannot be known."""
        target = self.target
        verdict = Verdict(
            endpoint=target.name,
            versions=target.versions[target.name],
            result=Result.NOT_SERVED,
            reasons=("the server has no version of it ready",),
            content=target.content,
        )
        if not self.ready.get(target.name):
            return verdict
        if target.altered:
            self.differs.append(f"the revision itself is altered: {target.altered}")
        for model in target.versions:
            self._versions(model)
            self._configuration(model)
            self._processes(model)
        self._files(strict)
        if self.differs:
            result, reasons = Result.DIFFERS, [*self.differs, *self.unknown]
        elif self.unknown:
            result, reasons = Result.UNKNOWN, self.unknown
        else:
            result, reasons = Result.SAME, self._compared()
        return replace(verdict, result=result, reasons=tuple(reasons), served_content=self.served_content)

    def _versions(self, model: str) -> None:
        loaded, served = self.ready.get(model, ()), self.target.versions[model]
        if loaded != served:
            current = f"version {', '.join(map(str, loaded))} is loaded" if loaded else "no version is loaded"
            self.differs.append(f"{model}: {current}, the revision serves {', '.join(map(str, served))}")

    def _configuration(self, model: str) -> None:
        config = self.target.configs.get(model)
        if model not in self.ready or config is None:
            return
        try:
            loaded = self.http.config(model)
            differences = as_loaded.differences(config, loaded, self.version)
        except (RequestFailed, pbtxt.PbtxtError) as error:
            self.unknown.append(f"{model}: its configuration as loaded cannot be read: {error}")
            return
        if model == self.target.name:
            self.served_content = content.stated(loaded)
        # Steps repeat where the endpoint comes from.
        said = {text for reason in self.differs if (text := reason.partition(": ")[2]).startswith(ORIGIN)}
        self.differs += [f"{model}: {difference}" for difference in differences if difference not in said]

    def _processes(self, model: str) -> None:
        if file := self.server.brought(model):
            self.differs.append(f"{model}: runs {file}, which came with a request to load it")

    def _code(self, strict: bool) -> None:
        """Code beside the revision's files: Python may import it in place of what the revision says."""
        assert self.folder is not None
        beside, compiled = list[str](), list[str]()
        for model, served in self.target.versions.items():
            for version in served:
                for path in importable.below(self.folder, f"{model}/{version}"):
                    if path not in self.target.digests:
                        (compiled if importable.cached(path) else beside).append(path)
        if beside:
            self.differs.append(f"{listed(beside)} beside what the revision has, for Python to import")
        if strict and compiled:
            self.unknown.append(f"{listed(compiled)} bytecode, which nobody has compared with its source")

    def _files(self, strict: bool) -> None:
        if self.folder is None:
            if strict:
                self.unknown.append(f"{self._unread}: only what it says of itself was compared")
            elif not self.target.content:
                self.unknown.append(
                    f"{self._unread}, and the revision has no content digest (made by hand, or by an older "
                    "trb): only versions and configurations were compared"
                )
            return
        before, after, rewritten = list[str](), list[str](), list[str]()
        loaded = {model: self.server.loaded(model, self.version) for model in self.target.versions}
        for path, sha256 in self.target.digests.items():
            file, since = self.folder / path, loaded[path.split("/")[0]]
            if self._hashed(path, path) != sha256:
                if not _later(file, since or self.server.started):
                    before.append(path)
                elif not self._kept(path, sha256):
                    after.append(path)
            elif since and not path.endswith(NOT_LOADED) and file.stat().st_mtime > since:
                rewritten += [] if self._kept(path, sha256) else [path]
        self._code(strict)
        where = f"in {self.folder}, which the server reads"
        if before:
            self.differs.append(f"{listed(before)} altered {where}")
        if after:
            note = "perhaps after it was loaded: the server runs the old bytes or the new"
            self.unknown.append(f"{listed(after)} altered {where}, {note}")
        if rewritten:
            note = "what the revision says, but written after the model was loaded, perhaps from other bytes"
            self.unknown.append(f"{listed(rewritten)} {note}")

    def _hashed(self, path: str, canonical: str) -> str:
        assert self.folder is not None
        return hashed(self.folder / path, canonical, self.target.name, self.version)

    def _kept(self, path: str, sha256: str) -> bool:
        """Whether the version's own copy is there: another version's file has taken the place since."""
        model, _, rest = path.partition("/")
        return self._hashed(f"{model}/{self.version}/{SHARED}/{rest}", path) == sha256

    @cached_property
    def folder(self) -> Path | None:
        """The server's folder, if this process can read it."""
        place = self.server.files
        try:
            return place if place is not None and (place / self.target.name).is_dir() else None
        except OSError:
            return None

    @property
    def version(self) -> int:
        """The one that the revision serves; the highest of several."""
        return max(self.target.versions[self.target.name], default=0)

    @property
    def _unread(self) -> str:
        return "the files that the server reads cannot be read from here"

    def _compared(self) -> list[str]:
        digest = f"content sha256 {self.target.content}" if self.target.content else ""
        configs = f"{counted(len(self.target.versions), 'configuration')} as loaded"
        read = f"{counted(len(self.target.digests), 'file')} that the server reads"
        return [*filter(None, (digest, configs)), self._unread if self.folder is None else read]


def _later(file: Path, since: float) -> bool:
    """Whether a file was altered after this time, or is gone: what was loaded is open."""
    try:
        return bool(since) and file.stat().st_ctime > since
    except OSError:
        return True


def compared(chain: tuple[Link, ...], revision: Revision, url: str) -> tuple[Link, ...]:
    """The endpoints of a repository, each with whether the server serves the same, and what is known."""
    verdicts = {verdict.endpoint: verdict for verdict in verify(revision, url)}
    base = HttpClient(url).url
    links = []
    for link in chain:
        verdict = verdicts[link.facts.name]
        agrees = None if verdict.result is Result.UNKNOWN else verdict.result is Result.SAME
        server = "" if verdict.result is Result.NOT_SERVED else base
        links.append(
            replace(link, server=server, agrees=agrees, result=verdict.result.value, reasons=verdict.reasons)
        )
    return tuple(links)

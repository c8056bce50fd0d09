"""Files of a version in the one form in which hand edits are compared: as ``trb build`` renders them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.produce.write import versions
from triton_repo_builder.repository import CONFIG, SHARED, VERSION, Manifest, content, pbtxt
from triton_repo_builder.repository.manifest import VersionEntry

_UTF8 = ("utf-8", "surrogateescape")
_ANY = -1
"""Version of an ensemble's steps as ``trb build`` renders them."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file of a version on disk. A served version beside others has some files twice."""

    endpoint: str
    entry: VersionEntry
    canonical: str
    """Path while the version is served."""
    path: str
    beside: bool
    """Whether the endpoint has several versions, each with its own configuration in ``shared/``."""

    def rendered(self, data: bytes) -> bytes:
        """The content as a build renders it: without content digest, policy and pinned steps."""
        if not self.path.endswith(f"/{CONFIG}"):
            return data
        text = content.unsealed(data).decode(*_UTF8)
        if self.beside:
            text = pbtxt.pin_steps(pbtxt.without_policy(text), _ANY)
        return text.encode(*_UTF8)

    def placed(self, data: bytes) -> bytes:
        """A rendered content as this place holds it, without content digest."""
        if not self.beside or not self.path.endswith(f"/{CONFIG}"):
            return data
        number = self.entry.version
        pinned = content.pinned(self.path, data, number)
        if self.path != self.canonical:
            return pinned
        return versions.serving({self.path: pinned}, (number,))[self.path]

    def forms(self, data: bytes) -> tuple[bytes, ...]:
        """The content of a build, as rendered and as it may be on disk, with its content digest."""
        if not self.path.endswith(f"/{CONFIG}"):
            return (data,)
        pinned = content.pinned(self.canonical, data, self.entry.version)
        return data, pinned, versions.serving({self.canonical: pinned}, (self.entry.version,))[self.canonical]


def places(recorded: Manifest, name: str) -> Iterator[Place]:
    """Every file of an endpoint's versions."""
    endpoint = recorded.endpoints[name]
    for number, entry in sorted(endpoint.versions.items()):
        served = number == endpoint.served.version
        listed = [
            (canonical, path)
            for canonical, path in content.paths(entry, recorded.files, served=served).items()
        ]
        copies = [
            (f"{path.split('/')[0]}/{path.split('/', 3)[3]}", path)
            for path in recorded.files
            if served and path.split("/")[0] in entry.models and path.split("/")[1:3] == [str(number), SHARED]
        ]
        beside = bool(copies) or not served
        for canonical, path in (*listed, *copies):
            yield Place(endpoint=name, entry=entry, canonical=canonical, path=path, beside=beside)


def renumbered(path: str, old: int, new: int) -> str:
    """The path of the same file in another version."""
    model, *rest = path.split("/")
    if len(rest) > 1 and VERSION.fullmatch(rest[0]) and int(rest[0]) == old:
        rest[0] = str(new)
    return "/".join((model, *rest))


def content_digest(
    recorded: Manifest, name: str, version: int, read: Callable[[str], bytes], changed: Mapping[str, str]
) -> str:
    """The content digest of a version; ``read`` gives a config.pbtxt, ``changed`` sha256 of other files."""
    endpoint = recorded.endpoints[name]
    listed = content.paths(
        endpoint.versions[version], recorded.files, served=version == endpoint.served.version
    )
    return content.digest(
        {
            canonical: content.hashed(canonical, read(path), name, version)
            if canonical.endswith(f"/{CONFIG}")
            else changed.get(path) or recorded.files[path].sha256
            for canonical, path in listed.items()
        }
    )


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def reader(root: Path, contents: Mapping[str, bytes]) -> Callable[[str], bytes]:
    """Reads files as they will be: new contents, else what is on disk."""
    return lambda path: contents[path] if path in contents else files.read(root / path)

"""The content digest of one version of an endpoint: one sha256 over all that decides its answers.

It is the digest of a canonical JSON list of the version's files, each with its sha256: those in its version
folders, and those outside in the version's own form (``pinned``). So it is the same whether the version is
served or waits beside another. The endpoint's own config.pbtxt has it as the parameter ``trb.content``,
which is left out when that file is hashed; so a running server repeats it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.config import CONFIG, ModelConfig
from triton_repo_builder.repository.manifest import Manifest, VersionEntry
from triton_repo_builder.repository.model import SHARED, VERSION
from triton_repo_builder.repository.pbtxt_document import Document
from triton_repo_builder.repository.provenance import CONTENT, PREFIX

PARAMETER = PREFIX + CONTENT
_UTF8 = ("utf-8", "surrogateescape")
"""A config.pbtxt may be a user's, with --force."""


def digest(digests: Mapping[str, str]) -> str:
    """Hex sha256 of a list of files: their paths, each with its own hex sha256."""
    listed = [{"path": path, "sha256": sha256} for path, sha256 in sorted(digests.items())]
    return hashlib.sha256(json.dumps(listed, separators=(",", ":")).encode()).hexdigest()


def pinned(path: str, content: bytes, version: int) -> bytes:
    """The content of a file; of a config.pbtxt without version policy and with steps at ``version``."""
    if not path.endswith(f"/{CONFIG}"):
        return content
    return pbtxt.pin_steps(pbtxt.without_policy(content.decode(*_UTF8)), version).encode(*_UTF8)


def hashed(path: str, content: bytes, name: str, version: int) -> str:
    """Hex sha256 of a config.pbtxt as it enters the digest of a version of the endpoint ``name``."""
    canonical = pinned(path, content, version)
    return hashlib.sha256(unsealed(canonical) if path == f"{name}/{CONFIG}" else canonical).hexdigest()


def unsealed(config: bytes) -> bytes:
    """A config.pbtxt without the content digest."""
    document = Document(config.decode(*_UTF8))
    lines = document.statements("parameters", PARAMETER)
    return document.edited((start, document.line_end(end), "") for start, end in lines).encode(*_UTF8)


def sealed(config: bytes, content: str) -> bytes:
    """The endpoint's config.pbtxt with its content digest, after its other parameters."""
    document = Document(unsealed(config).decode(*_UTF8))
    line = f'parameters {{ key: "{PARAMETER}" value {{ string_value: "{content}" }} }}\n'
    others = [document.line_end(end) for _, end in document.statements("parameters")]
    last = max(others, default=len(document.text))
    return document.edited([(last, last, line)]).encode(*_UTF8)


def stated(config: ModelConfig) -> str:
    """The content digest in a configuration, on disk or from a server; empty if there is none."""
    return config.parameters.get(PARAMETER, "")


def paths(entry: VersionEntry, recorded: Iterable[str], *, served: bool) -> dict[str, str]:
    """The version's files among those of manifest.json: path in the list of the digest, path on disk."""
    listed: dict[str, str] = {}
    for path in recorded:
        model, _, rest = path.partition("/")
        first, _, inner = rest.partition("/")
        if model not in entry.models or not rest:
            continue
        if not VERSION.fullmatch(first) or not inner:
            if served:
                listed[path] = path
        elif first == str(entry.version):
            if not inner.startswith(f"{SHARED}/"):
                listed[path] = path
            elif not served:
                listed[f"{model}/{inner.removeprefix(f'{SHARED}/')}"] = path
    return listed


def of_version(
    root: Path, manifest: Manifest, name: str, version: int, sha256: Callable[[str], str] | None = None
) -> str:
    """The digest of a version from the files below ``root``; empty if its config.pbtxt is not there."""
    digests = listing(root, manifest, name, version, sha256)
    return digest(digests) if f"{name}/{CONFIG}" in digests else ""


def listing(
    root: Path, manifest: Manifest, name: str, version: int, sha256: Callable[[str], str] | None = None
) -> dict[str, str]:
    """The files of a version with their hex sha256, as they enter its digest; empty without a config.pbtxt.

    ``sha256`` gives the hex digest of a file by its path. Without it, or if it is empty, the digest
    is computed from the file on disk, or taken from manifest.json if the file was left out.
    """
    endpoint = manifest.endpoints[name]
    entry = endpoint.versions[version]
    listed = paths(entry, manifest.files, served=version == endpoint.served.version)
    digests = {}
    for canonical, path in listed.items():
        file = root / path
        if canonical.endswith(f"/{CONFIG}"):
            if not file.is_file():
                return {}
            digests[canonical] = hashed(canonical, files.read(file), name, version)
            continue
        digest = sha256(path) if sha256 else files.hash_file(file) if file.is_file() else ""
        digests[canonical] = digest or manifest.files[path].sha256
    return digests

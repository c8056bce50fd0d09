"""Repositories that somebody altered: the file alone, with its record, or with every digest there is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from triton_repo_builder.repository import CONFIG, MANIFEST, Manifest, content


def record(root: Path, path: str, data: bytes) -> None:
    """Another content, and the record of it in manifest.json: what an attacker thinks of first."""
    (root / path).unlink(missing_ok=True)  # it may be a link to the file that it was built from
    (root / path).write_bytes(data)
    manifest = json.loads((root / MANIFEST).read_text())
    manifest["files"][path].update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    (root / MANIFEST).write_text(json.dumps(manifest))


def seal(root: Path, name: str, version: int) -> None:
    """Write the content digest of a version anew, as if it had been built so."""
    manifest = _manifest(root)
    endpoint = manifest.endpoints[name]
    digest = content.of_version(root, manifest, name, version)
    own = "" if endpoint.served.version == version else f"{version}/shared/"
    for path in {f"{name}/{own}{CONFIG}", f"{name}/{version}/shared/{CONFIG}"} & set(manifest.files):
        record(root, path, content.sealed((root / path).read_bytes(), digest))
    manifest = _manifest(root)
    if own:
        others = {**endpoint.others, version: replace(endpoint.others[version], content=digest)}
        endpoint = replace(endpoint, others=others)
    else:
        endpoint = replace(endpoint, served=replace(endpoint.served, content=digest))
    whole = replace(manifest, endpoints={**manifest.endpoints, name: endpoint})
    (root / MANIFEST).write_text(whole.to_text())


def _manifest(root: Path) -> Manifest:
    return Manifest.of_json(json.loads((root / MANIFEST).read_text()))

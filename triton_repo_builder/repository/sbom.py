"""A CycloneDX list of what a repository contains: its models, and the libraries that travel with them.

Read from the repository alone: the dist-info beside each vendored library describes it.
https://cyclonedx.org/docs/1.5/json/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

from triton_repo_builder import __version__
from triton_repo_builder.base import files
from triton_repo_builder.repository import Manifest, Repository
from triton_repo_builder.repository.provenance import Facts

SPEC = "1.5"


def cyclonedx(repository: Repository) -> dict[str, Any]:
    """The document. It bears no date and no random number: the same repository gives the same bytes."""
    manifest = repository.manifest or Manifest()
    components: dict[str, dict[str, Any]] = {}
    for name, entry in sorted(manifest.endpoints.items()):
        model = _model(Facts.of_entry(name, entry.served))
        components[model["bom-ref"]] = model
    for metadata in sorted(repository.path.glob("*/*/vendor/**/*.dist-info/METADATA")):
        library = _library(metadata, repository.path)
        first = components.setdefault(library["bom-ref"], library)
        if first is not library:
            first["evidence"]["occurrences"] += library["evidence"]["occurrences"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "version": 1,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "triton_repo_builder", "version": __version__}]
            }
        },
        "components": [components[key] for key in sorted(components)],
    }


def _model(facts: Facts) -> dict[str, Any]:
    properties = {
        "source_run": facts.source_run,
        "dataset_id": facts.dataset_id,
        **{f"label.{key}": value for key, value in facts.labels},
    }
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{facts.name}",
        "name": facts.name,
        **({"version": str(facts.versions[0])} if facts.versions else {}),
        **({"purl": f"pkg:huggingface/{facts.hub}"} if facts.hub else {}),
        **({"licenses": [{"license": {"name": facts.license}}]} if facts.license else {}),
        "hashes": _hashes([facts.model_sha256] if facts.model_sha256 else []),
        "properties": [{"name": f"trb:{key}", "value": value} for key, value in properties.items() if value],
    }


def _library(metadata: Path, root: Path) -> dict[str, Any]:
    about = Parser().parsestr(metadata.read_text(encoding="utf-8"), headersonly=True)
    name, version = str(about["Name"]), str(about["Version"])
    vendor = metadata.parent.parent
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    native = [files.hash_file(path) for path in sorted(vendor.rglob("*.so")) if _belongs(path, metadata)]
    references = [{"type": "website", "url": url} for url in _urls(about)]
    references += [
        {"type": "bom", "url": path.relative_to(root).as_posix()}
        for path in sorted(metadata.parent.glob("sboms/*.json"))
    ]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": _licences(about),
        "hashes": _hashes(native if len(native) == 1 else []),
        "externalReferences": references,
        "evidence": {"occurrences": [{"location": vendor.relative_to(root).as_posix()}]},
    }


def _belongs(library: Path, metadata: Path) -> bool:
    """Whether a shared object is in the folder of this dist-info's package."""
    folder = library.relative_to(metadata.parent.parent).parts[0]
    return folder.lower().split(".")[0] == metadata.parent.name.split("-")[0].lower()


def _licences(about: Message) -> list[dict[str, Any]]:
    """An SPDX expression if the library has one, else the name of its licence."""
    expression = about["License-Expression"]
    if expression:
        return [{"expression": str(expression)}]
    named = [
        str(c).rpartition(" :: ")[2] for c in about.get_all("Classifier", []) if str(c).startswith("License")
    ]
    return [
        {"license": {"name": name}} for name in named or ([str(about["License"])] if about["License"] else [])
    ]


def _urls(about: Message) -> Iterator[str]:
    page = about["Home-page"]
    if page:
        yield str(page)
    for line in about.get_all("Project-URL", []):
        label, _, url = str(line).partition(", ")
        if label.lower() in ("homepage", "source") and url != page:
            yield url


def _hashes(digests: list[str]) -> list[Mapping[str, str]]:
    return [{"alg": "SHA-256", "content": digest} for digest in digests]

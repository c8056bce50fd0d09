"""The message of a commit: the user's words, and trailers that say what was deployed and where it is from.

``git log --format='%(trailers:key=Model-Sha256)'`` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.repository import Repository
from triton_repo_builder.repository.provenance import Facts
from triton_repo_builder.vcs.git import Git


def write(repository: Repository, said: str, git: Git) -> str:
    """The whole message; git itself decides where trailers go."""
    words = [word for key, value in trailers(repository) for word in ("--trailer", f"{key}: {value}")]
    text = said.strip() + "\n"
    if not words:
        return text
    return git("interpret-trailers", "--if-exists", "addIfDifferent", *words, stdin=text)


def trailers(repository: Repository) -> Iterator[tuple[str, str]]:
    """(key, value); a value that is of one endpoint among several ends with that endpoint's name."""
    endpoints = sorted((repository.manifest or {}).get("endpoints", {}).items())
    for name, entry in endpoints:
        facts = Facts.of_entry(name, entry)
        of = f" {name}" if len(endpoints) > 1 else ""
        pairs = [
            ("Endpoint", f"{name} version {entry.get('version', 1)}"),
            ("Model-Sha256", facts.model_sha256 + of),
            *(("Source-Sha256", f"{sha} {file}{of}") for file, sha in facts.sources[1:]),
            ("Options-Digest", facts.options_digest and facts.options_digest + of),
            ("Source-Run", facts.source_run and facts.source_run + of),
            ("Dataset-Id", facts.dataset_id and facts.dataset_id + of),
        ]
        yield from ((key, value) for key, value in pairs if value.strip())
    generator = (repository.manifest or {}).get("generator", {})
    if generator.get("version"):
        yield "Trb-Version", str(generator["version"])

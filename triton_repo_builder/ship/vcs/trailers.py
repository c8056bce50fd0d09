"""Trailers of a commit: the deployed models, and their origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from triton_repo_builder.repository import Manifest
from triton_repo_builder.repository.provenance import Facts

_NOT_IN_A_LINE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


def trailers(manifest: Manifest, altered: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """(key, value in one line); the value of one endpoint among several ends with that endpoint's name.

    ``git log --format='%(trailers:key=Model-Sha256)'`` lists them. ``altered``: files that are committed
    though they are not as the manifest records them, so that the other trailers do not hold for them.
    """
    endpoints = sorted(manifest.endpoints.items())
    for name, entry in endpoints:
        facts = Facts.of_entry(name, entry.served)
        of = f" {name}" if len(endpoints) > 1 else ""
        pairs = [
            ("Endpoint", f"{name} version {entry.served.version}"),
            ("Content-Sha256", facts.content and facts.content + of),
            ("Model-Sha256", facts.model_sha256 + of),
            *(("Source-Sha256", f"{sha} {file}{of}") for file, sha in facts.sources[1:]),
            ("Options-Digest", facts.options_digest and facts.options_digest + of),
            ("Source-Run", facts.source_run and facts.source_run + of),
            ("Dataset-Id", facts.dataset_id and facts.dataset_id + of),
            ("Hub-Model", facts.hub and f"{facts.hub}/{facts.hub_file}{of}"),
            *(("Label", f"{key}={value}{of}") for key, value in facts.labels),
        ]
        yield from ((key, line) for key, value in pairs if (line := _line(value)))
    yield from (("Altered-File", line) for path in sorted(altered) if (line := _line(path)))
    if version := _line(manifest.generator.get("version", "")):
        yield "Trb-Version", version


def _line(value: str) -> str:
    """A value that cannot end its line: a line of its own would be another trailer, or end the block."""
    return _NOT_IN_A_LINE.sub(" ", value).strip()

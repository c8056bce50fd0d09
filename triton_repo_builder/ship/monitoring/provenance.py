"""Where the models of a dashboard come from: a table, and links from their series."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from triton_repo_builder.repository.manifest import VersionEntry
from triton_repo_builder.ship.monitoring.source import Endpoint, Source

_WEB = re.compile(r"https?://[^\s<>\"]+")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")


def links(source: Source) -> Iterator[dict[str, Any]]:
    """Links from the series of a version to its training run and its data set."""
    for each in source.endpoints:
        for entry in each.versions:
            origin = entry.provenance
            links = [
                {"title": title, "url": url, "targetBlank": True}
                for title, url in (("Training run", origin.source_run), ("Data set", origin.dataset_id))
                if _WEB.fullmatch(url)
            ]
            if links:
                yield {
                    "matcher": {"id": "byName", "options": f"{each.name} v{entry.version}"},
                    "properties": [{"id": "links", "value": links}],
                }


def table(source: Source, commit: str) -> Iterator[str]:
    """Markdown: a row for each version."""
    yield "| endpoint | version | built from | git commit | training run | data set |"
    yield "|---|---|---|---|---|---|"
    for each in source.endpoints:
        for entry in each.versions:
            yield _row(each, entry, commit)
        if not each.versions:
            yield f"| {_plain(each.name)} | | not built by trb | | | |"
    yield "\nWhat a server serves now, with the sha256 of every file: `trb provenance --url http://SERVER:8000`"


def _row(each: Endpoint, entry: VersionEntry, commit: str) -> str:
    model = f"{entry.sources[0].file} {entry.sources[0].sha256[:12]}" if entry.sources else ""
    origin = entry.provenance
    cells = (
        *(_plain(each.name), str(entry.version), _plain(model), _short(commit)),
        *(_linked(origin.source_run), _linked(origin.dataset_id)),
    )
    return f"| {' | '.join(cells)} |"


def _short(commit: str) -> str:
    return commit[:12] + "-dirty" * commit.endswith("-dirty")


def _linked(text: str) -> str:
    """A link if the text is the address of a page."""
    if _WEB.fullmatch(text):
        return f"[{_plain(text)}]({quote(text, safe=':/?#@!$&*+,;=%~._-')})"
    return _plain(text)


def _plain(text: str) -> str:
    """Text that Markdown leaves alone."""
    return _MARKDOWN.sub(r"\\\1", text)

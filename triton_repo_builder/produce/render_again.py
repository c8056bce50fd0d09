"""Earlier contents of a repository's files, rendered again from the model and the recorded options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, releases
from triton_repo_builder.base.files import File
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build
from triton_repo_builder.produce.request import Progress
from triton_repo_builder.produce.write import accepted
from triton_repo_builder.repository import Manifest


class Renderer:
    """Builds an endpoint's version as manifest.json records it, once; writes nothing."""

    def __init__(self, recorded: Manifest, model: Path, progress: Progress) -> None:
        self._recorded, self._model, self._progress = recorded, model, progress
        self._built: dict[tuple[str, int], dict[str, File]] = {}

    def content(self, path: str, matches: Callable[[bytes], bool]) -> bytes | None:
        """The content that matches; None if the model or the options are others. Raises ``TrbError``."""
        for name in sorted(self._recorded.endpoints):
            for place in accepted.places(self._recorded, name):
                if place.path != path:
                    continue
                fresh = self._files(name, place.entry.version).get(place.canonical)
                data = (files.read(fresh.source) if fresh.source else fresh.content) if fresh else b""
                for form in place.forms(data) if fresh else ():
                    if matches(form):
                        return form
        return None

    def _files(self, name: str, version: int) -> dict[str, File]:
        if (name, version) not in self._built:
            entry = self._recorded.endpoints[name].versions[version]
            settings = {option: _frozen(value) for option, value in (entry.options or {}).items()}
            origin = {
                "source_run": entry.provenance.source_run or None,
                "dataset_id": entry.provenance.dataset_id or None,
                "label": tuple(entry.provenance.labels.items()),
                "hub": entry.provenance.hub,
                "conversion": entry.provenance.conversion,
            }
            place = {"model": self._model, "name": name, "version": version}
            target = releases.target(entry.triton_release or None)
            target = replace(target, source=entry.triton_release_from)
            options = BuildOptions(**{**settings, **origin, **place}, target=target)
            self._built[name, version] = {
                file.path: file for file in build.build(options, self._progress).files
            }
        return self._built[name, version]


def _frozen(value: Any) -> Any:
    """A recorded value as an option has it: tuples in place of lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value

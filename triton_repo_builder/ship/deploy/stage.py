"""A repository while an endpoint of it changes: its two ends, and one state between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.produce.write.install import State, below
from triton_repo_builder.repository import CONFIG, SHARED, VERSION, Manifest, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.manifest import EndpointEntry


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One state of an endpoint's models, and how the server takes it up."""

    about: str
    state: State
    """Every file that trb has in the models that change."""
    entry: EndpointEntry | None
    """The endpoint in manifest.json; None: it is not there."""
    loads: tuple[str, ...] = ()
    """In this order, after the files are there."""
    expected: Mapping[str, tuple[int, ...]]
    """The versions that are ready then."""
    unloads: tuple[str, ...] = ()
    """Before the files change."""
    proven: bool = False
    """Whether trb smoke has to pass then."""


@dataclass(frozen=True, kw_only=True)
class RepositoryState:
    """A repository as the stages need it: the served folder, or the revision."""

    manifest: Manifest
    state: State

    def config(self, model: str) -> ModelConfig:
        """A model's configuration; empty if it has none. Raises ``TrbError`` REPOSITORY_UNREADABLE."""
        piece = self.state.get(f"{model}/{CONFIG}")
        try:
            return (
                ModelConfig(pbtxt.parse(piece.bytes.decode("utf-8", "replace"))) if piece else ModelConfig()
            )
        except pbtxt.PbtxtError as error:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                f"cannot be read: {error}",
                where=f"{model}/{CONFIG}",
                remedy="restore the file (git checkout), or build the endpoint again",
            ) from None

    def numbers(self, model: str) -> tuple[int, ...]:
        """The version folders of a model, ascending."""
        parts = [path.split("/") for path in self.state if path.startswith(f"{model}/")]
        return tuple(sorted({int(part[1]) for part in parts if len(part) > 2 and VERSION.fullmatch(part[1])}))

    def selected(self, model: str) -> tuple[int, ...]:
        """The versions of a model that are loaded from this."""
        return self.config(model).select(self.numbers(model))

    def runs(self, name: str) -> dict[str, int]:
        """The version of each model that a request to this endpoint meets, the endpoint's own first."""
        models = self.manifest.endpoints[name].models
        pins = {step.model_name: step.model_version for step in self.config(name).steps}
        runs = {}
        for model in models:
            pin = pins.get(model, -1)
            runs[model] = pin if pin > 0 else max(self.selected(model), default=0)
        return runs

    def loaded(self, name: str) -> dict[str, tuple[int, ...]]:
        """The versions of each model of an endpoint that a server has loaded."""
        return {model: self.selected(model) for model in self.manifest.endpoints[name].models}

    def content(self, model: str, number: int) -> dict[str, str]:
        """Hex sha256 of what a version loads, by the path in its folder."""
        prefix = f"{model}/{number}/"
        return {
            path.removeprefix(prefix): piece.record.sha256
            for path, piece in self.state.items()
            if path.startswith(prefix) and not path.startswith(f"{prefix}{SHARED}/")
        }

    def same_files(self, other: RepositoryState, model: str) -> bool:
        """Whether trb's files of a model are the same."""
        mine, others = (
            {path: piece.record.sha256 for path, piece in below(side.state, (model,)).items()}
            for side in (self, other)
        )
        return mine == others


@dataclass(frozen=True, kw_only=True)
class Change:
    """An endpoint on its way from the served folder's state to a revision's."""

    current: RepositoryState
    target: RepositoryState
    name: str
    models: Collection[str]
    """The model folders that change."""
    free: int = 0
    """A version number that nothing uses."""

    @cached_property
    def old(self) -> dict[str, int]:
        """The version of each model that answers before."""
        return self.current.runs(self.name)

    @cached_property
    def new(self) -> dict[str, int]:
        """The version of each model that answers afterwards."""
        return self.target.runs(self.name)

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """The steps of the revision with other files than the folder has."""
        return tuple(model for model in self._steps if not self._is_same(model))

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The steps that answer otherwise."""
        return tuple(model for model in self._steps if model in self.old and self._answers_otherwise(model))

    @property
    def _steps(self) -> list[str]:
        return [model for model in self.new if model != self.name]

    def _is_same(self, model: str) -> bool:
        return model in self.old and self.current.same_files(self.target, model)

    def _answers_otherwise(self, model: str) -> bool:
        old, new = self.old[model], self.new[model]
        return (
            old != new
            or self.current.content(model, old) != self.target.content(model, new)
            or bool(self.unlike(model))
        )

    def unlike(self, model: str) -> str:
        """The first field of a step's configuration that means something else afterwards."""
        return versions.unlike(self.current.config(model), self.target.config(model))

    def final(self, about: str, *, loads: tuple[str, ...], proven: bool = True) -> Stage:
        """The revision's files; models that it does not need are unloaded once the ensemble changed."""
        return Stage(
            about=f"{self.name}: {about}",
            state=below(self.target.state, self.models),
            entry=self.target.manifest.endpoints[self.name],
            loads=loads,
            expected=self.target.loaded(self.name),
            proven=proven,
        )

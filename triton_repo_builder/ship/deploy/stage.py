"""A repository while an endpoint of it changes: its two ends, and one state between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError
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
class Side:
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

    def same_files(self, other: Side, model: str) -> bool:
        """Whether trb's files of a model are the same."""
        mine, others = (
            {path: piece.record.sha256 for path, piece in below(side.state, (model,)).items()}
            for side in (self, other)
        )
        return mine == others


def final(
    have: Side,
    want: Side,
    name: str,
    models: Collection[str],
    *,
    loads: tuple[str, ...],
    proven: bool,
    about: str,
) -> Stage:
    """The revision's files; models that it does not need any more are unloaded once the ensemble changed."""
    return Stage(
        about=f"{name}: {about}",
        state=below(want.state, models),
        entry=want.manifest.endpoints[name],
        loads=loads,
        expected=want.loaded(name),
        proven=proven,
    )

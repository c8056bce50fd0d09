"""The facts of a repository that its rules and dashboards need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Model, Repository, composition
from triton_repo_builder.repository.manifest import VersionEntry

METRICS = "metrics.py"
"""File of a Python model that counts (``runtime/metrics.py``)."""
TOKENIZER = "tokenizer.json"
MICROSECONDS = 1e6
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-/: @")
_CLASS = frozenset(".+*?()|{}$")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint with its models."""

    name: str
    models: tuple[str, ...]
    """The endpoint first, then its steps."""
    versions: tuple[VersionEntry, ...] = ()
    """Entries of the manifest, the served one first; empty for an endpoint that trb did not build."""

    @property
    def task(self) -> str:
        return self.versions[0].task if self.versions else ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A repository's endpoints, and what its models are able to tell."""

    endpoints: tuple[Endpoint, ...]
    batching: Mapping[str, float]
    """Models with a dynamic batcher, and the delay in seconds that it may wait for more requests."""
    counting: frozenset[str]
    """Models with metrics of their own."""
    tokenizers: frozenset[str]
    """Models of ``counting`` that count texts and tokens."""

    @property
    def timed(self) -> tuple[str, ...]:
        """Models with times by phase: on the embedded engine also the ONNX models beside those that count."""
        counting = (each for each in self.endpoints if self.counting & {*each.models})
        return tuple(dict.fromkeys(model for each in counting for model in each.models))

    @property
    def tasks(self) -> frozenset[str]:
        """Tasks of the endpoints that have metrics of their own."""
        return frozenset(each.task for each in self.endpoints if self.counting & {*each.models})


def read(repository: Repository) -> Source:
    """Read the facts. Raises ``TrbError`` for a folder without a model."""
    endpoints = tuple(_endpoint(repository, model) for model in repository.endpoints if model.stated)
    if not endpoints:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "holds no model",
            where=str(repository.path),
            remedy="name a model repository; make one with 'trb build'",
        )
    counting = frozenset(model.name for model in repository.models if _counts(model))
    return Source(
        endpoints=endpoints,
        batching={model.name: _delay(model) for model in repository.models if _batches(model)},
        counting=counting,
        tokenizers=frozenset(
            model.name for model in repository.models if model.name in counting and _holds(model, TOKENIZER)
        ),
    )


def pattern(names: Iterable[str]) -> str:
    """An RE2 pattern of these names, for the quotes of a matcher in PromQL.

    Commas and backslashes are spelled by their numbers: Grafana splits the values of a variable at commas.
    """
    return "|".join("".join(map(_escaped, name)) for name in names)


def _escaped(character: str) -> str:
    if character in _PLAIN:
        return character
    return f"[{character}]" if character in _CLASS else f"\\\\x{{{ord(character):x}}}"


def _endpoint(repository: Repository, model: Model) -> Endpoint:
    entry = repository.manifest.endpoints.get(model.name) if repository.manifest else None
    versions = (entry.served, *(entry.others[number] for number in sorted(entry.others))) if entry else ()
    return Endpoint(
        name=model.name,
        models=composition.members((model.name,), repository.steps_of),
        versions=versions,
    )


def _batches(model: Model) -> bool:
    return model.config.dynamic_batching is not None and model.config.max_batch_size > 1


def _delay(model: Model) -> float:
    block = model.config.dynamic_batching or {}
    return int(block.get("max_queue_delay_microseconds", 0)) / MICROSECONDS


def _counts(model: Model) -> bool:
    return _holds(model, METRICS) and model.config.parameters.get("metrics") != "off"


def _holds(model: Model, name: str) -> bool:
    return any((model.path / str(version) / name).is_file() for version in model.versions)

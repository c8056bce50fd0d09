"""The endpoints of a server: those that it has loaded, the repository's files, and gateway.toml.

The server alone gives names, inputs and outputs, the limit of tokens and the prompt that is put before every
text. Counts of tokens, prompts by name and labels need the repository.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.repository.manifest import Manifest, VersionEntry
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served, task_of
from triton_repo_builder.run.gateway.mapping import GatewayMap, MappedEndpoint
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.text_rules import TextRules
from triton_repo_builder.run.gateway.triton import Triton

TIMEOUT = 10.0
"""Seconds for each question to the server."""
RESTRICTED = "restricted"
"""Triton's word for APIs that need a key (``run/serve/admin_apis.py``)."""
NOT_READY = "is not ready"
TOKENIZER = "tokenizer.json"
LIMIT = "max_length"
"""Parameter of a tokenizer model of trb."""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """Where to look besides the server."""

    repo: Path | None = None
    map: GatewayMap = field(default_factory=GatewayMap)

    async def catalogue(self, triton: Triton) -> Catalogue:
        """The endpoints that the server has loaded. Raises ``Refusal`` if it does not answer."""
        configs = await loaded(triton, self._models)
        inner = {step.model_name for config in configs.values() for step in config.steps}
        manifest = self._manifest()
        served = {
            name: self._served(name, configs, manifest)
            for name in configs
            if name not in inner or (manifest is not None and name in manifest.endpoints)
        }
        for mapped in self.map.endpoints:
            config = configs.get(mapped.model)
            if config is not None:
                served[mapped.name] = self._mapped(mapped, self._served(mapped.model, configs, manifest))
        return Catalogue(served.values(), self.map.routing)

    def _manifest(self) -> Manifest | None:
        """The repository's manifest; one of many endpoints takes long to read, and rarely changes."""
        if self.repo is None:
            return None
        with suppress(OSError):
            stamp = self.repo.joinpath(repository.MANIFEST).stat()
            return _read_manifest(self.repo, stamp.st_mtime_ns, stamp.st_ino)
        return repository.read_manifest(self.repo)

    def _models(self) -> tuple[str, ...]:
        """Names of the repository's models, for a server that keeps its list to itself."""
        if self.repo is None:
            return ()
        with suppress(TrbError, OSError):
            return tuple(model.name for model in repository.read(self.repo).models)
        return ()

    def _served(self, name: str, configs: Mapping[str, ModelConfig], manifest: Manifest | None) -> Served:
        config = configs[name]
        endpoint = Endpoint.of_config(name, config)
        entry = manifest.endpoints[name].served if manifest and name in manifest.endpoints else None
        return Served(
            name=name,
            model=name,
            task=task_of(endpoint, entry.task if entry else ""),
            endpoint=endpoint,
            rules=self._rules(config, configs, entry),
            facts=entry.facts if entry else {},
            ensemble=bool(config.steps),
        )

    def _rules(
        self, config: ModelConfig, configs: Mapping[str, ModelConfig], entry: VersionEntry | None
    ) -> TextRules:
        """Rules by the ensemble's tokenizer model, and by the manifest's facts."""
        for step in config.steps:
            parameters = configs[step.model_name].parameters if step.model_name in configs else {}
            if LIMIT in parameters:
                facts = entry.facts if entry else {}
                return TextRules(
                    file=self._tokenizer(step.model_name),
                    max_length=int(parameters[LIMIT] or 0),
                    prompt=parameters.get("prompt", ""),
                    prompts=facts.get("prompts", {}) if entry else None,
                    pooled=facts.get("include_prompt", True),
                    normalized=facts.get("normalize") if entry else None,
                    side=parameters.get("truncation_side", "right"),
                )
        return TextRules()

    def _tokenizer(self, model: str) -> Path | None:
        """The newest version's file of a tokenizer model."""
        if self.repo is None:
            return None
        listed = self.repo.joinpath(model).glob(f"*/{TOKENIZER}")
        versions = {int(file.parent.name): file for file in listed if file.parent.name.isdecimal()}
        return versions[max(versions)] if versions else None

    @staticmethod
    def _mapped(mapped: MappedEndpoint, served: Served) -> Served:
        endpoint = renamed(served.endpoint, mapped)
        return replace(
            served,
            name=mapped.name,
            version=mapped.version,
            task=mapped.task or task_of(endpoint, served.task),
            inputs=mapped.inputs,
            outputs=mapped.outputs,
            rules=mapped.rules or served.rules,
            facts={**served.facts, "labels": list(mapped.labels)} if mapped.labels else served.facts,
            fault=_fault(mapped, endpoint),
        )


def _fault(mapped: MappedEndpoint, endpoint: Endpoint) -> str:
    """The fault of the labels in gateway.toml; empty if there is none, or the classes are not known."""
    classes = next((each.shape[-1] for each in endpoint.outputs if each.name == "scores" and each.shape), -1)
    if not mapped.labels or classes in (-1, len(mapped.labels)):
        return ""
    return f"[endpoints.{mapped.name}] has {len(mapped.labels)} labels, and the model has {classes} classes"


@lru_cache(maxsize=1)
def _read_manifest(repo: Path, changed: int, inode: int) -> Manifest | None:
    return repository.read_manifest(repo)


def renamed(endpoint: Endpoint, mapped: MappedEndpoint) -> Endpoint:
    """The endpoint with the task's names of inputs and outputs."""
    inputs = {theirs: ours for ours, theirs in mapped.inputs.items()}
    outputs = {theirs: ours for ours, theirs in mapped.outputs.items()}
    return replace(
        endpoint,
        inputs=tuple(replace(each, name=inputs.get(each.name, each.name)) for each in endpoint.inputs),
        outputs=tuple(replace(each, name=outputs.get(each.name, each.name)) for each in endpoint.outputs),
    )


async def loaded(triton: Triton, models: Callable[[], Sequence[str]] = tuple) -> dict[str, ModelConfig]:
    """Configurations of the models that are ready, by name. Raises ``Refusal``.

    A server whose list of models needs its admin key is asked for each of ``models``.
    """
    try:
        index = await triton.call("RepositoryIndex", TIMEOUT, ready=True)
        names = dict.fromkeys(model.name for model in index.models if model.state == "READY")
    except Refusal as refusal:
        if RESTRICTED not in refusal.message:
            raise
        names = dict.fromkeys(models())
    configs = {}
    for name in names:
        try:
            answer = await triton.call("ModelConfig", TIMEOUT, name=name)
        except Refusal as refusal:
            if refusal.status in (400, 404) or NOT_READY in refusal.message:  # unloaded meanwhile
                continue
            raise
        configs[name] = ModelConfig(pbtxt.of_message(answer.config))
    return configs

"""A deployment: ``deploy.toml`` with the facts of its repository, proven to fit each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files, releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import cut
from triton_repo_builder.measure.capacity import capacities
from triton_repo_builder.measure.capacity import limit as limits
from triton_repo_builder.measure.capacity.capacities import Capacity
from triton_repo_builder.measure.capacity.limit import Limit
from triton_repo_builder.repository import Model, Repository
from triton_repo_builder.run.client import admin_key
from triton_repo_builder.run.serve import release
from triton_repo_builder.run.serve.processes import shared_memory
from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets.spec import MEBI, Spec, wrong
from triton_repo_builder.ship.vcs import git

OFFICIAL = "nvcr.io/nvidia/tritonserver"
"""NVIDIA's image, which has the tag ``YY.MM-py3``."""
ROOM = 64 << 20
"""Bytes of memory beyond /dev/shm, at least: an idle tritonserver 24.10 has 34 MiB (VmRSS), so has Python."""


@dataclass(frozen=True, kw_only=True)
class Batcher:
    """A model with a queue, as autoscaling sees it."""

    model: str
    max_batch: int
    instances: int
    delay_us: int
    """Time that its batcher waits on purpose."""

    @property
    def batch_of_replica(self) -> int:
        """Requests that all instances of a replica take at once."""
        return max(1, self.max_batch) * self.instances


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Facts that every target is rendered from."""

    spec: Spec
    file: Path
    """``deploy.toml``."""
    repository: Repository
    revision: str
    """sha256 of the repository's files, as ``trb push`` names it."""
    commit: str
    """The last commit that changed the repository; empty outside of git."""
    release: releases.Release
    capacity: Capacity | None
    """Capacity of one replica, if autoscaling has a report."""
    output: Path = Path()
    """Folder that the files go to: some of them name paths, relative to it."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Models that clients call."""
        return tuple(model.name for model in self.repository.endpoints if model.stated)

    @property
    def image(self) -> str:
        """Image of the server."""
        return self.spec.server.image or f"{OFFICIAL}:{self.release.name}-py3"

    @cached_property
    def shared_memory(self) -> int:
        """Bytes of /dev/shm."""
        return shared_memory.needed(self.repository)

    @cached_property
    def limit(self) -> Limit | None:
        """The highest load of a replica that keeps the objective; a simulation of seconds.

        None if the report has no service times, or if not even an idle replica keeps it.
        """
        if self.capacity is None or self.capacity.service is None:
            return None
        return limits.limit(self.capacity.service, self.spec.objective, self.capacity.per_second)

    @property
    def complete(self) -> bool:
        """Whether every config.pbtxt states all inputs and outputs, so that none need be completed."""
        return all(model.complete for model in self.repository.models if model.stated)

    @property
    def batchers(self) -> tuple[Batcher, ...]:
        """Models with queues; an ensemble has none."""
        return tuple(batcher(model) for model in self.repository.models if model.stated and not model.steps)

    @property
    def labels(self) -> Mapping[str, str]:
        """Provenance in one line each."""
        return revision.labels(self.repository.manifest)


def read(file: Path, spec: Spec, *, secrets: bool = True) -> Deployment:
    """The deployment. Without ``secrets`` their files need not be there yet.

    Raises ``TrbError``: REPOSITORY_UNREADABLE, DIGEST_MISMATCH, TOO_NEW, NOT_FOUND, USAGE.
    """
    repo = repository.read(spec.repository.path)
    if not any(model.stated for model in repo.models):
        raise no_model(repo.path)
    digest = revision.collect(repo.path).index.digest
    stated = spec.repository.revision.removeprefix("sha256:")
    if stated and stated != digest:
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"changed since {file.name} was written: it is sha256:{digest[:12]}…, not sha256:{stated[:12]}…",
            where=str(repo.path),
            remedy=f'if you mean the new one, write into [repository]: revision = "sha256:{digest}"',
        )
    chosen = _release(file, spec)
    deployment = Deployment(
        spec=spec,
        file=file,
        repository=repo,
        revision=digest,
        commit=git.last_commit(repo.path),
        release=chosen,
        capacity=_capacity(file, spec),
    )
    _loadable(deployment)
    _measured(deployment)
    _fitting(deployment)
    if secrets:
        _present(file, spec)
    return deployment


def _release(file: Path, spec: Spec) -> releases.Release:
    """The release in the image: stated, or of its tag, or of trb's own image, which is the embedded server's.

    Raises USAGE for an unknown one, and for one that the image's tag contradicts.
    """
    stated, listed = spec.server.release, releases.load()
    if stated and stated not in listed:
        raise wrong(file, f"'server.release' {cut(stated)} is not known", f"use {', '.join(listed)}")
    tag = release.tagged(spec.server.image)
    if stated and tag and stated != tag:
        raise wrong(
            file,
            f"'server.release' is {stated}, and the tag of 'server.image' says {tag}: {spec.server.image}",
            "name the release that is in the image; without 'release' it is the tag's",
        )
    if stated or tag in listed:
        return listed[stated or tag]
    return releases.default() if spec.server.image else releases.newest()


def notes(deployment: Deployment) -> tuple[str, ...]:
    """A remark if the repository was built for another release than the one in the image."""
    manifest, release_name = deployment.repository.manifest, deployment.release.name
    others = [each for each in (manifest.releases if manifest else ()) if each != release_name]
    if not others:
        return ()
    return (
        f"the repository was built for tritonserver {', '.join(others)}, and {deployment.image} counts as "
        f"{release_name}: set server.image to an image of {others[-1]} (and server.release, if its tag does "
        f"not begin with that), or build again with --triton-release {release_name}",
    )


def no_model(folder: Path) -> TrbError:
    """The error for a folder without a model."""
    return TrbError(
        Code.REPOSITORY_UNREADABLE,
        "holds no model",
        where=str(folder),
        remedy="name a model repository; make one with 'trb build'",
    )


def _capacity(file: Path, spec: Spec) -> Capacity | None:
    scaling = spec.autoscaling
    if not scaling.most:
        return None
    if scaling.report is None:
        if scaling.pending_batches:
            return None
        raise wrong(
            file,
            "'autoscaling' has neither 'report' nor 'pending_batches', so no load says when to grow",
            f"measure a replica: trb tune --slo {spec.objective.percentile}={spec.objective.ms:g}ms --output "
            'tuned, then report = "tuned/report.json"',
        )
    listed = capacities.read(scaling.report, "", spec.objective)
    meeting = [each for each in listed if each.latency_ms <= spec.objective.ms]
    if not meeting:
        raise wrong(
            file,
            f"no setting in {scaling.report} meets the objective, {spec.objective}",
            "tune for this objective, or state another one",
        )
    # Of the settings that a tune run compared, only the chosen one has service times.
    return max(meeting, key=lambda each: (each.service is not None, each.per_second))


def _measured(deployment: Deployment) -> None:
    """Raise USAGE if the report is of other models, or of other settings, than the repository has."""
    capacity, report = deployment.capacity, deployment.spec.autoscaling.report
    batchers = {batcher.model: batcher for batcher in deployment.batchers}
    for stage in capacity.service.stages if capacity and capacity.service else ():
        batcher = batchers.get(stage.model)
        measured, configured = (
            f"{each.instances} instances and batches up to {each.max_batch}" if each else ""
            for each in (stage, batcher)
        )
        if measured == configured:
            continue
        raise wrong(
            deployment.file,
            f"{report} measured '{stage.model}' with {measured}; "
            + (f"the repository has {configured}" if configured else "the repository has no such model"),
            "write the setting that was chosen (trb tune --write), or tune this repository",
        )


def _loadable(deployment: Deployment) -> None:
    """Raise TOO_NEW if the release's ONNX Runtime refuses a model."""
    manifest = deployment.repository.manifest
    for name, entry in sorted(manifest.endpoints.items()) if manifest else ():
        ir, opset = entry.served.ir_version, entry.served.opset
        if ir and opset and not deployment.release.loads(ir, opset):
            able = releases.can_load(ir, opset)
            raise TrbError(
                Code.TOO_NEW,
                f"endpoint '{name}' has opset {opset} (IR {ir}), which ONNX Runtime "
                f"{deployment.release.onnxruntime} of release {deployment.release.name} does not load",
                where=str(deployment.file),
                remedy=f"set server.release to {able[0]} or newer"
                + (", and server.image to an image of it" if deployment.spec.server.image else "")
                if able
                else "export it with an older opset",
            )


def _fitting(deployment: Deployment) -> None:
    """Raise USAGE for a memory of which /dev/shm, a part of it, would leave too little."""
    memory, shared = deployment.spec.server.memory, deployment.shared_memory
    least = shared + ROOM
    if memory < least:
        raise wrong(
            deployment.file,
            f"'server.memory' is {memory >> 20} MiB, and /dev/shm of the Python models takes "
            f"{shared >> 20} MiB of it; a server and a Python process need {ROOM >> 20} MiB more",
            f"give it at least {-(-least // MEBI)} MiB; models and their runtime need memory besides",
        )


def _present(file: Path, spec: Spec) -> None:
    """Raise NOT_FOUND for a secret that is not there."""
    exposure = spec.exposure
    secrets = {
        "exposure.admin_key": exposure.admin_key,
        "exposure.tls_certificate": exposure.tls_certificate,
        "exposure.tls_key": exposure.tls_key,
        "gateway.keys": spec.gateway.keys,
    }
    for key, path in secrets.items():
        if path is None:
            continue
        if not path.is_file():
            remedy = (
                f"make one: (umask 077; openssl rand -hex 32 > {path})"
                if key.endswith("admin_key")
                else "correct the path, or put the file there"
            )
            raise TrbError(
                Code.NOT_FOUND, f"'{key}' of {file.name} is not there", where=str(path), remedy=remedy
            )
        try:
            empty = not files.read(path).strip()
        except OSError as error:
            raise files.unreadable(path, error) from None
        if empty:
            raise TrbError(
                Code.USAGE, f"'{key}' of {file.name} is empty", where=str(path), remedy="write it anew"
            )
    admin_key.read(exposure.admin_key)


def batcher(model: Model) -> Batcher:
    """The queue of a model."""
    config = model.config
    default = shared_memory.DEFAULT.get(model.backend, 1)
    block = config.dynamic_batching or {}
    return Batcher(
        model=model.name,
        max_batch=config.max_batch_size if config.dynamic_batching is not None else 1,
        instances=sum(group.count or default for group in config.instance_groups) or default,
        delay_us=int(block.get("max_queue_delay_microseconds", 0)),
    )

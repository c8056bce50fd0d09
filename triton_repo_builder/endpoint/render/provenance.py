"""A build's record of itself: its options and origin in the manifest and in each config.pbtxt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from triton_repo_builder import __version__
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.plan.endpoint import EndpointPlan, PlanRequest
from triton_repo_builder.endpoint.plan.model import ModelPlan, RepositoryPlan, TensorPlan
from triton_repo_builder.endpoint.tasks.task import Kind
from triton_repo_builder.model.read import model_card, slow_tokenizer
from triton_repo_builder.model.read.options import OPTIONS, BuildOptions
from triton_repo_builder.model.read.signature import RECIPE
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import CASES, CONFIG, content
from triton_repo_builder.repository.interface import Endpoint, Tensor, wire_type
from triton_repo_builder.repository.manifest import Origin, SourceFile, VersionEntry
from triton_repo_builder.repository.provenance import LICENSE, parameters


def entry(request: PlanRequest, kind: Kind, plan: EndpointPlan, repository: RepositoryPlan) -> VersionEntry:
    """The endpoint's part of manifest.json: no path and no date of this machine.

    ``repository`` is the plan's repository, with shared models under their names.
    """
    source, endpoint, options = request.source, repository.endpoint, recorded_options(request.options)
    inputs = [source.file(path) for path in (*source.weights, *_companion_files(source, kind))]
    return VersionEntry(
        task=request.task.name,
        facts=dict((*request.task.facts, *plan.facts, *_optimised(source))),
        models=tuple(model.name for model in repository.models),
        shared=repository.shared,
        version=repository.version,
        cases=f"{endpoint.name}/{CASES}" if plan.cases else None,
        endpoint=Endpoint(
            name=endpoint.name,
            max_batch_size=endpoint.max_batch_size,
            inputs=tuple(_tensor(endpoint, tensor) for tensor in endpoint.input),
            outputs=tuple(_tensor(endpoint, tensor) for tensor in endpoint.output),
        ),
        triton_release=request.release.name,
        triton_release_from=request.release_from,
        sources=tuple(SourceFile(file=file.path, sha256=file.sha256(), bytes=file.size()) for file in inputs),
        opset=source.signature.opset,
        # What is written: a newer one is lowered to what the release reads.
        ir_version=min(source.signature.ir_version, request.release.max_ir),
        tools=_tools(kind),
        options=options,
        options_digest=digest(options),
        provenance=origin(request.options, request.source.folder),
    )


def _tools(kind: Kind) -> dict[str, str]:
    """Versions of the libraries that made the endpoint; its answers are those of this transformers."""
    names = ("onnx",) if kind is Kind.TENSOR else ("onnx", "transformers")
    return {"triton_repo_builder": __version__, **{name: metadata.version(name) for name in names}}


def _optimised(source: Source) -> tuple[tuple[str, str], ...]:
    """Steps of ``trb optimize``, from the model's metadata."""
    try:
        steps = json.loads(source.signature.metadata.get(RECIPE, "[]"))
        words = [" ".join(filter(None, (step["step"], step.get("how", "")))) for step in steps]
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()
    return (("optimised", " + ".join(words)),) if words else ()


def _companion_files(source: Source, kind: Kind) -> tuple[Path, ...]:
    """The user's files that are read beside the model."""
    files: tuple[Path, ...] = ()
    if kind in (Kind.IMAGE, Kind.IMAGE_AND_TEXT, Kind.AUDIO) and source.preprocessor:
        files += (source.preprocessor,)
    if kind in (Kind.TEXT, Kind.IMAGE_AND_TEXT) and source.tokenizer:
        slow = source.tokenizer.name in slow_tokenizer.VOCABULARIES
        files += slow_tokenizer.sources(source.tokenizer) if slow else (source.tokenizer,)
    return (*files, source.labels) if source.labels else files


def _tensor(model: ModelPlan, tensor: TensorPlan) -> Tensor:
    """The tensor as ``GET /v2/models/<name>`` returns it: with the batch axis."""
    shape = (-1, *tensor.dims) if model.max_batch_size else tensor.dims
    datatype = wire_type(tensor.data_type)
    return Tensor(name=tensor.name, datatype=datatype, shape=shape, optional=tensor.optional)


def origin(options: BuildOptions, folder: Path) -> Origin:
    """The model's origin as the user states it, and as a Hub, a conversion and the folder's model card do."""
    labels = dict(options.label)
    if not options.hub and (licence := model_card.licence(folder)):
        labels.setdefault(LICENSE, licence)
    return Origin(
        source_run=options.source_run or "",
        dataset_id=options.dataset_id or "",
        labels=dict(sorted(labels.items())),
        hub=options.hub,
        conversion=options.conversion,
    )


def recorded_options(options: BuildOptions) -> dict[str, Any]:
    """The recorded options that differ from their defaults, as JSON values."""
    changed = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.name in OPTIONS
        and OPTIONS[field.name].recorded
        and getattr(options, field.name) != field.default
    }
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in sorted(changed.items())
    }


def digest(options: Mapping[str, Any]) -> str:
    """Hex sha256 of options: equal for two builds with the same options."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


def seal(files: Sequence[File], entry: VersionEntry) -> tuple[tuple[File, ...], VersionEntry]:
    """The files and the entry with the content digest, which the endpoint's own config.pbtxt states."""
    name = entry.endpoint.name
    digests = {
        file.path: content.hashed(file.path, file.content, name, entry.version)
        if file.path.endswith(f"/{CONFIG}")
        else file.sha256()
        for file in files
    }
    digest = content.digest(digests)
    sealed = tuple(
        replace(file, content=content.sealed(file.content, digest))
        if file.path == f"{name}/{CONFIG}"
        else file
        for file in files
    )
    return sealed, replace(entry, content=digest)


def stamp(plan: RepositoryPlan, entry: VersionEntry) -> RepositoryPlan:
    """The plan with an entry's facts among its models' parameters; not of those that endpoints share."""
    facts = parameters(entry)
    models = tuple(
        model if model.name in plan.shared else replace(model, parameters=(*model.parameters, *facts))
        for model in plan.models
    )
    return replace(plan, models=models)

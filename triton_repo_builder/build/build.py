"""``trb build``: source → plan → files. Nothing is written here; ``publish.py`` does that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import chain, count
from pathlib import PurePosixPath

from triton_repo_builder import (
    __version__,
    hardware,
    releases,
    repository,
    tasks,
)
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import File
from triton_repo_builder.golden import cases, original
from triton_repo_builder.golden import tensor as golden_tensor
from triton_repo_builder.golden.cases import CaseFile
from triton_repo_builder.graph import compose, reader, shape_inference
from triton_repo_builder.hardware import Hardware
from triton_repo_builder.plan import (
    defaults,
    image,
    onnx_model,
    shared_tokenizer,
    text,
)
from triton_repo_builder.plan.defaults import Settings
from triton_repo_builder.plan.model import (
    Front,
    ModelPlan,
    RepositoryPlan,
    TensorPlan,
)
from triton_repo_builder.read import slow_tokenizer, source
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.signature import refine
from triton_repo_builder.read.source import Source
from triton_repo_builder.releases import Release
from triton_repo_builder.render import config, provenance
from triton_repo_builder.repository.interface import Endpoint, Tensor, wire_type
from triton_repo_builder.repository.manifest import EndpointEntry, SourceFile, VersionEntry
from triton_repo_builder.tasks import raw_outputs, tensor
from triton_repo_builder.tasks.support import labels
from triton_repo_builder.tasks.task import Kind, Task, TaskPlan
from triton_repo_builder.write.built import BuiltEndpoint

CASES_FILE = "smoke.json"
LARGEST = (1 << 31) - 1
"""Bytes of a model file that ONNX Runtime can load: protobuf's limit for a message."""
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Build(BuiltEndpoint):
    """What will be written, and the plan and settings behind it."""

    plan: RepositoryPlan
    settings: Settings


def build(
    options: BuildOptions,
    progress: Progress = lambda message: None,
    machine: Hardware | None = None,
    common: frozenset[str] = frozenset(),
) -> Build:
    """Plan and render a repository for one model. Raises ``TrbError``; writes nothing.

    ``common`` are options that were given for many models: this one's task may have no use for them.
    """
    name = source.check_name(options.name) if options.name is not None else None
    progress("reading the model")
    src = reader.read_source(options.model, options.tokenizer, options.preprocessor)
    name = name or source.check_name(source.default_name(src.path))
    release = releases.get(options.triton_release) if options.triton_release else releases.default()
    check_release(src, release)
    tensor.check_types(src)
    _check_ports(src)
    src = src.summed()
    chosen = defaults.decide(
        options, machine or hardware.here(), model_bytes=src.signature.bytes, tokens=_tokens(src, options)
    )
    runner = None
    if options.golden:
        progress("loading the original model")
        runner = original.session(src, gpu=chosen.kind == "KIND_GPU")
    shapes = original.output_shapes(runner) if runner else shape_inference.output_shapes(src.skeleton)
    src = replace(src, signature=refine(src.signature, shapes))
    _check_sizes(src)
    suited, guess = tasks.choose(src, options.task)
    asked: Task = raw_outputs if options.raw_output and suited.KIND is Kind.TEXT else suited
    tasks.check_options(options, asked, common, guess if suited.KIND is Kind.TENSOR else "")
    task = asked.plan(src, options)
    batching = _batching(src, options)
    notes = [note for note in (guess, *task.notes) if note]
    progress("recording the original model's answers")
    front = None
    if asked.KIND is Kind.TENSOR:
        plan, case_file, more, chosen = _plain(src, task, options, name, chosen, batching, runner)
        extra: tuple[File, ...] = ()
    elif asked.KIND is Kind.IMAGE:
        seen = image.parts(src, task, options, name, chosen, release, batching=batching, runner=runner)
        if seen.not_batchable:
            _refuse_batching(src, options, seen.not_batchable, "leave that option out")
        why = seen.not_batchable or ("" if batching else src.signature.batch.reason)
        plan, case_file, extra, chosen = seen.plan, seen.cases, seen.files, seen.settings
        more = (*seen.notes, *((f"served without batching: {why}",) if why else ()))
        task = replace(task, facts=(*task.facts, *seen.facts))
    else:
        made = text.parts(src, task, options, name, chosen, batching=batching, runner=runner)
        if made.not_batchable:
            _refuse_batching(src, options, made.not_batchable, "leave that option out")
        why = made.not_batchable or ("" if batching else src.signature.batch.reason)
        plan, case_file, extra, front = made.plan, made.cases, made.files, made.front
        chosen = made.settings
        more = (*made.notes, *((f"served without batching: {why}",) if why else ()))
        task = replace(task, facts=(*task.facts, ("padding", made.padding)))
    if options.share_tokenizer:
        plan, extra = shared_tokenizer.share(plan, extra)
    progress("taking checksums")
    entry = _entry(src, task, options, plan, release, case_file)
    plan = provenance.stamp(plan, entry)
    progress("composing the graph")
    files = [*_rendered(plan), *_model_files(src, task, plan, release, front), *extra]
    if case_file:
        files.append(File(path=f"{name}/{CASES_FILE}", content=cases.dump(case_file).encode()))
    if task.labels:  # what a client gets by the classification extension
        lines = "\n".join(task.labels) + "\n"
        files.append(File(path=f"{plan.network.name}/{labels.FILE}", content=lines.encode()))
    return Build(
        plan=plan,
        version=plan.version,
        files=tuple(sorted(files, key=lambda file: file.path)),
        entry=EndpointEntry(served=entry),
        notes=(*notes, *more),
        settings=chosen,
    )


def check_release(src: Source, release: Release) -> None:
    """``TrbError`` TOO_NEW where the release's ONNX Runtime cannot load the model's opset.

    A newer IR version alone is no obstacle: the served model is written with one the release knows.
    """
    opset = src.signature.opset
    if opset <= release.max_opset:
        return
    able = [name for name, other in releases.load().items() if opset <= other.max_opset]
    remedy = f"export with opset {release.max_opset} or older"
    remedy += f", or target --triton-release {able[0]}" if able else "; no known release can load it"
    raise TrbError(
        Code.TOO_NEW,
        f"opset {opset} is too new for Triton {release.name}, whose ONNX Runtime {release.onnxruntime} "
        f"takes up to {release.max_opset}",
        where=str(src.path),
        remedy=remedy,
    )


def _check_ports(src: Source) -> None:
    """A config.pbtxt tells inputs and outputs by name, and a request has at least one input."""
    for role, specs in (("input", src.signature.inputs), ("output", src.signature.outputs)):
        names = [spec.name for spec in specs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if names and twice is None:
            continue
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"two {role}s are called '{twice}'" if twice is not None else f"the model has no {role}s",
            where=str(src.path),
            remedy=f"export it again with at least one {role}, each under a name of its own",
        )


def _check_sizes(src: Source) -> None:
    """Triton takes no tensor that has an axis of size 0."""
    for spec in (*src.signature.inputs, *src.signature.outputs):
        if 0 in spec.dims:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"'{spec.name}' has an axis of size 0, which Triton does not take",
                where=str(src.path),
                remedy="export it again without that input or output",
            )


def _batching(src: Source, options: BuildOptions) -> bool:
    """Whether the model gets a batch axis in Triton."""
    verdict = src.signature.batch
    if not verdict.possible:
        _refuse_batching(
            src,
            options,
            verdict.reason,
            f"export again with a dynamic first axis on '{verdict.tensor}' (torch: dynamic_axes), or use "
            "--batching off",
        )
    return verdict.possible


def _refuse_batching(src: Source, options: BuildOptions, why: str, remedy: str) -> None:
    """``TrbError`` NOT_BATCHABLE if the user asked for batching, by whichever option."""
    asked = {
        "--batching on": options.batching == "on",
        f"--max-batch-size {options.max_batch_size}": (options.max_batch_size or 0) > 1,
        "--preferred-batch-size": bool(options.preferred_batch_size),
        "--max-queue-delay": bool(options.max_queue_delay),
    }
    field = next((field for field, given in asked.items() if given), None)
    if field is not None:
        raise TrbError(
            Code.NOT_BATCHABLE, f"cannot batch ({field}): {why}", where=str(src.path), remedy=remedy
        )


def _tokens(src: Source, options: BuildOptions) -> int | None:
    """Of the longest text, by option or config.json: none where neither tells, and for other models."""
    told = options.max_length or src.config.get("max_position_embeddings")
    return told if isinstance(told, int) else None


_Parts = tuple[RepositoryPlan, CaseFile | None, tuple[str, ...], Settings]


def _plain(
    src: Source,
    task: TaskPlan,
    options: BuildOptions,
    name: str,
    chosen: Settings,
    batching: bool,
    runner: original.Original | None,
) -> _Parts:
    why = "" if batching else src.signature.batch.reason
    notes: tuple[str, ...] = ()
    case_file = None
    if runner is not None:
        recorded = golden_tensor.tensor(runner, src, name, batching=batching)
        case_file = recorded.file
        if batching and not recorded.batchable:
            _refuse_batching(src, options, recorded.note, "leave that option out")
            batching, why = False, recorded.note
        elif recorded.note:
            notes += (recorded.note,)
    chosen = chosen.without_tokenizer()
    if why:
        chosen = chosen.unbatched(why)
        notes += (f"served without batching: {why}",)
    if open_axes := [spec.name for spec in src.signature.inputs if -1 in spec.dims[1:]]:
        listed = f"'{open_axes[0]}'" + (f" and {len(open_axes) - 1} more" if len(open_axes) > 1 else "")
        chosen = chosen.joining(f"{defaults.EQUAL_SHAPES} ({listed})")
    # Inputs that the original accepts; where none was found, a warm-up would keep the server from starting.
    accepted = {tensor.name: tensor.shape for tensor in case_file.cases[0].inputs} if case_file else {}
    warmup = options.warmup and (runner is None or bool(accepted))
    plan = onnx_model.plain(
        name,
        src.signature,
        task,
        replace(options, warmup=warmup),
        chosen,
        batching=batching,
        accepted=accepted,
    )
    return plan, case_file, notes, chosen


def _rendered(plan: RepositoryPlan) -> list[File]:
    return [File(path=f"{m.name}/config.pbtxt", content=config.config(m).encode()) for m in plan.models]


def _model_files(
    src: Source, task: TaskPlan, plan: RepositoryPlan, release: Release, front: Front | None
) -> list[File]:
    """``model.onnx`` and the files its weights lie in, the user's own byte for byte."""
    root = f"{plan.network.name}/{plan.version}"
    taken = {PurePosixPath(file.location).parts[0] for file in src.signature.external}
    ours = {"model.onnx": "the served model is", repository.SHARED: "that of the version's own files is"}
    if name := next((name for name in ours if name in taken), ""):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"its external data is in a file or folder called '{name}', as {ours[name]}",
            where=str(src.path),
            remedy="save the model again with its external data under another name",
        )
    external = [
        src.file(src.path.parent / file.location, f"{root}/{file.location}")
        for file in src.signature.external
    ]
    loads = src.signature.ir_version <= release.max_ir and src.path.stat().st_size <= LARGEST
    if task.head is None and front is None and loads:
        return [src.file(src.path, f"{root}/model.onnx"), *external]
    numbered = chain(("weights.onnx",), (f"weights_{number}.onnx" for number in count(1)))
    weights = next(name for name in numbered if name not in taken)
    content = compose.compose(src.skeleton, weights=weights, head=task.head, front=front, release=release)
    files = [File(path=f"{root}/model.onnx", content=content), *external]
    if src.skeleton.external_bytes:
        files.append(src.file(src.path, f"{root}/{weights}"))
    return files


def _entry(
    src: Source,
    task: TaskPlan,
    options: BuildOptions,
    plan: RepositoryPlan,
    release: Release,
    case_file: CaseFile | None,
) -> VersionEntry:
    """This endpoint's part of manifest.json: no path and no date of this machine."""
    endpoint = plan.endpoint
    sources = [*src.weights]
    kind = tasks.TASKS[task.name].KIND if task.name in tasks.TASKS else Kind.TEXT
    if kind is Kind.IMAGE:
        sources += [src.preprocessor] if src.preprocessor else []
    elif src.tokenizer and kind is Kind.TEXT:
        slow = src.tokenizer.name in slow_tokenizer.VOCABULARIES
        sources += slow_tokenizer.sources(src.tokenizer) if slow else [src.tokenizer]
    given = [src.file(path) for path in sources]
    asked = provenance.asked(options)
    return VersionEntry(
        task=task.name,
        facts=dict(task.facts),
        models=tuple(model.name for model in plan.models),
        shared=plan.shared,
        version=plan.version,
        cases=f"{endpoint.name}/{CASES_FILE}" if case_file else None,
        endpoint=Endpoint(
            name=endpoint.name,
            max_batch_size=endpoint.max_batch_size,
            inputs=tuple(_tensor(endpoint, item) for item in endpoint.input),
            outputs=tuple(_tensor(endpoint, item) for item in endpoint.output),
        ),
        triton_release=release.name,
        sources=tuple(SourceFile(file=file.path, sha256=file.sha256(), bytes=file.size()) for file in given),
        opset=src.signature.opset,
        ir_version=src.signature.ir_version,
        tools={"triton_repo_builder": __version__, "onnx": metadata.version("onnx")},
        options=asked,
        options_digest=provenance.digest(asked),
        provenance=provenance.origin(options),
    )


def _tensor(model: ModelPlan, item: TensorPlan) -> Tensor:
    """As ``GET /v2/models/<name>`` will answer: with the batch axis."""
    shape = (-1, *item.dims) if model.max_batch_size else item.dims
    return Tensor(name=item.name, datatype=wire_type(item.data_type), shape=shape, optional=item.optional)

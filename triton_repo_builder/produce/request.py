"""Make a ``PlanRequest`` from options: facts about a model before it is run.

``trb build`` goes on to a plan, ``trb optimize`` to other files of the same model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from triton_repo_builder.base import hardware, releases
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.golden import original, pytorch
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.plan import defaults
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest, check_graph_batches
from triton_repo_builder.endpoint.tasks import raw_outputs, tensor
from triton_repo_builder.endpoint.tasks.task import Kind, Task
from triton_repo_builder.model.graph import isolated, reader, shape_inference
from triton_repo_builder.model.read import conversion, mlmodel, source
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import refine
from triton_repo_builder.model.read.source import SourceOverrides
from triton_repo_builder.produce import limits

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Requested:
    """A request, the kind of its task, and the original model if it is to be run."""

    request: PlanRequest
    kind: Kind
    model: OriginalModel | None
    guess: str
    """Reason for the choice of the task; empty if the user stated it."""
    release_why: str


def requested(
    options: BuildOptions,
    progress: Progress = lambda message: None,
    machine: Hardware | None = None,
    common: frozenset[str] = frozenset(),
) -> Requested:
    """Read the model and choose its task; with ``options.golden``, load it. Raises ``TrbError``.

    ``common`` are options that were set for many models: this one's task may have no use for them.
    """
    stated_name = source.check_name(options.name) if options.name is not None else None
    if options.golden:
        isolated.start()
    progress("reading the model")
    read = reader.read_source(options.model, SourceOverrides.of(options))
    mlmodel.refuse_mismatch(read.path.parent, read.signature)
    name = stated_name or source.check_name(source.default_name(read.path))
    converted = conversion.of(read.path)
    if converted:
        options = replace(options, conversion=converted[0], hub=converted[1] or options.hub)
    target = options.target or releases.target(options.triton_release)
    release = target.release
    limits.check_release(read, release)
    limits.check_libraries(read, release)
    machine = machine or hardware.here()
    if not defaults.on_gpu(options, machine):
        limits.check_operators(read, release)
    tensor.check_types(read)
    limits.check_names(read)
    summed = read.summed()
    model = None
    if options.golden:
        progress("loading the original model")
        model = original.load(summed, gpu=defaults.on_gpu(options, machine))
        if converted:
            model = replace(model, answers=pytorch.read(read.path.parent, converted[0]))
    opened = model.session if model else None
    shapes = shape_inference.output_shapes(read.skeleton, read.signature, release, opened)
    src = replace(summed, signature=refine(summed.signature, shapes.sizes))
    limits.check_sizes(src)

    suited, guess = tasks.choose(src, options.task)
    if suited.KIND is Kind.TENSOR:
        exported = reader.as_exported(src)
        src = replace(exported, signature=refine(exported.signature, shapes.sizes))
    task: Task = raw_outputs if options.raw_output and suited.KIND is Kind.TEXT else suited
    if options.response_cache:
        limits.check_response_cache(release, ensemble=task.KIND is not Kind.TENSOR)
    tasks.check_options(options, task, common, guess if task.KIND is Kind.TENSOR else "")
    try:
        planned = task.plan(src, options)
    except TrbError as error:
        error.message += f" ({guess})" if guess else ""
        raise
    request = PlanRequest(
        name=name,
        source=src,
        task=planned,
        options=options,
        release=release,
        release_from=target.source,
        machine=machine,
    )
    check_graph_batches(request)
    return Requested(request=request, kind=task.KIND, model=model, guess=guess, release_why=target.why)

"""``trb build``: read → choose the task → record the original's answers → plan → render → check.

Nothing is written here; ``write/publish.py`` does that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from triton_repo_builder import hardware, releases, tasks
from triton_repo_builder.build import check_files, limits
from triton_repo_builder.errors import TrbError
from triton_repo_builder.golden import original
from triton_repo_builder.graph import reader, shape_inference
from triton_repo_builder.hardware import Hardware
from triton_repo_builder.plan import defaults
from triton_repo_builder.plan.defaults import Settings
from triton_repo_builder.plan.endpoint import Request, check_graph_batches
from triton_repo_builder.plan.kinds import KINDS
from triton_repo_builder.plan.model import RepositoryPlan
from triton_repo_builder.read import source
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.signature import refine
from triton_repo_builder.read.source import Given
from triton_repo_builder.render import endpoint as render_endpoint
from triton_repo_builder.render import provenance, shared_tokenizer
from triton_repo_builder.repository.manifest import EndpointEntry
from triton_repo_builder.tasks import raw_outputs, tensor
from triton_repo_builder.tasks.task import Kind, Task
from triton_repo_builder.write.built import BuiltEndpoint

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Build(BuiltEndpoint):
    """The files to write, and the plan and settings behind them."""

    plan: RepositoryPlan
    settings: Settings


def build(
    options: BuildOptions,
    progress: Progress = lambda message: None,
    machine: Hardware | None = None,
    common: frozenset[str] = frozenset(),
) -> Build:
    """Plan and render a repository for one model. Raises ``TrbError``; writes nothing.

    ``common`` are options that were set for many models: this one's task may have no use for them.
    """
    stated_name = source.check_name(options.name) if options.name is not None else None
    progress("reading the model")
    read = reader.read_source(options.model, Given.of(options))
    name = stated_name or source.check_name(source.default_name(read.path))
    release = releases.get(options.triton_release) if options.triton_release else releases.default()
    limits.check_release(read, release)
    tensor.check_types(read)
    limits.check_names(read)
    summed = read.summed()
    machine = machine or hardware.here()
    model = None
    if options.golden:
        progress("loading the original model")
        model = original.load(summed, gpu=defaults.on_gpu(options, machine))
    shapes = original.output_shapes(model) if model else shape_inference.output_shapes(read.skeleton)
    src = replace(summed, signature=refine(summed.signature, shapes))
    limits.check_sizes(src)

    suited, guess = tasks.choose(src, options.task)
    if suited.KIND is Kind.TENSOR:
        exported = reader.as_exported(src)
        src = replace(exported, signature=refine(exported.signature, shapes))
    task: Task = raw_outputs if options.raw_output and suited.KIND is Kind.TEXT else suited
    tasks.check_options(options, task, common, guess if task.KIND is Kind.TENSOR else "")
    try:
        planned = task.plan(src, options)
    except TrbError as error:
        error.message += f" ({guess})" if guess else ""
        raise
    request = Request(
        name=name,
        source=src,
        task=planned,
        options=options,
        release=release,
        machine=machine,
    )
    check_graph_batches(request)

    progress("recording the original model's answers")
    kind = KINDS[task.KIND]
    prepared = kind.prepare(request)
    recording = kind.record(request, prepared, model) if model else None
    plan = kind.plan(request, prepared, recording)

    vendored, vendor_notes = render_endpoint.vendor(plan, release)
    repository, more = plan.repository, (*plan.files, *vendored)
    if options.share_tokenizer:
        repository, more = shared_tokenizer.share(repository, more)
    progress("taking checksums")
    entry = provenance.entry(request, task.KIND, plan, repository)
    stamped = provenance.stamp(repository, entry)
    progress("composing the graph")
    files, entry = provenance.seal(render_endpoint.render(request, plan, stamped, more), entry)
    progress("checking what will be written")
    check_files.refuse_errors(name, files, release)
    return Build(
        plan=stamped,
        version=stamped.version,
        files=files,
        entry=EndpointEntry(served=entry),
        notes=tuple(filter(None, (guess, *src.notes, *request.task.notes, *plan.notes, *vendor_notes))),
        settings=plan.settings,
    )

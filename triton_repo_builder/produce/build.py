"""``trb build``: read → choose the task → record the original's answers → plan → render → check.

Nothing is written here; ``produce/write/publish.py`` does that.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.endpoint.plan.defaults import ServingSettings
from triton_repo_builder.endpoint.plan.kinds import KINDS
from triton_repo_builder.endpoint.plan.model import RepositoryPlan
from triton_repo_builder.endpoint.render import answers, metrics, provenance, shared_tokenizer
from triton_repo_builder.endpoint.render import endpoint as render_endpoint
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import check_files
from triton_repo_builder.produce import request as request_of
from triton_repo_builder.produce.request import Progress
from triton_repo_builder.produce.write.built import BuiltEndpoint
from triton_repo_builder.repository.manifest import EndpointEntry


@dataclass(frozen=True, kw_only=True)
class Build(BuiltEndpoint):
    """The files to write, and the plan and settings behind them."""

    plan: RepositoryPlan
    settings: ServingSettings
    release_why: str
    """Why it was built for its release, in words."""


def build(
    options: BuildOptions,
    progress: Progress = lambda message: None,
    machine: Hardware | None = None,
    common: frozenset[str] = frozenset(),
) -> Build:
    """Plan and render a repository for one model. Raises ``TrbError``; writes nothing.

    ``common`` are options that were set for many models: this one's task may have no use for them.
    """
    build_request = request_of.requested(options, progress, machine, common)
    request, model, src = build_request.request, build_request.model, build_request.request.source
    name, release = request.name, request.release

    progress("recording the original model's answers")
    kind = KINDS[build_request.kind]
    prepared = kind.prepare(request)
    recording = kind.record(request, prepared, model) if model else None
    unanswered = model.answers.note if model and model.answers else ""
    plan = answers.add(metrics.add(kind.plan(request, prepared, recording), options, release), request)

    vendored, vendor_notes = render_endpoint.vendor(plan, release)
    repository, extra_files = plan.repository, (*plan.files, *vendored)
    if options.share_tokenizer:
        repository, extra_files = shared_tokenizer.share(repository, extra_files)
    progress("taking checksums")
    entry = provenance.entry(request, build_request.kind, plan, repository)
    stamped = provenance.stamp(repository, entry)
    progress("composing the graph")
    files, entry = provenance.seal(render_endpoint.render(request, plan, stamped, extra_files), entry)
    progress("checking what will be written")
    check_files.refuse_errors(name, files, release)
    return Build(
        plan=stamped,
        version=stamped.version,
        files=files,
        entry=EndpointEntry(served=entry),
        notes=tuple(
            filter(
                None,
                (
                    *(build_request.guess, *src.notes, *request.task.notes, *plan.notes),
                    *(*vendor_notes, unanswered, plan.settings.warning),
                ),
            )
        ),
        settings=plan.settings,
        release_why=build_request.release_why,
    )

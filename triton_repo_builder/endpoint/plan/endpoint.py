"""From a request to an ``EndpointPlan``: the common parts of all kinds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from triton_repo_builder.base import resources
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.base.releases import Release
from triton_repo_builder.endpoint.golden import original
from triton_repo_builder.endpoint.golden.original import OriginalModel, Recording
from triton_repo_builder.endpoint.plan.defaults import ServingSettings
from triton_repo_builder.endpoint.plan.model import RepositoryPlan
from triton_repo_builder.endpoint.tasks.task import TaskPlan
from triton_repo_builder.model.graph.parts import Front
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository.cases import CaseFile

PLACEHOLDER = b"An ensemble has no files, but Triton needs this folder, and git and S3 keep no empty ones.\n"
NOT_SHOWN = (
    "no run has shown that rows of a batch do not change each other (--batching on: batch nevertheless)"
)
UNPROVEN = (
    "without golden cases nothing has shown that an answer is the same beside others in a batch; a build "
    "with them tries it, and --max-batch-size 1 joins nothing"
)


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Input of planning, before the original model was run."""

    name: str
    source: Source
    task: TaskPlan
    options: BuildOptions
    release: Release
    release_from: str = ""
    """``Target.source``: why this release."""
    machine: Hardware

    @property
    def tokens(self) -> int | None:
        """Longest input in tokens, by --max-length or config.json; None if unknown."""
        stated = self.options.max_length or self.source.config.get("max_position_embeddings")
        return stated if isinstance(stated, int) else None


@dataclass(frozen=True, kw_only=True)
class Vendored:
    """A library whose files are put beside a Python model, so that the server needs no install."""

    library: Literal["tokenizers", "pillow", "sndfile"]
    path: str
    wheels: tuple[Path, ...] = ()
    """The user's; none: the installed library."""


@dataclass(frozen=True, kw_only=True)
class EndpointPlan:
    """All decisions about an endpoint, for ``render``."""

    repository: RepositoryPlan
    settings: ServingSettings
    cases: CaseFile | None
    files: tuple[File, ...] = ()
    """Besides config.pbtxt, the model and the golden cases: code, tokenizer, warm-up data."""
    vendored: tuple[Vendored, ...] = ()
    front: Front | None = None
    facts: tuple[tuple[str, Any], ...] = ()
    """Facts for the manifest, after the task's facts."""
    notes: tuple[str, ...] = ()


class EndpointKind(Protocol):
    """A module of this package, and an entry in ``KINDS``."""

    def prepare(self, request: PlanRequest) -> Any:
        """How a client's inputs become the graph's: used by recording and planning."""

    def record(self, request: PlanRequest, prepared: Any, original: OriginalModel) -> Recording:
        """The original model's answers."""

    def plan(self, request: PlanRequest, prepared: Any, recording: Recording | None) -> EndpointPlan:
        """The decisions; ``recording`` is None with ``--no-golden``."""


def postprocess_files(task: TaskPlan, name: str, version: int) -> tuple[File, ...]:
    """The files of the post-processing model, if the task has one."""
    if task.post is None:
        return ()
    root, code = f"{name}_postprocess/{version}", resources.runtime
    return (
        File(path=f"{root}/model.py", content=code("postprocess.py").read_bytes()),
        File(path=f"{root}/answer.py", content=code(f"answers/{task.post.module}").read_bytes()),
        *(File(path=f"{root}/{file}", content=content) for file, content in task.post.files().items()),
    )


def refuse_batching_options(
    request: PlanRequest, obstacle: str, remedy: str = "leave that option out"
) -> None:
    """``TrbError`` NOT_BATCHABLE if the user asked for batching, by whichever option."""
    if option := _batching_option(request.options):
        raise TrbError(
            Code.NOT_BATCHABLE,
            f"cannot batch ({option}): {obstacle}",
            where=str(request.source.path),
            remedy=remedy,
        )


def _batching_option(options: BuildOptions) -> str:
    """The option by which the user asks for batching; empty without one."""
    flags = {
        "--batching on": options.batching == "on",
        f"--max-batch-size {options.max_batch_size}": (options.max_batch_size or 0) > 1,
        "--preferred-batch-size": bool(options.preferred_batch_size),
        "--max-queue-delay": bool(options.max_queue_delay),
        "--max-queue-size": bool(options.max_queue_size),
        "--queue-timeout": bool(options.queue_timeout),
        "--priority-levels": bool(options.priority_levels),
    }
    return next((option for option, is_set in flags.items() if is_set), "")


def check_graph_batches(request: PlanRequest) -> None:
    """``TrbError`` NOT_BATCHABLE if the user asked for batching and the graph has no batch axis."""
    batch = request.source.signature.batch
    if not batch.possible:
        remedy = f"export again with a dynamic first axis on '{batch.tensor}' (torch: dynamic_axes), or use "
        refuse_batching_options(request, batch.reason, f"{remedy}--batching off")


def measured_obstacle(request: PlanRequest, recording: Recording | None) -> str:
    """Why the graph or the recorded answers forbid batching, whatever its axes allow; else empty."""
    if not request.source.signature.batch.possible:
        return ""
    if interact := original.rows_interact(request.source):
        return interact
    if recording is None or (
        recording.batchable and (recording.compared or _batching_option(request.options))
    ):
        return ""
    return recording.obstacle or NOT_SHOWN


def unproven(recording: Recording | None, settings: ServingSettings) -> tuple[str, ...]:
    """The note for inputs that share a batch although nothing has shown that their answers stay the same."""
    together = int(settings.max_batch_size.value) > 1
    return (UNPROVEN,) if together and not (recording and recording.compared) else ()


def not_batched(obstacle: str) -> tuple[str, ...]:
    """The note for a model that cannot batch."""
    return (f"served without batching: {obstacle}",) if obstacle else ()

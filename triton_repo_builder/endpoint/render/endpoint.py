"""``EndpointPlan`` → the files of the endpoint's models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from pathlib import PurePosixPath

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.base.releases import Release
from triton_repo_builder.endpoint.plan.endpoint import EndpointPlan, PlanRequest, Vendored
from triton_repo_builder.endpoint.plan.model import RepositoryPlan
from triton_repo_builder.endpoint.render import config, vendor_pillow, vendor_sndfile, vendor_tokenizers
from triton_repo_builder.endpoint.tasks.support import labels
from triton_repo_builder.model.graph import compose
from triton_repo_builder.model.graph.parts import Front
from triton_repo_builder.repository import CASES, SHARED, cases
from triton_repo_builder.repository.cases import CaseFile

LARGEST = (1 << 31) - 1
"""Bytes of a model file that ONNX Runtime can load: protobuf's limit for a message."""


def vendor(plan: EndpointPlan, release: Release) -> tuple[tuple[File, ...], tuple[str, ...]]:
    """(files, notes) of the libraries put beside Python models. Raises ``TrbError``."""
    files = [file for library in plan.vendored for file in _library(library, release)]
    note = vendor_pillow.differing_versions(files)
    return tuple(files), (note,) if note else ()


def _library(library: Vendored, release: Release) -> list[File]:
    if library.library == "pillow":
        return vendor_pillow.pillow(library.path, release.python, library.wheels)
    if library.library == "sndfile":
        return vendor_sndfile.sndfile(library.path)
    return vendor_tokenizers.tokenizers(library.path, next(iter(library.wheels), None))


def render(
    request: PlanRequest, plan: EndpointPlan, repository: RepositoryPlan, static: Sequence[File]
) -> tuple[File, ...]:
    """All files, by path: the ``static`` ones and files rendered from the plan. Raises ``TrbError``.

    ``repository`` is the plan's repository, with shared models under their names and with provenance.
    """
    files = [
        *(File(path=f"{m.name}/config.pbtxt", content=config.config(m).encode()) for m in repository.models),
        *_model(request, repository, plan.front),
        *static,
        *_cases(request.name, plan.cases),
    ]
    if request.task.labels:  # for clients of the classification extension
        lines = "\n".join(request.task.labels) + "\n"
        files.append(File(path=f"{repository.network.name}/{labels.FILE}", content=lines.encode()))
    return tuple(sorted(files, key=lambda file: file.path))


def _cases(name: str, recorded: CaseFile | None) -> list[File]:
    if recorded is None:
        return []
    return [File(path=f"{name}/{CASES}", content=cases.dump(recorded).encode())]


def _model(request: PlanRequest, repository: RepositoryPlan, front: Front | None) -> list[File]:
    """``model.onnx`` and the files with its weights, the user's own byte for byte."""
    src, head, release = request.source, request.task.head, request.release
    root = f"{repository.network.name}/{repository.version}"
    used = {PurePosixPath(file.location).parts[0] for file in src.signature.external}
    reserved = {"model.onnx": "the served model", SHARED: "the folder of the version's own files"}
    if name := next((name for name in reserved if name in used), ""):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"its external data is in a file or folder called '{name}', the name of {reserved[name]}",
            where=str(src.path),
            remedy="save the model again with its external data under another name",
        )
    external = [
        src.file(src.path.parent / file.location, f"{root}/{file.location}")
        for file in src.signature.external
    ]
    loads = src.signature.ir_version <= release.max_ir and src.path.stat().st_size <= LARGEST
    if head is None and front is None and loads and not src.skeleton.adapted:
        return [src.file(src.path, f"{root}/model.onnx"), *external]
    numbered = chain(("weights.onnx",), (f"weights_{number}.onnx" for number in count(1)))
    weights = next(name for name in numbered if name not in used)
    content = compose.compose(
        src.skeleton,
        weights=weights,
        head=head,
        front=front,
        release=release,
        outputs=src.signature.outputs,
    )
    files = [File(path=f"{root}/model.onnx", content=content), *external]
    if src.skeleton.external_bytes:
        files.append(src.file(src.path, f"{root}/{weights}"))
    return files

"""Run the build and say what came of it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_repo_builder import __version__, releases, repository
from triton_repo_builder.container_image import context
from triton_repo_builder.container_image.context import Request
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.serve.docker import cleanup, daemon, images
from triton_repo_builder.serve.loading import select

TAG = re.compile(
    r"([a-z0-9][a-z0-9._-]*(:\d+)?/)*[a-z0-9]+([._-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Built:
    """The image that was made."""

    tag: str
    id: str
    size: int
    """Bytes on disk, all layers, as ``docker images`` counts."""


def build(request: Request, progress: Progress | None = None) -> Built:
    """Build and tag the image. Raises ``TrbError``; a tag that existed stays as it was then."""
    tell = progress or (lambda text: None)
    if not TAG.fullmatch(request.tag):
        raise TrbError(
            Code.USAGE,
            f"'{request.tag}' is no name of an image",
            where="--tag",
            remedy="name:tag in lower case",
        )
    marks = _labels(request)
    with daemon.explained_errors():
        client = daemon.connect()
        images.provide(client, request.base, "missing", tell, "--base")
        with tempfile.TemporaryFile() as file:
            tell("collecting files")
            context.write(request, file)
            file.seek(0)
            _run(client, request, file, marks, tell)
        image = client.images.get(request.tag)
    return Built(tag=request.tag, id=image.id, size=int(image.attrs["Size"]))


def _labels(request: Request) -> dict[str, str]:
    marks = {
        "org.opencontainers.image.title": "tritonserver, slim, for CPU",
        "org.opencontainers.image.version": releases.default().name,
        "org.opencontainers.image.licenses": "Apache-2.0 AND BSD-3-Clause",
        images.SERVER_LABEL: releases.default().server,
        f"{cleanup.TRB}.version": __version__,
    }
    if request.repository is not None:
        repo = repository.read(request.repository)
        select.choose(repo)  # raises where there is no model
        marks[f"{cleanup.TRB}.endpoints"] = ",".join(model.name for model in repo.endpoints)
    return marks


def _run(client: Any, request: Request, file: Any, marks: dict[str, str], tell: Progress) -> None:
    said: list[str] = []
    try:
        for event in client.api.build(
            fileobj=file,
            custom_context=True,
            tag=request.tag,
            buildargs={"BASE": request.base},
            labels=marks,
            nocache=not request.cache,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=3600,
        ):
            line = str(event.get("stream") or event.get("status") or "").strip()
            if line:
                said.append(line)
                tell(line)
            if "error" in event:
                raise _failed(request, str(event["error"]), said)
    except daemon.answer_errors() as error:
        raise _failed(request, daemon.explanation(error), said) from None


def _failed(request: Request, text: str, said: list[str]) -> TrbError:
    last = "\n".join(f"  {line}" for line in said[-8:])
    if "no space left" in text.lower():
        remedy = "free space: docker system df, docker builder prune"
    elif "assemble.sh" in text and request.wheels is None:
        remedy = (
            f"if containers cannot reach PyPI: {context.download('wheels')} {' '.join(context.pinned())}; "
            "then --wheels wheels"
        )
    elif "apt-get" in text:
        remedy = f"{request.base} must be a Debian or Ubuntu image whose package servers can be reached"
    else:
        remedy = "see the lines above; docker build has more to say with --verbose"
    return TrbError(
        Code.IMAGE_UNAVAILABLE, f"cannot be built: {text}\n{last}", where=request.tag, remedy=remedy
    )

"""Build the image, and remove what the build leaves behind."""

from __future__ import annotations

import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from triton_repo_builder import __version__, repository
from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check import installed
from triton_repo_builder.repository import integrity
from triton_repo_builder.run.serve.docker import cleanup, daemon, images
from triton_repo_builder.run.serve.loading import select
from triton_repo_builder.ship.container_image import context, wheels
from triton_repo_builder.ship.container_image.context import ImageRequest
from triton_repo_builder.ship.stores import revision

TAG = re.compile(
    r"([a-z0-9][a-z0-9._-]*(:\d+)?/)*[a-z0-9]+([._-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)
NO_PACKAGES = re.compile(r"^pip for Python (\d+\.\d+) failed$")
"""Printed by docker/assemble.sh."""
PATIENCE = 15.0
TICK = 0.2
REVISION = f"{cleanup.TRB}.revision"
"""Label of an image with a repository: its revision, as ``trb push`` and ``deploy.toml`` name it."""
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Built:
    """The image that was built."""

    tag: str
    id: str
    size: int
    """Bytes on disk, all layers, as ``docker images`` counts."""


class NoPackages(Exception):
    """pip in the container failed; ``python`` is the version of its Python."""

    def __init__(self, python: str) -> None:
        super().__init__(python)
        self.python = python


def build(request: ImageRequest, progress: Progress | None = None) -> Built:
    """Build and tag the image; leaves no other image behind. Raises ``TrbError``, and keeps an existing tag.

    DIGEST_MISMATCH: the repository is not as it was built.
    If pip in the container cannot reach an index, pip on this machine downloads the wheels.
    """
    tell = progress or (lambda text: None)
    if not TAG.fullmatch(request.tag):
        raise TrbError(
            Code.USAGE,
            f"invalid image name '{request.tag}'",
            where="--tag",
            remedy="name:tag in lower case",
        )
    labels = _labels(request)
    with daemon.explained_errors():
        client = daemon.connect()
        images.provide(client, request.base, "missing", tell, "--base")
        try:
            try:
                _run(client, request, labels, tell)
            except NoPackages as failure:
                tell(f"pip fails in the container: downloading wheels for Python {failure.python} here")
                folder = wheels.download(failure.python, wheels.pinned(gateway=request.gateway))
                _run(client, replace(request, wheels=folder, cache=True), labels, tell)
            image = client.images.get(request.tag)
        finally:
            _clean(client, tell)
    installed.record(request.tag, wheels.pinned(gateway=request.gateway))
    return Built(tag=request.tag, id=image.id, size=int(image.attrs["Size"]))


def _clean(client: Any, tell: Progress) -> None:
    """Remove the build's leftovers; after an interrupt, wait until the daemon has ended its last step."""
    deadline = time.monotonic() + PATIENCE
    while remaining := cleanup.remove_dangling(client):
        if time.monotonic() > deadline:
            tell(
                f"the daemon still uses {remaining} unnamed image(s) of this build: the next one removes them"
            )
            break
        time.sleep(TICK)


def _labels(request: ImageRequest) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.title": "tritonserver, slim, for CPU",
        "org.opencontainers.image.version": releases.default().name,
        "org.opencontainers.image.licenses": "Apache-2.0 AND BSD-3-Clause",
        images.SERVER_LABEL: releases.default().server,
        f"{cleanup.TRB}.version": __version__,
    }
    if request.repository is not None:
        repo = repository.read(request.repository)
        select.choose(repo)  # raises without a model
        if repo.manifest is not None:
            integrity.prove(repo.path, repo.manifest, str(repo.path))
        labels[REVISION] = f"sha256:{revision.collect(repo.path).index.digest}"
        labels[f"{cleanup.TRB}.endpoints"] = ",".join(model.name for model in repo.endpoints)
    return labels


def _run(client: Any, request: ImageRequest, labels: dict[str, str], tell: Progress) -> None:
    """One run of the build. Raises ``TrbError``, ``NoPackages``."""
    output: list[str] = []
    with tempfile.TemporaryFile() as file:
        tell("collecting files")
        context.write(request, file)
        file.seek(0)
        try:
            for event in client.api.build(
                fileobj=file,
                custom_context=True,
                tag=request.tag,
                buildargs={"BASE": request.base, "TRB_BUILD": cleanup.owner(os.getpid())},
                labels=labels,
                nocache=not request.cache,
                rm=True,
                forcerm=True,
                decode=True,
                timeout=3600,
            ):
                line = str(event.get("stream") or event.get("status") or "").strip()
                if line:
                    output.append(line)
                    tell(line)
                if "error" in event:
                    raise _failed(request, str(event["error"]), output)
        except daemon.answer_errors() as error:
            raise _failed(request, daemon.explanation(error), output) from None
        except KeyboardInterrupt as interrupt:
            # The generator's frame holds the connection: once that is closed, the daemon ends the build.
            traceback.clear_frames(interrupt.__traceback__)
            raise


def _failed(request: ImageRequest, text: str, output: list[str]) -> Exception:
    last = "\n".join(f"  {line}" for line in output[-8:])
    if "no space left" in text.lower():
        remedy = "free space: docker system df, docker builder prune"
    elif "apt-get" in text:
        remedy = f"{request.base} must be a Debian or Ubuntu image whose package servers can be reached"
    else:
        remedy = "see the lines above; --verbose shows all of them"
    error = TrbError(
        Code.IMAGE_UNAVAILABLE, f"the build failed: {text}\n{last}", where=request.tag, remedy=remedy
    )
    pip = next((match for line in output if (match := NO_PACKAGES.search(line))), None)
    return NoPackages(pip[1]) if pip and request.wheels is None else error

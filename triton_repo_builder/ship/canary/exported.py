"""The routes file of an export while a canary has some of the traffic: trb changed it, nobody edited it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.canary import traefik
from triton_repo_builder.ship.rendered import Rendered
from triton_repo_builder.ship.targets import routes
from triton_repo_builder.ship.targets.routes import Routes

NAME = "routes.yml"


def keeping(export: Rendered, output: Path) -> Rendered:
    """The export with the weights of a canary that is under way in ``output``.

    Raises ``TrbError`` REPOSITORY_BUSY if the routes themselves would change: then the canary must end first.
    """
    contents = dict(export.contents)
    for path, content in export.contents.items():
        if PurePosixPath(path).name != NAME or not isinstance(content, bytes):
            continue
        current = _canary(output / path)
        if current is None:
            continue
        if routes.text(replace(current, weight=0, canary=())).encode() != content:
            raise TrbError(
                Code.REPOSITORY_BUSY,
                f"a canary has {current.weight} % of the traffic, and deploy.toml says other routes now; "
                "nothing was written",
                where=str(output / path),
                remedy="end it first: trb canary finish once the stable server has the new version, or trb "
                "canary abort",
            )
        contents[path] = routes.text(current).encode()
    return Rendered(contents=contents, index=export.index)


def _canary(file: Path) -> Routes | None:
    """The routes of a file that sends traffic to a canary; None for any other file."""
    try:
        current = traefik.read(file)
    except TrbError:
        return None
    return current if current.canary else None

"""The release that ``--triton-release auto`` stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triton_repo_builder.model.read.options import BuildOptions


def resolved(options: BuildOptions) -> BuildOptions:
    """Options with their release: of the engine that will run what is built, unless one is stated.

    Raises ``TrbError`` USAGE for two that contradict each other, or an image whose release is unknown.
    """
    from triton_repo_builder.base import releases
    from triton_repo_builder.model.read.options import usage
    from triton_repo_builder.run.serve import release

    stated = options.triton_release not in (None, "", releases.AUTO)
    chooses = "image" if options.image else "engine" if options.engine != "auto" else ""
    if stated and chooses:
        raise usage(chooses, "and --triton-release both choose the release", "leave one of them out")
    if options.image and options.engine == "embedded":
        raise usage("image", "applies to Docker only", "leave it out, or use --engine docker")
    if stated:
        return options
    # What is recorded of "auto" is nothing, as without the option.
    return replace(options, triton_release=None, target=release.target(options.engine, options.image or ""))

"""Build the slim Docker image: its context from ``docker/``, the build through the ``docker`` SDK."""

from __future__ import annotations

from triton_repo_builder.ship.container_image.build import Built, build
from triton_repo_builder.ship.container_image.context import ImageRequest

__all__ = ["Built", "ImageRequest", "build"]

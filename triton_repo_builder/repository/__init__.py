"""A Triton model repository on disk, whoever wrote it."""

from triton_repo_builder.repository.model import (
    MANIFEST,
    SHARED,
    VERSION,
    Model,
    Repository,
    read,
    read_manifest,
)

__all__ = ["MANIFEST", "SHARED", "VERSION", "Model", "Repository", "read", "read_manifest"]

"""Any Triton model repository on disk."""

from triton_repo_builder.repository.config import CONFIG
from triton_repo_builder.repository.manifest import CASES, MANIFEST, Manifest
from triton_repo_builder.repository.manifest import read as read_manifest
from triton_repo_builder.repository.model import SHARED, VERSION, Model, Repository, read

__all__ = [
    "CASES",
    "CONFIG",
    "MANIFEST",
    "SHARED",
    "VERSION",
    "Manifest",
    "Model",
    "Repository",
    "read",
    "read_manifest",
]

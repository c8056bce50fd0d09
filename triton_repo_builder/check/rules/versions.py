"""Which version directories a model has and which of them its version policy selects."""

from __future__ import annotations

from triton_repo_builder.repository import Model

LARGEST = 2**63 - 1
NOT_VERSIONS = frozenset({"warmup", "initial_state", "configs"})
"""Directories the server passes over in silence."""


def selected(model: Model) -> tuple[int, ...]:
    """The versions that the server would load, ascending; the default is the latest one."""
    policy = model.config.get("version_policy", {})
    if "all" in policy:
        return model.versions
    if "specific" in policy:
        wanted = policy["specific"].get("versions", [])
        return tuple(version for version in model.versions if version in wanted)
    # latest {} means num_versions: 0, and so none.
    count = int(policy["latest"].get("num_versions", 0)) if "latest" in policy else 1
    return model.versions[-count:] if count else ()

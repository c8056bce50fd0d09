"""Comparison of a configuration that a server has loaded with its config.pbtxt.

Triton fills in fields that a file leaves out, and prints every default. Both sides are normalized. A field
that only the server has counts as a difference unless Triton filled it in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.config import ModelConfig

_DETECTED = ("name", "platform", "backend", "runtime", "default_model_filename", "instance_group")
"""Fields that Triton detects by itself if the file leaves them out."""
_COMPLETED = ("input", "output", "max_batch_size", "dynamic_batching")
"""Fields that Triton's backends complete in a file without inputs."""
_PINNED = ("input_pinned_memory", "output_pinned_memory")
_SHOWN = 60
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def differences(
    file: ModelConfig, loaded: ModelConfig, version: int | None, *, completes: bool = False
) -> tuple[str, ...]:
    """Fields and parameters that differ, in words; not the version policy. Raises ``PbtxtError``.

    ``version`` is the one that the repository serves: an ensemble's step with the newest version means it.
    None differs from every number.
    ``completes``: whether the model fills in what its file leaves out, even if that states some inputs.
    """
    stated, actual = (_comparable(pbtxt.plain(config.raw), version) for config in (file, loaded))
    optional = {*_DETECTED, *(_COMPLETED if completes or "input" not in stated else ())}
    for field in optional - {*stated}:
        actual.pop(field, None)
    if "instance_group" in stated:
        actual["instance_group"] = _stated(stated["instance_group"], actual.get("instance_group", []))
    parameters = stated.pop("parameters", {}), actual.pop("parameters", {})
    said, heard = ({key: value.get("string_value", "") for key, value in part.items()} for part in parameters)
    return (*_unlike(stated, actual, ""), *_unlike(said, heard, "parameter "))


def _unlike(stated: Mapping[str, Any], actual: Mapping[str, Any], kind: str) -> list[str]:
    unlike = []
    for key in sorted({*stated, *actual}):
        # As texts: NaN is not equal to any number, not even to itself.
        said, heard = _text(stated.get(key)), _text(actual.get(key))
        if said != heard or (key in stated) != (key in actual):
            pairs = enumerate(zip(said, heard, strict=False))
            same = next((at for at, (left, right) in pairs if left != right), min(len(said), len(heard)))
            unlike.append(f"{kind}{key} is {_shown(heard, same)}, not {_shown(said, same)}")
    return unlike


def _text(value: Any) -> str:
    return (
        "unset" if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    )


def _shown(text: str, same: int) -> str:
    """An excerpt of a value around its first difference from the other value."""
    if len(text) > _SHOWN and same > _SHOWN // 2:
        text = f"…{text[same - _SHOWN * 2 // 5 :]}"
    text = _DIGEST.sub(r"\1…", text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _comparable(config: dict[str, Any], version: int | None) -> dict[str, Any]:
    """The configuration without what Triton fills in."""
    config.pop("version_policy", None)
    # Whether an ensemble is decoupled the server reads off its steps, whatever the file says.
    if "ensemble_scheduling" in config or not config.get("model_transaction_policy"):
        config.pop("model_transaction_policy", None)
    optimization = config.pop("optimization", {})
    for field in _PINNED:
        if optimization.get(field) == {"enable": True}:
            del optimization[field]
    if optimization:
        config["optimization"] = optimization
    oldest = config.get("sequence_batching", {}).get("oldest", {})
    for batching in (config.get("dynamic_batching", {}), oldest):
        if batching.get("preferred_batch_size") == [config.get("max_batch_size")]:
            del batching["preferred_batch_size"]
    if config.get("sequence_batching", {}).get("max_sequence_idle_microseconds") == 1_000_000:
        del config["sequence_batching"]["max_sequence_idle_microseconds"]
    for step in config.get("ensemble_scheduling", {}).get("step", ()):
        step.pop("model_namespace", None)  # a server without namespaces forgets it
        if step.get("model_version") == -1 and version is not None:
            step["model_version"] = version
    return config


def _stated(groups: list[dict[str, Any]], actual: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The server's instance groups with the fields that the file states."""
    if len(groups) != len(actual):
        return actual
    automatic = {"name", "kind", "count", "gpus"}
    return [
        {field: value for field, value in group.items() if field in stated or field not in automatic}
        for stated, group in zip(groups, actual, strict=True)
    ]

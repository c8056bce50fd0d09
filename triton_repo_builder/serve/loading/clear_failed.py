"""Have a server forget that models failed to load.

A Triton server that remembers a failure answers 400 to ``/v2/health/ready``, whatever its other models do,
and unloading what is not loaded changes nothing. What does: a model of that name and version that loads, and
is unloaded. This one is made of what the load request carries; the repository's files stay as they are.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Collection
from urllib.parse import quote

from triton_repo_builder.client import control

PATIENCE = 30.0
"""Seconds for each of the two requests."""
_MODEL = b"""import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        raise pb_utils.TritonModelException("this model could not be loaded")
"""
_TENSOR = {"name": "X", "data_type": "TYPE_FP32", "dims": [1]}
_CONFIG = {"backend": "python", "max_batch_size": 0, "input": [_TENSOR], "output": [_TENSOR | {"name": "Y"}]}


def failures(base: str, models: Collection[str]) -> None:
    """Forget what failed of these models, except beside a version that answers. As far as that goes."""
    with contextlib.suppress(OSError):
        entries = [entry for entry in control.entries(base) if entry["name"] in models]
        answering = {entry["name"] for entry in entries if entry["state"] == "READY"}
        for entry in entries:
            if control.is_failure(entry) and entry["name"] not in answering:
                _forget(base, entry["name"], entry["version"])


def _forget(base: str, model: str, version: str) -> None:
    config = {**_CONFIG, "version_policy": {"specific": {"versions": [int(version)]}}}
    given = {
        "config": json.dumps(config),
        f"file:{version}/model.py": base64.b64encode(_MODEL).decode(),
    }
    address = f"{base}/v2/repository/models/{quote(model)}/load"
    if control.call(address, {"parameters": given}, timeout=PATIENCE)[0] == 200:
        control.unload(base, model, PATIENCE)
        control.settled(base, model, PATIENCE)

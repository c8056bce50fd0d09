"""Clear failed loads from a server.

A Triton server that remembers a failure answers 400 to ``/v2/health/ready``, even if others are ready,
and unloading a model that is not loaded changes nothing. Loading and unloading a model of that name and
version clears it. The model comes with the load request; the repository's files do not change.
It would replace a version that answers. Beside one, ``ship/deploy/engine.py`` loads that version's files
under the failed number, from the repository: loaded by request, Triton (2.51) would keep that configuration.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Collection

from triton_repo_builder.run.client import HttpClient

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
    """Clear the failed versions of these models if possible, except beside a version that is ready."""
    with contextlib.suppress(OSError):
        http = HttpClient(base, PATIENCE)
        entries = [entry for entry in http.index_or_empty() if entry.name in models]
        answering = {entry.name for entry in entries if entry.ready}
        for entry in entries:
            if entry.failed and entry.name not in answering:
                _clear(http, entry.name, entry.version)


def _clear(http: HttpClient, model: str, version: str) -> None:
    config = {**_CONFIG, "version_policy": {"specific": {"versions": [int(version)]}}}
    parameters = {
        "config": json.dumps(config),
        f"file:{version}/model.py": base64.b64encode(_MODEL).decode(),
    }
    if not http.load(model, parameters):
        http.unload(model)
        http.wait_until_settled(model, PATIENCE)

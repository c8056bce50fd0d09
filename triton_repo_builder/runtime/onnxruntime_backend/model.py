"""Triton's ``onnxruntime`` backend in Python, for servers without ``libtriton_onnxruntime.so``.

The embedded engine copies this folder to ``<backend directory>/onnxruntime/``; the server then runs it for
every model with ``backend: "onnxruntime"``. The stub puts the folder at the end of ``sys.path``, so the
modules import each other by plain name; a type checker sees them as part of the package.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend.ort_rules import is_complete
    from triton_repo_builder.runtime.onnxruntime_backend.ort_runner import Runner
else:
    from ort_rules import is_complete


class TritonPythonModel:
    """One instance of one model."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: pb_utils.ModelConfig) -> pb_utils.ModelConfig:
        """Fill in what the configuration leaves out, from the graph."""
        config = auto_complete_model_config.as_dict()
        # Triton starts a process for this alone: one that imports nothing ends soon.
        if not is_complete(config) and (note := _ort().complete(config, _version_directory())):
            pb_utils.Logger.log_warn(note)
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Open the session and compare the configuration with the graph."""
        config: dict[str, Any] = json.loads(args["model_config"])
        version = Path(args["model_repository"]) / args["model_version"]
        kind, device = args["model_instance_kind"], args["model_instance_device_id"]
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self._runner: Runner | None = _ort().runner(config, version, kind, device)
        self._name = config["name"]
        self._warming = sum(
            int(sample.get("batch_size", 0)) * max(1, int(sample.get("count", 0)))
            for sample in config.get("model_warmup") or ()
        )
        self._meter = self._runner.meter = _ort().meter(args, config)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse] | None:
        """Answer the requests of one batch."""
        assert self._runner is not None
        responses = self._runner.run(requests)
        if self._warming > 0:
            self._warming -= len(requests)
            _report(self._name, responses)
        if not self._decoupled:
            return responses
        for request, response in zip(requests, responses, strict=True):
            request.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def finalize(self) -> None:
        """Free the session before the interpreter goes."""
        self._runner = None
        self._meter.close()


def _ort() -> Any:
    """``ort_open``: what needs ONNX Runtime, which is slow to import."""
    return importlib.import_module("ort_open")


def _report(model: str, responses: list[pb_utils.InferenceResponse]) -> None:
    """Log why a warm-up fails before the server gets the response: 2.51.0 often crashes then, silently.

    On standard error, which is the server's log: pb_utils.Logger is too late.
    """
    for response in responses:
        error = response.error()
        if error is not None:
            text = " ".join(error.message().split())
            sys.stderr.write(f"warm-up of model '{model}' failed: {text}\n")
            sys.stderr.flush()


def _version_directory() -> Path:
    """The version directory: the stub's first argument is the file; ``auto_complete_config`` gets neither."""
    arguments = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return Path(arguments[1].decode()).parent

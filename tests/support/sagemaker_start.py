"""What SageMaker's Triton container makes of its environment and of /opt/ml/model before the server starts.

A model of docker/sagemaker/serve in https://github.com/triton-inference-server/server (read at e1db8a60,
2026-08-19; release 24.10 has the same but the inference type) for a single model: which variables become
which options, and which repositories it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

REPOSITORY = "/opt/ml/model/"
OPTIONS = {
    "SAGEMAKER_BIND_TO_PORT": "--sagemaker-port={}",
    "SAGEMAKER_SAFE_PORT_RANGE": "--sagemaker-safe-port-range={}",
    "SAGEMAKER_TRITON_METRICS_PORT": "--metrics-port={}",
    "SAGEMAKER_TRITON_GRPC_PORT": "--grpc-port={}",
    "SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT": "--buffer-manager-thread-count={}",
    "SAGEMAKER_TRITON_THREAD_COUNT": "--sagemaker-thread-count={}",
    "SAGEMAKER_TRITON_LOG_INFO": "--log-info={}",
    "SAGEMAKER_TRITON_LOG_WARNING": "--log-warning={}",
    "SAGEMAKER_TRITON_LOG_ERROR": "--log-error={}",
}
"""Options that a variable adds."""
DEFAULTS = {
    "SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING": ("--model-namespacing={}", "true"),
    "SAGEMAKER_TRITON_ALLOW_GRPC": ("--allow-grpc={}", "false"),
    "SAGEMAKER_TRITON_ALLOW_METRICS": ("--allow-metrics={}", "false"),
    "SAGEMAKER_TRITON_LOG_VERBOSE": ("--log-verbose={}", "true"),
    "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": (
        "--backend-config=python,shm-default-byte-size={}",
        "16777216",
    ),
    "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE": ("--backend-config=python,shm-growth-byte-size={}", "1048576"),
}
"""Options that are always there, with the value of a variable or this one."""
OTHERS = (
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
    "SAGEMAKER_TRITON_INFERENCE_TYPE",
    "SAGEMAKER_TRITON_ADDITIONAL_ARGS",
)
KNOWN = {*OPTIONS, *DEFAULTS, *OTHERS}
INFERENCE_TYPES = ("", "infer", "generate", "generate_stream")


class Refused(Exception):
    """The container ends with this message."""


def command(environment: Mapping[str, str], model: Path) -> list[str]:
    """The command line that the container would run; ``model`` is what SageMaker unpacked. Raises Refused."""
    given = {name: value for name, value in environment.items() if value}
    if (model / "config.pbtxt").is_file():
        raise Refused("a model directory needs a top level folder")
    if given.get("SAGEMAKER_TRITON_INFERENCE_TYPE", "") not in INFERENCE_TYPES:
        raise Refused("an inference type that is none")
    return [
        "tritonserver",
        "--allow-sagemaker=true",
        "--allow-http=false",
        "--model-control-mode=explicit",
        f"--model-repository={REPOSITORY}",
        *(option.format(given.get(name, default)) for name, (option, default) in DEFAULTS.items()),
        *(option.format(given[name]) for name, option in OPTIONS.items() if name in given),
        # A shell splits it at spaces, quoted or not.
        *given.get("SAGEMAKER_TRITON_ADDITIONAL_ARGS", "").split(),
        f"--load-model={_model(given.get('SAGEMAKER_TRITON_DEFAULT_MODEL_NAME', ''), model)}",
    ]


def _model(stated: str, model: Path) -> str:
    folders = sorted(path.name for path in model.iterdir() if path.is_dir())
    if stated:
        if stated not in folders:
            raise Refused(f"there is no directory {stated}")
        return stated
    if len(folders) != 1:
        raise Refused(f"{len(folders)} model directories, and no default")
    return folders[0]

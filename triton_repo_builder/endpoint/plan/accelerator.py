"""``--accelerator``: another engine below ONNX Runtime, with the settings that it needs.

The onnxruntime backend of Triton reads them from ``optimization.execution_accelerators``: TensorRT's of GPU
instances with parameters, OpenVINO's of CPU instances without any.
"""

from __future__ import annotations

from collections.abc import Sequence

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.endpoint.plan.model import Accelerator, TensorPlan
from triton_repo_builder.model.read.options import BuildOptions, usage

GPU = "KIND_GPU"
NONE, TENSORRT, OPENVINO = "none", "tensorrt", "openvino"
CACHE = "/tmp/trb_tensorrt"
"""Folder of compiled engines in the server; a volume there keeps them when the server is started anew."""
PRECISIONS = {"keep": "FP32", "fp16": "FP16", "auto": "FP16"}


def of(
    options: BuildOptions, kind: str, name: str, inputs: Sequence[TensorPlan], max_batch_size: int
) -> Accelerator | None:
    """The accelerator of a model whose instances are of this kind. Raises ``TrbError`` USAGE."""
    if options.accelerator == NONE:
        return None
    if options.accelerator == OPENVINO:
        if kind == GPU:
            raise _refused("OpenVINO accelerates CPUs, and the model is for a GPU", "build with --device cpu")
        if options.precision in ("int8", "fp16"):
            raise _refused(
                f"OpenVINO takes its precision from the CPU, and {options.precision} is made for the "
                "kernels of ONNX Runtime",
                "leave --precision out",
            )
        return Accelerator(field="cpu_execution_accelerator", name=OPENVINO)
    if kind != GPU:
        raise _refused("TensorRT is for NVIDIA GPUs, and the model is for a CPU", "build with --device gpu")
    if options.precision == "int8":
        raise _refused(
            "TensorRT has no product of dynamically quantised integers, which int8 by row is made of",
            "use --precision fp16",
        )
    if any(tensor.allow_ragged_batch for tensor in inputs):
        raise _refused(
            "TensorRT compiles for fixed shapes, and ragged texts have any",
            "build with --padding fixed:N, N tokens for every text",
        )
    if any(-1 in tensor.dims for tensor in inputs):
        open_one = next(tensor.name for tensor in inputs if -1 in tensor.dims)
        raise _refused(
            f"TensorRT compiles for fixed shapes, and input '{open_one}' has an axis of any length",
            "build with --padding fixed:N for texts, or export the model with fixed axes",
        )
    return Accelerator(
        field="gpu_execution_accelerator",
        name=TENSORRT,
        parameters=(
            ("precision_mode", PRECISIONS[options.precision]),
            ("trt_engine_cache_enable", "true"),
            ("trt_engine_cache_path", f"{CACHE}/{name}"),
            ("trt_timing_cache_enable", "true"),
            *_profile(inputs, max_batch_size, max(options.preferred_batch_size, default=max_batch_size)),
        ),
    )


def _profile(inputs: Sequence[TensorPlan], most: int, usual: int) -> tuple[tuple[str, str], ...]:
    """Shapes that engines are compiled for; without a batch axis every shape is fixed in the graph."""
    if not most:
        return ()
    sizes = {"min": 1, "opt": usual, "max": most}
    return tuple(
        (
            f"trt_profile_{name}_shapes",
            ",".join(f"{tensor.name}:{'x'.join(map(str, (rows, *tensor.dims)))}" for tensor in inputs),
        )
        for name, rows in sizes.items()
    )


def _refused(message: str, remedy: str) -> TrbError:
    return usage("accelerator", message, remedy)

"""What to do about models that cannot be loaded, where their cause says more than "correct that"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from triton_repo_builder.serve.engine import Failure

_CPU = "or build it with --device cpu (in a config.pbtxt made by hand: kind: KIND_CPU)"
_KNOWN = (
    (
        # tritonserver, before any backend is asked.
        re.compile(r"has kind KIND_GPU but "),
        f"serve it on a machine with an NVIDIA GPU, {_CPU}",
    ),
    (
        # Our onnxruntime backend (ort_gpu.py), which names the command.
        re.compile(r"^a GPU instance needs CUDA: "),
        f"install what is missing and start again, {_CPU}",
    ),
)


def of(failed: Sequence[Failure], otherwise: str) -> str:
    """One remedy for all of these; ``otherwise`` where a cause speaks for itself."""
    return "; ".join(dict.fromkeys(_of(failure.cause) or otherwise for failure in failed))


def _of(cause: str) -> str:
    return next((remedy for pattern, remedy in _KNOWN if pattern.search(cause)), "")

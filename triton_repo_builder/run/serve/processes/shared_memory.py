"""Shared memory that the Python models of a repository may need."""

from __future__ import annotations

import math

from triton_repo_builder.base.dtypes import BY_CONFIG
from triton_repo_builder.repository import Repository
from triton_repo_builder.repository.config import ModelConfig, TensorConfig

MEBI = 1 << 20
BASE = 64 * MEBI
"""Docker's default; the server itself uses little of it."""
SMALLEST = 8 * MEBI
"""Per instance: a region starts at 1 MiB (shm-default-byte-size) and grows by as much."""
HEADROOM = 4
"""Holds inputs and outputs of an execute at once, and while a region grows its old and new parts."""
OPEN = 512
"""Elements counted for an axis without a size."""
TEXT = 64 << 10
"""Bytes counted for a string: a long text, a small picture."""


DEFAULT = {"python": 1, "onnxruntime": 2}
"""Default number of instances on CPU; in trb's own image both backends run in Python processes."""


def needed(repository: Repository) -> int:
    """Bytes for /dev/shm: an upper bound, since unused bytes take no memory."""
    total = BASE
    for model in repository.models:
        if model.backend in DEFAULT:
            total += _instances(model.config, DEFAULT[model.backend]) * max(
                SMALLEST, HEADROOM * _execute(model.config)
            )
    return math.ceil(total / MEBI) * MEBI


def _instances(config: ModelConfig, default: int) -> int:
    return sum(group.count or default for group in config.instance_groups) or default


def _execute(config: ModelConfig) -> int:
    """Bytes of the tensors of one full batch."""
    return max(1, config.max_batch_size) * sum(_size(item) for item in (*config.inputs, *config.outputs))


def _size(tensor: TensorConfig) -> int:
    dtype = BY_CONFIG.get(tensor.data_type)
    size = dtype.size if dtype is not None and dtype.size else TEXT
    return size * math.prod(dim if dim > 0 else OPEN for dim in tensor.dims or (1,))

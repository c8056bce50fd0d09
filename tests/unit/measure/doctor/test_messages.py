"""Messages of tritonserver: the code that explains each, and the model that it is about."""

from __future__ import annotations

import pytest

from triton_repo_builder.check.codes import CODES
from triton_repo_builder.measure.doctor import messages
from triton_repo_builder.measure.doctor.messages import EXPLAINED, OWN, explained

LINES = {
    "E0101 00:00:00.1 1 x.cc:1] failed to load 'm' version 1: Internal: Unable to initialize "
    "shared memory key 'triton_python_backend_shm_region_1' to requested size (1048576 bytes).": (
        "shared-memory-start",
        "m",
    ),
    "Failed to increase the shared memory pool size for key 'k' to 2097152 bytes.": (
        "shared-memory-growth",
        "",
    ),
    "Stub process 'm_0_0' is not healthy.": ("process-gone", "m"),
    "model_warmup can not be specified for ensemble 'm'": ("ensemble-forbidden", "m"),
    "ensemble 'm' allows maximum batch size 8, but it contains model 'n'": ("ensemble-batch-size", "m"),
    "instance group m_0 of model m specifies count 1 but no GPUs are available": ("instance-gpus", ""),
    "model 'm', tensor 'X': for the model to support batching the shape should have at least 1 dimension and "
    "the first dimension must be -1": ("onnx-batch-axis", "m"),
    "unexpected inference output 'Z', allowed outputs are: Y": ("onnx-name", ""),
    "Unsupported model IR version: 11, max supported IR version: 10": ("onnx-ir", ""),
    "ModuleNotFoundError: No module named 'torch'": ("python-import", ""),
    "failed to read text proto from /m/config.pbtxt": ("config-syntax", ""),
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: LINES[line][0])
def test_a_message_is_explained(line: str) -> None:
    (each,) = explained(line)
    assert (each.code, each.model) == LINES[line]
    assert each.remedy


@pytest.mark.parametrize(
    "line",
    [
        "I0101 00:00:00.1 1 server.cc:674] | m | 1 | READY |",
        "W0101 00:00:00.1 1 pinned_memory_manager.cc:271] Unable to allocate pinned system memory",
        "successfully loaded 'm'",
        "",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert list(explained(line)) == []


def test_a_message_that_repeats_is_one() -> None:
    text = "\n".join(["first", *["Stub process 'm_0_0' is not healthy."] * 3])
    (each,) = explained(text)
    assert each.line == 2


def test_bytes_are_those_of_the_message() -> None:
    (each,) = explained("Unable to initialize shared memory key 'k' to requested size (67108864 bytes)")
    assert each.bytes == 64 << 20


def test_each_code_has_a_remedy() -> None:
    assert {code for _, code in EXPLAINED} <= {*CODES, *OWN}
    assert {messages.SHM_START, messages.SHM_GROWTH, messages.STUB} == set(OWN)

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
    "E0101 00:00:00.1 1 a.cc:1] failed to load 'm' version 1: Failed to initialize Python stub: "
    "unable to create shared memory region 'triton_python_backend_shm_region_1': No space left on device": (
        "shared-memory-start",
        "m",
    ),
    "unexpected datatype TYPE_INT64 for inference input 'X', expecting TYPE_INT32 for 'm'": (
        "request-type",
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
    "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'm'": ("request-rows", "m"),
    "[request id: 7] unexpected shape for input 'TEXT' for model 'm'. Expected [-1,1], got [2]": (
        "request-shape",
        "m",
    ),
    "inference input 'X' data-type is 'INT64', but model 'm' expects 'INT32'": ("request-type", "m"),
    "expected 2 inputs but got 1 inputs for model 'm'": ("request-input", "m"),
    "unexpected inference input 'Z' for model 'm'": ("request-input", "m"),
    "Request for unknown model: 'm' is not found": ("request-model", "m"),
    "Exceeds maximum queue size": ("request-queue-full", ""),
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
    assert each.number == 64 << 20


def test_the_limit_of_rows_is_in_cause_and_remedy() -> None:
    (each,) = explained("inference request batch-size must be <= 8 for 'minilm'")
    assert each.cause == "the request has more rows than the model's max_batch_size, 8"
    assert each.remedy.startswith("send at most 8 rows a request")


def test_each_code_has_a_remedy() -> None:
    assert {code for _, code in EXPLAINED} <= {*CODES, *OWN}
    assert {messages.SHM_START, messages.SHM_GROWTH, messages.STUB, *messages.REFUSED} == set(OWN)


def test_a_type_is_named_with_its_place() -> None:
    line = (
        "failed to load 'm' version 1: Invalid argument: unable to load model 'm', configuration "
        "expects datatype TYPE_INT32 for input 'input_ids', model provides TYPE_INT64"
    )
    (each,) = explained(line)
    assert each.remedy == "write data_type: TYPE_INT64 for input 'input_ids' in m/config.pbtxt"

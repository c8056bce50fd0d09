from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.check import policies

MODEL = "class TritonPythonModel:\n    def execute(self, r): ...\n"
CONFIG = """backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { kind: KIND_CPU }, { count: 2 } ]
dynamic_batching { max_queue_delay_microseconds: 9000 preserve_ordering: false }
max_batch_size: 8
parameters { key: "team" value { string_value: "search" } }
parameters { key: "threads" value { string_value: "0" } }
response_cache { enable: true }
"""


def found(tmp_path: Path, **entry: Any) -> list[str]:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "m" / "1" / "model.py").write_text(
        "class TritonPythonModel:\n    def execute(self, r): ...\n"
    )
    read = policies.read({"policy": {"p": entry}}, "policies.toml")
    findings = check.check(repository.read(tmp_path), releases.default(), policies=read)
    return [f"{f.line}:{f.column} {f.code} {f.message}" for f in findings]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"field": "instance_group.kind", "forbidden": ["KIND_AUTO"]},
            ["4:38 policy-p instance_group.kind is 'KIND_AUTO': forbidden"],
        ),
        (
            {"field": "dynamic_batching.max_queue_delay_microseconds", "maximum": 5000},
            ["5:20 policy-p dynamic_batching.max_queue_delay_microseconds is 9000: at most 5000"],
        ),
        (
            {"field": 'parameters."trb.model_sha256"', "required": True},
            ['7:1 policy-p parameters."trb.model_sha256" is not given'],
        ),
        (
            {"field": "parameters.team", "allowed": ["ads"], "message": "who owns it?"},
            ["7:1 policy-p who owns it? (parameters.team is 'search': allowed: 'ads')"],
        ),
        (
            {"field": "input.name", "pattern": "[a-z]+"},
            ["2:11 policy-p input.name is 'X': it must match [a-z]+"],
        ),
        ({"field": "max_batch_size", "minimum": 16}, ["6:1 policy-p max_batch_size is 8: at least 16"]),
        ({"field": "max_batch_size", "maximum": 4, "models": "bert*"}, []),
        ({"field": "max_batch_size", "maximum": 4, "backend": "onnxruntime"}, []),
        ({"field": "model_warmup.batch_size", "maximum": 4}, []),
        (
            {"field": "parameters.threads", "minimum": 1},
            ["8:1 policy-p parameters.threads is '0': at least 1"],
        ),
        (
            {"field": "parameters.team", "minimum": 1},
            ["7:1 policy-p parameters.team is 'search': a number is required"],
        ),
        ({"field": "response_cache.enable", "pattern": "true"}, []),
        (
            {"field": "instance_group.count", "required": True},
            ["4:1 policy-p instance_group.count is not given"],
        ),
        (
            {"field": "instance_group.rate_limiter.priority", "required": True},
            [
                "4:1 policy-p instance_group.rate_limiter.priority is not given",
                "4:38 policy-p instance_group.rate_limiter.priority is not given",
            ],
        ),
        ({"field": "dynamic_batching.preserve_ordering", "required": True}, []),
        (
            {"field": "version_policy.latest", "required": True},
            ["0:0 policy-p version_policy.latest is not given"],
        ),
    ],
)
def test_findings(tmp_path: Path, entry: dict[str, Any], expected: list[str]) -> None:
    assert found(tmp_path, **entry) == expected


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"field": "max_batch_size"},
        {"field": "max_batchsize", "required": True},
        {"field": "max_batch_size", "maximun": 4},
        {"field": "max_batch_size", "maximum": "4"},
        {"field": "max_batch_size", "maximum": True},
        {"field": "max_batch_size", "allowed": 8},
        {"field": "max_batch_size", "forbidden": "8"},
        {"field": "max_batch_size", "required": "yes"},
        {"field": "max_batch_size", "maximum": 4, "models": ["m"]},
        {"field": "max_batch_size", "maximum": 4, "message": 3},
        {"field": "instance_group.kindd", "forbidden": ["KIND_AUTO"]},
        {"field": "instance_group.kind.name", "required": True},
        {"field": "max_batch_size.x", "required": True},
        {"field": "max_batch_size", "pattern": "["},
        {"field": "max_batch_size", "forbidden": ["4"]},
        {"field": "instance_group.kind", "forbidden": ["AUTO"]},
        {"field": "instance_group.kind", "minimum": 1},
        {"field": "response_cache.enable", "allowed": [1]},
        {"field": "backend", "minimum": 1},
        {"field": "backend", "forbidden": [1]},
        {"field": "parameters.threads", "forbidden": [0]},
        {"field": "dynamic_batching", "pattern": "x"},
        {"field": "max_batch_size", "maximum": 4, "severity": "fatal"},
        {"field": "max_batch_size", "allowed": []},
        {"field": "max_batch_size", "forbidden": []},
        {"field": "max_batch_size", "required": False},
        {"field": "name", "pattern": ""},
        {"field": "max_batch_size", "minimum": float("nan")},
        {"field": "max_batch_size", "minimum": float("inf")},
        {"field": "max_batch_size", "minimum": 10**400},
        {"field": "max_batch_size", "minimum": 5, "maximum": 2},
        {"field": "max_batch_size", "maximum": 4, "backend": "Python"},
        {"field": "max_batch_size.", "required": True},
        {"field": "dynamic_batching..preserve_ordering", "required": True},
        {"field": 'parameters."a', "required": True},
        {"field": "parameters.trb.model_sha256", "required": True},
        {"field": "parameters.a.string_value", "required": True},
    ],
)
def test_what_is_no_policy_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(TrbError) as caught:
        policies.read({"policy": {"p": entry}}, "policies.toml")
    assert caught.value.where.startswith("policies.toml")


def test_a_name_that_no_code_can_have() -> None:
    with pytest.raises(TrbError, match="part of a code"):
        policies.read({"policy": {"a b": {"field": "name", "required": True}}}, "policies.toml")

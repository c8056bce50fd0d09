"""Hand-made repositories for the tests of ``trb smoke``: one Python model with a defect to choose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triton_repo_builder.repository import cases
from triton_repo_builder.repository.cases import (
    Case,
    CaseFile,
    CaseTensor,
    Tolerance,
)

TEXTS = ("Hello", "Straße, 東京 🙂", "the third case is a little longer than the two before it")

MODEL = """
import hashlib, json, os, signal, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.defect = config["parameters"].get("defect", {}).get("string_value", "")
        self.seen = 0

    def execute(self, requests):
        return [self.one(request, number) for number, request in enumerate(requests)]

    def one(self, request, number):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)
        self.seen += 1
        if self.defect == "500 beside another request" and number == 1:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("out of luck"))
        if self.defect == "dies of bad UTF-8":
            try:
                [text.decode() for text in texts]
            except UnicodeDecodeError:
                os.kill(os.getpid(), signal.SIGKILL)
        if self.defect == "sleeps over long texts" and max(map(len, texts)) > 50000:
            time.sleep(4)
        if self.defect == "500 for NUL" and any(b"\\0" in text for text in texts):
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("NUL"))
        digests = [hashlib.sha256(text).digest()[:4] for text in texts]
        answer = np.array([[byte / 255 for byte in digest] for digest in digests], dtype=np.float32)
        if self.defect == "depends on its neighbour":
            answer += 0.01 * (len(texts) - 1)
        if self.defect == "wrong the second time" and self.seen == 2:
            answer += 0.01
        if self.defect == "lost row":
            answer = answer[:1]
        if self.defect == "half":
            answer = answer.astype(np.float16)
        return pb_utils.InferenceResponse([pb_utils.Tensor("embedding", answer)])
"""


def embedding(text: str) -> list[float]:
    """What the model answers."""
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:4]]


def add_model(root: Path, name: str, defect: str = "", datatype: str = "FP32") -> None:
    """``name``, an ensemble of one step, and ``name_model`` with the defect."""
    tensors = (
        'max_batch_size: 8\ninput [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]\n'
        f'output [{{ name: "embedding" data_type: TYPE_{datatype} dims: [4] }}]\n'
    )
    step = root / f"{name}_model"
    (step / "1").mkdir(parents=True)
    (step / "1" / "model.py").write_text(MODEL)
    (step / "config.pbtxt").write_text(
        'backend: "python"\n'
        + tensors
        + "instance_group [{ kind: KIND_CPU count: 1 }]\n"
        + "dynamic_batching { max_queue_delay_microseconds: 5000 }\n"
        + f'parameters {{ key: "defect" value {{ string_value: "{defect}" }} }}\n'
    )
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / ".gitkeep").touch()
    (root / name / "config.pbtxt").write_text(
        'platform: "ensemble"\n'
        + tensors
        + f'ensemble_scheduling {{ step [{{ model_name: "{name}_model" model_version: -1 '
        + 'input_map { key: "TEXT" value: "TEXT" } output_map { key: "embedding" value: "embedding" } }] }\n'
    )


def record(root: Path, name: str, off: float = 0.0, datatype: str = "FP32") -> str:
    """Golden cases of ``name``; the last number of the last case is wrong by ``off``."""
    recorded = []
    for number, text in enumerate(TEXTS):
        answer = embedding(text)
        if number == len(TEXTS) - 1:
            answer[-1] += off
        recorded.append(
            Case(
                name=f"text-{number}",
                inputs=(CaseTensor(name="TEXT", datatype="BYTES", shape=(1, 1), data=(text,)),),
                outputs=(CaseTensor(name="embedding", datatype=datatype, shape=(1, 4), data=tuple(answer)),),
            )
        )
    allowed = 1e-3 if datatype == "FP16" else 1e-5
    file = CaseFile(
        endpoint=name,
        recorded_with="the tests",
        tolerance=Tolerance(alone=allowed, batched=allowed, reason="float noise"),
        cases=tuple(recorded),
    )
    (root / name / "smoke.json").write_text(cases.dump(file))
    return f"{name}/smoke.json"


def endpoint(
    name: str, file: str, output: Sequence[int] = (-1, 4), size: int = 8, datatype: str = "FP32"
) -> dict[str, Any]:
    """One endpoint of the manifest."""
    return {
        "task": "embedding",
        "models": [name, f"{name}_model"],
        "version": 1,
        "cases": file,
        "max_batch_size": size,
        "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}],
        "outputs": [{"name": "embedding", "datatype": datatype, "shape": list(output)}],
    }


def write_manifest(root: Path, endpoints: dict[str, dict[str, Any]]) -> None:
    """manifest.json; smoke does not read its checksums."""
    manifest = {"schema": 1, "generator": {"name": "tests"}, "endpoints": endpoints, "files": {}}
    (root / "manifest.json").write_text(json.dumps(manifest))


TENSOR_MODEL = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.defect = config["parameters"].get("defect", {}).get("string_value", "")

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        mask = pb_utils.get_input_tensor_by_name(request, "mask").as_numpy()
        y = (x * mask).sum(axis=-1, keepdims=True).astype(np.float32)
        if self.defect == "centred over the batch":
            y -= y.mean()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""


def add_tensor_model(root: Path, name: str, max_batch_size: int, defect: str = "") -> None:
    """``name``: the sum of X where mask is 1; without manifest entry or golden cases."""
    folder = root / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(TENSOR_MODEL)
    batch = "" if max_batch_size else "-1, "
    (folder / "config.pbtxt").write_text(
        f'backend: "python"\nmax_batch_size: {max_batch_size}\n'
        f'input [{{ name: "X" data_type: TYPE_FP32 dims: [{batch}-1] }},\n'
        f'       {{ name: "mask" data_type: TYPE_INT64 dims: [{batch}-1] }}]\n'
        f'output [{{ name: "Y" data_type: TYPE_FP32 dims: [{batch}1] }}]\n'
        "instance_group [{ kind: KIND_CPU count: 1 }]\n"
        f'parameters {{ key: "defect" value {{ string_value: "{defect}" }} }}\n'
    )


STREAM_MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            for _ in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def add_stream(root: Path, name: str) -> None:
    """A decoupled model, which answers three times."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(STREAM_MODEL)
    (root / name / "config.pbtxt").write_text(
        'backend: "python"\nmodel_transaction_policy { decoupled: true }\n'
        'input [{ name: "X" data_type: TYPE_FP32 dims: [2] }]\n'
        'output [{ name: "Y" data_type: TYPE_FP32 dims: [2] }]\n'
        "instance_group [{ kind: KIND_CPU count: 1 }]\n"
    )

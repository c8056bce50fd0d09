"""ONNX files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.reliability import mutate
from tests.reliability.readers.reader import (
    MODELS,
    REPOSITORY,
    Reader,
    write,
)


@cache
def _small_models() -> tuple[bytes, ...]:
    """Graphs of real exports with their weights cut to a few bytes outside, and small whole ones."""
    import onnx

    models = [(REPOSITORY / "sentiment_model/1/model.onnx").read_bytes()]
    for name in ("vision/resnet", "embedding/classifier", "tasks/qa", "embedding/minilm_pooled"):
        model = onnx.load(str(MODELS / name / "model.onnx"))
        for number, tensor in enumerate(model.graph.initializer):
            if len(tensor.raw_data) > 64:
                tensor.raw_data = b""
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for key, value in (("location", "weights.bin"), ("offset", str(number * 8)), ("length", "8")):
                    tensor.external_data.add(key=key, value=value)
        models.append(model.SerializeToString())
    return tuple(models)


def _weights(case: Path) -> None:
    (case / "weights.bin").write_bytes(bytes(4096))


def _onnx(case: Path) -> None:
    from triton_repo_builder.base import releases
    from triton_repo_builder.model.graph import external_data, reader, shape_inference
    from triton_repo_builder.model.read import skeleton
    from triton_repo_builder.runtime.onnxruntime_backend import ort_hidden

    path = case / "model.onnx"
    graph = skeleton.read(path)
    signature = reader.signature(graph)
    model = reader.load(graph)
    shape_inference.infer(model)
    ort_hidden.hide(model, releases.default().infers)
    if external_data.leaves(path, tuple(file.location for file in signature.external)):
        external_data.resolved(graph)


def _inspect(case: Path) -> None:
    from triton_repo_builder.produce.inspect import as_json, inspect

    document = as_json(inspect(case / "model.onnx" if (case / "model.onnx").exists() else case))
    json.dumps(document)


def _build(case: Path) -> None:
    from triton_repo_builder.base.hardware import Hardware
    from triton_repo_builder.model.read.options import BuildOptions
    from triton_repo_builder.produce.build import build

    machine = Hardware(cores=2, gpus=())
    for file in build(BuildOptions(model=case / "model.onnx", golden=False), machine=machine).files:
        file.size()


def _copied(name: str) -> Callable[[Path], None]:
    def base(case: Path) -> None:
        shutil.copytree(MODELS / name, case, dirs_exist_ok=True)

    return base


READERS = (
    Reader(
        name="onnx",
        about="ONNX: skeleton, signature, external data, shape inference",
        seeds=lambda: list(_small_models()),
        damage=mutate.damaged_onnx,
        base=_weights,
        lay=write("model.onnx"),
        read=_onnx,
        share=1.0,
    ),
    Reader(
        name="inspect",
        about="ONNX: `trb inspect` of a text model",
        seeds=lambda: list(_small_models()),
        damage=mutate.damaged_onnx,
        base=lambda case: (_copied("embedding/classifier")(case), _weights(case))[1],
        lay=write("model.onnx"),
        read=_inspect,
        share=0.3,
    ),
    Reader(
        name="build",
        about="ONNX: `trb build --no-golden`",
        seeds=lambda: list(_small_models()),
        damage=mutate.damaged_onnx,
        base=lambda case: (_copied("embedding/classifier")(case), _weights(case))[1],
        lay=write("model.onnx"),
        read=_build,
        share=0.03,
    ),
)

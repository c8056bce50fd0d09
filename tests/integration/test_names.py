"""Models with tensors called like ours, or with outputs of one row and open inputs, on a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import tiny
import tiny_images
import tiny_onnx as t

from tests.support.cli import FEW, trb
from triton_repo_builder.repository import tensor_names
from triton_repo_builder.run import serve

pytestmark = pytest.mark.server

FRONT = tuple(zip(("words", "table", "context", "mixed"), tensor_names.FRONT, strict=True))
RAW = {"raw_output": True}


def passed_on(folder: Path, name: str) -> Path:
    """The model with an input as another output."""
    model = onnx.load(folder / "model.onnx")
    model.graph.output.append(next(value for value in model.graph.input if value.name == name))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def one_row(folder: Path) -> Path:
    """The model with its first output declared to have one row, though its inputs are open."""
    model = onnx.load(folder / "model.onnx")
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def models(root: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Each model, and the options that it is built with."""
    tokens = tiny.classifier(root / "raw_tokens")
    model = onnx.load(tokens / "model.onnx")
    model.graph.node.append(t.node("Neg", ["logits"], [tensor_names.TOKENS]))
    model.graph.output.append(t.tensor(tensor_names.TOKENS, ["batch", 3]))
    (tokens / "model.onnx").write_bytes(model.SerializeToString())
    return {
        "inner": (tiny.embedder(root / "inner", names=FRONT), {}),
        "inner_labels": (tiny.classifier(root / "inner_labels", names=[*FRONT, ("total", "label")]), {}),
        "raw_tokens": (tokens, RAW),
        "raw_passed_on": (passed_on(tiny.classifier(root / "raw_passed_on"), "attention_mask"), RAW),
        "one_row": (one_row(tiny.classifier(root / "one_row")), {}),
        "one_row_embedding": (one_row(tiny.embedder(root / "one_row_embedding")), {}),
        "one_row_raw": (one_row(tiny.classifier(root / "one_row_raw")), RAW),
        "one_row_image": (one_row(tiny_images.folder(root / "one_row_image")), {}),
        "image": (tiny_images.folder(root / "image", name="IMAGE"), {}),
        "image_output": (tiny_images.folder(root / "image_output", output="IMAGE"), {}),
        "plain": (passed_on(tiny.tensor_model(root / "plain" / "model.onnx").parent, "X"), {}),
    }


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("names")
    for name, (model, more) in models(root).items():
        tiny.put(model, root / "repository", golden=True, name=name, instances=1, **more)
    return root / "repository"


def test_every_endpoint_answers_as_its_original(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc, "--json")
    report = json.loads(trb("smoke", repository, *urls, *FEW))
    assert (report["ok"], report["parity_proven"]) == (True, True)
    assert len(report["endpoints"]) == 11


def test_check_finds_nothing_wrong(repository: Path) -> None:
    assert json.loads(trb("check", repository, "--json")) == []

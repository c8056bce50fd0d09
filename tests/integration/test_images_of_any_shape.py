"""Images that keep their shape, on a real server: what the graph takes is as large as each of them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import salvo
import tiny
import tiny_images
from PIL import Image

from tests.models import images
from tests.support.cli import FEW, trb
from tests.support.rows import column
from triton_repo_builder.model.read import image_processor, image_reference
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = pytest.mark.server

WITHIN = {"shortest_edge": 48, "longest_edge": 200}
COLOURS = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
PROCESSORS: dict[str, dict[str, Any]] = {
    "detr": {"image_processor_type": "DetrImageProcessor", "size": WITHIN, **COLOURS},
    "yolos": {"image_processor_type": "YolosImageProcessor", "size": WITHIN, **COLOURS},
    "edge": {"size": 32, "default_to_square": False, **COLOURS},
    "whole": {"do_resize": False, **COLOURS},
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shapes")
    for name, processor in PROCESSORS.items():
        tiny_images.any_size(root / name, processor=processor)
    return root


@pytest.fixture(scope="module")
def repository(exported: Path) -> Path:
    target = exported / "repository"
    for name in PROCESSORS:
        tiny.put(exported / name, target, golden=True, device="cpu", instances=1)
    return target


def request(*data: bytes) -> dict[str, Any]:
    return {"IMAGE": column(list(data))}


@pytest.mark.parametrize("name", PROCESSORS)
def test_scores_are_those_of_the_graph(name: str, client: GrpcClient, exported: Path) -> None:
    """Pixels by transformers, logits by ONNX Runtime; many clients at once, of many shapes."""
    files = images.images()[:40]
    if name == "yolos":  # which takes none that would be less than 16 pixels wide
        files = [data for data in files if max(size := Image.open(BytesIO(data)).size) < 4 * min(size)]
    pixels = image_reference.reference(image_processor.read(exported / name / "preprocessor_config.json"))
    session = onnxruntime.InferenceSession(str(exported / name / "model.onnx"))
    made = [pixels(data) for data in files]
    assert len({one.shape for one in made}) > 3
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda data: client.infer(name, request(data)), files))
    for one, answer in zip(made, answers, strict=True):
        logits = session.run(None, {"pixel_values": one[None]})[0][0].astype(np.float64)
        scores = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        np.testing.assert_allclose(answer["top_scores"][0], np.sort(scores)[::-1], atol=1e-4)


def test_images_that_become_one_shape_are_rows(server: serve.RunningServer, client: GrpcClient) -> None:
    files = [tiny_images.file(60, 50, seed=seed) for seed in range(8)]
    files += [tiny_images.file(120, 100, seed=seed) for seed in range(8)]  # becomes as large
    alone = np.concatenate([client.infer("detr", request(data))["top_scores"] for data in files])
    together = client.infer("detr", request(*files))["top_scores"]
    np.testing.assert_allclose(together, alone, atol=1e-6)

    def send() -> None:
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda data: client.infer("detr", request(data)), files * 4))

    salvo.joins(HttpClient(server.urls.http), ["detr_preprocess", "detr_model"], 64, send, most=64)


def test_images_of_several_shapes_are_no_rows_of_one_request(client: GrpcClient) -> None:
    words = r"the images of one request become \(3, 48, 57\), \(3, 48, 96\): send images of different shape"
    with pytest.raises(RequestFailed, match=words) as caught:
        client.infer("detr", request(tiny_images.file(60, 50), tiny_images.file(80, 40)))
    assert caught.value.kind == "refused"


def test_smoke_passes(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
    report = json.loads(trb("smoke", str(repository), *urls, *FEW, "--json"))
    assert report["ok"] is True
    assert report["parity_proven"] is True


def test_check_finds_nothing_wrong(repository: Path) -> None:
    findings = json.loads(trb("check", str(repository), "--json"))
    assert [finding for finding in findings if finding["severity"] == "error"] == []

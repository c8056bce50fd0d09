"""The main job on real models: build, serve, smoke, and the answers of the original PyTorch models.

The golden cases of ``trb smoke`` come from our own recorder; the answers compared here do not: they were
computed by PyTorch when the model was exported (tests/models/embedding.py), or by ONNX Runtime on the file
itself.
"""

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tritonclient import http as triton

from tests.support.cli import FEW, trb
from triton_repo_builder.run import serve

pytestmark = pytest.mark.server

TEXT_MODELS = {
    "minilm_fp32": ("embedding", ()),
    "minilm_pooled": ("embedding", ("--max-length", "256")),
    "minilm_dense": ("embedding", ()),
    "minilm_prompt": ("embedding", ()),
    "minilm_instructor": ("embedding", ()),
    "roberta": ("scores", ()),
    "classifier": ("scores", ()),
    "classifier_multi": ("scores", ()),
    "classifier_one": ("scores", ()),
}


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, exported: Path, minilm_int8: Path, open_nsfw: Path
) -> Path:
    """Fifteen endpoints in one repository."""
    target = tmp_path_factory.mktemp("main") / "model_repository"
    for name, (_, more) in TEXT_MODELS.items():
        trb(
            "build",
            "--model",
            str(exported / name),
            "--output",
            str(target),
            "--batching",
            "on",
            "--instances",
            "1",
            *more,
        )
    trb("build", "--model", str(minilm_int8), "--name", "int8", "--output", str(target), "--batching", "on")
    passage = ["--name", "passage", "--prompt", "passage", "--output", str(target), "--instances", "1"]
    trb("build", "--model", str(exported / "minilm_instructor"), *passage)
    for name in ("minilm_fp32", "classifier"):
        trb(
            "build",
            "--model",
            str(exported / name),
            "--name",
            f"raw_{name}",
            "--raw-output",
            "--output",
            str(target),
            "--instances",
            "1",
        )
    trb(
        "build",
        "--model",
        str(exported / "classifier"),
        "--name",
        "fixed",
        "--padding",
        "fixed:512",
        "--output",
        str(target),
        "--instances",
        "1",
    )
    trb("build", "--model", str(open_nsfw), "--output", str(target), "--max-batch-size", "4")
    return target


def infer(
    server: serve.RunningServer, endpoint: str, texts: list[str], output: str
) -> "np.ndarray[Any, Any]":
    data = [{"name": "TEXT", "datatype": "BYTES", "shape": [len(texts), 1], "data": texts}]
    request = urllib.request.Request(
        f"{server.urls.http}/v2/models/{endpoint}/infer",
        data=json.dumps({"inputs": data}).encode(),
        headers={"Content-Type": "application/json"},
    )
    answer = json.load(urllib.request.urlopen(request, timeout=60))
    tensor = next(tensor for tensor in answer["outputs"] if tensor["name"] == output)
    return np.array(tensor["data"]).reshape(tensor["shape"])


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_answers_are_those_of_pytorch(server: serve.RunningServer, exported: Path, name: str) -> None:
    output = TEXT_MODELS[name][0]
    reference = json.loads((exported / name / "reference.json").read_text())
    expected = np.array(reference["answers"])
    texts = reference["texts"]
    together = infer(server, name, texts, output)
    alone = np.concatenate([infer(server, name, [text], output) for text in texts])
    np.testing.assert_allclose(together, expected, atol=1e-4)
    np.testing.assert_allclose(alone, expected, atol=1e-4)


def test_a_prompt_by_its_name(server: serve.RunningServer, exported: Path) -> None:
    texts = json.loads((exported / "minilm_instructor" / "reference.json").read_text())["texts"]
    expected = json.loads((exported / "minilm_instructor" / "passage.json").read_text())
    np.testing.assert_allclose(infer(server, "passage", texts, "embedding"), expected, atol=1e-4)


def test_fixed_padding_gives_the_same_answers(server: serve.RunningServer, exported: Path) -> None:
    reference = json.loads((exported / "classifier" / "reference.json").read_text())
    got = infer(server, "fixed", reference["texts"], "scores")
    np.testing.assert_allclose(got, np.array(reference["answers"]), atol=1e-4)


def test_raw_outputs_are_those_of_the_file(server: serve.RunningServer, exported: Path) -> None:
    reference = json.loads((exported / "classifier" / "reference.json").read_text())
    logits = infer(server, "raw_classifier", reference["texts"], "logits")
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scores, np.array(reference["answers"]), atol=1e-4)
    assert infer(server, "raw_minilm_fp32", ["Hello"], "last_hidden_state").shape == (1, 3, 32)


@pytest.mark.parametrize("name", ["classifier", "classifier_multi"])
def test_label_and_score_are_those_of_the_largest(
    server: serve.RunningServer, exported: Path, name: str
) -> None:
    texts = json.loads((exported / name / "reference.json").read_text())["texts"]
    scores = infer(server, name, texts, "scores")
    labels = infer(server, name, texts, "label")[:, 0].tolist()
    assert labels == [f"label {index}" for index in scores.argmax(axis=1)]
    np.testing.assert_allclose(infer(server, name, texts, "score")[:, 0], scores.max(axis=1))


def test_int8_is_close_to_fp32(server: serve.RunningServer, exported: Path) -> None:
    reference = json.loads((exported.parent / "minilm" / "reference.json").read_text())
    rows = infer(server, "int8", reference["texts"], "embedding")
    cosines = (rows * np.array(reference["answers"])).sum(axis=1)
    assert cosines.min() > 0.95


def test_images_equal_onnxruntime_on_the_original(server: serve.RunningServer, open_nsfw: Path) -> None:
    images = np.random.default_rng(0).uniform(-120, 130, size=(3, 224, 224, 3)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(open_nsfw)).run(None, {"input:0": images})[0]
    client = triton.InferenceServerClient(server.urls.http.removeprefix("http://"))
    tensor = triton.InferInput("input:0", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    np.testing.assert_allclose(client.infer("open-nsfw", [tensor]).as_numpy("outputs"), expected, atol=1e-5)
    client.close()


def test_smoke_passes(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
    # The other text models are compared with PyTorch above.
    smoked = {"int8", "open-nsfw", "passage", "raw_minilm_fp32", "raw_classifier", "fixed", "roberta"}
    chosen = [word for name in sorted(smoked) for word in ("--endpoint", name)]
    report = json.loads(trb("smoke", str(repository), *urls, *chosen, *FEW, "--json"))
    assert report["ok"] is True
    assert report["parity_proven"] is True
    assert smoked == set(report["endpoints"])


def test_check_finds_nothing_wrong(repository: Path) -> None:
    findings = json.loads(trb("check", str(repository), "--json"))
    assert [finding for finding in findings if finding["severity"] == "error"] == []


def test_rebuild_is_byte_identical(repository: Path, exported: Path, tmp_path: Path) -> None:
    for target in ("one", "two"):
        trb("build", "--model", str(exported / "classifier"), "--output", str(tmp_path / target))
    contents = [
        {
            path.relative_to(tmp_path / target): path.read_bytes()
            for path in (tmp_path / target).rglob("*")
            if path.is_file()
        }
        for target in ("one", "two")
    ]
    assert contents[0] == contents[1]

"""Exports that many publish and that say little of themselves, on a real server against their originals."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tiny
import tiny_images
import tiny_onnx as t

from tests.models import images
from tests.support.cli import call, trb
from tests.support.rows import column
from triton_repo_builder.base.errors import Code
from triton_repo_builder.endpoint.golden import image
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = pytest.mark.server

TIMM = Path(__file__).resolve().parents[1] / "data" / "timm"
FACTORS = {"once": ([], 1), "twice": ([1], 2), "thrice": (["batch"], 3)}
"""Endpoints by the shape and the value of an input that each is built with."""


def text_tower(exported: Path, folder: Path) -> Path:
    """The text tower of CLIP with ``text_embeds`` as its only output."""
    shutil.copytree(exported / "clip_text", folder)
    model = onnx.load(folder / "model.onnx")
    kept = [value for value in model.graph.output if value.name == "text_embeds"]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, folder / "model.onnx")
    return folder


def open_channels(exported: Path, folder: Path) -> Path:
    """A ViT as optimum exports it: all axes of its input are open."""
    shutil.copytree(exported / "vit_embed", folder)
    model = onnx.load(folder / "model.onnx")
    axes = model.graph.input[0].type.tensor_type.shape.dim
    for dim, name in zip(axes, ("batch_size", "num_channels", "height", "width"), strict=True):
        dim.dim_param = name
    onnx.save(model, folder / "model.onnx")
    return folder


def by_timm(folder: Path) -> Path:
    """A classifier of any size beside timm's config.json."""
    tiny_images.any_size(folder, processor={})
    (folder / "preprocessor_config.json").unlink()
    stated = json.loads((TIMM / "center.json").read_text())
    tiny.put_json(folder / "config.json", {**stated, "label_names": ["a", "b", "c", "d"]})
    return folder


def times(exported: Path, folder: Path, shape: list[Any]) -> Path:
    """A pooled embedding times the input ``factor``."""
    shutil.copytree(exported / "minilm_pooled", folder)
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        node.output[:] = ["before" if name == "sentence_embedding" else name for name in node.output]
    model.graph.node.extend(
        [
            t.node("Cast", ["factor"], ["number"], to=t.FLOAT),
            t.node("Reshape", ["number", "as_rows"], ["rows_of_numbers"]),
            t.node("Mul", ["before", "rows_of_numbers"], ["sentence_embedding"]),
        ]
    )
    model.graph.initializer.append(t.constant("as_rows", t.INT64, [2], [-1, 1]))
    model.graph.input.append(t.tensor("factor", shape, t.INT64))
    onnx.save(model, folder / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def repository(exported: Path, exported_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("popular") / "repository"
    place = target.parent
    in_process: dict[str, Any] = {"golden": True, "device": "cpu", "instances": 1}
    tiny.put(text_tower(exported_images, place / "tower"), target, **in_process)
    tiny.put(open_channels(exported_images, place / "open"), target, **in_process)
    tiny.put(exported / "static", target, **in_process)
    tiny.put(by_timm(place / "timm"), target, **in_process)
    for name, (shape, factor) in FACTORS.items():
        options = {"max_length": 256, "constant": (("factor", str(factor)),), **in_process}
        tiny.put(times(exported, place / name, shape), target, **options)
    return target


def test_the_vector_of_a_text_tower(client: GrpcClient, exported_images: Path) -> None:
    expected = np.load(exported_images / "clip_text" / "reference.npz")["text_embeds"]
    got = client.infer("tower", {"TEXT": column([text.encode() for text in images.TEXTS])})["embedding"]
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_images_with_open_channels(client: GrpcClient, exported_images: Path) -> None:
    expected = np.load(exported_images / "vit_embed" / "reference.npz")["pooler_output"]
    files = images.images()[:16]
    got = client.infer("open", {"IMAGE": column(files)})["embedding"]
    np.testing.assert_allclose(got, expected[:16].reshape(len(got), -1), atol=1e-4)


def test_static_embeddings(client: GrpcClient, exported: Path) -> None:
    reference = json.loads((exported / "static" / "reference.json").read_text())
    texts, expected = [text.encode() for text in reference["texts"]], np.array(reference["answers"])
    assert b"" in texts
    many = client.infer("static", {"TEXT": column(texts * 5)})["embedding"]
    np.testing.assert_allclose(many, np.tile(expected, (5, 1)), atol=1e-5)
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda text: client.infer("static", {"TEXT": column([text])}), texts * 4))
    alone = np.concatenate([row["embedding"] for row in rows])
    np.testing.assert_allclose(alone, np.tile(expected, (4, 1)), atol=1e-5)
    nothing = client.infer("static", {"TEXT": column([b""] * 3)})["embedding"]
    np.testing.assert_array_equal(nothing, np.zeros((3, expected.shape[1])))


def test_preprocessing_of_timm(client: GrpcClient) -> None:
    files = image.images()
    made = np.load(TIMM / "center.npz")
    pixels = np.stack([made[name] for name in files])
    asked = {"IMAGE": column(list(files.values()))}
    got = client.infer("timm_preprocess", asked)["pixel_values"]
    np.testing.assert_allclose(got, pixels, rtol=0, atol=1e-6)
    logits = (pixels.astype(np.float64) ** 2).mean(axis=(2, 3)) @ tiny.weights(3, 4, seed=4)
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    answer = client.infer("timm", asked)
    np.testing.assert_allclose(answer["top_scores"], -np.sort(-scores, axis=1), atol=1e-5)
    assert answer["label"][:, 0].tolist() == [b"abcd"[n : n + 1] for n in scores.argmax(axis=1)]


@pytest.mark.parametrize("name", FACTORS)
def test_an_input_that_is_given_once(client: GrpcClient, exported: Path, name: str) -> None:
    reference = json.loads((exported / "minilm_pooled" / "reference.json").read_text())
    texts = [text.encode() for text in reference["texts"]]
    expected = np.array(reference["answers"]) * FACTORS[name][1]
    together = client.infer(name, {"TEXT": column(texts)})["embedding"]
    np.testing.assert_allclose(together, expected, atol=3e-4)
    alone = [client.infer(name, {"TEXT": column([text])})["embedding"] for text in texts]
    np.testing.assert_allclose(np.concatenate(alone), expected, atol=3e-4)


def test_constants_by_flag_and_by_file(exported: Path, tmp_path: Path) -> None:
    model = str(times(exported, tmp_path / "m", []))
    common = ("--output", str(tmp_path / "r"), "--instances", "1")
    named = call("build", "--model", model, "--task", "embedding", *common)
    assert named.returncode == Code.TASK_UNCLEAR.exit
    assert "fix: give it once, --constant factor=VALUE, or use --task tensor" in named.stderr
    wrong = call("build", "--model", model, "--constant", "factor=much", *common)
    assert wrong.returncode == Code.USAGE.exit
    assert "--constant: 'much' is not a value of input factor int64[]" in wrong.stderr
    trb("build", "--model", model, "--constant", "factor=2", *common)
    flagged = tiny.tree(tmp_path / "r")
    shutil.rmtree(tmp_path / "r")
    (tmp_path / "trb.toml").write_text(f'[build]\nmodel = "{model}"\nconstant = {{ factor = 2 }}\n')
    trb("build", "--config", str(tmp_path / "trb.toml"), *common)
    assert tiny.tree(tmp_path / "r") == flagged

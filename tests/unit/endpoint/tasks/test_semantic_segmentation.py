"""Semantic segmentation: the served code against whole interpolated planes, which transformers' rule is."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_images
from onnx import TensorProto
from PIL import Image

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks import semantic_segmentation
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce.build import Build
from triton_repo_builder.repository import cases
from triton_repo_builder.runtime.answers import semantic_segmentation as served

LABELS = {"0": "sky", "1": "road", "2": "Fußweg", "3": "tree"}
CONFIG = {
    "architectures": ["SegformerForSemanticSegmentation"],
    "model_type": "segformer",
    "id2label": LABELS,
}


def segmenter(folder: Path, **options: Any) -> Path:
    """Scores of 3 x 1 places."""
    return tiny_images.folder(folder, **{"rank": 4, "config": CONFIG, **options}) / "model.onnx"


def build(path: Path, **options: Any) -> Build:
    wheel = tiny_images.wheel(path.parents[1] / "pillow.whl")
    return tiny.make(path, path.parents[1] / "repository", pillow_wheel=(wheel,), device="cpu", **options)


def decoded(text: bytes) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text, validate=True)))


def smooth(labels: int, rows: int, columns: int) -> Any:
    """Scores with areas of one label, and places where many meet."""
    random = np.random.default_rng(labels)
    coarse = random.normal(size=(labels, (rows + 3) // 4, (columns + 3) // 4))
    fine = random.normal(size=(labels, rows, columns))
    return (np.kron(coarse, np.ones((4, 4)))[:, :rows, :columns] + fine / 4).astype(np.float32)


@pytest.mark.parametrize(
    ("labels", "places", "size"),
    [
        (4, (16, 16), (77, 131)),
        (4, (16, 12), (16, 12)),
        (7, (32, 32), (9, 50)),
        (2, (1, 1), (5, 3)),
        (3, (8, 8), (1, 1)),
        (3, (8, 5), (2000, 700)),
        (300, (8, 8), (40, 30)),
    ],
)
def test_the_label_of_each_pixel_is_that_of_the_interpolated_scores(
    labels: int, places: tuple[int, int], size: tuple[int, int]
) -> None:
    names = [f"thing {number}" for number in range(labels)]
    scores = smooth(labels, *places)
    answer = served.Answer({"labels": json.dumps(names)}, Path())
    got = answer.answer({"trb_scores": scores, "image_size": np.array(size)})
    expected, margin = semantic_segmentation.labelled(scores, size)
    image = decoded(got["label_map"][0])
    assert image.mode == ("I;16" if labels > 256 else "P")
    found = np.asarray(image)
    assert found.shape == size
    sure = margin > 1e-5
    assert sure.mean() > 0.99
    np.testing.assert_array_equal(found[sure], expected[sure])
    counts = np.bincount(found.ravel(), minlength=labels)
    assert [counts[number] for number in got["label_ids"]] == sorted(
        counts[counts > 0].tolist(), reverse=True
    )
    assert got["labels"] == [names[number].encode() for number in got["label_ids"]]
    np.testing.assert_allclose(got["shares"], counts[got["label_ids"]] / found.size)
    assert len(got["labels"]) > 1 or 1 in (*places, *size)


def test_the_palette_is_that_of_pascal_voc() -> None:
    answer = served.Answer({"labels": json.dumps(["a", "b", "c"])}, Path())
    scores = np.eye(3, dtype=np.float32)[:, None, :]
    image = decoded(answer.answer({"trb_scores": scores, "image_size": np.array([2, 3])})["label_map"][0])
    assert np.asarray(image).tolist() == [[0, 1, 2]] * 2
    assert np.asarray(image.convert("RGB"))[0].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0]]


@pytest.mark.parametrize(
    "options", [{}, {"dtype": TensorProto.FLOAT16}, {"batch": 1}, {"channels_last": True}]
)
def test_an_export_is_served_and_its_golden_cases_hold_the_map(
    options: dict[str, Any], tmp_path: Path
) -> None:
    made = build(segmenter(tmp_path / "scenes", **options), golden=True)
    smoke = next(file.content for file in made.files if file.path.endswith("smoke.json"))
    (tmp_path / "smoke.json").write_bytes(smoke)
    golden = cases.load(tmp_path / "smoke.json")
    first = golden.cases[0]
    outputs = {tensor.name: tensor for tensor in first.outputs}
    places = decoded(outputs["label_map"].data[0].encode())
    file = Image.open(io.BytesIO(first.inputs[0].data[0]))
    assert places.size == file.size
    assert set(np.unique(np.asarray(places))) <= {0, 1, 2, 3}
    assert golden.tolerance.alone < (0.1 if "dtype" in options else 0.01)
    config = tiny.config(made, "scenes")
    assert config.count("model_name") == 3
    assert "label_map" in config


def test_two_maps_differ_by_the_share_of_their_pixels() -> None:
    def tensor(places: Any) -> bytes:
        file = served.Png(*places.shape, 4)
        file.add(places)
        return base64.b64encode(file.end())

    one = np.zeros((10, 10), dtype=np.uint8)
    other = one.copy()
    other[2, 3] = 1
    case = cases.record("label_map", "BYTES", np.array([[tensor(one)]], dtype=object))
    for made, difference in ((one, 0.0), (other, 0.01), (one[:5], np.inf)):
        assert cases.difference(case, np.array([[tensor(made)]], dtype=object)) == difference
    cut = np.array([[tensor(one)[:60]]], dtype=object)
    assert cases.difference(case, cut) == np.inf


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "semantic-segmentation"),
        ({"config": {"id2label": LABELS}}, "semantic-segmentation"),
        ({"config": {"id2label": {"0": "a"}}}, "tensor"),
        ({"config": {**CONFIG, "architectures": ["ViTModel"]}}, "tensor"),
        ({"output": "last_hidden_state"}, "image-embedding"),
        ({"output": "conv2d_12"}, "semantic-segmentation"),
        ({"output": "conv2d_12", "config": {"id2label": LABELS}}, "tensor"),
    ],
)
def test_the_task_is_taken_if_the_graph_bears_it_out(
    options: dict[str, Any], named: str, tmp_path: Path
) -> None:
    task, reason = tasks.choose(reader.read_source(segmenter(tmp_path, **options)), None)
    assert named == task.NAME
    if named == "image-embedding":
        assert "optimum-cli export onnx --task semantic-segmentation" in reason


def test_other_labels_than_the_graphs_are_refused(tmp_path: Path) -> None:
    path = segmenter(tmp_path, config={**CONFIG, "id2label": {"0": "a", "1": "b"}})
    with pytest.raises(TrbError, match="names 2; the model has logits") as caught:
        semantic_segmentation.plan(reader.read_source(path), BuildOptions(model=path))
    assert caught.value.code is Code.TASK_UNCLEAR


def test_a_crop_is_said(tmp_path: Path) -> None:
    processor = {**tiny_images.PROCESSOR, "size": {"height": 10, "width": 10}, "crop_size": tiny_images.SIZE}
    processor = {key: value for key, value in processor.items() if key != "image_processor_type"}
    folder = segmenter(tmp_path / "m", processor=processor)
    made = build(folder, golden=False, preprocessor=folder.parent / "preprocessor_config.json")
    assert any("stretched to the whole image" in note for note in made.notes)

"""The image model as the server runs it, through the stand-in for ``triton_python_backend_utils``."""

from __future__ import annotations

import ast
import base64
import json
import shutil
import sys
from importlib import util
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import tiny_images
import triton_python_backend_utils as pb_utils
from PIL import Image

from triton_repo_builder.base import resources
from triton_repo_builder.endpoint.golden import image
from triton_repo_builder.runtime.image_pixels import (
    LARGEST,
    BadImage,
    Pixels,
    decode,
    resized,
)

SETTINGS = {
    "resize": {"height": 8, "width": 6},
    "resample": 2,
    "crop": None,
    "rescale": 1 / 255,
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.3, 0.4],
    "flip": False,
    "white": False,
    "jpeg": 0,
    "layout": "NCHW",
}


def pixels(data: bytes, **changed: Any) -> Any:
    return Pixels({**SETTINGS, **changed})(data)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A loaded model whose files lie as in a repository; its changes of sys.path are undone."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "image_pixels", raising=False)
    for name in ("image.py", "image_pixels.py", "metrics.py", "spans.py"):
        shutil.copyfile(resources.runtime(name), tmp_path / name.replace("image.py", "model.py"))
    (tmp_path / "preprocess.json").write_text(json.dumps(SETTINGS))
    spec = util.spec_from_file_location("image_model", tmp_path / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.TritonPythonModel()
    config = {"max_batch_size": 8, "output": [{"name": "pixel_values", "data_type": "TYPE_FP16"}]}
    pb_utils.MetricFamily.made.clear()
    made.initialize(
        {"model_config": json.dumps(config), "model_name": "vit_preprocess", "model_version": "1"}
    )
    yield made
    sys.modules.pop("image_pixels", None)


def request(*files: bytes) -> Any:
    array = np.empty((len(files), 1), dtype=object)
    array[:, 0] = files
    return pb_utils.InferenceRequest([pb_utils.Tensor("IMAGE", array)])


def test_requests_are_answered_apart(model: Any) -> None:
    sound, other = tiny_images.file(seed=1), tiny_images.file(seed=2, kind="JPEG")
    answers = model.execute([request(sound, other), request(sound, b"text"), request(other), request()])
    first = answers[0].output_tensors()[0]
    assert (first.name(), first.as_numpy().shape, first.as_numpy().dtype) == (
        "pixel_values",
        (2, 3, 8, 6),
        np.float16,
    )
    np.testing.assert_array_equal(first.as_numpy()[1], answers[2].output_tensors()[0].as_numpy()[0])
    assert answers[1].error().message() == (
        "image 1 of input 'IMAGE' is not a JPEG, PNG, WEBP, GIF, BMP file: not recognised"
    )
    assert answers[3].error().message() == "input 'IMAGE' has no image"


def test_files_are_counted(model: Any) -> None:
    good = tiny_images.file(seed=1)
    model.execute([request(good, good), request(good, b"text"), request(), request(b"")])
    model.execute([request(good)])
    model.finalize()
    page = pb_utils.MetricFamily.page(model="vit_preprocess", version="1")
    assert page["trb_files_total"] == page["trb_batch_rows_sum"] == 3
    assert page["trb_batch_rows_count"] == page['trb_phase_seconds_count{phase="decode"}'] == 2
    assert page['trb_refused_files_total{reason="unreadable"}'] == 1
    assert page['trb_refused_files_total{reason="empty"}'] == 2


def test_a_missing_pillow_is_named(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vendor" / "cp27").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "image_pixels")
    monkeypatch.setitem(sys.modules, "PIL", None)
    said = r"no Pillow for Python 3\.\d+ in vendor/ \(there: cp27\); build again with --pillow-wheel"
    with pytest.raises(RuntimeError, match=said):
        model.initialize.__globals__["load"](tmp_path)


def test_values_are_those_of_the_formula() -> None:
    data = tiny_images.file(6, 8)
    array = np.asarray(decode(data)).astype(np.float64)
    expected = (array / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    np.testing.assert_allclose(pixels(data), np.moveaxis(expected, 2, 0), atol=1e-6)
    np.testing.assert_allclose(pixels(data, layout="NHWC"), expected, atol=1e-6)
    np.testing.assert_allclose(pixels(data, flip=True), np.moveaxis(expected, 2, 0)[::-1], atol=1e-6)
    np.testing.assert_allclose(pixels(data, rescale=None, mean=None, std=None), np.moveaxis(array, 2, 0))
    assert pixels(data).dtype == np.float32


@pytest.mark.parametrize(
    ("size", "expected"), [((30, 20), (12, 8)), ((20, 30), (8, 12)), ((33, 10), (26, 8)), ((7, 7), (8, 8))]
)
def test_the_shorter_edge_is_set_and_the_other_follows(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert resized(size, {"shortest_edge": 8}) == expected


def test_an_image_keeps_its_shape_within_two_edges() -> None:
    from transformers.image_transforms import get_size_with_aspect_ratio
    from transformers.models.yolos.image_processing_pil_yolos import get_size_with_aspect_ratio_yolos

    random = np.random.default_rng(0)
    edges = [(40, 90), (40, 40), (33, 1_000), (800, 1_333)]
    for width, height in (*random.integers(20, 120, (300, 2)), (40, 40), (40, 90), (90, 40), (17, 900)):
        size = int(width), int(height)
        for shortest, longest in edges:
            target = {"shortest_edge": shortest, "longest_edge": longest}
            rows, columns = get_size_with_aspect_ratio(size[::-1], shortest, longest)
            assert resized(size, target) == (columns, rows), (size, target)
            rows, columns = get_size_with_aspect_ratio_yolos(size[::-1], shortest, longest)
            if rows and columns:
                assert resized(size, {**target, "multiple": 16}) == (columns, rows), (size, target)
    with pytest.raises(BadImage, match=r"is 1 x 900: too narrow, resized it would be 0 x \d+"):
        resized((1, 900), {"shortest_edge": 40, "longest_edge": 90})


@pytest.mark.parametrize("size", [(10, 10), (9, 13), (4, 20), (3, 3), (20, 5)])
def test_center_crop_is_that_of_transformers(size: tuple[int, int]) -> None:
    from transformers.image_transforms import center_crop

    data = tiny_images.file(*size)
    expected = center_crop(np.asarray(decode(data)), (7, 8), input_data_format="channels_last")
    got = pixels(data, resize=None, crop=[7, 8], rescale=None, mean=None, std=None)
    np.testing.assert_array_equal(got, np.moveaxis(expected, 2, 0))


def test_images_are_turned_and_made_rgb() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(tiny_images.file(20, 12, "JPEG", exif=exif)).size == (12, 20)
    for data in image.images().values():
        assert decode(data).mode == "RGB"


def test_what_a_palette_hides_becomes_white_where_asked() -> None:
    data = image.images()["palette.png"]
    plain, white = pixels(data, resize=None), pixels(data, resize=None, white=True)
    assert (plain != white).any()
    top = (1 - np.array([0.5, 0.4, 0.3])) / [0.2, 0.3, 0.4]
    np.testing.assert_allclose(white.max(axis=(1, 2)), top, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has no bytes"),
        (b"no image", "is not a JPEG, PNG, WEBP, GIF, BMP file: not recognised"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not a JPEG, PNG, WEBP, GIF, BMP file"),
        (tiny_images.file(kind="TIFF"), "is not a JPEG, PNG, WEBP, GIF, BMP file"),
        (tiny_images.file(60, 60, kind="JPEG")[:900], "is a damaged JPEG file: image file is truncated"),
        (tiny_images.file(60, 60)[:900], "is a damaged PNG file"),
    ],
)
def test_bytes_that_are_no_image(data: bytes, message: str) -> None:
    with pytest.raises(BadImage) as caught:
        pixels(data)
    assert str(caught.value).startswith(message)


def test_base64_as_json_carries_it() -> None:
    """As ``load_image`` of transformers: bare, in lines, and as a data URL."""
    data = tiny_images.file(20, 12)
    bare = base64.b64encode(data)
    for text in (bare, base64.encodebytes(data), b"data:image/png;base64," + bare):
        np.testing.assert_array_equal(pixels(text), pixels(data))
    with pytest.raises(BadImage, match="is a damaged PNG file"):
        pixels(base64.b64encode(tiny_images.file(60, 60)[:900]))
    with pytest.raises(BadImage, match="is not a JPEG"):
        pixels(b"data:text/plain,hello")


def test_images_that_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadImage, match="is 1 x 5000: too narrow, resized it would have 250,880,000 pixels"):
        resized((1, 5000), {"shortest_edge": 224})
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BadImage, match=f"has more than {LARGEST:,} pixels"):
        pixels(tiny_images.file(11, 10))  # a warning of Pillow's
    with pytest.raises(BadImage, match=f"has more than {LARGEST:,} pixels"):
        pixels(tiny_images.file(30, 10))  # an error of Pillow's


@pytest.mark.parametrize("name", ["image.py", "image_pixels.py", "spans.py"])
def test_it_needs_nothing_that_the_server_lacks(name: str) -> None:
    tree = ast.parse(resources.runtime(name).read_text(), feature_version=(3, 10))
    imported = set()
    for found in ast.walk(tree):
        if isinstance(found, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in found.names}
        elif isinstance(found, ast.ImportFrom) and found.module:
            imported.add(found.module.split(".")[0])
    ours = {
        "numpy",
        "PIL",
        "triton_python_backend_utils",
        "triton_repo_builder",
    }  # the last for type checkers
    assert imported <= sys.stdlib_module_names | ours


def test_it_is_not_ready_while_an_execution_is_stuck(model: Any) -> None:
    assert model.is_ready() is True
    model.busy._since = perf_counter() - 61
    assert model.is_ready() is False
    model.execute([request(b"no image")])
    assert model.is_ready() is True

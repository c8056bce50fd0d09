"""timm's config.json as preprocessing, against pixels that timm made (tests/models/timm_pixels.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_images

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.golden import image
from triton_repo_builder.endpoint.tasks.support import labels
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import image_processor, image_reference, timm_config
from triton_repo_builder.model.read.image_processor import ImageSpec
from triton_repo_builder.runtime.image_pixels import Pixels

MADE = Path(__file__).resolve().parents[3] / "data" / "timm"
CENTER = {"input_size": [3, 8, 8], "crop_pct": 0.8, "interpolation": "bicubic"}


def folder(
    path: Path, *, classes: int | None = 4, cfg: Any = CENTER, output: str = "output", **more: Any
) -> Path:
    """A graph with a timm config.json and no other file."""
    tiny_images.folder(path, output=output, config={})
    (path / "preprocessor_config.json").unlink()
    config = {"architecture": "resnet18", "num_classes": classes, "pretrained_cfg": cfg, **more}
    tiny.put_json(path / "config.json", config)
    return path


def read(place: Path) -> ImageSpec:
    file = image_processor.find(place / "model.onnx")
    assert file == place / "config.json"
    return image_processor.read(file)


@pytest.mark.parametrize("name", ["center", "squash", "defaults"])
def test_pixels_are_those_of_timm(name: str, tmp_path: Path) -> None:
    shutil.copyfile(MADE / f"{name}.json", tmp_path / "config.json")
    spec = read(tmp_path)
    assert spec.kind == "timm"
    served, reference = Pixels(spec.settings("NCHW")), image_reference.reference(spec)
    expected = np.load(MADE / f"{name}.npz")
    files = image.images()
    assert set(files) == set(expected)
    for file, data in files.items():
        np.testing.assert_allclose(served(data), expected[file], rtol=0, atol=1e-6, err_msg=file)
        np.testing.assert_allclose(reference(data), expected[file], rtol=0, atol=1e-6, err_msg=file)
    image_reference.prove(spec, list(files.values()))


@pytest.mark.parametrize("edge", [15, 16, 17, 18])
def test_half_a_pixel_beside_a_crop_is_rounded_to_even(edge: int) -> None:
    steps = {"resize": {"height": edge, "width": edge}, "resample": 0, "crop": [14, 14], "rescale": None}
    others = {"mean": None, "std": None, "jpeg": 0, "white": False, "flip": False, "layout": "NCHW"}
    data = tiny_images.file(edge, edge)
    whole = Pixels({**steps, **others, "crop": None})(data)
    start = {15: 0, 16: 1, 17: 2, 18: 2}[edge]  # torchvision's int(round((edge - 14) / 2.0))
    cut = Pixels({**steps, **others, "crop_rounds": True})(data)
    np.testing.assert_array_equal(cut, whole[:, start : start + 14, start : start + 14])
    plain = Pixels({**steps, **others})(data)
    np.testing.assert_array_equal(plain, whole[:, (edge - 14) // 2 :, (edge - 14) // 2 :][:, :14, :14])


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"crop_mode": "border"}, "the crop_mode 'border' is not supported"),
        ({"crop_pct": 1.2}, "a crop_pct of 1.2 is not supported, only a share of the image up to 1"),
        ({"input_size": [1, 28, 28]}, "its images have 1 channels instead of 3"),
        ({"input_size": [3, 8, 9]}, "images of 8 x 9, not a square, need the crop_mode squash"),
        ({"mean": [0.5]}, "its mean is not 3 numbers that can be: [0.5]"),
        ({"std": [0, 1, 1]}, "its std is not 3 numbers that can be: [0, 1, 1]"),
        ({"crop_pct": "0.9"}, "its crop_pct is not 1 numbers that can be: ['0.9']"),
        ({"input_size": 224}, "its input_size is not 3 numbers that can be: 224"),
        ({"interpolation": "random"}, "resample is 'random', not the number of one of Pillow's filters"),
        ({"input_size": [3, 9000, 9000]}, "a size of 10285 is not between 1 and 8192"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(cfg: dict[str, Any], message: str, tmp_path: Path) -> None:
    place = folder(tmp_path, cfg=cfg)
    with pytest.raises(TrbError) as caught:
        read(place)
    assert caught.value.code is Code.UNSUPPORTED_MODEL
    assert caught.value.message.startswith(f"timm's preprocessing cannot be followed: {message}")
    assert caught.value.where == str(place / "config.json")


def test_a_preprocessor_of_transformers_comes_first(tmp_path: Path) -> None:
    place = folder(tmp_path)
    own = tiny.put_json(tmp_path / "preprocessor_config.json", tiny_images.PROCESSOR)
    assert image_processor.find(place / "model.onnx") == own
    wrapper = {"image_processor_type": "TimmWrapperImageProcessor", "architecture": "resnet18"}
    tiny.put_json(own, {**wrapper, "pretrained_cfg": CENTER})
    assert image_processor.read(own).kind == "timm"


def test_a_config_without_images_is_none_of_timm(tmp_path: Path) -> None:
    for document in ({}, {"architecture": 3, "pretrained_cfg": {}}, {"pretrained_cfg": CENTER}, []):
        tiny.put_json(tmp_path / "config.json", document)
        assert image_processor.find(tmp_path / "model.onnx") is None
    older = {"architecture": "vit", "num_classes": 4, **CENTER, "mean": [0.5, 0.5, 0.5]}
    tiny.put_json(tmp_path / "config.json", older)
    assert read(tmp_path).crop == (8, 8)


def test_labels_and_tasks(tmp_path: Path, output: Path) -> None:
    names = ["cat", "dog", "Fußgänger", "tree"]
    source = reader.read_source(
        folder(tmp_path / "named", label_names=names, label_descriptions={"cat": "x"})
    )
    task, why = tasks.choose(source, None)
    assert (task.NAME, why) == ("image-classification", "")
    assert labels.named(source) == tuple(names)
    plain = folder(tmp_path / "plain")
    wheel = tiny_images.wheel(tmp_path / "p.whl")
    made = tiny.make(plain, output, golden=True, pillow_wheel=(wheel,))
    assert any(note.startswith("no labels found in config.json: they are called") for note in made.notes)
    settings = next(f.content for f in made.files if f.path == "plain_preprocess/1/preprocess.json")
    assert json.loads(settings)["crop_rounds"] is True
    recorded = next(f.content for f in made.files if f.path.endswith("smoke.json"))
    assert "the steps of timm's eval transform" in json.loads(recorded)["recorded_with"]
    features = reader.read_source(folder(tmp_path / "features", classes=0))
    assert tasks.choose(features, None)[0].NAME == "image-embedding"
    with pytest.raises(TrbError) as caught:
        tiny.make(folder(tmp_path / "few", label_names=["a"]), output)
    assert (caught.value.code, "labels: 1" in caught.value.message) == (Code.TASK_UNCLEAR, True)


def test_what_is_said_of_classes() -> None:
    assert timm_config.headless({"architecture": "x", "pretrained_cfg": {"num_classes": 0}})
    assert not timm_config.headless({"num_classes": 0})
    config = {"architecture": "x", "pretrained_cfg": CENTER, "label_names": [1, 2], "num_classes": 2}
    assert timm_config.described(config) == {**config, "num_labels": 2}

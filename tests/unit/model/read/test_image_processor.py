from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_images

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import image
from triton_repo_builder.model.read import image_processor, image_reference, transformers_library
from triton_repo_builder.model.read.image_processor import ImageSpec

WITHIN = {"shortest_edge": 48, "longest_edge": 200}
MEAN = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}


def read(folder: Path, **settings: Any) -> ImageSpec:
    return image_processor.read(tiny.put_json(folder / "preprocessor_config.json", settings))


@pytest.mark.parametrize(
    ("settings", "resize", "crop"),
    [
        ({"image_processor_type": "ViTImageProcessor", "size": 48}, {"height": 48, "width": 48}, None),
        ({"feature_extractor_type": "ViTFeatureExtractor", "size": 48}, {"height": 48, "width": 48}, None),
        ({"image_processor_type": "ViTImageProcessor"}, {"height": 224, "width": 224}, None),
        (
            {
                "image_processor_type": "ConvNextImageProcessor",
                "size": {"shortest_edge": 224},
                "crop_pct": 0.875,
            },
            {"shortest_edge": 256},
            (224, 224),
        ),
        (
            {
                "image_processor_type": "ConvNextImageProcessor",
                "size": {"shortest_edge": 384},
                "crop_pct": 0.875,
            },
            {"height": 384, "width": 384},
            None,
        ),
        (
            {"image_processor_type": "CLIPImageProcessor", "size": 32, "crop_size": 24},
            {"shortest_edge": 32},
            (24, 24),
        ),
        (
            {
                "image_processor_type": "BitImageProcessor",
                "size": {"shortest_edge": 32},
                "crop_size": {"height": 20, "width": 30},
            },
            {"shortest_edge": 32},
            (20, 30),
        ),
        (
            {
                "image_processor_type": "BitImageProcessor",
                "size": {"shortest_edge": 32},
                "do_center_crop": False,
            },
            {"shortest_edge": 32},
            None,
        ),
        (
            {"image_processor_type": "DetrImageProcessor", "size": WITHIN},
            WITHIN,
            None,
        ),
        (
            {"feature_extractor_type": "YolosFeatureExtractor", "size": WITHIN},
            {**WITHIN, "multiple": 16},
            None,
        ),
        ({"image_processor_type": "SiglipImageProcessor", "do_resize": False}, None, None),
        ({"size": [20, 30], "crop_size": 16, **MEAN}, {"height": 20, "width": 30}, (16, 16)),
        ({"image_processor_type": "MobileViTImageProcessor", "size": 32}, {"shortest_edge": 32}, (256, 256)),
    ],
)
def test_what_the_files_say(
    settings: dict[str, Any], resize: dict[str, int] | None, crop: tuple[int, int] | None, tmp_path: Path
) -> None:
    spec = read(tmp_path, **settings)
    assert (spec.resize, spec.crop) == (resize, crop)
    if resize is not None:
        files = list(image.images().values())
        assert {pixels.shape[0] for pixels in image_reference.prove(spec, files)} == {3}


def test_steps_that_are_left_out_are_left_out(tmp_path: Path) -> None:
    spec = read(tmp_path, image_processor_type="ViTImageProcessor", do_normalize=False, do_rescale=False)
    assert (spec.mean, spec.std, spec.rescale) == (None, None, None)
    plain = read(tmp_path, size=8)
    assert (plain.kind, plain.mean, plain.rescale, plain.flip, plain.white) == (
        "",
        None,
        1 / 255,
        False,
        False,
    )


def test_a_file_without_a_processor_is_taken_as_it_stands(tmp_path: Path) -> None:
    settings = {"size": 8, "do_rescale": False, "image_mean": [123, 117, 104], "do_flip_channel_order": True}
    spec = read(tmp_path, **settings)
    white = tiny_images.file(8, 8)
    pixels = image_reference.prove(spec, [white])
    from triton_repo_builder.runtime.image_pixels import decode

    expected = np.asarray(decode(white)).astype(np.float32)[:, :, ::-1] - [104, 117, 123]
    np.testing.assert_allclose(pixels[0], np.moveaxis(expected, 2, 0))


def test_an_image_may_have_to_go_through_a_jpeg_file(tmp_path: Path) -> None:
    files = list(image.images().values())
    spec = read(tmp_path, size=32, crop_size=24, jpeg_quality=75)
    stored, direct = (
        np.stack(image_reference.prove(one, files)) for one in (spec, read(tmp_path, size=32, crop_size=24))
    )
    assert np.abs(stored - direct).max() > 0.01
    named = read(tmp_path, image_processor_type="ViTImageProcessor", jpeg_quality=75)
    assert named.jpeg == 0  # transformers has no such step


def test_transformers_5_keeps_it_in_another_file(tmp_path: Path) -> None:
    document = {
        "processor_class": "CLIPProcessor",
        "image_processor": {"image_processor_type": "CLIPImageProcessor"},
    }
    tiny.put_json(tmp_path / "processor_config.json", document)
    found = image_processor.find(tmp_path / "model.onnx")
    assert found == tmp_path / "processor_config.json"
    assert image_processor.read(found).crop == (224, 224)
    tiny.put_json(tmp_path / "processor_config.json", {"processor_class": "LlavaProcessor"})
    assert image_processor.find(tmp_path / "model.onnx") is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"image_processor_type": "LevitImageProcessor"},
            "LevitImageProcessor does more than resize, crop, rescale and normalise",
        ),
        (
            {"image_processor_type": "EfficientNetImageProcessor"},
            "EfficientNetImageProcessor does more than resize, crop, rescale and normalise",
        ),
        ({"image_processor_type": "NoSuchProcessor"}, "transformers cannot load it: "),
        (
            {"size": {"longest_edge": 8}},
            "the preprocessing cannot be read: a size of longest_edge is not supported",
        ),
        ({"size": 8, "image_mean": [0.5]}, "the preprocessing cannot be read: 1 channels instead of 3"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TrbError) as caught:
        image_reference.prove(read(tmp_path, **settings), list(image.images().values()))
    assert caught.value.code == Code.UNSUPPORTED_MODEL
    assert caught.value.message.startswith(message)
    assert "--preprocessor" in caught.value.remedy


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(TrbError, match="is not readable JSON"):
        image_processor.find(tmp_path / "model.onnx")
    with pytest.raises(TrbError) as caught:
        image_processor.find(tmp_path / "model.onnx", tmp_path / "nowhere")
    assert caught.value.code == Code.NOT_FOUND


@pytest.mark.parametrize("resample", [3, 3.0, "bicubic", "BICUBIC", "PILImageResampling.BICUBIC"])
def test_a_file_without_a_processor_may_name_the_filter(resample: Any, tmp_path: Path) -> None:
    assert read(tmp_path, size=8, resample=resample).resample == 3
    if isinstance(resample, str):
        with pytest.raises(TrbError, match=r"not the number of one of Pillow's filters: .*3 bicubic"):
            read(tmp_path, image_processor_type="ViTImageProcessor", resample=resample)


def test_the_order_in_which_a_size_is_written_means_nothing(tmp_path: Path) -> None:
    spec = read(tmp_path, size={"width": 50, "height": 40})
    (pixels,) = image_reference.prove(spec, [tiny_images.file(8, 8)])
    assert pixels.shape == (3, 40, 50)


def test_a_crop_pct_that_the_class_does_not_read(tmp_path: Path) -> None:
    edges = {"size": {"shortest_edge": 32}, "crop_size": 24, "crop_pct": 0.875}
    spec = read(tmp_path, image_processor_type="CLIPImageProcessor", **edges)
    assert (spec.resize, spec.crop) == ({"shortest_edge": 32}, (24, 24))
    large = {"size": {"shortest_edge": 400}, "crop_size": 400, "crop_pct": 0.8}
    spec = read(tmp_path, image_processor_type="PoolFormerImageProcessor", **large)
    assert (spec.resize, spec.crop) == ({"shortest_edge": 500}, (400, 400))
    image_reference.prove(spec, list(image.images().values())[:2])


def test_keys_of_another_library_are_refused(tmp_path: Path) -> None:
    timm = {
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "interpolation": "bicubic",
        "fixed_input_size": False,
    }
    with pytest.raises(TrbError, match="without one there is no mean and no std and no interpolation"):
        read(tmp_path, size=8, **timm)


CLIP = {"size": 32, "crop_size": 24, "do_resize": True, "do_center_crop": True}


@pytest.mark.parametrize(
    ("config", "settings", "refused"),
    [
        ({"model_type": "clip"}, CLIP, True),
        ({"model_type": "clip"}, {**CLIP, "image_processor_type": "CLIPImageProcessor"}, False),
        ({"model_type": "vit"}, {"size": 32, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}, False),
        ({"model_type": "unheard of"}, CLIP, False),
        (None, CLIP, False),
    ],
)
def test_a_file_without_a_class_that_transformers_reads_otherwise(
    config: dict[str, Any] | None, settings: dict[str, Any], refused: bool, tmp_path: Path
) -> None:
    if config is not None:
        tiny.put_json(tmp_path / "config.json", config)
    spec, files = read(tmp_path, **settings), list(image.images().values())
    if not refused:
        image_reference.check_unnamed(spec, files)
        return
    with pytest.raises(TrbError, match="other pixels than CLIPImageProcessor") as caught:
        image_reference.check_unnamed(spec, files)
    assert '"image_processor_type": "CLIPImageProcessor"' in caught.value.remedy


def test_a_file_that_was_named_is_taken_as_it_stands(tmp_path: Path, output: Path) -> None:
    config = {"architectures": ["CLIPForImageClassification"], "model_type": "clip"}
    made = tiny_images.any_size(tmp_path / "m", processor=CLIP)
    stated = {**files.load_json((made / "config.json").read_bytes()), **config}
    tiny.put_json(made / "config.json", stated)
    wheel = tiny_images.wheel(tmp_path / "pillow.whl")
    with pytest.raises(TrbError, match="names no class"):
        tiny.make(made, output, pillow_wheel=(wheel,))
    tiny.make(made, output, pillow_wheel=(wheel,), preprocessor=made / "preprocessor_config.json")


@pytest.mark.parametrize(
    ("message", "packages"),
    [
        (
            "\nXProcessor requires the Torchvision library but it was not found in your environment. Check "
            "out the instructions on the\ninstallation page: https://x.org and follow the ones that match.\n",
            "pip install torch torchvision, or ",
        ),
        ("X requires PyTorch >= 2.6, but PyTorch was not found.", "pip install torch torchvision, or "),
        ("X requires the SciPy library but it was not found.", "pip install scipy, or "),
        ("Unrecognized image processor in /tmp/trb-model-x1/model. Name one of: " + "vit, " * 300, ""),
    ],
)
def test_a_library_that_is_missing_is_named_with_what_installs_it(
    message: str, packages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ImportError(message)

    monkeypatch.setattr(transformers_library, "from_pretrained", fail)
    with pytest.raises(TrbError) as caught:
        read(tmp_path, image_processor_type="XProcessor")
    shown = (
        " ".join(message.split()).replace("/tmp/trb-model-x1/model", str(tmp_path)).partition(" Name one")[0]
    )
    assert caught.value.message == f"transformers cannot load it: {shown}"
    assert caught.value.remedy.startswith(f"{packages}use --task tensor")

"""Images to test with, and the folders that tests/models/vision.py exports models into.

Run by the tests' own Python, which has Pillow and transformers' image processors, and no PyTorch.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = 64
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
HALF = [0.5, 0.5, 0.5]
CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": SIZE},
    "crop_size": {"height": SIZE, "width": SIZE},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
CONVNEXT = {"image_mean": MEAN, "image_std": STD, "resample": 3}
VIT = {"image_mean": HALF, "image_std": HALF, "resample": 2, "do_normalize": True, "do_resize": True}
PREPROCESSORS: dict[str, dict[str, Any]] = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": SIZE, "width": SIZE}, **VIT},
    "resnet": {
        "image_processor_type": "ConvNextImageProcessor",
        "size": {"shortest_edge": SIZE},
        "crop_pct": 0.875,
        **CONVNEXT,
    },
    # As older versions of transformers wrote them: a feature extractor, and numbers for sizes.
    "convnext": {
        "feature_extractor_type": "ConvNextFeatureExtractor",
        "size": SIZE,
        "crop_pct": 0.9,
        **CONVNEXT,
    },
    "vit_embed": {"feature_extractor_type": "ViTFeatureExtractor", "size": SIZE, **VIT},
    "vit_tokens": {
        "image_processor_type": "DeiTImageProcessor",
        "size": {"height": 72, "width": 72},
        "crop_size": {"height": SIZE, "width": SIZE},
        "do_center_crop": True,
        "resample": 3,
        "image_mean": MEAN,
        "image_std": STD,
    },
    "resnet_embed": {
        "image_processor_type": "ConvNextImageProcessor",
        "size": {"shortest_edge": SIZE},
        "crop_pct": 0.7,
        **CONVNEXT,
    },
    "clip_vision": CLIP,
}
TEXTS = ["a photo of a cat", "", "Two dogs, one ball!", "ein Haus am See", "naïve café 😀", "a " * 60]


def scene(width: int, height: int, seed: int) -> Image.Image:
    """Colours that no symmetry hides: a slope, noise and a disc."""
    rows, columns = np.mgrid[0:height, 0:width] / max(width, height)
    noise = np.random.default_rng(seed).integers(0, 90, (height, width, 3))
    colours = np.stack([columns * 200, rows * 200, 190 - 150 * columns * rows], axis=2) + noise
    colours[(rows - 0.2) ** 2 + (columns - 0.3) ** 2 < 0.03] = ((seed * 37) % 256, (seed * 91) % 256, 90)
    return Image.fromarray(colours.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def images() -> list[bytes]:
    """Image files of every mode, format and shape that users send."""
    made = []
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        made.append(encoded(scene(90, 60, orientation), "JPEG", exif=exif))
    shapes = [
        (64, 64),
        (63, 65),
        (128, 128),
        (31, 17),
        (5, 300),
        (300, 7),
        (1, 1),
        (640, 480),
        (65, 64),
        (900, 77),
    ]
    for number, (width, height) in enumerate(shapes):
        image = scene(width, height, 20 + number)
        made += [encoded(image, "JPEG", quality=90), encoded(image, "PNG")]
    for number, mode in enumerate(("L", "P", "RGBA", "LA", "1", "CMYK", "RGB", "YCbCr")):
        image = scene(100 + number, 80, 50 + number)
        turned = image.convert("L").convert("LA") if mode == "LA" else image.convert(mode)
        if mode in ("RGBA", "LA"):
            turned.putalpha(image.convert("L"))
        made.append(encoded(turned, "JPEG" if mode in ("CMYK", "YCbCr") else "PNG"))
    palette = scene(70, 90, 70).quantize(32)
    made.append(encoded(palette, "PNG", transparency=5))
    made.append(encoded(palette, "GIF"))
    made.append(encoded(scene(75, 60, 71), "BMP"))
    made.append(encoded(scene(75, 60, 72), "WEBP", quality=80))
    made.append(encoded(scene(75, 60, 73), "JPEG", progressive=True, quality=35))
    made.append(encoded(Image.fromarray(np.arange(5000, dtype=np.uint16).reshape(50, 100) * 13), "PNG"))
    frames = [scene(60, 50, 80), scene(60, 50, 81)]
    made.append(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    # What phones write: a JPEG with a second picture in it.
    made.append(encoded(frames[0], "MPO", save_all=True, append_images=frames[1:]))
    made += [encoded(scene(100 + 11 * n, 140 - 9 * n, 90 + n), "JPEG") for n in range(10)]
    return made


def pixels(folder: Path, files: list[bytes]) -> Any:
    """What transformers' own processor makes of them, one by one, as its pipelines do."""
    from transformers import AutoImageProcessor
    from transformers.image_utils import load_image

    processor = AutoImageProcessor.from_pretrained(str(folder), backend="pil")
    loaded = [load_image(Image.open(BytesIO(data))) for data in files]
    rows = [processor(images=image, return_tensors="np")["pixel_values"][0] for image in loaded]
    return np.stack(rows).astype(np.float32)


def make(folder: Path) -> None:
    """Every folder of a vision model, with what the processor makes of the images; the model is to come."""
    files = images()
    for name, settings in PREPROCESSORS.items():
        place = folder / name
        place.mkdir(parents=True)
        (place / "preprocessor_config.json").write_text(json.dumps(settings))
        (place / "config.json").write_text(json.dumps({"model_type": name.split("_")[0]}))
        np.save(place / "pixels.npy", pixels(place, files))
    clip_text(folder / "clip_text")
    (folder / "clip_both").mkdir()
    (folder / "clip_both" / "preprocessor_config.json").write_text(json.dumps(CLIP))


def clip_text(folder: Path) -> None:
    """A tokenizer like CLIP's: lower case, bytes, start and end tokens, padded with the end token."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    folder.mkdir(parents=True, exist_ok=True)
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|startoftext|>", "<|endoftext|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    )
    made.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>", special_tokens=[(special[0], 0), (special[1], 1)]
    )
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 40, "pad_token": special[1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    made.enable_truncation(40)
    made.enable_padding(pad_id=1, pad_token=special[1])
    rows = made.encode_batch(TEXTS)
    np.save(folder / "ids.npy", np.array([row.ids for row in rows], dtype=np.int64))
    np.save(folder / "mask.npy", np.array([row.attention_mask for row in rows], dtype=np.int64))

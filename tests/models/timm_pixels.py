"""Pixels that timm makes of the package's own images: tests/data/timm. Not part of ``make models``.

Runs in an environment of its own, with timm, torch and torchvision of one build (1.0.29, 2.13.0, 0.28.0):

    PYTHONPATH=. python -m tests.models.timm_pixels tests/data/timm
"""

import io
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from timm.data import create_transform, resolve_data_config

IMAGES = Path(__file__).resolve().parents[2] / "triton_repo_builder" / "golden" / "images"
CONFIGS = {
    "center": {"input_size": [3, 16, 16], "crop_pct": 0.77, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]},
    "squash": {
        "input_size": [3, 12, 17],
        "crop_pct": 0.9,
        "crop_mode": "squash",
        "interpolation": "bilinear",
    },
    "defaults": {"input_size": [3, 15, 15], "mean": None, "std": None},
}


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, config in CONFIGS.items():
        transform = create_transform(**resolve_data_config(pretrained_cfg=config), is_training=False)
        rows = {}
        for file in sorted(IMAGES.iterdir()):
            # Turned as EXIF says: trb follows load_image of transformers there, timm reads the file as it is.
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(file.read_bytes()))).convert("RGB")
            rows[file.name] = transform(image).numpy()
        np.savez_compressed(target / f"{name}.npz", **rows)
        document = {"architecture": "resnet18", "num_classes": 4, "pretrained_cfg": config}
        (target / f"{name}.json").write_text(json.dumps(document))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

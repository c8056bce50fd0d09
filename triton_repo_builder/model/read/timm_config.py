"""timm's config.json: the steps of ``timm.data.create_transform(is_training=False)``, and the labels.

https://github.com/huggingface/pytorch-image-models: timm/data/config.py and transforms_factory.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FILE = "config.json"
KIND = "timm"
NESTED = "pretrained_cfg"
INPUT_SIZE = (3, 224, 224)
CROP, INTERPOLATION = 0.875, "bicubic"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""timm's defaults, where a file says nothing."""


def settings(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Preprocessing in a config.json of timm, before 2022 beside the rest; empty for another file."""
    if not isinstance(document.get("architecture"), str):
        return {}
    if isinstance(nested := document.get(NESTED), dict):
        return nested
    older = "input_size" in document and "mean" in document and not document.get("architectures")
    return document if older else {}


def steps(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The steps in the words of ``ImageSpec``. Raises ValueError and the like for unsupported settings."""
    channels, height, width = map(int, _numbers(stated, "input_size", INPUT_SIZE))
    if channels != 3:
        raise ValueError(f"its images have {channels} channels instead of 3")
    (share,) = _numbers({"crop_pct": [stated.get("crop_pct") or CROP]}, "crop_pct", (CROP,))
    mode = str(stated.get("crop_mode") or "center")
    if not 0 < share <= 1:
        raise ValueError(f"a crop_pct of {share:.6g} is not supported, only a share of the image up to 1")
    if mode not in ("center", "squash"):
        raise ValueError(f"the crop_mode '{mode:.40}' is not supported")
    rows, columns = math.floor(height / share), math.floor(width / share)
    if mode == "center" and rows != columns:
        raise ValueError(f"images of {height} x {width}, not a square, need the crop_mode squash")
    return {
        "resize": {"shortest_edge": rows} if mode == "center" else {"height": rows, "width": columns},
        "crop": (height, width),
        "filter": str(stated.get("interpolation") or INTERPOLATION),
        "mean": _numbers(stated, "mean", MEAN),
        "std": _numbers(stated, "std", STD, least=1e-6),
    }


def _numbers(
    stated: Mapping[str, Any], key: str, usual: tuple[float, ...], least: float = -1e6
) -> tuple[float, ...]:
    """The numbers at ``key``, as many as usual. Raises ValueError with the key."""
    listed = stated.get(key) or usual
    numbers = [n for n in listed if type(n) in (int, float)] if isinstance(listed, list | tuple) else []
    if len(numbers) != len(usual) or not all(least <= number <= 1e6 for number in numbers):
        raise ValueError(f"its {key} is not {len(usual)} numbers that can be: {listed!s:.60}")
    return tuple(map(float, numbers))


def described(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """config.json with timm's labels in the words of transformers, as its TimmWrapperConfig has them."""
    if not settings(config):
        return config
    names = config.get("label_names") or settings(config).get("labels")
    listed = names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []
    count = config.get("num_classes")
    label_count: dict[str, Any] = {"num_labels": count} if isinstance(count, int) and count > 0 else {}
    return {**config, **label_count, **({"id2label": dict(enumerate(listed))} if listed else {})}


def headless(config: Mapping[str, Any]) -> bool:
    """Whether it is a model without classes, which gives its features."""
    stated = settings(config)
    return bool(stated) and config.get("num_classes", stated.get("num_classes")) == 0

"""Folders in which the pages' commands run: models where the pages have them."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support import docs_models, tiny_detectors, tiny_images, tiny_sounds
from tests.support.docs_blocks import ROOT

DATA = ROOT / "tests" / "data" / "models"
Maker = Callable[[Path], object]


def _sentiment(folder: Path) -> None:
    runpy.run_path(str(ROOT / "examples" / "sentiment" / "make_model.py"))["main"](folder)


def _october(folder: Path) -> None:
    """The model of another month: another opinion of each word, and a word more."""
    main = runpy.run_path(str(ROOT / "examples" / "sentiment" / "make_model.py"))["main"]
    names = main.__globals__
    names["WORDS"] = {**{word: weights[::-1] for word, weights in names["WORDS"].items()}, "fine": (2, -2)}
    main(folder)


SEGMENTER = {"architectures": ["SegformerForSemanticSegmentation"], "id2label": {"0": "sky", "1": "road"}}
MAKERS: Mapping[str, Maker] = {
    "sentiment": _sentiment,
    "october": _october,
    "small/detr": tiny_detectors.detr,
    "small/yolo": tiny_detectors.yolo,
    "small/segformer": lambda folder: tiny_images.folder(folder, rank=4, width=2, config=SEGMENTER),
    "small/clip": tiny_images.towers,
    "small/speech": tiny_sounds.recogniser,
    **docs_models.MAKERS,
}
"""Models that are written here; other names are folders of tests/data/models, or of this checkout."""
FETCHED = {"minilm": "minilm_int8", "weights": "minilm_weights", "nsfw": "open_nsfw"}
"""Real models, by fixtures of tests/conftest.py."""


def prepare(folder: Path, models: Mapping[str, str], fixture: Callable[[str], Path]) -> None:
    """Put each model where the page has it."""
    for place, source in models.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source in MAKERS:
            MAKERS[source](target)
            continue
        path = fixture(FETCHED[source]) if source in FETCHED else DATA / source
        path = path if path.exists() else ROOT / source
        if path.is_dir():
            ignored = ("reference.*",) if DATA in path.parents else ("vendor", "__pycache__")
            shutil.copytree(path, target, ignore=shutil.ignore_patterns(*ignored), dirs_exist_ok=True)
        else:
            shutil.copyfile(path, target)

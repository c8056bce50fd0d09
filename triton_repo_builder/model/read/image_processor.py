"""preprocessor_config.json → the steps that turn an image into the model's input.

The files of transformers' image processors differ from version to version (a number for a size, names of
feature extractors), and missing keys have a default of each class: so transformers reads them. A file that
names no processor is taken literally. image_reference.py runs the served code beside transformers'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import timm_config, tokenizer, transformers_library

FILE = "preprocessor_config.json"
FILES = (FILE, "processor_config.json")
"""The second is transformers 5's, which keeps the parts of a processor in one file."""
PARTS = ("image_processor", "feature_extractor")
"""The parts of such a file for images and for audio."""
LONGEST_EDGE = 8192
"""Pixels: a larger image is a mistake in the file, and takes all memory."""
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's resampling filters, by number."""
KEYS = (
    *("size", "crop_size", "crop_pct", "default_to_square", "resample", "jpeg_quality", "rescale_factor"),
    *("image_mean", "image_std", "do_resize", "do_center_crop", "do_rescale", "do_normalize"),
    *("do_flip_channel_order", "do_convert_rgb", "do_reduce_labels", "data_format", "processor_class"),
)
"""Keys that a file without a class may have."""
CUT = ("ConvNext", "PoolFormer")
"""Classes that read ``crop_pct``; the first stretches large images to a square."""
STRETCHED = 384
"""Edge in pixels from which on ConvNeXt stretches images."""
BLOCKS = ("Yolos", 16)
"""Classes whose edges are multiples of a number, where an image keeps its shape."""
TYPES = ("image_processor_type", "feature_extractor_type")


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """One preprocessing, in the order of its steps. None: the step is left out."""

    file: Path
    kind: str
    """The class that the file names, or empty."""
    resize: Mapping[str, int] | None
    """``shortest_edge``, perhaps with ``longest_edge`` and ``multiple``, or ``height`` and ``width``."""
    resample: int
    """Pillow's number of the filter."""
    crop: tuple[int, int] | None
    """Height and width."""
    rescale: float | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    flip: bool
    """BGR instead of RGB."""
    white: bool
    """Whether areas hidden by transparency of a palette or a colour become white."""
    converts: bool = False
    """Whether transformers makes images RGB itself, which its releases do not all do alike."""
    jpeg: int = 0
    """Quality of a JPEG file that the resized image is written to and read from; 0: it is not."""
    letterbox: tuple[int, int] | None = None
    """Height and width that the image is fitted into, with grey around it, in place of resize and crop."""
    crop_rounds: bool = False
    """Whether half a pixel at the edge of a crop is rounded to even; transformers drops it."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of every image afterwards; None if they depend on the image."""
        if self.crop is not None or self.letterbox is not None:
            return self.crop or self.letterbox
        if self.resize is not None and "height" in self.resize:
            return self.resize["height"], self.resize["width"]
        return None

    def version_note(self, made_by: str) -> str:
        """A note if the release of transformers that made the model reads transparent images otherwise."""
        installed = transformers_library.version()
        if not self.converts or not made_by or made_by.split(".")[0] == installed.split(".")[0]:
            return ""
        place = "becomes white" if self.white else "is ignored"
        return (
            f"the transparency of a palette or a colour {place}, as in transformers {installed} (installed); "
            f"config.json names {made_by}, and 5 and 4 differ in that"
        )

    def settings(self, layout: str) -> dict[str, Any]:
        """Content of ``preprocess.json``, which the served code reads; ``layout`` is NCHW or NHWC."""
        return {
            "resize": dict(self.resize) if self.resize is not None else None,
            "resample": self.resample,
            "crop": list(self.crop) if self.crop is not None else None,
            "rescale": self.rescale,
            "mean": list(self.mean) if self.mean is not None else None,
            "std": list(self.std) if self.std is not None else None,
            "flip": self.flip,
            "white": self.white,
            "jpeg": self.jpeg,
            "layout": layout,
            **({"letterbox": list(self.letterbox)} if self.letterbox else {}),
            **({"crop_rounds": True} if self.crop_rounds else {}),
        }


def find(model: Path, named: Path | None = None, original: Path | None = None) -> Path | None:
    """The file beside the model at ``model``, or the one that was named. Raises ``TrbError`` NOT_FOUND.

    ``original``: the folder of the model that was exported, if given.
    """
    if named is None:
        folders = (*tokenizer.places(model.parent), *((original,) if original else ()))
        places = [containment.within(place, name) for place in folders for name in FILES]
    elif named.is_dir():
        places = [containment.within(named, name) for name in FILES]
    else:
        places = [named] if files.is_file(named) else []
    file = next((file for file in places if file and any(part(file, name) for name in PARTS)), None)
    if file is None and named is None:
        beside = (containment.within(place, timm_config.FILE) for place in folders)
        file = next((file for file in beside if file and timm_config.settings(_document(file))), None)
    if file is None and named is not None:
        raise TrbError(
            Code.NOT_FOUND,
            f"no {FILE} there",
            where=str(named),
            remedy="check the path given to --preprocessor",
        )
    return file


def read(file: Path) -> ImageSpec:
    """The preprocessing that a file describes. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    raw = _json(file)
    if stated := timm_config.settings(raw):
        return _timm(file, stated)
    kind = next((str(raw[key]) for key in TYPES if raw.get(key)), "")
    try:
        values = processor(file).to_dict() if kind else raw
        return _spec(file, kind, values)
    except KeyError as error:
        raise refused(file, f"{kind or 'the preprocessing'} cannot be read: it has no {error}") from None
    except files.DAMAGED as error:
        raise refused(file, f"{kind or 'the preprocessing'} cannot be read: {error}") from None


def _timm(file: Path, stated: Mapping[str, Any]) -> ImageSpec:
    """The preprocessing that timm describes. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    try:
        steps = timm_config.steps(stated)
        return ImageSpec(
            file=file,
            kind=timm_config.KIND,
            resize=_size(steps["resize"], square=True),
            resample=_filter(steps["filter"], by_name=True),
            crop=steps["crop"],
            rescale=1 / 255,
            mean=steps["mean"],
            std=steps["std"],
            flip=False,
            white=False,
            crop_rounds=True,
        )
    except files.DAMAGED as error:
        raise refused(file, f"timm's preprocessing cannot be followed: {error}") from None


def letterboxed(file: Path, size: tuple[int, int]) -> ImageSpec:
    """The preprocessing of a model that Ultralytics exported, whose file says only the size."""
    return ImageSpec(
        file=file,
        kind="LetterBox",
        resize=None,
        resample=2,
        crop=None,
        rescale=1 / 255,
        mean=None,
        std=None,
        flip=False,
        white=False,
        letterbox=size,
    )


def _json(file: Path) -> dict[str, Any]:
    """The image processor's part of a file, or empty."""
    return part(file, "image_processor")


def _document(file: Path) -> dict[str, Any]:
    """A JSON object, or empty."""
    try:
        document = files.load_json(files.read(file, files.LARGEST_DOCUMENT))
    except (OSError, *files.DAMAGED):
        return {}
    return document if isinstance(document, dict) else {}


def part(file: Path, name: str) -> dict[str, Any]:
    """One part of a processor, or empty. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    try:
        document = files.load_json(files.read(file, files.LARGEST_DOCUMENT))
        return dict(document if file.name != FILES[1] else document.get(name) or {})
    except (OSError, *files.DAMAGED) as error:
        raise refused(file, f"is not readable JSON: {error}") from None


def _spec(file: Path, kind: str, values: Mapping[str, Any]) -> ImageSpec:
    resize, crop = None, None
    unknown = [key for key, value in values.items() if value and key not in KEYS and key[:1] != "_"]
    if unknown and not kind:
        raise ValueError(f"it names no class, and without one there is no {' and no '.join(unknown[:4])}")
    if values.get("do_resize", "size" in values and not kind):
        resize = _size(values["size"], square=values.get("default_to_square", True), named=bool(kind))
        if "longest_edge" in resize and kind.startswith(BLOCKS[0]):
            resize["multiple"] = BLOCKS[1]
    if values.get("do_center_crop", "crop_size" in values and not kind):
        crop_size = _size(values["crop_size"], square=True)
        crop = crop_size["height"], crop_size["width"]
    cuts = not kind or kind.startswith(CUT)
    if cuts and resize is not None and "shortest_edge" in resize and values.get("crop_pct"):
        # ConvNeXT: small sizes are cut out of a larger image, large ones are stretched to a square.
        edge = resize["shortest_edge"]
        if edge < STRETCHED or kind.startswith(CUT[1]):
            resize, crop = {"shortest_edge": int(edge / values["crop_pct"])}, crop or (edge, edge)
        else:
            resize = {"height": edge, "width": edge}
    normalise = values.get("do_normalize", "image_mean" in values and not kind)
    factor = values.get("rescale_factor", 1 / 255)
    return ImageSpec(
        file=file,
        kind=kind,
        resize=resize,
        resample=_filter(values.get("resample"), by_name=not kind),
        crop=crop,
        rescale=float(factor) if values.get("do_rescale", not kind) else None,
        mean=_channels(values["image_mean"]) if normalise else None,
        std=_channels(values.get("image_std", 1.0)) if normalise else None,
        flip=bool(values.get("do_flip_channel_order")),
        white=(converts := bool(values.get("do_convert_rgb")) and bool(kind)) and _makes_white(),
        converts=converts,
        jpeg=0 if kind else int(values.get("jpeg_quality", 0)),
    )


def _filter(stated: Any, *, by_name: bool) -> int:
    """Pillow's number of a filter; with ``by_name`` its name is accepted, too, which transformers refuses."""
    if stated is None:
        return 2
    name = str(stated).rsplit(".", 1)[-1].lower() if isinstance(stated, str) else ""
    if name in FILTERS and by_name:
        return FILTERS.index(name)
    if isinstance(stated, (int, float)) and stated in range(len(FILTERS)):
        return int(stated)
    numbers = ", ".join(f"{number} {name}" for number, name in enumerate(FILTERS))
    raise ValueError(f"resample is {stated!r:.60}, not the number of one of Pillow's filters: {numbers}")


def _makes_white() -> bool:
    """Whether this transformers lays transparent images on white (5 does, 4 forgets the transparency)."""
    from PIL import Image

    clear = Image.new("RGB", (1, 1))
    clear.info["transparency"] = (0, 0, 0)
    return bool(np.asarray(transformers_library.load("image_transforms").convert_to_rgb(clear)).max() == 255)


def _size(stated: Any, *, square: bool, named: bool = False) -> dict[str, int]:
    if isinstance(stated, int):
        size = {"height": stated, "width": stated} if square else {"shortest_edge": stated}
    elif isinstance(stated, (list, tuple)):
        size = {"height": int(stated[0]), "width": int(stated[1])}
    else:
        size = {key: int(value) for key, value in dict(stated).items() if value}
    if wrong := [value for value in size.values() if not 0 < value <= LONGEST_EDGE]:
        raise ValueError(f"a size of {wrong[0]:.6g} is not between 1 and {LONGEST_EDGE}")
    edges = {"shortest_edge", "longest_edge"}
    if size.keys() == edges and not named:
        raise ValueError("a longest_edge needs the class of the processor, for they do not round alike")
    if size.keys() not in (edges, {"shortest_edge"}, {"height", "width"}):
        raise ValueError(f"a size of {', '.join(map(str, size)) or 'nothing'} is not supported")
    return size


def _channels(value: Any) -> tuple[float, ...]:
    numbers = tuple(map(float, value)) if isinstance(value, (list, tuple)) else (float(value),) * 3
    if len(numbers) != 3:
        raise ValueError(f"{len(numbers)} channels instead of 3")
    return numbers


def processor(file: Path) -> Any:
    """transformers' own image processor of a file. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    # The PIL processors are what the model cards' numbers were made with; torchvision's differ in resizing.
    choice = (
        {"backend": "pil"} if int(transformers_library.version().split(".")[0]) >= 5 else {"use_fast": False}
    )
    try:
        where = file.parent if file.name in FILES else file
        return transformers_library.from_pretrained("AutoImageProcessor", where, **choice)
    except TrbError:
        raise
    except Exception as error:
        reason = transformers_library.reason(error, file.parent)
        packages = transformers_library.lacking(error)
        raise refused(file, f"transformers cannot load it: {reason}", packages) from None


def refused(file: Path, message: str, packages: str = "") -> TrbError:
    """UNSUPPORTED_MODEL on a preprocessing; ``packages``: what to install, to read it."""
    install = f"pip install {packages}, or " if packages else ""
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        message,
        where=str(file),
        remedy=f"{install}use --task tensor and send pixel_values, or describe the steps in a file of your "
        "own (docs/images.md) and name it with --preprocessor",
    )

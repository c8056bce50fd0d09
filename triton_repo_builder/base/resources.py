"""Files of the project: templates/, docker/ and the package's data, installed or in a checkout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

PACKAGE = Path(__file__).resolve().parents[1]
GOLDEN = PACKAGE / "endpoint" / "golden"


def templates() -> Path:
    """The folder of Jinja templates."""
    return _folder("templates")


def docker() -> Path:
    """The folder with the Dockerfile of the slim image."""
    return _folder("docker")


def _folder(name: str) -> Path:
    """A top-level folder of the project. An editable install has no copy in the package."""
    for folder in (PACKAGE / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"{name}/ is neither in {PACKAGE} nor beside it: the installation is broken")


def runtime(name: str) -> Path:
    """The source of a model that runs inside the server, e.g. ``tokenizer.py``."""
    return PACKAGE / "runtime" / name


def onnxruntime_backend() -> dict[str, Path]:
    """The files of our onnxruntime backend by their names in its folder."""
    files = {path.name: path for path in runtime("onnxruntime_backend").glob("*.py")}
    files |= {name: runtime(name) for name in ("metrics.py", "answer_metrics.py")}
    return dict(sorted(files.items()))


IMAGE, AUDIO = "IMAGE", "AUDIO"
"""Inputs that take files, by the names that ``trb build`` gives them."""
_SAMPLES = {IMAGE: GOLDEN / "images", AUDIO: GOLDEN / "sounds"}
_SUFFIXES = (".png", ".jpg", ".flac", ".wav", ".ogg")


@cache
def samples(field: str) -> Mapping[str, bytes]:
    """Images or sounds for an input of that name, name → file, the smallest first; none for any other."""
    folder = _SAMPLES.get(field)
    paths = [path for path in folder.iterdir() if path.suffix in _SUFFIXES] if folder else []
    contents = {path.name: path.read_bytes() for path in paths}
    return MappingProxyType(dict(sorted(contents.items(), key=lambda item: (len(item[1]), item[0]))))

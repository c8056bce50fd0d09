"""Modules of a package, by its requirement: pip often installs a module of another name."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import unreadable

MODULES = {
    "attrs": "attr attrs",
    "beautifulsoup4": "bs4",
    "faiss-cpu": "faiss",
    "faiss-gpu": "faiss",
    "ffmpeg-python": "ffmpeg",
    "grpcio": "grpc",
    "nvidia-pytriton": "pytriton",
    "onnxruntime-gpu": "onnxruntime",
    "opencv-contrib-python": "cv2",
    "opencv-contrib-python-headless": "cv2",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "pillow-simd": "PIL",
    "protobuf": "google",
    "psycopg2-binary": "psycopg2",
    "pycryptodome": "Crypto",
    "pyjwt": "jwt",
    "pymupdf": "fitz pymupdf",
    "python-dateutil": "dateutil",
    "python-dotenv": "dotenv",
    "python-levenshtein": "Levenshtein",
    "python-magic": "magic",
    "python-multipart": "multipart",
    "pyturbojpeg": "turbojpeg",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
    "setuptools": "setuptools pkg_resources",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
}
"""Packages whose modules have other names."""
_FAMILIES = {"cupy-cuda": "cupy", "google-cloud-": "google", "azure-": "azure", "nvidia-dali-": "nvidia"}
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_EGG = re.compile(r"[#&]egg=([\w.-]+)")


def of_file(file: Path) -> set[str]:
    """Modules of a requirements.txt and of the files that it includes. Raises USAGE if one is not text."""
    seen, waiting, names = {file}, [file], set[str]()
    while waiting:
        listed = waiting.pop()
        for line in _text(listed).splitlines():
            include = _INCLUDE.match(line.strip())
            further = listed.parent / include[1] if include else listed
            if further not in seen and further.is_file():
                seen.add(further)
                waiting.append(further)
            names |= modules(line)
    return names


def modules(line: str) -> set[str]:
    """The modules of a requirement: ``scikit-learn==1.5 ; …`` is ``sklearn``."""
    line = line.strip()
    egg = _EGG.search(line)
    name = egg[1] if egg else re.split(r"[\s=<>!~;\[@#]", line, maxsplit=1)[0]
    if not name or name.startswith("-"):
        return set()
    plain = re.sub(r"[-_.]+", "-", name).lower()
    if plain in MODULES:
        return {*MODULES[plain].split()}
    family = next((module for start, module in _FAMILIES.items() if plain.startswith(start)), "")
    top_level = name.partition(".")[0].replace("-", "_")
    return {top_level, top_level.lower(), family} - {""}


def _text(file: Path) -> str:
    """The text of a file; PowerShell writes UTF-16, and some editors a mark in front."""
    try:
        content = files.read(file)
    except OSError as error:
        raise unreadable(file, error) from None
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        remedy = "write it as UTF-8"
        raise TrbError(Code.USAGE, f"is no text: {error.reason}", where=str(file), remedy=remedy) from None

"""Pillow as files for the image model, one folder for each Python that may run it.

Unlike those of ``tokenizers`` its shared libraries are made for one Python version. For this process they are
taken from the installed Pillow; for the target release, if its Python is another, from a wheel: one that the
user names, else the one pinned in ``wheels.toml``, fetched once.
"""

from __future__ import annotations

import re
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File, load_toml
from triton_repo_builder.endpoint.render.vendor_tokenizers import (
    ABOUT,
    UNREADABLE,
    check_archive,
    described,
    linux_x86_64,
)

PACKAGES = ("PIL/", "pillow.libs/")
# Fonts, AVIF, colour profiles and Tk: none is needed to read and resize an image, and they are half of it.
LEFT_OUT = re.compile(
    r"(^PIL/(_avif|_imagingft|_imagingcms|_imagingtk)\.)"
    r"|(^pillow\.libs/lib(avif|freetype|harfbuzz|brotli|lcms2|png))"
)
CORE = re.compile(r"PIL/_imaging\.cpython-(\d+)-x86_64-linux-gnu\.so")
PINS = Path(__file__).with_name("wheels.toml")


def pillow(target: str, release_python: str, wheels: Sequence[Path] = ()) -> list[File]:
    """Pillow under ``target``/cp310 and the like: for this Python, and for the release's, e.g. ``3.10``.

    Raises ``TrbError``: USAGE for an unusable wheel, DOWNLOAD_FAILED.
    """
    by_tag: dict[str, list[File]] = {}
    for wheel in wheels:
        tag, content = _from_wheel(wheel)
        by_tag[tag] = [File(path=f"{target}/{tag}/{file.path}", content=file.content) for file in content]
    own_tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if own_tag not in by_tag:
        by_tag[own_tag] = _installed(f"{target}/{own_tag}")
    released = "cp" + release_python.replace(".", "")
    if released not in by_tag:
        _, content = _from_wheel(fetched(release_python))
        by_tag[released] = [
            File(path=f"{target}/{released}/{file.path}", content=file.content) for file in content
        ]
    return [file for tag in sorted(by_tag) for file in by_tag[tag]]


def differing_versions(files: Sequence[File]) -> str:
    """A note if the Pythons get different versions of Pillow; empty if not."""
    versions = {}
    for file in files:
        if file.path.endswith("/PIL/_version.py"):
            content = file.source.read_bytes() if file.source else file.content
            version = re.search(rb'__version__ = "([^"]+)"', content)
            versions[file.path.split("/")[-3]] = version[1].decode() if version else "unknown"
    if len(set(versions.values())) < 2:
        return ""
    listed = ", ".join(f"{version} for {tag}" for tag, version in sorted(versions.items()))
    return f"different versions of Pillow ({listed}) may resize to slightly different pixels"


def _is_vendored(name: str) -> bool:
    if name.startswith("pillow-"):
        return bool(ABOUT.search(name)) and ".." not in name.split("/")
    return (
        name.startswith(PACKAGES)
        and name.endswith((".py", ".so")) | (".so." in name)
        and not LEFT_OUT.search(name)
        and ".." not in name.split("/")
    )


def _installed(target: str) -> list[File]:
    import PIL

    root = Path(PIL.__file__).parent.parent
    names = sorted(
        path.relative_to(root).as_posix() for package in PACKAGES for path in (root / package).rglob("*")
    )
    core = next((name for name in names if CORE.fullmatch(name)), None)
    if core is None or not linux_x86_64(files.read(root / core)[:20]):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "the installed Pillow is not built for Linux x86-64",
            where=str(root / "PIL"),
            remedy=_remedy(f"{sys.version_info.major}.{sys.version_info.minor}"),
        )
    code = [File(path=f"{target}/{name}", source=root / name) for name in names if _is_vendored(name)]
    return [*code, *described("pillow", target)]


def _from_wheel(wheel: Path) -> tuple[str, list[File]]:
    """The wheel's Python, e.g. ``cp310``, and its files."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            check_archive(archive)
            names = sorted(name for name in archive.namelist() if _is_vendored(name))
            content = [File(path=name, content=archive.read(name)) for name in names]
    except UNREADABLE as error:
        raise TrbError(
            Code.USAGE, f"not a wheel: {error}", where=str(wheel), remedy=_remedy("3.10")
        ) from None
    for file in content:
        match = CORE.fullmatch(file.path)
        if match and linux_x86_64(file.content[:20]):
            return f"cp{match[1]}", content
    raise TrbError(
        Code.USAGE, "holds no Pillow for Linux x86-64 with glibc", where=str(wheel), remedy=_remedy("3.10")
    )


def fetched(python: str) -> Path:
    """The pinned wheel for another Python, e.g. ``3.10``, from the cache or from pip's index.

    Raises ``TrbError``: UNSUPPORTED_MODEL where none is pinned, DOWNLOAD_FAILED.
    """
    pin = _pins().get("cp" + python.replace(".", ""))
    if pin is None:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"no Pillow is pinned for Python {python}",
            where="--pillow-wheel",
            remedy=_remedy(python),
        )
    kept = transfer.cache_folder() / "wheels" / str(pin["file"])
    if kept.is_file() and files.hash_file(kept) == pin["sha256"]:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    platforms = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        wheel = transfer.wheel(
            f"pillow=={pin['version']}",
            pin["sha256"],
            Path(scratch),
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", python),
            *(word for platform in platforms for word in ("--platform", platform)),
            label=f"Pillow {pin['version']} for the server's Python {python}",
            remedy=_remedy(python),
        )
        wheel.replace(kept)
    return kept


def _pins() -> dict[str, Any]:
    return dict(load_toml(files.read_text(PINS)))


def _remedy(python: str) -> str:
    return (
        "fetch the server's wheel with: pip download pillow --no-deps --only-binary=:all: "
        f"--platform manylinux_2_28_x86_64 --python-version {python}, and name it with --pillow-wheel"
    )

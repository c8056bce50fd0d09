"""The wheels that go into the image: picked from a folder, or downloaded on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from triton_repo_builder.base import process, resources, transfer
from triton_repo_builder.base.errors import Code, TrbError

PLATFORMS = ("manylinux_2_35_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")
"""nvidia-pytriton needs the first; pip takes only platforms that it is given."""
PYTHON = "3.11"
"""Python of the default base image, Debian 12."""
GATEWAY = "requirements-gateway.txt"
TIMEOUT = 900.0
"""Seconds for some 150 MB."""


def pinned(*, gateway: bool = False) -> list[str]:
    """``name==version`` of every package in the image, with the gateway's or without."""
    names = ("requirements.txt", *([GATEWAY] if gateway else []))
    texts = [(resources.docker() / name).read_text(encoding="utf-8") for name in names]
    return [line for text in texts for line in text.splitlines() if "==" in line]


def pick(folder: Path, pins: list[str]) -> list[Path]:
    """The wheels of these pins; of several for one package pip chooses. Raises ``TrbError``."""
    paths, missing = _split(folder, pins)
    if missing:
        raise TrbError(
            Code.NOT_FOUND,
            f"has no wheel of {', '.join(missing)}",
            where=str(folder),
            remedy=command(folder, packages=missing),
        )
    return paths


def download(python: str, pins: list[str]) -> Path:
    """A folder with the wheels for this Python, from the cache or from pip's index. Raises ``TrbError``."""
    folder = transfer.cache_folder() / "image-wheels" / f"cp{python.replace('.', '')}"
    missing = _split(folder, pins)[1]
    if not missing:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        try:
            process.run([*transfer.pip(), *arguments(part, python), *missing], timeout=TIMEOUT)
        except (process.ProcessFailed, OSError) as error:
            reason = error.stderr or str(error) if isinstance(error, process.ProcessFailed) else str(error)
            raise TrbError(
                Code.DOWNLOAD_FAILED,
                f"pip fails in the container and on this machine: {reason.strip().splitlines()[-1]}",
                remedy=f"where pip reaches an index: {command('wheels', python, pins)}; then --wheels wheels",
            ) from None
        for wheel in Path(part).glob("*.whl"):
            wheel.replace(folder / wheel.name)
    return folder


def arguments(folder: Path | str, python: str) -> list[str]:
    """Arguments of pip: wheels for the image's Python, not for this one."""
    platforms = [argument for platform in PLATFORMS for argument in ("--platform", platform)]
    options = ["download", "--no-deps", "--only-binary=:all:", "--python-version", python, *platforms]
    return [*options, "-d", str(folder)]


def command(folder: Path | str, python: str = PYTHON, packages: list[str] | None = None) -> str:
    """The command with which a user downloads the wheels."""
    return " ".join(["pip", *arguments(folder, python), *(packages or pinned())])


def _split(folder: Path, pins: list[str]) -> tuple[list[Path], list[str]]:
    """Paths of the pinned wheels in a folder, and pins without one."""
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    paths, missing = [], []
    for pin in pins:
        name, _, version = pin.partition("==")
        start = f"{name.replace('-', '_')}-{version}-"
        matches = [path for path in wheels if path.name.lower().startswith(start)]
        paths += matches
        missing += [pin] * (not matches)
    return paths, missing

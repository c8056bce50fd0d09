from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import tiny_images

from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.render import vendor_pillow

HERE = f"{sys.version_info.major}{sys.version_info.minor}"
HERE_DOTTED = f"{sys.version_info.major}.{sys.version_info.minor}"
FONTS = ("PIL/_imagingft.cpython-310-x86_64-linux-gnu.so", "pillow.libs/libfreetype-1.so.6")
OTHER = "313"


def test_the_installed_library_without_what_no_image_needs() -> None:
    paths = [file.path for file in vendor_pillow.pillow("t/vendor", HERE_DOTTED)]
    assert f"t/vendor/cp{HERE}/PIL/Image.py" in paths
    assert sum("/PIL/_imaging.cpython" in path for path in paths) == 1
    assert any("/pillow.libs/libjpeg" in path for path in paths)
    left_out = ("__pycache__", "_avif", "libavif", "_imagingft", "freetype", "harfbuzz", ".pyi", "py.typed")
    assert [path for path in paths if any(part in path for part in left_out)] == []
    assert paths == [file.path for file in vendor_pillow.pillow("t/vendor", HERE_DOTTED)]


def test_a_named_wheel_is_unpacked_for_its_python(tmp_path: Path) -> None:
    given = tiny_images.wheel(tmp_path / "w.whl", more=(*FONTS, "pillow.libs/../../evil.py", "PIL/py.typed"))
    found = [file.path for file in vendor_pillow.pillow("t", "3.10", [given]) if "/cp310/" in file.path]
    assert found == [
        "t/cp310/PIL/Image.py",
        "t/cp310/PIL/__init__.py",
        "t/cp310/PIL/_imaging.cpython-310-x86_64-linux-gnu.so",
        "t/cp310/pillow.libs/libjpeg-1.so.62",
    ]


def test_the_pinned_wheel_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tiny_images.wheel(tmp_path / "w.whl", OTHER)
    pins = {f"cp{OTHER}": {"version": "1.2", "file": "pillow-1.2.whl", "sha256": files.hash_file(wheel)}}
    monkeypatch.setattr(vendor_pillow, "_pins", lambda: pins)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked: list[Sequence[str]] = []

    def download(argv: Sequence[str], timeout: float) -> str:
        asked.append(argv)
        shutil.copyfile(wheel, Path(argv[argv.index("--dest") + 1]) / "pillow-1.2.whl")
        return ""

    monkeypatch.setattr(process, "run", download)
    for _ in range(2):
        paths = [file.path for file in vendor_pillow.pillow("t", "3.13")]
        assert f"t/cp{OTHER}/PIL/Image.py" in paths
        assert f"t/cp{HERE}/PIL/Image.py" in paths
    assert len(asked) == 1
    assert "pillow==1.2" in asked[0]
    assert asked[0][asked[0].index("--python-version") + 1] == "3.13"


def test_another_file_than_the_pinned_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = {f"cp{OTHER}": {"version": "1.2", "file": "pillow-1.2.whl", "sha256": "0" * 64}}
    monkeypatch.setattr(vendor_pillow, "_pins", lambda: pins)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        process, "run", lambda argv, timeout: tiny_images.wheel(Path(argv[-2]) / "p.whl", OTHER) and ""
    )
    with pytest.raises(TrbError) as caught:
        vendor_pillow.pillow("t", "3.13")
    assert caught.value.code == Code.DOWNLOAD_FAILED
    assert "expected 0000" in caught.value.message


def test_without_a_network_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: Sequence[str], timeout: float) -> str:
        raise process.ProcessFailed(argv, 1, "", "WARNING: x\nERROR: no such host")

    monkeypatch.setattr(process, "run", fail)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pins = {f"cp{OTHER}": {"version": "1.2", "file": "p.whl", "sha256": "0"}}
    monkeypatch.setattr(vendor_pillow, "_pins", lambda: pins)
    with pytest.raises(TrbError) as caught:
        vendor_pillow.pillow("t", "3.13")
    assert caught.value.message == "cannot fetch Pillow 1.2 for the server's Python 3.13: ERROR: no such host"
    assert "--python-version 3.13, and name it with --pillow-wheel" in caught.value.remedy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no zip", "not a wheel: "),
        (None, "not a wheel: "),
        (tiny_images.LIBRARY.replace(b"\x3e", b"\xb7"), "holds no Pillow for Linux x86-64 with glibc"),
    ],
)
def test_wheels_that_will_not_do(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.whl"
    if content == b"no zip":
        path.write_bytes(content)
    elif content is not None:
        tiny_images.wheel(path, library=content)
    with pytest.raises(TrbError) as caught:
        vendor_pillow.pillow("t", "3.10", [path])
    assert caught.value.code == Code.USAGE
    assert caught.value.message.startswith(message)


def test_every_release_has_a_pin() -> None:
    from triton_repo_builder.base import releases

    pythons = {"cp" + release.python.replace(".", "") for release in releases.load().values()}
    assert pythons <= vendor_pillow._pins().keys()


def test_different_versions_are_told(tmp_path: Path) -> None:
    def file(tag: str, version: str) -> files.File:
        return files.File(path=f"t/{tag}/PIL/_version.py", content=f'__version__ = "{version}"\n'.encode())

    assert vendor_pillow.differing_versions([file("cp310", "12.3.0"), file("cp312", "12.3.0")]) == ""
    said = vendor_pillow.differing_versions([file("cp312", "13.0.0"), file("cp310", "12.3.0")])
    assert said.startswith("different versions of Pillow (12.3.0 for cp310, 13.0.0 for cp312)")


def test_the_pins_are_of_the_installed_major_version() -> None:
    """Golden cases are recorded with the installed one, and all servers are to see the same pixels."""
    import PIL

    majors = {pin["version"].split(".")[0] for pin in vendor_pillow._pins().values()}
    assert majors == {PIL.__version__.split(".")[0]}

"""Options of a build: trb.toml, flags, and the wheels that they name."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from tests.reliability import mutate
from tests.reliability.readers.reader import (
    Reader,
    write,
)
from triton_repo_builder.base.errors import TrbError

TOML = """[build]
model = "model.onnx"
name = "bert"
task = "embedding"
batching = "on"
max-batch-size = 16
preferred-batch-size = [8, 16]
max_queue_delay = "200us"
device = "cpu"
instances = 2
threads = 0
padding = "fixed:128"
pooling = "mean"
normalize = true
prompt = ""
label = {team = "search", stage = "x"}
pillow-wheel = ["a.whl", "b.whl"]
tokenizers_wheel = "c.whl"
version = 3
triton-release = "24.10"
source-run = "abc"
"""


def _toml_seeds() -> list[bytes]:
    other = '[build]\npreferred_batch_size = "8,16"\nlabel = ["a=b", "c=d"]\nmax-queue-delay = 5\n'
    return [TOML.encode(), other.encode()]


def _toml(case: Path) -> None:
    from triton_repo_builder.base import releases
    from triton_repo_builder.model.read import trb_toml

    options = trb_toml.merge({"model": Path("model.onnx")}, case / "trb.toml")
    if options.triton_release:
        releases.get(options.triton_release)


FLAGS = (
    "8,16",
    "200us",
    "0.1s",
    "key=value",
    "team=search",
    "fixed:128",
    "ragged",
    "12",
    "bert",
    "a/b",
    "next",
    "5 ms",
)


def _flags(case: Path) -> None:
    """Every option of the text, as click hands it over."""
    from triton_repo_builder.model.read import options, source

    text = (case / "flags").read_bytes().decode("utf-8", "surrogateescape")
    for name, option in options.OPTIONS.items():
        if type(option.value).__name__ in ("Number", "Version", "Switch"):
            continue  # click's own types
        try:
            value = options.parse(name, (text,) if option.value.repeatable else text)
        except TrbError:
            continue
        try:
            option.value.check(value)
        except ValueError:
            continue
    try:
        source.check_name(text)
    except TrbError:
        source.check_name(source.clean_name(text))


def _wheel_seeds() -> list[bytes]:
    elf = b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\x00" + b"x" * 100
    seeds = []
    for members in (
        {
            "tokenizers/__init__.py": b"x = 1\n",
            "tokenizers/tokenizers.abi3.so": elf,
            "tokenizers-1.dist-info/METADATA": b"M",
        },
        {
            "PIL/__init__.py": b"",
            "PIL/_imaging.cpython-310-x86_64-linux-gnu.so": elf,
            "pillow-1.dist-info/METADATA": b"M",
        },
    ):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        seeds.append(stream.getvalue())
    return seeds


def _wheel(case: Path) -> None:
    from triton_repo_builder.endpoint.render import vendor_pillow, vendor_tokenizers

    inside = "model/1/vendor"
    for read in (
        lambda file: vendor_tokenizers.tokenizers(inside, file),
        lambda file: vendor_pillow._from_wheel(file)[1],
    ):
        try:
            for file in read(case / "a.whl"):
                if ".." in Path(file.path).parts or Path(file.path).is_absolute():
                    raise AssertionError(f"a file outside: {file.path!r}")
        except TrbError:
            continue


READERS = (
    Reader(
        name="toml",
        about="trb.toml",
        seeds=_toml_seeds,
        damage=mutate.damaged_words(
            *FLAGS, "true", "[build]", "=", "1979-05-27", "1e999", "nan", '"""', "'", "."
        ),
        lay=write("trb.toml"),
        read=_toml,
        share=2.0,
    ),
    Reader(
        name="flags",
        about="values of flags",
        seeds=lambda: [flag.encode() for flag in FLAGS],
        damage=mutate.damaged_words(*FLAGS, "=", ",", ":", "."),
        lay=write("flags"),
        read=_flags,
        share=2.0,
    ),
    Reader(
        name="wheel",
        about="wheels of tokenizers and Pillow",
        seeds=_wheel_seeds,
        damage=mutate.damaged_zip,
        lay=write("a.whl"),
        read=_wheel,
        share=1.0,
    ),
)

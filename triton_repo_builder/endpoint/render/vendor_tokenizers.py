"""The ``tokenizers`` library as files for the tokenizer model, so that the server needs no install.

Its wheel is abi3: the same files run on Python 3.9 and later, the stock image's 3.10 and 3.12 too.
"""

from __future__ import annotations

import importlib.util
import re
import zipfile
import zlib
from importlib import metadata
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File

ABOUT = re.compile(r"^[^/]+\.dist-info/(METADATA$|sboms/.|(licenses/)?(LICEN[CS]E|COPYING|NOTICE|AUTHORS))")
"""Files of a dist-info about the library and its licence; the rest is pip's own."""
ELF_X86_64 = b"\x7fELF\x02"
LARGEST = 256 << 20
"""Bytes of an unpacked wheel."""
UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)
"""Errors of zipfile on a damaged or encrypted archive, or one of another method."""
REMEDY = (
    "fetch the server's wheel with: pip download tokenizers --no-deps --only-binary=:all: "
    "--platform manylinux2014_x86_64 --python-version 3.10 --abi abi3, and name it with --tokenizers-wheel"
)


def tokenizers(target: str, wheel: Path | None = None) -> list[File]:
    """The library's Python files and shared object under ``target``."""
    return _from_wheel(target, wheel) if wheel else _installed(target)


def _installed(target: str) -> list[File]:
    library = importlib.util.find_spec("tokenizers")
    assert library is not None and library.origin is not None
    folder = Path(library.origin).parent
    shared = list(folder.glob("*.abi3.so"))
    if len(shared) != 1 or not linux_x86_64(_start(shared[0])):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "the installed tokenizers library is not built for Linux x86-64",
            where=str(folder),
            remedy=REMEDY,
        )
    library_files = [*sorted(folder.rglob("*.py")), *shared]
    return [
        *(
            File(path=f"{target}/tokenizers/{f.relative_to(folder).as_posix()}", source=f)
            for f in library_files
        ),
        *described("tokenizers", target),
    ]


def _start(file: Path) -> bytes:
    """Bytes that ``linux_x86_64`` looks at."""
    with files.opened(file) as stream:
        return stream.read(20)


def described(name: str, target: str) -> list[File]:
    """An installed library's metadata and licences, which have to go with its code."""
    listed = metadata.distribution(name).files or []
    return [
        File(path=f"{target}/{file.as_posix()}", source=Path(str(file.locate())).resolve())
        for file in sorted(listed, key=str)
        if ABOUT.search(file.as_posix())
    ]


def _from_wheel(target: str, wheel: Path) -> list[File]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [
                n
                for n in archive.namelist()
                if ((n.startswith("tokenizers/") and n.endswith((".py", ".abi3.so"))) or ABOUT.search(n))
                and ".." not in n
            ]
            check_archive(archive)
            files = [File(path=f"{target}/{name}", content=archive.read(name)) for name in sorted(names)]
    except UNREADABLE as error:
        raise TrbError(Code.USAGE, f"not a wheel: {error}", where=str(wheel), remedy=REMEDY) from None
    if not any(file.path.endswith(".abi3.so") and linux_x86_64(file.content[:20]) for file in files):
        raise TrbError(Code.USAGE, "holds no abi3 library for Linux x86-64", where=str(wheel), remedy=REMEDY)
    return files


def check_archive(archive: zipfile.ZipFile) -> None:
    """Raise ValueError for an archive that becomes far larger than a library is, or may on the way."""
    if any(m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for m in archive.infolist()):
        raise ValueError("compressed in a way that wheels are not")
    if sum(max(member.file_size, member.compress_size) for member in archive.infolist()) > LARGEST:
        raise ValueError(f"holds more than {LARGEST >> 20} MiB")


def linux_x86_64(head: bytes) -> bool:
    """Whether a file with this head is a shared library for Linux x86-64."""
    return head.startswith(ELF_X86_64) and head[18:20] == b"\x3e\x00"

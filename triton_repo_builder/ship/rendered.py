"""A folder of rendered files: compared with what would be written, and written, all or none.

The index lists the files with their sha256, so that what somebody edited since is not overwritten.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A content that need not fit into memory."""

    size: int
    """Bytes."""
    sha256: str
    """Hex digest."""
    blocks: Callable[[], Iterator[bytes]]
    """The content, from its start; the same bytes each time."""

    @classmethod
    def of(cls, blocks: Callable[[], Iterator[bytes]]) -> Stream:
        """Size and digest, by reading the content once."""
        digest, size = hashlib.sha256(), 0
        for block in blocks():
            digest.update(block)
            size += len(block)
        return cls(size=size, sha256=digest.hexdigest(), blocks=blocks)


Content = bytes | Stream


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A file that is not as an export would write it."""

    path: str
    state: str
    """``missing``, ``differs`` or ``stale``."""
    edited: bool
    """It was edited since trb wrote it, so that only ``force`` replaces it."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The files of an export, path → content, and the name of their index, which is one of them."""

    contents: Mapping[str, Content]
    index: str


def rendered(contents: Mapping[str, Content], index: str) -> Rendered:
    """The files and their index, sorted: the same input gives the same bytes."""
    ordered = dict(sorted(contents.items()))
    digests = {path: _digest(content) for path, content in ordered.items()}
    return Rendered(contents={**ordered, index: document({"files": digests}).encode()}, index=index)


def _digest(content: Content) -> str:
    return content.sha256 if isinstance(content, Stream) else hashlib.sha256(content).hexdigest()


def document(value: object) -> str:
    """JSON as an export writes it."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def differences(export: Rendered, output: Path) -> tuple[Difference, ...]:
    """Compare a folder with an export. Raises ``TrbError`` for a folder that holds something else."""
    recorded = _recorded(output, export.index)
    contents = export.contents
    for folder in sorted(
        {parent for path in {*contents, *recorded} for parent in PurePosixPath(path).parents}
    ):
        if str(folder) != "." and (output / folder).is_symlink():
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                "is a link: files would be written elsewhere",
                where=str(output / folder),
                remedy="remove the link, or choose another folder with --output",
            )
    states = {path: _state(output / path, content) for path, content in contents.items()}
    states |= {path: "stale" for path in recorded if path not in contents and (output / path).is_file()}
    return tuple(
        Difference(
            path=path,
            state=state,
            edited=path != export.index and _edited(output / path, recorded.get(path)),
        )
        for path, state in sorted(states.items())
        if state
    )


def write(export: Rendered, output: Path, *, force: bool = False) -> tuple[Difference, ...]:
    """Write what differs, and remove stale files. Other files of the folder stay.

    Raises ``TrbError`` OUTPUT_FOREIGN, EDITED_FILE, OUTPUT_NOT_WRITABLE, DISK_FULL, and REPOSITORY_BUSY if a
    streamed content changed meanwhile; then nothing was written.
    """
    changes = differences(export, output)
    edited = [change.path for change in changes if change.edited]
    if edited and not force:
        raise TrbError(
            Code.EDITED_FILE,
            f"{some(edited)}: edited since trb wrote them",
            where=str(output),
            remedy="keep your edits elsewhere, or replace them with --force",
        )
    staging = output / f".trb-{secrets.token_hex(8)}"
    try:
        for change in changes:
            (staging / change.path).parent.mkdir(parents=True, exist_ok=True)
            (output / change.path).parent.mkdir(parents=True, exist_ok=True)
            if change.path in export.contents:
                _create(staging / change.path, export.contents[change.path])
        # Nothing but renames is left to fail; the index comes last.
        for change in sorted(changes, key=lambda each: each.path == export.index):
            if change.path in export.contents:
                (staging / change.path).replace(output / change.path)
            else:
                (output / change.path).unlink()
    except OSError as error:
        raise files.explain(error, output, how="with --output", kept="nothing was written") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return changes


def _create(file: Path, content: Content) -> None:
    """Write a new file. Raises ``OSError``, ``TrbError`` REPOSITORY_BUSY."""
    if not isinstance(content, Stream):
        files.create(file, content)
        return
    digest = hashlib.sha256()
    with file.open("xb") as sink:
        sink.writelines(_digested(content.blocks(), digest.update))
    if digest.hexdigest() != content.sha256:
        raise TrbError(
            Code.REPOSITORY_BUSY,
            "the repository was changed while it was exported; nothing was written",
            where=file.name,
            remedy="run the same command again once the other one has ended",
        )


def _digested(blocks: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for block in blocks:
        update(block)
        yield block


def _recorded(output: Path, index: str) -> dict[str, str]:
    """The index of a folder: path → sha256; empty for a new folder."""
    try:
        if not output.exists() or (output.is_dir() and not any(output.iterdir())):
            return {}
        if not output.is_dir():
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                "is a file, not a folder",
                where=str(output),
                remedy="choose another folder with --output",
            )
        listed = files.load_json(files.read(output / index, files.LARGEST_DOCUMENT))["files"]
        recorded = {str(path): str(digest) for path, digest in listed.items()}
    except (FileNotFoundError, *files.DAMAGED):
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            f"holds files but no {index} of trb; nothing was touched",
            where=str(output),
            remedy="choose an empty or a new folder with --output",
        ) from None
    except OSError as error:
        raise files.unreadable(output, error, code=Code.OUTPUT_NOT_WRITABLE) from None
    return {path: digest for path, digest in recorded.items() if _inside(path)}


def _inside(path: str) -> bool:
    """Whether a path of the index is one that an export may have: stale files are removed."""
    parts = path.split("/")
    return path.isprintable() and all(part and not part.startswith(".") for part in parts)


def _state(file: Path, content: Content) -> str:
    if not file.is_file() or file.is_symlink():
        return "missing"
    try:
        if isinstance(content, Stream):
            same = file.stat().st_size == content.size and files.hash_file(file) == content.sha256
            return "" if same else "differs"
        return "" if files.read(file) == content else "differs"
    except OSError as error:
        raise files.unreadable(file, error, code=Code.OUTPUT_NOT_WRITABLE) from None


def _edited(file: Path, digest: str | None) -> bool:
    """Whether the user changed a file that an export would replace."""
    try:
        return file.is_file() and files.hash_file(file) != digest
    except OSError as error:
        raise files.unreadable(file, error, code=Code.OUTPUT_NOT_WRITABLE) from None

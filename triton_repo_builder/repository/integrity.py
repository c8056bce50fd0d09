"""Files that are not as ``trb`` wrote them: the manifest's digests, and the content digest over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.repository import content, importable, pbtxt
from triton_repo_builder.repository.config import CONFIG, ModelConfig
from triton_repo_builder.repository.manifest import MANIFEST, FileRecord, Manifest
from triton_repo_builder.repository.model import SHARED


@dataclass(frozen=True, kw_only=True)
class Altered:
    """A recorded file that is missing or has other bytes."""

    path: str
    """Path in the repository."""
    missing: bool

    def __str__(self) -> str:
        return f"{self.path} {'is missing' if self.missing else 'was changed'}"


def altered(root: Path, records: Mapping[str, FileRecord]) -> tuple[Altered, ...]:
    """The files of ``records`` that are missing or have another sha256; every one is read."""
    differing = []
    for path, record in sorted(records.items()):
        file = root / path
        missing = not file.is_file()
        if missing or file.stat().st_size != record.bytes or files.hash_file(file) != record.sha256:
            differing.append(Altered(path=path, missing=missing))
    return tuple(differing)


@dataclass(frozen=True, kw_only=True)
class Unlisted:
    """A file beside the recorded ones."""

    path: str

    def __str__(self) -> str:
        return f"{self.path} was not written by trb"


def unlisted(root: Path, manifest: Manifest, models: Iterable[str], version: int) -> tuple[Unlisted, ...]:
    """Code in the folders of a version that the manifest does not list, without ``__pycache__``."""
    return tuple(
        Unlisted(path=path)
        for model in models
        for path in importable.below(root, f"{model}/{version}")
        if path not in manifest.files and not importable.cached(path)
    )


def added(root: Path, recorded: Collection[str], model: str) -> Iterator[Unlisted]:
    """Files of any kind in a model's folder that the manifest does not list, without ``__pycache__``."""
    for present in sorted((root / model).rglob("*")):
        path = present.relative_to(root).as_posix()
        served = present.is_file() or present.is_symlink()  # Triton follows a link to a folder
        if served and path not in recorded and not importable.cached(path):
            yield Unlisted(path=path)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A version with several content digests: a file was altered together with its record."""

    endpoint: str
    version: int
    path: str
    """The config.pbtxt of that version."""
    digests: Mapping[str, str]
    """Hex digests by place, empty if a place has none."""

    def __str__(self) -> str:
        shown = ", ".join(f"{digest[:12] or 'none'} in {of}" for of, digest in self.digests.items())
        text = f"version {self.version} has several content digests: {shown}"
        return text.replace(f"in {_FILES}", f"of {_FILES}")


NotAsBuilt = Altered | Unlisted | Disagreement
_FILES = "the files"


def disagreements(
    root: Path,
    manifest: Manifest,
    sha256: Callable[[str], str] | None = None,
    only: Collection[tuple[str, int]] | None = None,
) -> Iterator[Disagreement]:
    """Versions whose content digests in config.pbtxt, in the manifest and of the files differ.

    ``sha256`` gives the actual digests, if files are not as recorded. ``only``: these versions.
    """
    digest_of = sha256 or (lambda path: manifest.files[path].sha256)
    for name, endpoint in sorted(manifest.endpoints.items()):
        for version, entry in sorted(endpoint.versions.items()):
            if only is not None and (name, version) not in only:
                continue
            folder = "" if version == endpoint.served.version else f"{version}/{SHARED}/"
            path = f"{name}/{folder}{CONFIG}"
            try:
                config = ModelConfig(pbtxt.parse(files.read_text(root / path)))
            except (OSError, UnicodeDecodeError, pbtxt.PbtxtError):
                continue  # missing or altered, which is known
            digests = {
                CONFIG: content.stated(config),
                MANIFEST: entry.content,
                _FILES: content.of_version(root, manifest, name, version, digest_of),
            }
            if (digests[CONFIG] or entry.content) and len({*digests.values()}) > 1:
                yield Disagreement(endpoint=name, version=version, path=path, digests=digests)


def prove(root: Path, manifest: Manifest, where: str) -> None:
    """Raise DIGEST_MISMATCH if a file that trb wrote is missing or altered, or if other code is beside it."""
    beside = tuple(
        each
        for entry in manifest.endpoints.values()
        for version in entry.versions
        for each in unlisted(root, manifest, entry.models, version)
    )
    changed: tuple[NotAsBuilt, ...] = (*altered(root, manifest.files), *beside)
    if damage := changed or tuple(disagreements(root, manifest)):
        raise not_as_built(damage, where)


def not_as_built(damage: Sequence[NotAsBuilt], where: str) -> TrbError:
    """The error for a repository that was altered after it was built."""
    return TrbError(
        Code.DIGEST_MISMATCH,
        f"not as it was built: {some(damage, 5)}",
        where=where,
        remedy="record an edit of your own with trb accept; else restore what is altered (git checkout, trb "
        "fetch), or build the endpoint again",
    )

"""Files of a model on a Hub of Hugging Face: the only importer of huggingface_hub.

Its own settings apply (``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HUB_CACHE``, ``HF_HUB_OFFLINE``); its cache
keeps the files; a download that was cut off goes on there.
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.model.read import (
    foreign,
    hub_files,
    hub_refusals,
    model_card,
    onnx_external,
    source,
    weight_files,
)
from triton_repo_builder.model.read.hub_name import ONNX, HubName, is_plain
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.repository.manifest import HubModel

Advance = Callable[[str, int, int], None]
"""Receives the name of the model, the bytes that have arrived, and all of them."""
MAIN = "main"
LISTED = 8
"""Most files that a message names."""
SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A commit of a repository, and its files."""

    commit: str
    files: frozenset[str]
    folder: Path | None = None
    """The commit's folder in the cache, if no server is to be asked."""
    why: str = ""
    """Why none is."""


def fetched(
    options: BuildOptions, name: HubName, step: Advance = lambda name, done, total: None
) -> tuple[BuildOptions, tuple[str, ...]]:
    """Options whose model is in the cache, with its origin, and notes. Raises ``TrbError``.

    Only files that a build reads are fetched: no code, no pickle, of several ONNX files one.
    """
    if name.file and options.file:
        raise usage("file", f"--model names a file, too: {name.file}", "leave one of them out")
    file = options.file or name.file
    with hub_refusals.explained(name, _host(), _cache()), _quiet():
        listing = _listing(name)
        folder = _begin(name, listing, step)
        chosen = _chosen(name, listing, folder, file)
        needed = hub_files.companions(listing.files, chosen, hub_files.modules(folder))
        _take(name, listing, [chosen, *needed], step)
        places = onnx_external.locations(folder / chosen)
        external = hub_files.external(listing.files, chosen, places)
        _take(name, listing, external, step)
    step("taking checksums", 0, 0)
    origin = HubModel(
        model=name.model,
        commit=listing.commit,
        file=chosen,
        license=model_card.licence(folder),
        files={each: _digest(name, folder, each) for each in sorted({chosen, *needed, *external})},
    )
    notes = (_choice(name, listing, chosen, file), _uses_cache(listing, name))
    endpoint = options.name or source.clean_name(name.model.rpartition("/")[2])
    built = replace(options, model=folder, file=chosen, name=endpoint, hub=origin)
    return built, tuple(filter(None, notes))


def has_onnx(name: HubName) -> bool:
    """Whether the repository has an ONNX file. Raises ``TrbError``."""
    with hub_refusals.explained(name, _host(), _cache()), _quiet():
        return any(file.endswith(ONNX) for file in _listing(name).files)


def fetched_weights(
    name: HubName, step: Advance = lambda name, done, total: None
) -> tuple[Path, HubModel, tuple[str, ...]]:
    """The commit's folder in the cache with its weights in safetensors, its origin, and notes.

    Raises ``TrbError``. No code and no pickle is fetched.
    """
    with hub_refusals.explained(name, _host(), _cache()), _quiet():
        listing = _listing(name)
        folder = _begin(name, listing, step)
        index = [file for file in listing.files if file == weight_files.INDEX]
        _take(name, listing, index, step)
        chosen = weight_files.names(listing.files, weight_files.index(folder), str(name))
        needed = hub_files.companions(listing.files, "model.onnx", hub_files.modules(folder))
        _take(name, listing, [*chosen, *needed], step)
    step("taking checksums", 0, 0)
    origin = HubModel(
        model=name.model,
        commit=listing.commit,
        file=chosen[0],
        license=model_card.licence(folder),
        files={each: _digest(name, folder, each) for each in sorted({*chosen, *needed})},
    )
    taken = f"{chosen[0]} of {name.model} at commit {listing.commit[:12]} is taken"
    return folder, origin, tuple(filter(None, (taken, _uses_cache(listing, name))))


def _listing(name: HubName) -> Listing:
    """The commit of the revision and its files, from the server, else from the cache."""
    from huggingface_hub import HfApi, constants, errors

    if constants.HF_HUB_OFFLINE:
        return _cached(name, "HF_HUB_OFFLINE is set")
    try:
        info = HfApi().model_info(name.model, revision=name.revision or None)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):  # a gated one is among the first
        raise
    except Exception as error:  # of the library's HTTP client, which differs by its release
        refusal = hub_refusals.refused(error, name, _host(), _cache())
        if refusal.code not in (Code.STORAGE_UNREACHABLE, Code.STORAGE_FAILED):
            raise refusal from None
        try:
            return _cached(name, refusal.message)
        except TrbError:
            raise refusal from None
    commit, paths = str(info.sha), (sibling.rfilename for sibling in info.siblings or ())
    if not source.COMMIT.fullmatch(commit):
        message = f"{_host()} calls {commit!r:.60} a commit, which is none"
        raise TrbError(Code.STORAGE_FAILED, message, where=str(name), remedy="check HF_ENDPOINT")
    return Listing(commit=commit, files=frozenset(filter(is_plain, paths)))


def _cached(name: HubName, why: str) -> Listing:
    """The commit in the cache that a revision meant last. Raises ``TrbError`` NOT_FOUND."""
    import huggingface_hub

    try:
        folder = Path(_snapshot(name, name.revision or MAIN, [], local_files_only=True))
    except FileNotFoundError:
        missing = f"its revision {name.revision}" if name.revision else "the model"
        raise _not_cached(name, missing, why) from None
    try:
        listed = huggingface_hub.get_cached_repo_tree(name.model, revision=folder.name)
        paths = [entry.path for entry in listed]
    except Exception:  # releases before 2 keep no list: what is in the cache, then
        paths = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    return Listing(commit=folder.name, files=frozenset(filter(is_plain, paths)), folder=folder, why=why)


def _not_cached(name: HubName, missing: str, why: str) -> TrbError:
    return TrbError(
        Code.NOT_FOUND,
        f"no such folder here, and {missing} is not in the cache of the Hub ({_cache()}): {why}",
        where=str(name),
        remedy="run it once with network and without HF_HUB_OFFLINE; or check the path, if one is meant",
    )


def _begin(name: HubName, listing: Listing, step: Advance) -> Path:
    """The commit's folder in the cache, with the files that come first. The cache notes the revision."""
    names = hub_files.first(listing.files)
    if listing.folder is None:
        _snapshot(name, name.revision or MAIN, names, tqdm_class=_bar(name, step))
    return _take(name, listing, names, step)


def _take(name: HubName, listing: Listing, names: Sequence[str], step: Advance) -> Path:
    """The commit's folder in the cache, with these files in it."""
    if listing.folder is None:
        return Path(_snapshot(name, listing.commit, names, tqdm_class=_bar(name, step)))
    missing = [file for file in names if not files.is_file(listing.folder / file)]
    if missing:
        raise _not_cached(name, some(missing, LISTED), listing.why)
    return listing.folder


def _snapshot(name: HubName, revision: str, names: Sequence[str], **settings: Any) -> str:
    from huggingface_hub import snapshot_download

    patterns = [re.sub(r"([*?[])", r"[\1]", file) for file in names]
    return str(snapshot_download(name.model, revision=revision, allow_patterns=patterns, **settings))


def _bar(name: HubName, step: Advance) -> type[Any]:
    """A class for the library's bars: it prints nothing and tells ``step`` how many bytes are on the disk."""
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            # Of two bars of bytes the other one counts what the network gave.
            named = str(settings.get("name", ""))
            self._counts = settings.get("unit") == "B" and not named.endswith(".transfer")
            super().__init__(*args, **{**settings, "disable": True})

        def update(self, n: float | None = 1) -> None:
            if self._counts:
                self.n += n or 0
                step(name.model, int(self.n), int(self.total or 0))

    return Bar


@contextmanager
def _quiet() -> Iterator[None]:
    """The library's hints and warnings are left out: what matters becomes an error."""
    from huggingface_hub.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


def _host() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _chosen(name: HubName, listing: Listing, folder: Path, file: str) -> str:
    """The ONNX file to build: the one that is named, else as of a folder. Raises ``TrbError``."""
    every = sorted(each for each in listing.files if each.endswith(ONNX))
    if file:
        if file in every:
            return file
        raise TrbError(
            Code.NOT_FOUND,
            f"no such ONNX file: {file}",
            where=str(replace(name, file="")),
            remedy=f"its ONNX files are {some(every, LISTED)}" if every else "it has no ONNX file",
        )
    preferred = next((each for each in source.PREFERRED if each in listing.files), "")
    candidates = [preferred] if preferred else hub_files.candidates(listing.files)
    if not candidates:
        raise _without_onnx(name, listing)
    if not preferred:
        foreign.refuse_encoder_decoder(folder, [folder / each for each in candidates])
    if len(candidates) > 1:
        raise TrbError(
            Code.NOT_FOUND,
            f"several ONNX files: {some(candidates, LISTED)}",
            where=str(name),
            remedy=f"name one, e.g. --file {shlex.quote(candidates[0])}",
        )
    return candidates[0]


def _without_onnx(name: HubName, listing: Listing) -> TrbError:
    weights = sorted(file for file in listing.files if file.endswith(foreign.WEIGHTS))
    others = f"; its weights are {some(weights, LISTED)}" if weights else ""
    output = f"{name.model.rpartition('/')[2]}-onnx"
    return TrbError(
        Code.NOT_FOUND,
        f"no {ONNX} file in this repository{others}",
        where=str(name),
        remedy=f"convert its weights: trb build --convert, or trb convert {name} -o {output} and build that "
        "folder; or name a repository that has one, e.g. of onnx-community",
    )


def _choice(name: HubName, listing: Listing, chosen: str, file: str) -> str:
    """A note on the ONNX file that is built, and the others there."""
    others = sorted(each for each in listing.files if each.endswith(ONNX) and each != chosen)
    taken = f"{chosen} of {name.model} at commit {listing.commit[:12]} is taken"
    return taken if file or not others else f"{taken} (--file takes another: {some(others, LISTED)})"


def _uses_cache(listing: Listing, name: HubName) -> str:
    if not listing.why:
        return ""
    if source.COMMIT.fullmatch(name.revision):
        return f"{listing.why}: built from the cache"
    return f"{listing.why}: built from the cache, as {name.revision or MAIN} was when it was last fetched"


def _digest(name: HubName, folder: Path, file: str) -> str:
    """Hex sha256 of a file. Raises ``TrbError`` DIGEST_MISMATCH if the cache keeps it under another one."""
    path = folder / file
    digest, kept = files.hash_file(path), path.resolve().name
    if SHA256.fullmatch(kept) and kept != digest:  # files in LFS are kept under the Hub's sha256
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"{file} in the cache is damaged: its sha256 is {digest[:12]}…, and the Hub states {kept[:12]}…",
            where=str(name),
            remedy=f"remove {path.resolve()}, and build again",
        )
    return digest

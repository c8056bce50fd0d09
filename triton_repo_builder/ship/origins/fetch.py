"""Models elsewhere → a folder in the cache, with their origin."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import Labels
from triton_repo_builder.model.read import mlmodel, onnx_external, source
from triton_repo_builder.model.read.hub_name import ONNX, PICKLES, is_plain
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.ship.origins import mlflow
from triton_repo_builder.ship.origins.address import Address, OfRun, Plain, Registered, text
from triton_repo_builder.ship.stores import external_weights, filesystem

Advance = Callable[[str, int, int], None]
"""Receives the file's name, the bytes that have arrived, and all of them, 0 if unknown."""
NEVER = (*PICKLES, ".py", ".pyc", ".so", ".whl", ".zip", ".gz")
"""Ends of files that a build has no use for, some of them code."""
ARTIFACTS = "mlflow-artifacts"
Files = Iterable[tuple[str, str]]
"""(path below a folder, URL)."""


def fetched(
    options: BuildOptions, address: Address, step: Advance = lambda name, done, total: None
) -> tuple[BuildOptions, tuple[str, ...]]:
    """Options whose model is in the cache, with its origin, and notes. Raises ``TrbError``."""
    location = text(options.model)
    if isinstance(address, Plain):
        folder = _plain(address.url, location, step)
        stem = PurePosixPath(address.url).stem
        name = source.clean_name(stem if address.url.endswith(ONNX) else PurePosixPath(address.url).name)
        return replace(options, model=folder, name=options.name or name), ()
    return _of_mlflow(options, address, location, step)


def _of_mlflow(
    options: BuildOptions, address: Registered | OfRun, location: str, step: Advance
) -> tuple[BuildOptions, tuple[str, ...]]:
    server = mlflow.server(location, registry=isinstance(address, Registered))
    record = server.find(address)
    proxied = record.artifacts.startswith(f"{ARTIFACTS}:")
    listed = dict(server.files(record.artifacts) if proxied else _in_bucket(record.artifacts, location))
    headers = mlflow.headers() if proxied else {}
    if mlmodel.FILE not in listed:
        message = f"no {mlmodel.FILE} there, so it is no model of MLflow"
        raise TrbError(Code.NOT_FOUND, message, where=location, remedy="name the folder that log_model wrote")
    with _kept(location) as staged:
        _take(staged, {mlmodel.FILE: listed[mlmodel.FILE]}, step, headers)
        mlmodel.refuse_without_onnx(staged, location)
        _take(staged, {name: url for name, url in listed.items() if name != mlmodel.FILE}, step, headers)
        folder = _settled(staged)
    model = mlmodel.read(folder)
    facts = {**record.labels, **({"mlflow.signature": model.shown} if model.shown else {})}
    built = replace(
        options,
        model=folder,
        file=options.file or model.file,
        name=options.name or source.clean_name(record.name),
        source_run=options.source_run or record.run or None,
        dataset_id=options.dataset_id or record.data or None,
        label=tuple(sorted({**_labels(facts), **dict(options.label)}.items())),
    )
    run = f", trained by {record.run}" if record.run else ""
    return built, (f"{location} is {facts.get('mlflow.model', record.artifacts)}{run}",)


def _in_bucket(folder: str, location: str) -> Files:
    """Files of a bucket. A path of this machine is refused: the server chose it."""
    if folder.partition(":")[0] not in filesystem.SCHEMES:
        raise TrbError(
            Code.NOT_FOUND,
            f"its files are at {folder}, which trb does not reach",
            where=location,
            remedy="start the server with --serve-artifacts (its default), or keep artifacts in a bucket",
        )
    system, path = filesystem.connect(folder, location)
    try:
        names = sorted(str(name) for name in system.find(path))
    except Exception as error:
        raise TrbError(
            Code.STORAGE_UNREACHABLE, f"cannot be listed: {error}", where=folder, remedy=external_weights.READ
        ) from None
    for name in names:
        inner = name.removeprefix(path.rstrip("/") + "/")
        transfer.check_inside(inner, folder)
        yield inner, f"{folder.rstrip('/')}/{inner}"


def _plain(url: str, location: str, step: Advance) -> Path:
    """The folder in the cache of a file, with its external data, or of a folder in a bucket."""
    with _kept(location) as staged:
        if url.endswith(ONNX):
            name = PurePosixPath(url).name
            _take(staged, {name: url}, step)
            places = [each for each in onnx_external.locations(staged / name) if is_plain(each)]
            _take(staged, {place: f"{url.removesuffix(name)}{place}" for place in places}, step)
        elif url.partition(":")[0] in filesystem.SCHEMES:
            _take(staged, dict(_in_bucket(url, location)), step)
        else:
            raise TrbError(
                Code.USAGE, f"names no {ONNX} file", where=location, remedy=f"name one: https://…/model{ONNX}"
            )
        return _settled(staged)


def _take(
    folder: Path, listed: dict[str, str], step: Advance, headers: Mapping[str, str] | None = None
) -> None:
    for name, url in sorted(listed.items()):
        if name.endswith(NEVER):
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        external_weights.download(url, target, partial(step, name), headers)


@contextmanager
def _kept(location: str) -> Iterator[Path]:
    """A folder in the cache, which is gone afterwards unless it was settled. Raises ``TrbError``."""
    home = transfer.cache_folder() / "models"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".trb-", dir=home) as scratch:
            staged = Path(scratch) / "model"
            staged.mkdir()
            yield staged
    except OSError as error:
        raise files.explain(
            error, home, how="with XDG_CACHE_HOME", kept=f"{location} was not fetched"
        ) from None


def _settled(staged: Path) -> Path:
    """The folder under the digest of its content: what was fetched before is there already."""
    listed = sorted(file for file in staged.rglob("*") if file.is_file())
    lines = [f"{file.relative_to(staged)} {files.hash_file(file)}" for file in listed]
    folder = staged.parents[1] / hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
    if not folder.exists():
        files.sync_all(staged)
        staged.rename(folder)
    return folder


def _labels(facts: dict[str, str]) -> dict[str, str]:
    """Facts of a server as labels: keys of letters that a label may have, values of one line."""
    clean = {re.sub(r"[^A-Za-z0-9_.-]", "_", key): " ".join(value.split()) for key, value in facts.items()}
    return {
        key: "".join(filter(str.isprintable, value))[:500]
        for key, value in clean.items()
        if Labels.key.fullmatch(key) and value.strip()
    }

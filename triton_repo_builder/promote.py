"""Serve another version: in the repository, and with no request lost on a server that runs from it.

The order on a server, each step by explicit load, during which the model that was there goes on answering:

1. The ensemble, whose steps are pinned to the version that is served: from here on nothing mixes.
2. Each step, with both versions.
3. The ensemble at the new version: requests that are under way keep the steps that they started with.
4. ``trb smoke`` against the new version's golden cases.
5. Each step, with the new version alone.

Where any of it fails the way back is the same: the ensemble first, to steps that are still loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import files, pbtxt, repository, smoke, versions
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.serving import http

LOAD_TIMEOUT = 300.0
DRAIN = 60.0
"""Seconds that requests under way get before a version counts as stuck."""
COUNTED = "executions"
"""Checks of the statistics, which other clients' requests disturb."""
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of the served version that the repository allows."""

    root: Path
    name: str
    models: tuple[str, ...]
    """The endpoint first."""
    manifest: Mapping[str, Any]
    old: int
    new: int
    old_files: Mapping[str, bytes]
    """What lies in the models' folders while ``old`` is served, without policy."""
    new_files: Mapping[str, bytes]

    @property
    def steps(self) -> tuple[str, ...]:
        """The models behind the endpoint."""
        return self.models[1:]


def plan(root: Path, name: str, version: int | None, *, force: bool = False) -> Move | None:
    """The move to ``version``, or back to the one before (None); None where it is served already.

    Raises ``TrbError`` PROMOTE_FAILED, EDITED_FILE.
    """
    manifest = repository.read(root).manifest
    if manifest is None or name not in manifest["endpoints"]:
        known = ", ".join(sorted(manifest["endpoints"])) if manifest else ""
        raise TrbError(
            Exit.PROMOTE_FAILED,
            f"trb built no endpoint '{name}' here",
            where=str(root),
            remedy=f"its endpoints: {known}" if known else "name a repository that trb built",
        )
    entry = manifest["endpoints"][name]
    there, old = versions.present(root, entry["models"]), int(entry["version"])
    new = entry.get("previous") if version is None else version
    if new is None or new not in there:
        others = [number for number in there if number != old]
        raise TrbError(
            Exit.PROMOTE_FAILED,
            f"has no version {new}" if new else f"version {old} is the first that was served",
            where=f"{root}: {name}",
            remedy=f"promote one that is there: {', '.join(map(str, others))}"
            if others
            else "add one with trb build --version next",
        )
    if new == old:
        return None
    shared = {number: versions.stored(root, entry["models"], number) for number in (old, new)}
    move = Move(
        root=root,
        name=name,
        models=tuple(entry["models"]),
        manifest=manifest,
        old=old,
        new=new,
        old_files=shared[old],
        new_files=shared[new],
    )
    _check(move, force)
    return move


def _check(move: Move, force: bool) -> None:
    for number, shared in ((move.old, move.old_files), (move.new, move.new_files)):
        missing = [model for model in move.models if f"{model}/{versions.CONFIG}" not in shared]
        if missing:
            raise TrbError(
                Exit.PROMOTE_FAILED,
                f"version {number} has no configuration of its own: no {missing[0]}/{number}/shared",
                where=f"{move.root}: {move.name}",
                remedy=f"build it again: trb build --name {move.name} --version {number} …",
            )
    recorded = move.manifest["files"]
    own = tuple(f"{model}/{move.new}/" for model in move.models)
    for path in sorted(path for path in recorded if path.startswith(own)):
        file = move.root / path
        if not file.is_file() or files.hash_file(file) != recorded[path]["sha256"]:
            what = "was changed" if file.is_file() else "is missing"
            raise TrbError(
                Exit.PROMOTE_FAILED,
                f"version {move.new} is not as it was built: {path} {what}",
                where=f"{move.root}: {move.name}",
                remedy="restore the file (git checkout, trb fetch), or build the version again",
            )
    edited = [
        path
        for path in versions.serving(move.old_files, (move.old,))
        if (file := move.root / path).is_file() and path in recorded
        if files.hash_file(file) != recorded[path]["sha256"]
    ]
    if edited and not force:
        raise TrbError(
            Exit.EDITED_FILE,
            f"changed since trb wrote it: {', '.join(edited[:5])}",
            where=str(move.root),
            remedy="keep your edit elsewhere, or replace it with --force",
        )


def served(root: Path, name: str) -> int:
    """The version that the repository serves."""
    manifest = repository.read(root).manifest or {}
    return int(manifest["endpoints"][name]["version"])


def check_server(root: Path, name: str, url: str) -> None:
    """``TrbError`` PROMOTE_FAILED where the server does not have the version that the repository serves."""
    version = served(root, name)
    listed = http.model(url.rstrip("/"), name).get("versions") or []
    if str(version) not in [str(number) for number in listed]:
        raise TrbError(
            Exit.PROMOTE_FAILED,
            f"the repository serves version {version} already, the server {', '.join(map(str, listed))}",
            where=url,
            remedy=f"trb rollback {name}, then promote with --url in one step; or start the server again",
        )


def in_repository(move: Move) -> None:
    """Serve the new version from the next load on: the steps' files first, the manifest last."""
    for model in (*move.steps, move.name):
        _write(move, model, move.new_files, (move.new,))
    versions.write_manifest(move.root, _manifest(move))


def _write(move: Move, model: str, shared: Mapping[str, bytes], numbers: Iterable[int]) -> None:
    """A model's own files, of one version, with these versions loaded; what only the other has goes."""
    wanted = {p: c for p, c in versions.serving(shared, numbers).items() if p.split("/")[0] == model}
    for path in {*move.old_files, *move.new_files} - {*wanted}:
        if path.split("/")[0] == model:
            (move.root / path).unlink(missing_ok=True)
    for path, content in wanted.items():
        if not (move.root / path).is_file() or (move.root / path).read_bytes() != content:
            files.write(move.root / path, content)


def _manifest(move: Move) -> dict[str, Any]:
    entries = versions.all_entries(move.manifest["endpoints"][move.name])
    entry = versions.entry(entries, move.new, move.old)
    facts = {p: f for p, f in move.manifest["files"].items() if p not in move.old_files}
    for path, content in versions.serving(move.new_files, (move.new,)).items():
        facts[path] = {"sha256": files.File(path=path, content=content).sha256(), "bytes": len(content)}
    endpoints = {**move.manifest["endpoints"], move.name: entry}
    return {**move.manifest, "endpoints": endpoints, "files": dict(sorted(facts.items()))}


def on_server(move: Move, urls: smoke.Urls, options: smoke.Options, tell: Tell) -> None:
    """The same on a server that runs from this repository in explicit mode; undone where anything fails.

    Raises ``TrbError`` PROMOTE_FAILED, UNREACHABLE.
    """
    for model in move.models:
        old, new = (
            pbtxt.parse(shared[f"{model}/{versions.CONFIG}"].decode())
            for shared in (move.old_files, move.new_files)
        )
        if field := versions.unlike(old, new):
            raise _failed(
                move,
                f"version {move.new} of {model} has another {field}: both cannot be loaded at once",
                "promote it in the repository (without --url), then start a server on it and switch clients",
            )
    tell(f"smoke: version {move.old} as it is served now")
    _prove(move, urls, options, "before anything was changed")
    manifest = (move.root / repository.MANIFEST).read_bytes()
    switched = False
    try:
        _load_both(move, urls, tell)
        switched = True
        _switch(move, urls, options, tell)
    except BaseException as error:
        tell(f"going back to version {move.old}")
        lost = _back(move, urls, manifest, switched)
        if lost and isinstance(error, TrbError):
            error.message += f"; and version {move.old} could not be loaded again: {lost}"
        raise


def _load_both(move: Move, urls: smoke.Urls, tell: Tell) -> None:
    if not move.steps:
        return
    tell(f"{move.name}: steps pinned to version {move.old}")
    _write(move, move.name, move.old_files, (move.old,))
    _load(move, urls, move.name, (move.old,))
    for step in move.steps:
        tell(f"{step}: versions {move.old} and {move.new}")
        _write(move, step, move.new_files, sorted((move.old, move.new)))
        _load(move, urls, step, (move.old, move.new))


def _switch(move: Move, urls: smoke.Urls, options: smoke.Options, tell: Tell) -> None:
    tell(f"{move.name}: version {move.new}")
    _write(move, move.name, move.new_files, (move.new,))
    _load(move, urls, move.name, (move.new,))
    versions.write_manifest(move.root, _manifest(move))
    tell(f"smoke: version {move.new}")
    _prove(move, urls, options, f"version {move.old} serves again")
    for step in move.steps:
        _write(move, step, move.new_files, (move.new,))
        _load(move, urls, step, (move.new,))
    tell(f"version {move.old} is unloaded")


def _back(move: Move, urls: smoke.Urls, manifest: bytes, switched: bool) -> str:
    """Undo, as far as the server lets us; what could not be loaded."""
    if switched and move.steps:
        for step in move.steps:
            _write(move, step, move.new_files, sorted((move.old, move.new)))
            _again(urls, step)
        _write(move, move.name, move.old_files, (move.old,))
        _again(urls, move.name)
    lost = []
    for model in (*move.steps, move.name):
        _write(move, model, move.old_files, (move.old,))
        lost.append(_again(urls, model))
    files.write(move.root / repository.MANIFEST, manifest)
    return "; ".join(dict.fromkeys(text for text in lost if text))


def _again(urls: smoke.Urls, model: str) -> str:
    try:
        said = http.load(urls.http, model, LOAD_TIMEOUT)
        _settled(urls, model)
        return said
    except OSError as error:
        return f"{model}: {error}"


def _load(move: Move, urls: smoke.Urls, model: str, numbers: tuple[int, ...]) -> None:
    """Load, and see that the server has these versions: else it runs from another repository.

    Returns once what is unloaded has answered its last request: until then the server says it is not ready.
    """
    try:
        said = http.load(urls.http, model, LOAD_TIMEOUT)
        states = _settled(urls, model)
    except OSError as error:
        raise _failed(
            move, f"the server did not answer while {model} was loaded: {error}", "see the server's log"
        ) from None
    if said:
        raise _failed(move, f"{model} could not be loaded: {said}", "see the server's log")
    if missing := [number for number in numbers if states.get(number) != "READY"]:
        raise _failed(
            move,
            f"the server has no version {missing[0]} of {model} after loading it",
            f"start it from this repository, in explicit mode ('trb serve {move.root}' does), and try again",
        )


def _settled(urls: smoke.Urls, model: str) -> dict[int, str]:
    """The state of each version once none is on its way, or ``DRAIN`` seconds have passed."""
    deadline = time.monotonic() + DRAIN
    while True:
        status, index = http.call(f"{urls.http}/v2/repository/index", {})
        mine = [item for item in (index if status == 200 else ()) if item["name"] == model]
        states = {int(item.get("version") or 0): str(item.get("state", "")) for item in mine}
        if not {*states.values()} & {"LOADING", "UNLOADING"} or time.monotonic() > deadline:
            return states
        time.sleep(0.05)


def _prove(move: Move, urls: smoke.Urls, options: smoke.Options, state: str) -> None:
    report = smoke.run(urls, repository.read(move.root), options)
    bad = [c for c in report.checks if c.status in (smoke.Status.FAILED, smoke.Status.UNVERIFIED)]
    bad = [check for check in bad if check.group != COUNTED]
    if bad:
        shown = "".join(f"\n  {check.group} ({check.protocol}): {check.detail}" for check in bad[:3])
        raise _failed(
            move,
            f"trb smoke finds {len(bad)} of {len(report.checks)} checks not to hold; {state}{shown}",
            f"see 'trb smoke {move.root} --url {urls.http}', correct the version, build it again",
        )


def _failed(move: Move, message: str, remedy: str) -> TrbError:
    return TrbError(Exit.PROMOTE_FAILED, message, where=move.name, remedy=remedy)

"""The ``[check]`` table of a trb.toml, and files of policies."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import is_file, load_toml
from triton_repo_builder.base.text import cut
from triton_repo_builder.check import installed, policies, requirements
from triton_repo_builder.check.image import Image
from triton_repo_builder.check.policies import Policy
from triton_repo_builder.check.selection import POLICY, Selection, unknown

KEYS = (
    "select",
    "ignore",
    "models",
    "release",
    "modules",
    "backends",
    "gpus",
    "baseline",
    "policy",
    "policies",
)


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """Settings of a team: the image, the selection of codes and the team's policies."""

    selection: Selection = field(default_factory=Selection)
    image: Image = field(default_factory=Image)
    release: str = ""
    baseline: Path | None = None
    policies: tuple[Policy, ...] = ()


def read(path: Path | None, *, named: bool = True) -> CheckSettings:
    """The settings of a trb.toml; defaults without a file or its ``[check]`` table. Raises USAGE.

    A file that the user has not ``named`` is not trusted: OUTSIDE_FOLDER for paths outside of its folder.
    """
    if path is None:
        return CheckSettings()
    if not named:
        _refuse_outside(path, [path])
    table = _load(path).get("check", {})
    if not isinstance(table, Mapping):
        raise _refused(path, "[check] must be a table", "write [check] on a line of its own")
    for key in table:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            remedy = f"did you mean '{near[0]}'?" if near else f"keys: {', '.join(KEYS)}"
            raise _refused(path, f"unknown key {cut(key)} in [check]", remedy)
    models = table.get("models", {})
    if not isinstance(models, Mapping):
        raise _refused(path, "[check.models] must be a table", 'write "NAME" = ["CODE"]')
    for key in ("release", "baseline"):
        if not isinstance(table.get(key, ""), str):
            raise _refused(path, f"{key} = {cut(table[key])}", f'a text: {key} = "…"')
    if table.get("select") == []:
        raise _refused(path, "select is empty: nothing would be found", "leave it out to select all")
    listed = _listed(path)
    files = [path.parent / name for name in listed("policies", table.get("policies", []))]
    modules = listed("modules", table.get("modules", []))
    if not named:
        baseline = [path.parent / str(table["baseline"])] if "baseline" in table else []
        _refuse_outside(path, [*files, *(path.parent / name for name in modules), *baseline])
    return CheckSettings(
        selection=select(
            listed("select", table.get("select", ["*"])),
            listed("ignore", table.get("ignore", [])),
            {str(name): listed(str(name), codes) for name, codes in models.items()},
            where=str(path),
        ),
        image=image(
            listed("backends", table.get("backends", [])),
            modules,
            _gpus(path, table.get("gpus")),
            path.parent,
        ),
        release=str(table.get("release", "")),
        baseline=path.parent / str(table["baseline"]) if "baseline" in table else None,
        policies=(*policies.read(table, str(path)), *read_policies(files)),
    )


def _refuse_outside(path: Path, places: Iterable[Path]) -> None:
    for place in places:
        if not containment.is_within(path.parent, place):
            raise TrbError(
                Code.OUTSIDE_FOLDER,
                f"{path} names a place outside of its folder",
                where=str(place),
                remedy=f"use --config {path} if you trust that file",
            )


def read_policies(files: Iterable[Path]) -> tuple[Policy, ...]:
    """The policies of some files, each of which must have one. Raises USAGE."""
    read: list[Policy] = []
    for file in files:
        document = _load(file)
        if strange := sorted(set(document) - {"policy"}):
            message = f"{cut(strange[0])} does not belong into a file of policies"
            raise _refused(file, message, "write [policy.NAME]; a trb.toml is read with --config")
        file_policies = policies.read(document, str(file))
        if not file_policies:
            raise _refused(file, "has no policy", "write [policy.NAME]")
        read += file_policies
    return tuple(read)


def select(
    codes: Iterable[str],
    ignored: Iterable[str],
    models: Mapping[str, Iterable[str]] | None = None,
    *,
    where: str = "",
) -> Selection:
    """A selection of codes that exist. Raises USAGE."""
    selection = Selection(
        select=tuple(codes),
        ignore=tuple(ignored),
        models={name: tuple(entry) for name, entry in (models or {}).items()},
    )
    named = (
        *selection.select,
        *selection.ignore,
        *(code for entry in selection.models.values() for code in entry),
    )
    if wrong := unknown(named):
        remedy = "docs/checks.md lists all codes; 'onnx-*' means all that begin so"
        raise TrbError(Code.USAGE, f"no finding has the code '{wrong[0]}'", where=where, remedy=remedy)
    return selection


def check_selected(codes: Iterable[str], rules: Iterable[Policy]) -> None:
    """Raise USAGE for a selected policy that does not exist: it would find nothing."""
    names = [f"{POLICY}{rule.name}" for rule in rules]
    for code in codes:
        if code.startswith(POLICY) and not any(fnmatchcase(name, code) for name in names):
            remedy = f"there are: {', '.join(names)}" if names else "give a file of policies with --policy"
            raise TrbError(Code.USAGE, f"no policy has the code '{code}'", remedy=remedy)


def image(backends: Iterable[str], modules: Iterable[str], gpus: int | None, folder: Path = Path()) -> Image:
    """Image with these backends, modules and GPUs; a module may be a requirements file or a built image."""
    names: set[str] = set()
    for module in modules:
        file = folder / module
        if is_file(file):
            names |= requirements.of_file(file)
        elif module.endswith(".txt") or ("/" in module and ":" not in module):
            remedy = "name a module, a file of requirements, or the name:tag of an image"
            raise TrbError(Code.USAGE, "no such file of modules", where=str(file), remedy=remedy)
        elif ":" in module:
            names |= {name for line in installed.requirements(module) for name in requirements.modules(line)}
        else:
            names |= requirements.modules(module)
    return Image(backends=frozenset(backends), modules=frozenset(names), gpus=gpus)


def _load(path: Path) -> dict[str, Any]:
    try:
        return load_toml(files.read_text(path, limit=files.LARGEST_TOML))
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}", "check the path") from None
    except ValueError as error:
        raise _refused(path, f"is not valid TOML: {error}", "correct the file") from None


def _listed(path: Path) -> Callable[[str, Any], tuple[str, ...]]:
    def listed(key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _refused(path, f"{key} must be a list of texts", f'write {key} = ["…"]')
        return tuple(value)

    return listed


def _gpus(path: Path, value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise _refused(path, f"gpus = {cut(value)}", "a number: 0 or more")
    return value


def _refused(path: Path, message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=str(path), remedy=remedy)

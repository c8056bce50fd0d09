"""``trb build --all DIR``: every model found below a folder, into one repository, as one change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.build import build
from triton_repo_builder.build.build import Build
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.read import source
from triton_repo_builder.read.options import BuildOptions, check, usage
from triton_repo_builder.read.source import PREFERRED
from triton_repo_builder.read.trb_toml import layered, read_toml
from triton_repo_builder.write import publish
from triton_repo_builder.write.built import BuiltEndpoint
from triton_repo_builder.write.publish import Publication

TOML = "trb.toml"
DESCRIBES = ("config.json", "tokenizer.json")
"""Beside an ONNX file, these make the folder one exported model."""
ONE_MODEL = ("name", "model")
"""Options that only the trb.toml of one model may set."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A model below the folder, and what its endpoint is called by default."""

    model: Path
    """An exported folder, or an ONNX file that lies by itself."""
    name: str
    config: Path | None
    """Its own trb.toml."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A model that was not built, and why."""

    name: str
    model: Path
    error: TrbError


@dataclass(frozen=True, kw_only=True)
class Many:
    """What was built of all that was found; nothing is written yet."""

    builds: tuple[Build, ...]
    failed: tuple[Failed, ...]
    publication: Publication


Step = Callable[[str, int, int], None]
"""Receives the model's name, how many are done, and how many there are."""


def discover(root: Path) -> tuple[Found, ...]:
    """Every model below ``root``, by path. Raises ``TrbError`` NOT_FOUND where there is none.

    A folder that an exporter wrote is one model; ONNX files without a config.json or tokenizer.json beside
    them are one model each. Hidden folders are left out.
    """
    if not root.is_dir():
        raise TrbError(Code.NOT_FOUND, "no such folder", where=str(root), remedy="check the path after --all")
    try:
        found = tuple(sorted(_below(root, root, set()), key=lambda one: str(one.model)))
    except OSError as error:
        raise TrbError(
            Code.NOT_FOUND,
            f"cannot be read: {error.strerror}",
            where=str(error.filename or root),
            remedy="make it readable for this user",
        ) from None
    if not found:
        raise TrbError(
            Code.NOT_FOUND,
            "no .onnx file below this folder",
            where=str(root),
            remedy="export the models first, e.g. optimum-cli export onnx --model NAME FOLDER, a folder each",
        )
    return found


def _below(root: Path, folder: Path, seen: set[Path]) -> list[Found]:
    seen.add(folder.resolve())
    onnx = sorted(folder.glob("*.onnx"))
    exported = any((folder / name).is_file() for name in PREFERRED)
    exported = exported or (bool(onnx) and any((folder / name).is_file() for name in DESCRIBES))
    config = folder / TOML if folder != root and (folder / TOML).is_file() else None
    found = []
    if exported:
        name = _name(root, folder) or source.default_name(source.model_file(folder))
        found.append(Found(model=folder, name=name, config=config))
    else:
        found += [Found(model=file, name=_name(root, file.with_suffix("")), config=config) for file in onnx]
    for inner in sorted(folder.iterdir()):
        own = exported and inner.name == "onnx"
        if inner.is_dir() and not inner.name.startswith(".") and not own and inner.resolve() not in seen:
            found += _below(root, inner, seen)
    return found


def _name(root: Path, place: Path) -> str:
    """From the whole path below the root, so that no neighbour changes it; empty for the root itself."""
    parts = place.relative_to(root).parts
    return source.clean_name("_".join(parts)) if parts else ""


def options_for(found: Found, common: Mapping[str, Any], flags: Mapping[str, Any]) -> BuildOptions:
    """Defaults, the common trb.toml, the model's own, then the flags that were given (not None)."""
    own = read_toml(found.config) if found.config else {}
    if "output" in own:
        raise usage("output", f"cannot differ by model ({found.config})", "give --output once, for all")
    here = {"model": found.model, "name": found.name, "share_tokenizer": True}
    return check(BuildOptions(**layered(here, common, own, flags)))


def common_options(config: Path | None) -> dict[str, Any]:
    """The trb.toml for all. Raises ``TrbError`` USAGE where it names one model."""
    common = read_toml(config) if config else {}
    for field in ONE_MODEL:
        if field in common:
            raise usage(field, f"{config} sets it for every model", "set it in the model's own trb.toml")
    return common


def build_all(
    found: Sequence[Found],
    common: Mapping[str, Any],
    flags: Mapping[str, Any],
    output: Path,
    *,
    force: bool = False,
    fail_fast: bool = False,
    step: Step = lambda name, done, total: None,
) -> Many:
    """Build what can be built; writes nothing. With ``fail_fast`` the first failure is raised."""
    builds: dict[str, tuple[Found, Build]] = {}
    failed: list[Failed] = []

    def fails(one: Found, name: str, error: TrbError) -> None:
        if fail_fast:
            raise error
        failed.append(Failed(name=name, model=one.model, error=error))

    given = frozenset(common) | {field for field, value in flags.items() if value is not None}
    for done, one in enumerate(found):
        step(one.name, done, len(found))
        name = one.name
        try:
            options = options_for(one, common, flags)
            name = options.name or name
            if name in builds:
                raise _same_name(name, builds[name][0], one)
            builds[name] = one, build.build(replace(options, output=output), common=given)
        except TrbError as error:
            fails(one, name, error)
        except Exception as error:  # one strange model must not cost the others
            if fail_fast:
                raise
            fails(one, name, _bug(one, error))
    step("", len(found), len(found))
    refused: set[str] = set()

    def refuse(made: BuiltEndpoint, error: TrbError) -> None:
        refused.add(made.name)
        fails(builds[made.name][0], made.name, error)

    made = [made for _, made in builds.values()]
    publication = publish.prepare_all(made, output, force=force, refused=refuse)
    return Many(
        builds=tuple(one for one in made if one.name not in refused),
        failed=tuple(failed),
        publication=publication,
    )


def _same_name(name: str, first: Found, second: Found) -> TrbError:
    return TrbError(
        Code.BAD_NAME,
        f"'{name}' is also the name of {first.model}",
        where=str(second.model),
        remedy="give one of them another name: name = ... in the [build] table of a trb.toml in its folder",
    )


def _bug(one: Found, error: Exception) -> TrbError:
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        f"trb failed on it: {type(error).__name__}: {error}",
        where=str(one.model),
        remedy=f"this is a bug in trb: please report it, with what 'trb build --model {one.model}' prints",
    )

"""``trb build --all DIR``: every model found below a folder, into one repository, as one change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import hub_name, source
from triton_repo_builder.model.read.option_checks import check
from triton_repo_builder.model.read.options import KEEP, BuildOptions, usage
from triton_repo_builder.model.read.source import PREFERRED
from triton_repo_builder.model.read.trb_toml import layered, read_toml, refuse_reach
from triton_repo_builder.produce import build, keep_edits
from triton_repo_builder.produce.build import Build
from triton_repo_builder.produce.write import publish
from triton_repo_builder.produce.write.built import BuiltEndpoint
from triton_repo_builder.produce.write.publish import Publication

TOML = "trb.toml"
DESCRIBES = ("config.json", "tokenizer.json")
"""Files that, beside an ONNX file, mark the folder as one exported model."""
ONE_MODEL = ("name", "model")
"""Options that only the trb.toml of one model may set."""


@dataclass(frozen=True, kw_only=True)
class DiscoveredModel:
    """A model below the folder, and the default name of its endpoint."""

    model: Path
    """An exported folder, or an ONNX file by itself."""
    name: str
    config: Path | None
    """The model's own trb.toml."""
    root: Path
    """The folder below which it was found."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A model that was not built, with the error."""

    name: str
    model: Path
    error: TrbError


@dataclass(frozen=True, kw_only=True)
class BuildAllResult:
    """Builds of all models found; nothing is written yet."""

    builds: tuple[Build, ...]
    failed: tuple[Failed, ...]
    publication: Publication


Step = Callable[[str, int, int], None]
"""Receives the model's name, how many are done, and how many there are."""


def discover(root: Path) -> tuple[DiscoveredModel, ...]:
    """Every model below ``root``, by path. Raises ``TrbError`` NOT_FOUND if there is none.

    A folder that an exporter wrote is one model; ONNX files without a config.json or tokenizer.json beside
    them are one model each. Hidden folders are left out.
    """
    if not root.is_dir():
        raise TrbError(Code.NOT_FOUND, "no such folder", where=str(root), remedy="check the path after --all")
    try:
        models = tuple(sorted(_below(root, root, set()), key=lambda discovered: str(discovered.model)))
    except OSError as error:
        raise files.unreadable(root, error) from None
    if not models:
        raise TrbError(
            Code.NOT_FOUND,
            "no .onnx file below this folder",
            where=str(root),
            remedy="export the models first, e.g. optimum-cli export onnx --model NAME FOLDER, a folder each",
        )
    return models


def _below(root: Path, folder: Path, seen: set[Path]) -> list[DiscoveredModel]:
    seen.add(folder.resolve())
    containment.check_within(root, folder)
    onnx = sorted(folder.glob("*.onnx"))
    exported = any((folder / name).is_file() for name in PREFERRED)
    exported = exported or (bool(onnx) and any((folder / name).is_file() for name in DESCRIBES))
    config = containment.within(folder, TOML) if folder != root else None
    models = []
    if exported:
        name = _name(root, folder) or source.default_name(source.model_file(folder))
        models.append(DiscoveredModel(model=folder, name=name, config=config, root=root))
    else:
        models += [
            DiscoveredModel(model=file, name=_name(root, file.with_suffix("")), config=config, root=root)
            for file in onnx
            if containment.within(folder, file.name)
        ]
    for inner in sorted(folder.iterdir()):
        weights_folder = exported and inner.name == "onnx"
        if (
            inner.is_dir()
            and not inner.name.startswith(".")
            and not weights_folder
            and inner.resolve() not in seen
        ):
            models += _below(root, inner, seen)
    return models


def _name(root: Path, place: Path) -> str:
    """Name from the path below the root, whatever other models exist; empty for the root itself."""
    parts = source.without_commits(place.relative_to(root).parts)
    names = [
        part.removeprefix(source.CACHED).replace("--", "_") if part.startswith(source.CACHED) else part
        for part in parts
    ]
    return source.clean_name("_".join(names)) if names else ""


def options_for(
    discovered: DiscoveredModel, common: Mapping[str, Any], flags: Mapping[str, Any]
) -> BuildOptions:
    """Defaults, the common trb.toml, the model's own, then the flags that were given (not None)."""
    settings = read_toml(discovered.config) if discovered.config else {}
    if "output" in settings:
        raise usage("output", f"cannot differ by model ({discovered.config})", "give --output once, for all")
    if "model" in settings and (name := hub_name.of(settings["model"])):
        remedy = f"build it by itself: trb build --model {name}"
        raise usage(
            "model", f"names a model on the Hub, which --all does not fetch ({discovered.config})", remedy
        )
    refuse_reach(
        settings, discovered.root, f"a model's own trb.toml ({discovered.config})", "give it once, for all"
    )
    base = {"model": discovered.model, "name": discovered.name, "share_tokenizer": True}
    options = check(BuildOptions(**layered(base, common, settings, flags)))
    if options.precision != KEEP:
        remedy = "run trb optimize on that model, and build the folder that it writes"
        raise usage("precision", "does not apply to --all", remedy)
    return options


def common_options(config: Path | None) -> dict[str, Any]:
    """The trb.toml for all models. Raises ``TrbError`` USAGE if it names one model."""
    common = read_toml(config) if config else {}
    for field in ONE_MODEL:
        if field in common:
            raise usage(field, f"{config} sets it for every model", "set it in the model's own trb.toml")
    return common


def build_all(
    models: Sequence[DiscoveredModel],
    common: Mapping[str, Any],
    flags: Mapping[str, Any],
    output: Path,
    *,
    force: bool = False,
    drop_edits: bool = False,
    fail_fast: bool = False,
    step: Step = lambda name, done, total: None,
    resolve: Callable[[BuildOptions], BuildOptions] = lambda options: options,
    built_all: Callable[[], None] = lambda: None,
) -> BuildAllResult:
    """Build what can be built; writes nothing. With ``fail_fast`` the first failure is raised.

    ``built_all`` is called before the builds are compared with the repository, which must not change from
    then on until they are written. ``drop_edits``: accepted hand edits are not kept. ``resolve`` chooses the
    release that ``auto`` stands for.
    """
    builds: dict[str, tuple[DiscoveredModel, Build]] = {}
    failed: list[Failed] = []

    def fails(discovered: DiscoveredModel, name: str, error: TrbError) -> None:
        if fail_fast:
            raise error
        failed.append(Failed(name=name, model=discovered.model, error=error))

    set_options = frozenset(common) | {field for field, value in flags.items() if value is not None}
    for done, discovered in enumerate(models):
        step(discovered.name, done, len(models))
        name = discovered.name
        try:
            options = resolve(options_for(discovered, common, flags))
            name = options.name or name
            if name in builds:
                raise _same_name(name, builds[name][0], discovered)
            builds[name] = discovered, build.build(replace(options, output=output), common=set_options)
        except TrbError as error:
            fails(discovered, name, error)
        except Exception as error:  # one strange model must not cost the others
            if fail_fast:
                raise
            fails(discovered, name, _bug(discovered, error))
    step("", len(models), len(models))
    refused: set[str] = set()

    def refuse(built: BuiltEndpoint, error: TrbError) -> None:
        refused.add(built.name)
        fails(builds[built.name][0], built.name, error)

    built_all()
    built: list[Build] = []
    for _, each in builds.values():
        try:
            built.append(keep_edits.keep(each, output, force=drop_edits))
        except TrbError as error:
            refuse(each, error)
    publication = publish.prepare_all(built, output, force=force, refused=refuse)
    return BuildAllResult(
        builds=tuple(discovered for discovered in built if discovered.name not in refused),
        failed=tuple(failed),
        publication=publication,
    )


def _same_name(name: str, first: DiscoveredModel, second: DiscoveredModel) -> TrbError:
    return TrbError(
        Code.BAD_NAME,
        f"'{name}' is also the name of {first.model}",
        where=str(second.model),
        remedy="give one of them another name: name = ... in the [build] table of a trb.toml in its folder",
    )


def _bug(discovered: DiscoveredModel, error: Exception) -> TrbError:
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        f"trb failed on it: {type(error).__name__}: {error}",
        where=str(discovered.model),
        remedy="this is a bug in trb: please report it, with what "
        f"'trb build --model {discovered.model}' prints",
    )

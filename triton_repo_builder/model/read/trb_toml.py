"""Build options from several places: defaults are overridden by trb.toml, that by flags."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import load_toml
from triton_repo_builder.base.option_values import InvalidValue
from triton_repo_builder.base.text import cut
from triton_repo_builder.model.read.option_checks import check
from triton_repo_builder.model.read.options import OPTIONS, ORIGINS, BuildOptions, usage

CODE = ("tokenizers_wheel", "pillow_wheel")
"""Options that name code which runs in the server."""


def read_toml(path: Path) -> dict[str, Any]:
    """The ``[build]`` table of a trb.toml, keys checked against ``BuildOptions``."""
    values: dict[str, Any] = {}
    origin = path.name if path.name.isprintable() else "the file of --config"  # it is shown in comments
    for key, value in _build_table(path).items():
        name = key.replace("-", "_")
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            raise TrbError(
                Code.USAGE,
                f"unknown option {cut(key)} in [build]",
                where=str(path),
                remedy=f"did you mean '{near[0]}'?" if near else "see 'trb build --help'",
            )
        kind = OPTIONS[name].value
        try:
            values[name] = kind.from_toml(value, path.parent)
        except InvalidValue as error:
            raise usage(name, error.message, error.remedy) from None
        except TypeError:
            raise TrbError(
                Code.USAGE,
                f"{key} = {cut(value)} is not valid",
                where=f"{path} [build]",
                remedy=f"give it as {kind.expected}",
            ) from None
    return {**values, ORIGINS: dict.fromkeys(values, origin)} if values else {}


def refuse_reach(values: Mapping[str, Any], folder: Path, whose: str, remedy: str) -> None:
    """Raise ``TrbError`` if a trb.toml that nobody named brings code, or names a file outside ``folder``."""
    for field, value in values.items():
        if field in CODE:
            raise usage(field, f"{whose} may not set it: what it names runs in the server", remedy)
        for path in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(path, Path) and not containment.is_within(folder, path):
                message = f"{whose} names a place outside of {folder.resolve()}"
                raise TrbError(Code.OUTSIDE_FOLDER, message, where=str(path), remedy=remedy)


def _build_table(path: Path) -> dict[str, Any]:
    def refused(message: str, remedy: str) -> TrbError:
        return TrbError(Code.USAGE, message, where=str(path), remedy=remedy)

    try:
        document = load_toml(files.read_text(path, limit=files.LARGEST_TOML))
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror}", "check the path given to --config") from None
    except ValueError as error:
        raise refused(f"is not valid TOML: {error}", "correct the file") from None
    unknown = [key for key in document if key not in ("build", "check")]  # check/settings.py reads that
    if unknown:
        raise refused(
            f"unknown table {cut(unknown[0])}", "options of trb build go into a table called [build]"
        )
    table = document.get("build", {})
    if not isinstance(table, dict):
        raise refused("[build] must be a table", "write [build] on a line of its own")
    return table


def layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Each layer overrides those before it, if it has a value; ``origins`` follow the values."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        overrides = {key: value for key, value in layer.items() if value is not None and key != ORIGINS}
        files = layer.get(ORIGINS, {})
        origins = {
            key: file for key, file in {**origins, **files}.items() if key not in overrides or key in files
        }
        values |= overrides
    return {**values, ORIGINS: origins}


def merge(flags: Mapping[str, Any], config: Path | None) -> BuildOptions:
    """Defaults, overridden by trb.toml, overridden by the flags that are not None."""
    values = layered(read_toml(config) if config else {}, flags)
    if "model" not in values:
        raise usage("model", "missing", "name an ONNX file or an exported folder: --model bert.onnx")
    return check(BuildOptions(**values))

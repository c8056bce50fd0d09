"""Addresses that ``--model`` takes beside paths and names on a Hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.model.read.options import usage

_SCHEME = re.compile(r"(models|runs|mlflow-artifacts|https?|s3|gs|az|file):/+(.*)", re.DOTALL)
_MODEL = re.compile(r"(?P<name>[^/@]+)(?:/(?P<version>\d+)|/(?P<stage>[A-Za-z]+)|@(?P<alias>[^/@]+))")
_RUN = re.compile(r"(?P<run>[0-9a-f]{32})/(?P<path>[^/].*)")
MLFLOW = ("models", "runs", "mlflow-artifacts")


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A version of a registered model: its number, an alias or a stage."""

    name: str
    version: str = ""
    alias: str = ""
    stage: str = ""


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """A model that a run logged."""

    run: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A file or a folder."""

    url: str


Address = Registered | OfRun | Plain


def text(model: Path) -> str:
    """A model option as it was typed: a path has one slash where a URL has two."""
    match = _SCHEME.fullmatch(str(model))
    if match is None:
        return str(model)
    if match[1] in MLFLOW:
        return f"{match[1]}:/{match[2]}"
    return f"{match[1]}:///{match[2]}" if match[1] == "file" else f"{match[1]}://{match[2]}"


def of(model: Path) -> Address | None:
    """The address that a model option is; None for a path. Raises ``TrbError`` USAGE."""
    match = _SCHEME.fullmatch(str(model))
    if match is None:
        return None
    scheme, rest = match.groups()
    if scheme == "models":
        parts = _MODEL.fullmatch(rest)
        if parts is None:
            raise _bad(model, "models:/NAME/VERSION, models:/NAME@ALIAS or models:/NAME/STAGE")
        return Registered(**{key: value or "" for key, value in parts.groupdict().items()})
    if scheme == "runs":
        parts = _RUN.fullmatch(rest)
        if parts is None:
            raise _bad(model, "runs:/RUN_ID/PATH, with the 32 letters of the run")
        return OfRun(run=parts["run"], path=parts["path"].rstrip("/"))
    return Plain(url=text(model))


def _bad(model: Path, form: str) -> TrbError:
    return usage("model", f"'{text(model)}' is no address of MLflow", f"write {form}")

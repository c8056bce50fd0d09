"""The release matrix: versions and features of each Triton release, from ``releases.toml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import load_toml

_FILE = Path(__file__).with_name("releases.toml")
_OPERATORS = Path(__file__).with_name("operators.toml")
CONTRIB = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One monthly release of Triton and the limits of the ONNX Runtime inside it."""

    name: str
    """The image tag's: ``24.10``."""
    server: str
    onnxruntime: str
    max_ir: int
    max_opset: int
    python: str
    cuda: str
    features: frozenset[str]
    """Features that an older release lacks; see ``[features]`` in releases.toml."""
    refused_with_500: frozenset[str]
    """Malformed JSON requests that its own parser answers with 500: names of smoke's probes."""

    def loads(self, ir: int, opset: int) -> bool:
        """Whether its ONNX Runtime accepts a model of this IR version and default opset."""
        return ir <= self.max_ir and opset <= self.max_opset

    def runs(self, domain: str, operator: str, since: int) -> bool:
        """Whether its ONNX Runtime has a CPU kernel for that version of an operator.

        True for operators of other domains, which a library of the user's may bring.
        """
        name = operator if domain == CONTRIB else f"{f'{domain}.' if domain else ''}{operator}:{since}"
        first = _first_versions().get(name)
        if first is None:
            return domain != CONTRIB
        return _order(first) <= _order(self.onnxruntime)

    def knows(self, domain: str, operator: str) -> bool:
        """Whether its ONNX Runtime knows an operator of its own domains, with a CPU kernel or without."""
        first = _operator_versions().get(operator if domain == CONTRIB else f"{domain}.{operator}")
        in_time = first is not None and _order(first) <= _order(self.onnxruntime)
        return in_time or (domain == CONTRIB and self.runs(domain, operator, 1))

    def takes(self, operator: str, attribute: str, value: int) -> bool:
        """Whether its ONNX Runtime takes an attribute of one of ``CONTRIB``; ``value``: 0 for no integer."""
        first = _attributes()
        names = (f"{operator}.{attribute}", f"{operator}.{attribute}={value}")
        return all(_order(first[name]) <= _order(self.onnxruntime) for name in names if name in first)

    def infers(self, operator: str, opset: int) -> str:
        """How its ONNX Runtime infers an operator's output.

        ``sizes``: as the newest; ``windows``: see ``ort_hidden.py``; ``rank``: no sizes; or ``nothing``.
        """
        entry = _shapes().get(operator)
        differs = entry and opset >= entry.opset and _within(self.onnxruntime, entry.versions)
        return entry.infers if entry and differs else "sizes"


AUTO = "auto"
"""Value of ``--triton-release``: the release of the engine that will run what is written."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The release that something is written for."""

    release: Release
    source: str
    """``stated``, ``embedded``, ``image`` or ``newest``."""
    why: str
    """Reason in words."""


@cache
def _document() -> dict[str, Any]:
    return load_toml(_FILE.read_text(encoding="utf-8"))


@cache
def _first_versions() -> dict[str, str]:
    """Operators that not every ONNX Runtime has, by the version that brought them."""
    return _versions("standard") | _versions("contrib")


@cache
def _attributes() -> dict[str, str]:
    """Attributes, and values of them, that came later than their operator, of ``CONTRIB``."""
    return _versions("attributes") | _versions("values")


@cache
def _operator_versions() -> dict[str, str]:
    """Operators of ONNX Runtime's own domains without a CPU kernel in the version that brought them."""
    return _versions("known")


def _versions(table: str) -> dict[str, str]:
    return {name: version for version, names in _operators()[table].items() for name in names}


class _Inference(NamedTuple):
    """How some versions of ONNX Runtime infer an operator's sizes differently, from an operator set on."""

    opset: int
    versions: str
    infers: str


@cache
def _shapes() -> dict[str, _Inference]:
    return {
        operator: _Inference(int(opset), versions, infers)
        for versions, entries in _operators()["shapes"].items()
        for operator, opset, infers in ((*name.split(":"), infers) for name, infers in entries.items())
    }


def _within(version: str, versions: str) -> bool:
    """Whether a version is in ``A to B``, or older than ``B``."""
    first, _, end = versions.rpartition(" to ")
    return _order(version) < _order(end) and (not first or _order(first) <= _order(version))


@cache
def _operators() -> dict[str, Any]:
    return load_toml(_OPERATORS.read_text(encoding="utf-8"))


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """A pre-release comes before its release."""
    plain, _, before = version.partition("-")
    return tuple(map(int, plain.split("."))), not before


@cache
def load() -> dict[str, Release]:
    """Every known release, oldest first."""
    document = _document()
    result = {}
    for name, entry in sorted(document["releases"].items()):
        limits = document["onnxruntime"][entry["onnxruntime"]]
        features = frozenset(key for key, first in document["features"].items() if first <= name)
        broken = (names for first, names in document["refused_with_500"].items() if first <= name)
        result[name] = Release(
            name=name, features=features, refused_with_500=frozenset().union(*broken), **limits, **entry
        )
    return result


def get(name: str) -> Release:
    """The release of that name (``24.10``)."""
    releases = load()
    if name not in releases:
        raise TrbError(
            Code.USAGE,
            f"unknown Triton release '{name}'",
            remedy=f"known releases: {', '.join(releases)}",
        )
    return releases[name]


def default() -> Release:
    """The default release: the release of the embedded server."""
    return get(_document()["default"])


def target(name: str | None) -> Target:
    """The release of that name; the embedded server's without a name, or for ``auto``."""
    if name and name != AUTO:
        return Target(release=get(name), source="stated", why="stated (--triton-release)")
    return Target(release=default(), source="embedded", why="the embedded server's")


def read() -> str:
    """The day on which the sources of releases.toml were read, ``2026-11-28``."""
    return str(_document()["read"])


def newest() -> Release:
    """The newest known release."""
    return [*load().values()][-1]


def older_inference() -> list[dict[str, tuple[int, str]]]:
    """Operators whose sizes older versions of ONNX Runtime infer differently, the newest version first.

    One table for each version, by operator: the operator set from which on it holds, and how
    (``Release.infers``).
    """
    tables: list[dict[str, tuple[int, str]]] = []
    for version in sorted({release.onnxruntime for release in load().values()}, key=_order, reverse=True):
        table = {
            operator: (entry.opset, entry.infers)
            for operator, entry in _shapes().items()
            if _within(version, entry.versions)
        }
        if table and table not in tables:
            tables.append(table)
    return tables


def of_server(version: str) -> Release:
    """The release of a running server, by the version in its metadata (``2.70.0``).

    A server between two releases, or newer than all of them, counts as the release before it.
    """
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    releases = list(load().values())
    return next(
        (release for release in reversed(releases) if _order(release.server)[0] <= numbers), releases[0]
    )


def can_load(ir: int, opset: int) -> list[str]:
    """Names of the releases whose ONNX Runtime accepts such a model, oldest first."""
    return [release.name for release in load().values() if release.loads(ir, opset)]


def first_with(feature: str) -> str:
    """The first release that has a feature; KeyError for one that releases.toml does not list."""
    return str(_document()["features"][feature])

"""The direction of imports, lazy ones included: docs/design.md, "The wings"."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

NAME = "triton_repo_builder"
ROOT = Path(__file__).resolve().parents[2] / NAME
LAYERS = (
    ("base",),
    ("repository",),
    ("model.read",),
    ("model.graph",),
    ("endpoint.plan.model",),
    ("endpoint.tasks",),
    ("endpoint.golden",),
    ("endpoint.plan",),
    ("endpoint.render",),
    ("check",),
    ("produce.write",),
    ("produce",),
    ("run.options",),
    ("run.client",),
    ("run.gateway",),
    ("run.serve", "run.codegen"),
    ("run.smoke", "run.demo", "run.observe"),
    ("measure.objective", "measure.quality"),
    ("measure.options",),
    ("measure.bench",),
    ("measure.optimize", "measure.capacity", "measure.doctor"),
    ("measure.tune",),
    ("ship.options", "ship.rendered"),
    ("ship.stores",),
    ("ship.origins",),
    ("ship.vcs",),
    ("ship.deploy", "ship.container_image", "ship.monitoring"),
    ("ship.targets",),
    ("ship.canary",),
    ("cli",),
    ("__main__",),
)
"""From the ground up: a module imports from its own package and from the layers below."""
WINGS = {
    "base": (),
    "repository": ("base",),
    "model": ("base", "repository"),
    "endpoint": ("base", "repository", "model"),
    "check": ("base", "repository", "model"),
    "produce": ("base", "repository", "model", "endpoint", "check"),
    "run": ("base", "repository"),
    "measure": ("base", "repository", "model", "endpoint", "check", "produce", "run"),
    "ship": ("base", "repository", "model", "endpoint", "check", "produce", "run", "measure"),
}
"""Which wings each wing may import from; ``cli`` may from all. ``runtime`` is in no layer: it runs inside the
server and imports none of ours, and its pure rules may be used anywhere."""


@cache
def imports() -> dict[str, frozenset[str]]:
    """Each module with the modules of ours that it imports, wherever in the module it does."""
    files = {
        ".".join((NAME, *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in ROOT.rglob("*.py")
        if "runtime" not in path.parts
    }
    return {name: frozenset(_imported(path, name, files) - {name}) for name, path in files.items()}


def _imported(path: Path, name: str, known: dict[str, Path]) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                modules.add(inner if inner in known else node.module)
    return {module for module in modules if module in known and module != NAME}


def _short(module: str) -> str:
    return module.removeprefix(f"{NAME}.")


def _part(module: str) -> str:
    """The entry of LAYERS that a module belongs to: the longest that fits."""
    short = _short(module)
    fitting = [part for layer in LAYERS for part in layer if f"{short}.".startswith(f"{part}.")]
    return max(fitting, key=len, default="")


def _level(part: str) -> int:
    return next(level for level, layer in enumerate(LAYERS) if part in layer)


def _allowed(importer: str, imported: str) -> bool:
    upper, lower = _part(importer), _part(imported)
    if upper == lower:
        return True
    wing, other = upper.split(".")[0], lower.split(".")[0]
    return _level(lower) < _level(upper) and (wing == other or other in WINGS.get(wing, (other,)))


def test_every_module_has_a_layer() -> None:
    without = {_short(module) for module in imports() if module != NAME and not _part(module)}
    assert without == WINGS.keys() - {"base", "repository", "check", "produce"}


def test_imports_point_down() -> None:
    wrong = {
        (_short(importer), _short(imported))
        for importer, modules in imports().items()
        if importer != NAME
        for imported in modules
        if not _allowed(importer, imported)
    }
    assert sorted(wrong) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    reach = {name: set(modules) for name, modules in imports().items()}
    for middle in reach:
        for modules in reach.values():
            if middle in modules:
                modules |= reach[middle]
    assert sorted(_short(name) for name, modules in reach.items() if name in modules) == []

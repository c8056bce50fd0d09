"""Python models, by reading ``model.py``: nothing of it is run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Severity

CLASS = "TritonPythonModel"
IN_THE_IMAGE = frozenset({"c_python_backend_utils", "numpy", "triton_python_backend_utils"})


def check(context: ModelContext) -> Iterator[Finding]:
    """The model file of each selected version, and what config.pbtxt leaves to it."""
    if context.backend != "python":
        return
    for version in context.selected:
        file = context.file(version)
        if file is not None and file.is_file():
            yield from _file(context, file)


def _file(context: ModelContext, file: Path) -> Iterator[Finding]:
    python = tuple(int(part) for part in context.release.python.split("."))
    source = file.read_bytes()
    if b"\0" in source:
        yield report("python-syntax", str(file), "SyntaxError: source code cannot contain null bytes")
        return
    try:
        tree = ast.parse(source, filename=file.name, feature_version=(python[0], python[1]))
    except SyntaxError as error:
        message = f"SyntaxError: {error.msg} ({file.name}, line {error.lineno})"
        # An older interpreter than the server's may not know what the server accepts.
        severity: Severity = "error" if sys.version_info[:2] >= python else "warning"
        where = f"{file}:{error.lineno}:{error.offset}" if error.lineno else str(file)
        yield report("python-syntax", where, message, severity=severity)
        return
    except (ValueError, RecursionError, MemoryError) as error:  # not text, or nested without end
        yield report("python-syntax", str(file), f"{type(error).__name__}: {error}"[:200])
        return
    if not _binds(tree, CLASS):
        message = f"AttributeError: module '{file.parent.name}.{file.stem}' has no attribute '{CLASS}'"
        yield report("python-class-missing", str(file), message)
        return
    yield from _class(context, file, tree)
    yield from _imports(context, file, tree)


def _binds(tree: ast.Module, name: str) -> bool:
    """Whether the module has that name after import; a star import may bring anything."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            return True
        if isinstance(node, ast.Import | ast.ImportFrom) and any(
            (alias.asname or alias.name) in (name, "*") for alias in node.names
        ):
            return True
    return False


def _class(context: ModelContext, file: Path, tree: ast.Module) -> Iterator[Finding]:
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == CLASS), None)
    if model is None or model.bases:
        return  # Assigned, imported or inherited: its methods are not to be seen here.
    methods = {node.name for node in model.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    methods |= {name.id for node in model.body for name in ast.walk(node) if isinstance(name, ast.Name)}
    if "execute" not in methods:
        message = f"{CLASS} has no execute: the model loads and every request fails"
        yield report("python-execute-missing", f"{file}:{model.lineno}", message)
    declared = context.config.inputs and context.config.outputs
    if not declared and "auto_complete_config" not in methods:
        message = f"model '{context.name}' declares no inputs or no outputs and completes none by itself"
        yield context.finding("python-io-missing", message)


def _imports(context: ModelContext, file: Path, tree: ast.Module) -> Iterator[Finding]:
    """Modules that neither the stock image nor the model brings; those under ``try`` are optional."""
    if "EXECUTION_ENV_PATH" in context.config.parameters:
        return
    provided = sys.stdlib_module_names | IN_THE_IMAGE | {CLASS}
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        for name in sorted({name.partition(".")[0] for name in names} - provided):
            if not _travels(file.parent, name):
                message = f"module '{name}' is not in the stock image of {context.release.name}"
                yield report("python-import", f"{file}:{node.lineno}", message)


def _travels(folder: Path, name: str) -> bool:
    """Whether the version directory, or a folder in it such as ``vendor/``, holds that module."""
    places = [folder, *(entry for entry in folder.iterdir() if entry.is_dir())]
    return any((place / name).is_dir() or any(place.glob(f"{name}.*")) for place in places)

"""Python models, by reading ``model.py``: nothing of it is run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from triton_repo_builder.check import environment
from triton_repo_builder.check.context import ModelContext, c_string, relative, report
from triton_repo_builder.check.finding import Finding, Place, Severity
from triton_repo_builder.check.python_nodes import first_line
from triton_repo_builder.check.python_source import CLASS, PythonSource
from triton_repo_builder.check.rules import helpers, python_calls, python_config
from triton_repo_builder.repository.pbtxt_document import Key

IN_THE_IMAGE = frozenset({"c_python_backend_utils", "numpy", "triton_python_backend_utils"})
_SINCE = {"tomllib": (3, 11)}
_UNTIL = {"asynchat": (3, 11), "asyncore": (3, 11), "imp": (3, 11), "smtpd": (3, 11)}
"""Standard modules that not every release's Python has; ``distutils`` lives on in setuptools."""
ENVIRONMENT = "EXECUTION_ENV_PATH"
CPU_ONLY = "FORCE_CPU_ONLY_INPUT_TENSORS"
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_SHELL = re.compile(r"""[\s"'$`()&;|<>\\]|\{[^}]*,|\{(?:[-+]?\d+|[A-Za-z])\.\.|^#""")
"""Characters that bash interprets: the backend starts each model as ``bash -c "exec stub PATH NAME"``.

Braces make several words of one, ``{1..3}`` too; a ``#`` that begins a word makes the rest a comment.
"""


def check(context: ModelContext) -> Iterator[Finding]:
    """The model file of each selected version, and what config.pbtxt leaves to it."""
    if context.backend != "python" or context.ensemble:
        return
    yield from _shell(context)
    yield from _other_files(context)
    yield from _parameters(context)
    if context.relocated:
        return
    absent: dict[str, Place] = {}
    for version in context.selected:
        file = context.file(version)
        if file is not None and file.is_dir():
            message = f"ModuleNotFoundError: No module named '{file.parent.name}.{file.stem}': it is a folder"
            yield report("model-file-missing", str(file), message, remedy="put the file itself there")
        elif file is not None and file.is_file():
            yield from _file(context, file, absent)
    stated = context.config.parameters if context.model.error is None else context.model.text or ""
    # One finding for all of them: one image, or one environment, brings them.
    if absent and ENVIRONMENT not in stated:
        image = "image" if context.image.modules else f"stock image of {context.release.name}"
        names = ", ".join(f"'{name}'" for name in absent)
        subject = f"modules {names} are" if len(absent) > 1 else f"module {names} is"
        yield report("python-import", next(iter(absent.values())), f"{subject} not in the {image}")


def _shell(context: ModelContext) -> Iterator[Finding]:
    names: list[tuple[str, tuple[str | int, ...], str]] = [(context.name, ("name",), str(context.model.path))]
    groups = context.messages("instance_group")
    names += [
        (str(group.get("name", "")), ("instance_group", index, "name"), "")
        for index, group in enumerate(groups)
    ]
    if context.config.default_model_filename:
        names.append((context.config.default_model_filename, ("default_model_filename",), ""))
    # The names of instances are words by themselves; a group without a name has the model's.
    named = bool(groups) and all(group.get("name") for group in groups)
    words = {"instance_group"} if named else {"instance_group", "name"}
    for name, path, where in names:
        if match := _SHELL.search(name if path[0] in words else f"/{name}"):
            message = (
                f"the Python backend hands '{name}' to a shell, which does not take {match[0][0]!r} as it "
                "stands: the load fails, or the whole server hangs"
            )
            yield report("python-name", where or context.at(*path), message)
        elif path[0] != "instance_group" and not name.isascii():
            character = next(character for character in name if not character.isascii())
            message = (
                f"UnicodeEncodeError: 'ascii' codec can't encode character {character!a}: the backend's "
                f"Python reads no path like '{name}'"
            )
            yield report("python-name", where or context.at(*path), message)


def _other_files(context: ModelContext) -> Iterator[Finding]:
    """Paths with ``*``, ``?`` or ``[``: bash replaces such a pattern by the paths that match.

    Seen on 24.10: ``m[1]`` beside ``m1`` serves the file of ``m1``; ``m*`` beside ``mx`` hangs the server.
    """
    name = context.config.default_model_filename or "model.py"
    if not {*"*?["} & {*context.name, *name}:
        return
    root = context.model.path.parent
    for version in context.selected:
        pattern = f"{context.name}/{version}/{name.removeprefix('/')}"
        paths = root.glob(re.sub(r"\*+", "*", pattern.replace("[^", "[!")))
        matches = {str(path.relative_to(root)) for path in paths}
        if others := sorted(matches - {pattern}):
            message = (
                f"the Python backend hands '{pattern}' to a shell, which takes it for a pattern: it also "
                f"matches {others[0]}, so another model's file is served or the whole server hangs"
            )
            yield report("python-name", str(context.model.path), message)
            return


def _parameters(context: ModelContext) -> Iterator[Finding]:
    parameters = context.config.parameters
    cpu_only = parameters.get(CPU_ONLY, "no")
    if cpu_only not in ("yes", "no"):
        message = f"Incorrect value for {CPU_ONLY}: {cpu_only}'"
        yield context.finding("python-parameter", message, "parameters", Key(CPU_ONLY))
    if path := parameters.get(ENVIRONMENT, ""):
        yield from _environment(context, path)


def _environment(context: ModelContext, path: str) -> Iterator[Finding]:
    file = Path(c_string(path).replace(MODEL_DIRECTORY, str(context.model.path), 1))
    at: tuple[str | int, ...] = ("parameters", Key(ENVIRONMENT))
    if "://" in path:
        return
    if not path.startswith(MODEL_DIRECTORY) and (message := relative(path)):
        remedy = f'put it into the model\'s folder and write "{MODEL_DIRECTORY}/{file.name}"'
        yield context.finding("python-environment", message, *at, remedy=remedy, severity="warning")
    elif not c_string(path) or not file.exists():
        message = f"Failed to get the canonical path for {file}."
        severity = "error" if path.startswith(MODEL_DIRECTORY) else context.absent(path)
        elsewhere = (
            f'put it there where the server runs; "{MODEL_DIRECTORY}/{file.name}" travels with the model'
        )
        remedy = elsewhere if severity == "warning" else ""
        yield context.finding("python-environment", message, *at, remedy=remedy, severity=severity)
    elif file.is_file():
        message, remedy = environment.fault(file)
        if message:
            yield context.finding("python-environment", message, *at, remedy=remedy)
    elif file.is_dir() and not (file / "bin" / "activate").exists():
        message = (
            f"Path {file}/bin/activate does not exist. The Python environment should contain an 'activate' "
            "script."
        )
        yield context.finding("python-environment", message, *at)


def _file(context: ModelContext, file: Path, absent: dict[str, Place]) -> Iterator[Finding]:
    """The findings on one model.py; ``absent`` gets the modules that the image lacks."""
    source = context.repo.python(file)
    if source.tree is None:
        severity: Severity = "warning" if _older(context) or source.deep else "error"
        where = Place(file, source.line, source.column if source.line else 0)
        yield report("python-syntax", where, source.error, severity=severity)
        return
    sources = _local(context, file, source)
    if not source.binds_class and not helpers.names_class(file, sources):
        message = f"AttributeError: module '{file.parent.name}.{file.stem}' has no attribute '{CLASS}'"
        yield report("python-class-missing", str(file), message)
    stops = helpers.stops(file, sources)
    if ending := source.ending():
        stops[file] = ending
    for module, stop in stops.items():
        yield report("python-raises", Place(module, stop.lineno, stop.col_offset + 1), _raised(stop))
    yield from python_config.check(context, file, source)
    yield from _class(context, file, source, sources)
    yield from _methods(context, file, source)
    yield from python_calls.check(context, file, source)
    yield from _imports(context, file, sources)
    _absent(context, file, sources, absent)


def _raised(statement: ast.Raise) -> str:
    """Error of a ``raise``, in Python's words if they are constant."""
    error = statement.exc
    if isinstance(error, ast.Call) and len(error.args) == 1 and isinstance(error.args[0], ast.Constant):
        return f"{first_line(error.func)}: {error.args[0].value!s}"
    return f"{first_line(statement) or 'raise'}: the model never loads"


def _class(
    context: ModelContext, file: Path, source: PythonSource, sources: Mapping[Path, PythonSource]
) -> Iterator[Finding]:
    if source.model is None:
        return
    if "execute" not in source.methods and not helpers.names_class(file, sources):
        message = f"{CLASS} has no execute: the model loads and every request fails"
        yield report("python-execute-missing", Place(file, source.model.lineno), message)
    declared = context.config.inputs and context.config.outputs
    if not declared and not source.completes and context.model.error is None:
        message = f"model '{context.name}' declares no inputs or no outputs and completes none by itself"
        yield context.finding("python-io-missing", message)


def _methods(context: ModelContext, file: Path, source: PythonSource) -> Iterator[Finding]:
    """Methods that the backend calls, with its number of arguments."""
    calls = {"__init__": 0, "auto_complete_config": 1, "initialize": 1, "execute": 1}
    if "python_is_ready" in context.release.features:
        calls["is_ready"] = 0
    for name, arguments in calls.items():
        method = source.method(name)
        if method is None:
            continue
        message = source.refuses(name, arguments)
        if not message and name == "auto_complete_config" and source.returns_nothing:
            message = f"{name} function in model '{context.name}' must return a valid pb.ModelConfig object."
        if not message and name == "is_ready" and python_calls.returns_nothing(method):
            message = "is_ready() must return a boolean value: the model is never ready"
        if message:
            where = Place(file, method.lineno, method.col_offset + 1)
            remedy = "write is_ready(self), and return True or False" if name == "is_ready" else ""
            yield report("python-signature", where, message, remedy=remedy)


def _imports(context: ModelContext, file: Path, sources: Mapping[Path, PythonSource]) -> Iterator[Finding]:
    """Checks that modules beside the model's file parse and import modules that exist."""
    needed = helpers.at_once(file, sources, "execute")
    for module, inner in sources.items():
        if inner.tree is None and not inner.deep:
            severity: Severity = "error" if module in needed and not _older(context) else "warning"
            yield report("python-syntax", Place(module, inner.line), inner.error, severity=severity)
        yield from _relative(context, module, inner, certain=module in needed)


def _absent(
    context: ModelContext, file: Path, sources: Mapping[Path, PythonSource], absent: dict[str, Place]
) -> None:
    """Add the modules that neither the image nor the model brings; those under ``try`` are optional."""
    provided = (
        _standard(context.release.python) | IN_THE_IMAGE | {CLASS, "__future__"} | context.image.modules
    )
    for module, inner in sources.items():
        for name, line in inner.imports():
            if (
                name[0] == "."
                or name in provided
                or name in absent
                or _ships_module(context, file.parent, sources[file], name)
            ):
                continue
            absent[name] = Place(module, line)


def _local(context: ModelContext, file: Path, source: PythonSource) -> dict[Path, PythonSource]:
    """The model's file, and those beside it that it imports, directly or through another."""
    sources, waiting = {file: source}, [(file, source)]
    package = file.parent / "__init__.py"  # which Python runs before it
    if package != file and package.is_file() and file.parent.parent == context.model.path:
        sources[package] = context.repo.python(package)
        waiting.append((package, sources[package]))
    while waiting:
        importing, inner = waiting.pop()
        for name, _ in inner.imports():
            module = importing.parent / f"{name.removeprefix('.')}.py"
            if module in sources or name in _hiding_modules(context) or not module.is_file():
                continue
            if not (module.with_suffix("") / "__init__.py").exists():  # a package goes before a module
                sources[module] = context.repo.python(module)
                waiting.append((module, sources[module]))
    return sources


def _standard(python: str) -> frozenset[str]:
    """Standard modules of that version of Python: this interpreter's, corrected by the tables."""
    major, _, minor = python.partition(".")
    version = (int(major), int(minor))
    lacking = {name for name, first in _SINCE.items() if version < first}
    lacking |= {name for name, last in _UNTIL.items() if version > last}
    return frozenset((sys.stdlib_module_names | _SINCE.keys() | _UNTIL.keys()) - lacking)


def _hiding_modules(context: ModelContext) -> frozenset[str]:
    """Modules that hide a module of the same name beside a model.py."""
    return frozenset(sys.stdlib_module_names | {"numpy"} | context.image.modules)


def _relative(context: ModelContext, file: Path, source: PythonSource, *, certain: bool) -> Iterator[Finding]:
    """Relative imports that lead nowhere: nothing outside of the model can bring them."""
    runs = source.certain("execute") if certain else frozenset()
    for name, line in source.imports():
        base = name.lstrip(".")
        message = ""
        if name.startswith(".."):
            message = "ImportError: attempted relative import beyond top-level package"
        elif (
            name != base
            and not base.startswith("__")
            and not {base, "__init__"} & context.repo.importable(file.parent)
        ):
            message = f"ImportError: cannot import name '{base}' from '{file.parent.name}'"
        if message:
            remedy = f"put {base}.py beside model.py and write from .{base} import …"
            severity: Severity = "error" if (name, line) in runs else "warning"
            yield report("python-import", Place(file, line), message, severity=severity, remedy=remedy)


def _older(context: ModelContext) -> bool:
    """Whether this interpreter is older than the server's."""
    return sys.version_info[:2] < tuple(int(part) for part in context.release.python.split("."))


def _ships_module(context: ModelContext, folder: Path, source: PythonSource, name: str) -> bool:
    """Whether the model or its version holds that module, or a folder that is put on ``sys.path``."""
    inner = [entry for entry in folder.iterdir() if entry.is_dir()] if source.extends_path else []
    places = [folder, context.model.path, *inner]
    return any(name in context.repo.importable(place) for place in places)

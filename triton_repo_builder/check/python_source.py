"""Facts about a model.py, read from its syntax tree without running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from triton_repo_builder.check.python_nodes import bindings, dotted, named, own_nodes
from triton_repo_builder.check.python_statements import (
    asks,
    binds,
    children,
    executed,
    modules,
    parts,
    reached,
    reflects,
    removes,
)

LARGEST = 256 << 10
"""Limit of bytes to analyse: Python itself takes 20 s for a file with 20,000 functions."""
CLASS = "TritonPythonModel"
OF_CLASS = "auto_complete_config"
"""The method that the backend calls before there is an object."""
CALLED = ("__init__", "auto_complete_config", "initialize")
"""Methods that run before the first request."""
_HARMLESS = frozenset({"dataclass", "dataclasses.dataclass", "final", "typing.final", "total_ordering"})
"""Decorators that leave a class its methods."""
_LOOKED_UP = frozenset({"__new__", "__getattr__", "__getattribute__"})
"""Methods that let an object have other methods than its class."""


@dataclass(frozen=True, kw_only=True)
class PythonSource:
    """A parsed model.py; ``error`` says why there is no tree."""

    tree: ast.Module | None
    error: str = ""
    line: int = 0
    column: int = 0
    deep: bool = False
    """Whether the text is too deep or large for this parser; the server's may still read it."""

    @cached_property
    def top(self) -> list[ast.stmt]:
        """The statements that run when the module is imported, in branches and blocks too."""
        return list(executed(self.tree.body if self.tree else []))

    @property
    def binds_class(self) -> bool:
        """Whether the module has the class after import; dynamic code may define anything."""
        if self._open:
            return True
        for node in reversed(self.tree.body if self.tree else []):
            if removes(node, CLASS):
                return False
            if any(binds(inner, CLASS) for inner in executed([node])):
                return True
        return False

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        return [*ast.walk(self.tree)] if self.tree else []

    @cached_property
    def _open(self) -> bool:
        """Whether the class may be bound by other code than a top-level statement."""
        for node in self._nodes:
            if isinstance(node, ast.Global) and CLASS in node.names:
                return True
            if isinstance(node, ast.Attribute) and node.attr == CLASS and isinstance(node.ctx, ast.Store):
                return True
        named_in_text = any(isinstance(node, ast.Constant) and node.value == CLASS for node in self._nodes)
        if named_in_text and any(reflects(node) for node in self._nodes):
            return True
        outside = [node for node in self.top if not isinstance(node, ast.ClassDef)]
        if any("__getattr__" in bindings([node]) for node in outside):
            return True
        # Methods of a class usually set attributes of their object, no names of the module.
        return any(
            reflects(inner)
            for node in outside
            for inner in (ast.walk(node) if isinstance(node, ast.FunctionDef) else parts(node))
        )

    @cached_property
    def model(self) -> ast.ClassDef | None:
        """The class if all methods are visible: not assigned, imported, inherited or changed."""
        classes = [node for node in self.top if isinstance(node, ast.ClassDef) and node.name == CLASS]
        model = classes[-1] if classes else None
        if self.tree is None or model is None or model.bases or model.keywords or self._open:
            return None
        decorators = (each.func if isinstance(each, ast.Call) else each for each in model.decorator_list)
        if any(dotted(each) not in _HARMLESS for each in decorators):
            return None
        if len(classes) > 1 and model not in self.tree.body:
            return None
        others = {id(node) for node in classes}
        if any(binds(node, CLASS) for node in self.top if id(node) not in others):
            return None
        inside = [*own_nodes(model.body)]
        if _LOOKED_UP & bindings(model.body) or any(reflects(node) for node in inside):
            return None
        return None if "__class__" in self._patched or self._passes_class(model) else model

    def _passes_class(self, model: ast.ClassDef) -> bool:
        """Whether a function gets the class, and may change it."""
        inside = {id(node) for node in ast.walk(model)}
        calls = [node for node in self._nodes if isinstance(node, ast.Call) and id(node) not in inside]
        arguments = (
            value for call in calls for value in (*call.args, *(word.value for word in call.keywords))
        )
        return any(named(part) == CLASS for value in arguments for part in ast.walk(value))

    @cached_property
    def _patched(self) -> frozenset[str]:
        """Names of attributes that some statement sets, on any object."""
        nodes = (node for node in self._nodes if isinstance(node, ast.Attribute))
        return frozenset(node.attr for node in nodes if not isinstance(node.ctx, ast.Load))

    @cached_property
    def methods(self) -> set[str]:
        """The names that the class binds, or that an object of it may have."""
        body = self.model.body if self.model else []
        names = {name.id for node in body for name in ast.walk(node) if isinstance(name, ast.Name)}
        return names | bindings(body) | self._patched

    @cached_property
    def extends_path(self) -> bool:
        """Whether it names ``sys.path`` and so may import from further folders."""
        attributes = (node.attr for node in self._nodes if isinstance(node, ast.Attribute))
        return any(name in ("path", "addsitedir") for name in attributes)

    def ending(self) -> ast.Raise | None:
        """First ``raise`` that always runs on import, or in the methods called before the first request."""
        methods = (self._run_by(name) for name in CALLED)
        ends = (_first_raise(nodes) for nodes in methods)
        return self.stop or next((end for end in ends if end), None)

    def mentions(self, part: str) -> bool:
        """Whether a name or attribute of the module contains this text."""
        nodes = self._nodes
        return any(part in str(getattr(node, "attr", getattr(node, "id", ""))) for node in nodes)

    def method(self, name: str) -> ast.FunctionDef | None:
        """A method defined in the class, without decorators other than staticmethod and classmethod."""
        body = self.model.body if self.model else []
        same = [node for node in body if name in bindings([node]) or removes(node, name)]
        definition = same[-1] if same and name not in self._patched else None
        return (
            definition if isinstance(definition, ast.FunctionDef) and _bound(definition) is not None else None
        )

    def refuses(self, name: str, arguments: int) -> str:
        """Why a method cannot be called with so many arguments by position; empty if it can."""
        method = self.method(name)
        if method is None:
            return ""
        count, spec = arguments + int(_bound(method) or 0), method.args
        positional = [*spec.posonlyargs, *spec.args]
        start = f"TypeError: {CLASS}.{name}()"
        if count > len(positional) and spec.vararg is None:
            takes = f"{len(positional)} positional argument{'s' * (len(positional) != 1)}"
            return f"{start} takes {takes} but {count} {'was' if count == 1 else 'were'} given"
        keywords = [
            arg for arg, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is None
        ]
        lacking = [*positional[count : len(positional) - len(spec.defaults)], *keywords]
        if not lacking:
            return ""
        kind = "positional" if lacking[0] in positional else "keyword-only"
        names = " and ".join(f"'{arg.arg}'" for arg in lacking)
        return f"{start} missing {len(lacking)} required {kind} argument{'s' * (len(lacking) > 1)}: {names}"

    @property
    def returns_nothing(self) -> bool:
        """Whether ``auto_complete_config`` ends without a value."""
        method = self.method("auto_complete_config")
        inner = list(ast.walk(method)) if method else []
        ends = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)
        return method is not None and not any(isinstance(node, ends) for node in inner)

    @property
    def completes(self) -> bool:
        """Whether the model may fill in its own configuration."""
        return self.tree is None or self.model is None or "auto_complete_config" in self.methods

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every required module with its line, at the top level and in methods, which run later."""
        for node in self._needing:
            yield from ((name, node.lineno) for name in modules(node))

    def certain(self, *extra_methods: str) -> frozenset[tuple[str, int]]:
        """The ``imports`` that always run while the model loads, or in these methods."""
        methods = (node for name in (*CALLED, *extra_methods) for node in self._run_by(name))
        nodes = (node for node in (*self._at_import, *methods) if isinstance(node, ast.stmt))
        return frozenset((name, node.lineno) for node in nodes for name in modules(node))

    def used(self, name: str) -> list[ast.Subscript | ast.Call | ast.Attribute]:
        """Look-ups (``a[b]``, ``a.b``) and calls that always run when a method is called, by position."""
        kinds = ast.Subscript | ast.Call | ast.Attribute
        nodes = (node for node in self._run_by(name) if isinstance(node, kinds))
        return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))

    @cached_property
    def stop(self) -> ast.Raise | None:
        """First ``raise`` at the top level that always runs on import."""
        return _first_raise(self._at_import)

    @cached_property
    def _at_import(self) -> tuple[ast.AST, ...]:
        return tuple(reached(self.tree.body if self.tree else []))

    def _run_by(self, name: str) -> tuple[ast.AST, ...]:
        """Nodes that always run when a method is called; a call of a generator runs none."""
        if name not in self._runs:
            method = self.method(name)
            body = method.body if method else []
            generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(body))
            self._runs[name] = () if generator else tuple(reached(body))
        return self._runs[name]

    @cached_property
    def _runs(self) -> dict[str, tuple[ast.AST, ...]]:
        return {}

    @cached_property
    def _needing(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """Imports outside ``try`` blocks and availability checks, including those inside functions."""
        imports: list[ast.Import | ast.ImportFrom] = []
        waiting: list[ast.AST] = [*reversed(self.tree.body if self.tree else [])]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(node)
            elif isinstance(node, ast.stmt | ast.ExceptHandler) and not asks(node):
                waiting += reversed([child for child in children(node) if isinstance(child, ast.AST)])
        return tuple(imports)


@lru_cache(maxsize=16)  # Most model.py of a repository, and of builds in one process, are copies of a few.
def parse(source: bytes, name: str, python: tuple[int, int]) -> PythonSource:
    """Parse a file of that name as that version of Python."""
    if len(source) > LARGEST:
        error = f"has {len(source):,} bytes: trb check reads at most {LARGEST:,} of it"
        return PythonSource(tree=None, error=error, deep=True)
    if b"\0" in source:
        return PythonSource(tree=None, error="SyntaxError: source code cannot contain null bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, filename=name, feature_version=python)
            # Finds what the parser alone takes: a return outside of functions. Nothing is run.
            compile(source, name, "exec", dont_inherit=True)
        return PythonSource(tree=tree)
    except SyntaxError as error:
        message = f"SyntaxError: {error.msg} ({name}, line {error.lineno})"
        return PythonSource(tree=None, error=message, line=error.lineno or 0, column=error.offset or 0)
    except ValueError as error:  # not text
        return PythonSource(tree=None, error=f"{type(error).__name__}: {error}"[:200])
    except (RecursionError, MemoryError) as error:
        return PythonSource(tree=None, error=f"{type(error).__name__}: {error}"[:200], deep=True)


def _first_raise(nodes: Iterable[ast.AST]) -> ast.Raise | None:
    return next((node for node in nodes if isinstance(node, ast.Raise)), None)


def _bound(method: ast.FunctionDef) -> bool | None:
    """Whether the object, or the class, is its first argument; None if a decorator makes that unknown."""
    names = [getattr(decorator, "id", "") for decorator in method.decorator_list]
    if any(name not in ("staticmethod", "classmethod") for name in names):
        return None
    if method.name == OF_CLASS:
        return "classmethod" in names
    return "staticmethod" not in names

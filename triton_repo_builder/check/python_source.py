"""What a model.py says of itself, read from its syntax tree: nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CLASS = "TritonPythonModel"
_OPTIONAL = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_DYNAMIC = frozenset({"exec", "globals", "setattr", "vars", "__import__"})


@dataclass(frozen=True, kw_only=True)
class PythonSource:
    """A parsed model.py; ``error`` says why there is no tree."""

    tree: ast.Module | None
    error: str = ""
    line: int = 0
    column: int = 0
    deep: bool = False
    """Whether the text is too deep for this parser, which says nothing of the server's."""

    @cached_property
    def top(self) -> list[ast.stmt]:
        """The statements that run when the module is imported, in branches and blocks too."""
        return list(_executed(self.tree.body if self.tree else []))

    @property
    def binds_class(self) -> bool:
        """Whether the module has the class after import; what is dynamic may bring anything."""
        removed = any(_removes(node, CLASS) for node in self.top)
        return not removed and any(_binds(node, CLASS) for node in self.top)

    @property
    def model(self) -> ast.ClassDef | None:
        """The class, where its methods are to be seen: not assigned, imported or inherited."""
        found = [node for node in self.top if isinstance(node, ast.ClassDef) and node.name == CLASS]
        return found[-1] if found and not found[-1].bases else None

    @property
    def methods(self) -> set[str]:
        """The names that the class binds."""
        body = self.model.body if self.model else []
        names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        return names | {name.id for node in body for name in ast.walk(node) if isinstance(name, ast.Name)}

    @cached_property
    def extends_path(self) -> bool:
        """Whether it names ``sys.path``, and so may import from folders of its own."""
        nodes = ast.walk(self.tree) if self.tree else ()
        return any(isinstance(node, ast.Attribute) and node.attr in ("path", "addsitedir") for node in nodes)

    @property
    def completes(self) -> bool:
        """Whether the model may fill in its own configuration."""
        return self.tree is None or self.model is None or "auto_complete_config" in self.methods

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every module that is needed, with its line: at the top, and in methods, which run later."""
        if self.tree is None:
            return
        waiting: list[ast.AST] = [*reversed(self.tree.body)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                yield node.module.partition(".")[0], node.lineno
            elif isinstance(node, ast.stmt | ast.ExceptHandler):
                waiting += reversed([child for child in _children(node) if isinstance(child, ast.AST)])


def read(file: Path, python: tuple[int, int]) -> PythonSource:
    """Parse a file as that version of Python; raises OSError if it cannot be read."""
    source = file.read_bytes()
    if b"\0" in source:
        return PythonSource(tree=None, error="SyntaxError: source code cannot contain null bytes")
    try:
        return PythonSource(tree=ast.parse(source, filename=file.name, feature_version=python))
    except SyntaxError as error:
        message = f"SyntaxError: {error.msg} ({file.name}, line {error.lineno})"
        return PythonSource(tree=None, error=message, line=error.lineno or 0, column=error.offset or 0)
    except ValueError as error:  # not text
        return PythonSource(tree=None, error=f"{type(error).__name__}: {error}"[:200])
    except (RecursionError, MemoryError) as error:
        return PythonSource(tree=None, error=f"{type(error).__name__}: {error}"[:200], deep=True)


def _executed(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    waiting = [*reversed([*body])]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += reversed([child for child in _children(node) if isinstance(child, ast.stmt)])


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The statements of the branches that can run."""
    if isinstance(node, ast.If):
        yield from (*([] if _never(node.test) else node.body), *([] if _always(node.test) else node.orelse))
    elif isinstance(node, ast.Try):
        optional = any(_catches_imports(handler) for handler in node.handlers)
        yield from (child for child in node.body if not (optional and _imports(child)))
        for handler in node.handlers:
            yield from (child for child in handler.body if not (optional and _imports(child)))
        yield from (*node.orelse, *node.finalbody)
    else:
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, field, []) if not isinstance(node, ast.expr) else []:
                yield from child.body if isinstance(child, ast.match_case) else (child,)


def _imports(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _never(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING" or (isinstance(test, ast.Constant) and not test.value)


def _always(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in _OPTIONAL for kind in kinds)


def _removes(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Delete) and any(getattr(target, "id", "") == name for target in node.targets)


def _binds(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name == name
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((alias.asname or alias.name) in (name, "*") for alias in node.names)
    own = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.withitem)]
    for expression in (part for child in own for part in ast.walk(child)):
        if (
            isinstance(expression, ast.Name)
            and isinstance(expression.ctx, ast.Store)
            and expression.id == name
        ):
            return True
        if isinstance(expression, ast.Call) and getattr(expression.func, "id", "") in _DYNAMIC:
            return True
    return False

"""What a model.py says of itself, read from its syntax tree: nothing of it is run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from triton_repo_builder.check.python_flow import Ending, Flow
from triton_repo_builder.check.python_nodes import truth

CLASS = "TritonPythonModel"
OF_CLASS = "auto_complete_config"
"""The method that the backend calls before there is an object."""
CALLED = ("__init__", "auto_complete_config", "initialize")
"""Methods that run before the first request."""
INITIALIZED = frozenset(
    {
        *("model_config", "model_instance_device_id", "model_instance_kind", "model_instance_name"),
        *("model_name", "model_repository", "model_version"),
    }
)
"""The keys of what ``initialize`` is called with."""
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

    def ending(self) -> Ending | None:
        """The first place that no import gets past, or no call of what runs before the first request."""
        called = [method for name in CALLED if (method := self.method(name))]
        ends = (self._flow.of_method(method, INITIALIZED) for method in called)
        return self.stop or next((end for end in ends if end), None)

    @cached_property
    def _flow(self) -> Flow:
        return Flow(self.tree or ast.Module(body=[], type_ignores=[]))

    def mentions(self, part: str) -> bool:
        """Whether some name or attribute of the module has that in it."""
        nodes = ast.walk(self.tree) if self.tree else ()
        return any(part in str(getattr(node, "attr", getattr(node, "id", ""))) for node in nodes)

    def method(self, name: str) -> ast.FunctionDef | None:
        """A method of the class that is defined there, with no decorator but a static or class method's."""
        same = [node for node in (self.model.body if self.model else []) if getattr(node, "name", "") == name]
        found = same[-1] if same else None
        return found if isinstance(found, ast.FunctionDef) and _bound(found) is not None else None

    def refuses(self, name: str, arguments: int) -> str:
        """Why a method cannot be called with so many arguments by position; empty if it can."""
        method = self.method(name)
        if method is None:
            return ""
        given, spec = arguments + int(_bound(method) or 0), method.args
        positional = [*spec.posonlyargs, *spec.args]
        start = f"TypeError: {CLASS}.{name}()"
        if given > len(positional) and spec.vararg is None:
            takes = f"{len(positional)} positional argument{'s' * (len(positional) != 1)}"
            return f"{start} takes {takes} but {given} {'was' if given == 1 else 'were'} given"
        keywords = [
            arg for arg, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is None
        ]
        lacking = [*positional[given : len(positional) - len(spec.defaults)], *keywords]
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
        """Every module that is needed, with its line: at the top, and in methods, which run later."""
        for node in self._needing():
            yield from ((name, node.lineno) for name in _modules(node))

    def names(self, *, loading: bool) -> Iterator[tuple[str, str, int]]:
        """Every name that is taken out of a module beside this one: the module's, its own, the line.

        Either those that are taken while the model loads, or those that are taken later, if ever.
        """
        called = [method for name in CALLED if (method := self.method(name))]
        at_load = {*self.top, *(node for method in called for node in ast.walk(method))}
        for node in self._needing():
            if (node in at_load) != loading:
                continue
            if isinstance(node, ast.ImportFrom) and node.level < 2 and node.module and "." not in node.module:
                yield from ((node.module, alias.name, node.lineno) for alias in node.names)

    @property
    def at_once(self) -> tuple[str, ...]:
        """The modules that are imported with this one, whatever happens."""
        nodes = [node for node in (self.tree.body if self.tree else []) if _imports(node)]
        return tuple(name for node in nodes for name in _modules(node))

    @property
    def stop(self) -> Ending | None:
        """The first place at the top that no import gets past."""
        return self._flow.of_module()

    def _needing(self) -> Iterator[ast.Import | ast.ImportFrom]:
        waiting: list[ast.AST] = [*reversed(self.tree.body if self.tree else [])]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
            elif isinstance(node, ast.stmt | ast.ExceptHandler):
                waiting += reversed([child for child in _children(node) if isinstance(child, ast.AST)])


def read(file: Path, python: tuple[int, int]) -> PythonSource:
    """Parse a file as that version of Python; raises OSError if it cannot be read."""
    source = file.read_bytes()
    if b"\0" in source:
        return PythonSource(tree=None, error="SyntaxError: source code cannot contain null bytes")
    try:
        tree = ast.parse(source, filename=file.name, feature_version=python)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Finds what the parser alone takes: a return outside of functions. Nothing is run.
            compile(source, file.name, "exec", dont_inherit=True)
        return PythonSource(tree=tree)
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
    if isinstance(node, ast.If | ast.While):
        yield from (
            *([] if truth(node.test) is False else node.body),
            *([] if truth(node.test) else node.orelse),
        )
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


def _modules(node: ast.stmt) -> list[str]:
    """The first parts of the names of the modules that a statement imports; relative ones begin with dots."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    names = [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]
    return ["." * node.level + name for name in names]


def _imports(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


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


def _bound(method: ast.FunctionDef) -> bool | None:
    """Whether the object, or the class, is its first argument; None if a decorator makes that unknown."""
    names = [getattr(decorator, "id", "") for decorator in method.decorator_list]
    if any(name not in ("staticmethod", "classmethod") for name in names):
        return None
    if method.name == OF_CLASS:
        return "classmethod" in names
    return "staticmethod" not in names

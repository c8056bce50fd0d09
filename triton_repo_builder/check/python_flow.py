"""What surely happens when a module is imported, or a method called: statement by statement, nothing is run.

Only what no condition, loop or handler stands before is followed, so that what is reported is certain.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from triton_repo_builder.check import python_values as values
from triton_repo_builder.check.python_nodes import (
    bindings,
    certain,
    dotted,
    named,
    own_nodes,
    rebound,
    shown,
    truth,
)

_BUILTINS = frozenset(dir(builtins)) | {
    *("EncodingWarning", "BaseExceptionGroup", "ExceptionGroup", "PythonFinalizationError", "aiter", "anext"),
    *("_", "__file__", "__builtins__", "copyright", "credits", "exit", "help", "license", "quit"),
}
"""Those of any Python that a server has; ``_`` may be gettext's."""
_DYNAMIC = frozenset(
    {
        *("exec", "eval", "globals", "locals", "vars", "setattr", "__import__", "__dict__", "__globals__"),
        *("builtins", "__builtins__", "modules", "f_globals", "install", "_getframe", "inspect"),
        *("_convert_", "_convert"),
    }
)
"""What may bring a name that no statement binds."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A place that no run gets past, with what Python raises there."""

    line: int
    column: int
    message: str
    unbound: bool = False
    """Whether a name has no value, which another module may give it in ``builtins``."""


@dataclass(kw_only=True)
class _Scope:
    """The names of a module, a class body or a function while its statements are followed."""

    kind: str
    bound: set[str] = field(default_factory=set)
    """Names that may have a value by now."""
    own: frozenset[str] = frozenset()
    """Of a function: its local names, bound or not yet."""
    outer: frozenset[str] = frozenset()
    """Names that are found where this scope lacks them."""
    mapping: str = ""
    """The parameter that is only read, with these keys."""
    keys: frozenset[str] = frozenset()
    dynamic: bool = False
    """Of a class: whether its metaclass may bring names, which ``__prepare__`` of any base can."""


class Flow:
    """A module's statements in the order in which they run."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = [*ast.walk(tree)]
        self.body = tree.body
        self.names_known = not any(_is_dynamic(node) for node in nodes)
        """Whether each name of the module is bound by a statement of it, or nowhere."""
        self.late = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in nodes
        )
        """Whether annotations are not evaluated."""
        shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        # In an __init__.py, an import out of a module beside it binds that module's name, too.
        beside = {
            node.module.partition(".")[0]
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        }
        self.everywhere = frozenset(shared | beside)
        """Names that a function or another module may bind for the module."""
        self.rebound = {name for node in nodes for name in rebound(node)}
        """Names that mean something of the module's own somewhere, not a builtin or a module."""
        self._of_dataclasses = values.dataclass_decorators(nodes, self.rebound)
        # Bound by a function inside of another, whichever that is.
        self._nonlocal = {name for node in nodes if isinstance(node, ast.Nonlocal) for name in node.names}
        self._reached: set[ast.AST] = set()
        self._methods: dict[ast.FunctionDef, tuple[Ending | None, frozenset[ast.AST]]] = {}
        self._module = _Scope(kind="module", outer=self.everywhere)
        self._stop: Ending | None = self._first(self.body, self._module)
        self._at_import = frozenset(self._reached)

    def of_module(self) -> Ending | None:
        """Why the module's import always fails."""
        return self._stop

    def of_method(self, method: ast.FunctionDef, keys: frozenset[str]) -> Ending | None:
        """Why a call of a method of the module's class always fails; a generator's body does not run.

        ``keys`` are those of the mapping that ``initialize`` gets.
        """
        return self._followed(method, keys)[0]

    def reached(self, methods: Iterable[ast.FunctionDef], keys: frozenset[str]) -> frozenset[ast.AST]:
        """The imports, look-ups (``a[b]``, ``a.b``) and calls that surely run at import and in methods."""
        return self._at_import.union(*(self._followed(method, keys)[1] for method in methods))

    def _followed(
        self, method: ast.FunctionDef, keys: frozenset[str]
    ) -> tuple[Ending | None, frozenset[ast.AST]]:
        if method not in self._methods:
            self._reached = set()
            ending = self._method(method, keys)
            self._methods[method] = ending, frozenset(self._reached)
        return self._methods[method]

    def _method(self, method: ast.FunctionDef, keys: frozenset[str]) -> Ending | None:
        inner = [*own_nodes(method.body)]
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inner):
            return None
        spec = method.args
        every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        parameters = {arg.arg for arg in every if arg}
        shared = {
            name for node in inner if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names
        }
        own = frozenset((bindings(method.body) | parameters) - shared)
        outer = frozenset(self.everywhere | self._module.bound | shared)
        scope = _Scope(kind="function", bound=parameters | self._nonlocal, own=own, outer=outer)
        if method.name == "initialize":
            scope.mapping, scope.keys = _mapping(method), keys
        return self._first(method.body, scope)

    def _first(self, body: Iterable[ast.stmt], scope: _Scope) -> Ending | None:
        """The first failure on the way through statements that all run."""
        for node in body:
            if found := self._statement(node, scope):
                return found
            if leaves(node):
                return None
            scope.bound |= bindings([node], live=True)
            if isinstance(node, ast.Delete):
                scope.bound -= {target.id for target in node.targets if isinstance(target, ast.Name)}
        return None

    def _statement(self, node: ast.stmt, scope: _Scope) -> Ending | None:
        # A name that an expression binds may be used in the same.
        scope.bound |= {inner.target.id for inner in own_nodes([node]) if isinstance(inner, ast.NamedExpr)}
        for part in self._evaluated(node, scope):
            if found := self._expression(part, scope):
                return found
        if self._raises(node):
            return _ending(node, _raised(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._reached.add(node)
            message = values.removed(node)
            return _ending(node, message) if message else None
        if isinstance(node, ast.ClassDef):
            held = frozenset(scope.outer | scope.own | scope.bound)
            plain = all(named(base) in _BUILTINS - self.rebound for base in node.bases)
            dynamic = scope.dynamic or bool(node.keywords) or not plain
            found = self._first(node.body, _Scope(kind="class", outer=held, dynamic=dynamic))
            if found is None and (shared := values.shared_default(node, self._of_dataclasses)):
                return _ending(*shared)
            return found
        if isinstance(node, ast.If) and truth(node.test) is not None:
            return self._first(node.body if truth(node.test) else node.orelse, scope)
        if isinstance(node, ast.With) and all(self._opens(item.context_expr) for item in node.items):
            scope.bound |= bindings([node])
            return self._first(node.body, scope)
        return self._try(node, scope) if isinstance(node, ast.Try) else None

    def _try(self, node: ast.Try, scope: _Scope) -> Ending | None:
        """What no handler stops, and no ``return`` at the end."""
        stopped = bool(node.handlers) or any(leaves(last) for last in node.finalbody)
        if not stopped and (found := self._first([*node.body, *node.orelse], scope)):
            return found
        scope.bound |= bindings([*node.body, *node.handlers, *node.orelse], live=True)
        return self._first(node.finalbody, scope)

    def _raises(self, node: ast.stmt) -> bool:
        """Whether a statement by itself always raises."""
        if isinstance(node, ast.Assert):
            return truth(node.test) is False
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = dotted(node.value.func)
            return called in ("sys.exit", "exit", "quit") and called.partition(".")[0] not in self.rebound
        return isinstance(node, ast.Raise)

    def _opens(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and named(node.func) == "open" and "open" not in self.rebound

    def _evaluated(self, node: ast.stmt, scope: _Scope) -> Iterator[ast.expr]:
        """The expressions of a statement that are evaluated whenever it runs, in about that order."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            spec = node.args
            yield from (*node.decorator_list, *spec.defaults, *(value for value in spec.kw_defaults if value))
            if not self.late and not getattr(node, "type_params", ()):
                every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
                yield from (arg.annotation for arg in every if arg and arg.annotation)
                yield from [node.returns] if node.returns else ()
        elif isinstance(node, ast.ClassDef):
            yield from node.decorator_list
            if not getattr(node, "type_params", ()):
                yield from (*node.bases, *(keyword.value for keyword in node.keywords))
        elif isinstance(node, ast.AnnAssign):
            yield from [node.value] if node.value else ()
            if not self.late and scope.kind != "function":
                yield node.annotation
            yield node.target
        elif isinstance(node, ast.Assign):
            yield node.value
            # A target may use what one before it has bound: i, a[i] = 0, 1.
            scope.bound |= bindings(node.targets)
            yield from node.targets
        elif isinstance(node, ast.AugAssign):
            target = node.target
            yield (
                ast.copy_location(ast.Name(target.id, ast.Load()), target)
                if isinstance(target, ast.Name)
                else target
            )
            yield node.value
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield node.iter
        elif isinstance(node, ast.If | ast.While | ast.Assert):
            yield node.test
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield node.items[0].context_expr
        elif isinstance(node, ast.Match):
            yield node.subject
        elif isinstance(node, ast.Expr | ast.Return) and node.value:
            yield node.value
        elif isinstance(node, ast.Raise | ast.Delete):
            yield from ([node.exc] if node.exc else ()) if isinstance(node, ast.Raise) else node.targets

    def _expression(self, node: ast.expr, scope: _Scope) -> Ending | None:
        for part in certain(node):
            message, unbound = "", isinstance(part, ast.Name)
            if isinstance(part, ast.Name):
                message = self._unbound(part, scope)
            elif isinstance(part, ast.BinOp):
                message = values.quotient(part)
            elif isinstance(part, ast.Subscript):
                self._reached.add(part)
                key = part.slice.value if isinstance(part.slice, ast.Constant) else ""
                if key and key not in scope.keys and named(part.value) == scope.mapping != "":
                    message = f"KeyError: {key!r}"
            elif isinstance(part, ast.Attribute):
                self._reached.add(part)
            elif isinstance(part, ast.Call):
                self._reached.add(part)
                message = values.bad_pattern(part, self.rebound)
            if message:
                return _ending(part, message, unbound=unbound)
        return None

    def _unbound(self, name: ast.Name, scope: _Scope) -> str:
        """What Python says of a name that has no value yet."""
        if not self.names_known or isinstance(name.ctx, ast.Store) or name.id.startswith("__"):
            return ""
        if scope.dynamic:
            return ""
        if name.id in scope.bound:
            return ""
        if name.id in scope.own:
            return f"UnboundLocalError: '{name.id}' is used before it has a value"
        if name.id in scope.outer or name.id in _BUILTINS:
            return ""
        return f"NameError: name '{name.id}' is not defined"


def _ending(node: ast.stmt | ast.expr, message: str, *, unbound: bool = False) -> Ending:
    return Ending(line=node.lineno, column=node.col_offset + 1, message=message, unbound=unbound)


def leaves(node: ast.stmt) -> bool:
    """Whether a statement may end a function without failing, so that what follows need not run."""
    return any(isinstance(inner, ast.Return) for inner in own_nodes([node]))


def _raised(ending: ast.stmt) -> str:
    """What such a statement raises, in Python's words where they are to be seen."""
    error = ending.exc if isinstance(ending, ast.Raise) else None
    if isinstance(error, ast.Call) and len(error.args) == 1 and isinstance(error.args[0], ast.Constant):
        return f"{shown(error.func)}: {error.args[0].value!s}"
    return f"{shown(ending) or type(ending).__name__}: the model never loads"


def _is_dynamic(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name in _DYNAMIC for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in _DYNAMIC or any(alias.name in ("*", *_DYNAMIC) for alias in node.names)
    return (node.attr if isinstance(node, ast.Attribute) else named(node)) in _DYNAMIC


def _mapping(method: ast.FunctionDef) -> str:
    """The name of what ``initialize(self, args)`` gets, if the method only reads single keys of it."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    if len(arguments) < 2 or method.decorator_list:
        return ""
    name, nodes = arguments[1].arg, [*ast.walk(method)]
    read = [node for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
    uses = [node for node in nodes if named(node) == name]
    return name if len(uses) == sum(named(node.value) == name for node in read) else ""

"""Statements of a Python syntax tree: those that run together, bound names, guarded imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from triton_repo_builder.check.python_nodes import certain, named, own_nodes, truth

_OPTIONAL = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_REFLECTIVE = frozenset(
    {"exec", "eval", "globals", "locals", "vars", "setattr", "__dict__", "__globals__", "f_globals"}
)
"""Names by which code may bind a name, or add a method to a class, without a statement for it."""
_IF_THERE = re.compile(r"find_spec|version_info|^modules$|^platform$|available|installed", re.IGNORECASE)
"""Names in a condition that asks whether a module can be imported, or is needed."""


def executed(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run with these, in branches and blocks too."""
    waiting = [*reversed([*body])]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += reversed([child for child in children(node) if isinstance(child, ast.stmt)])


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The statements of the branches that can run."""
    if isinstance(node, ast.If | ast.While):
        yield from (
            *([] if truth(node.test) is False else node.body),
            *([] if truth(node.test) else node.orelse),
        )
    else:
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            for child in getattr(node, field, []) if not isinstance(node, ast.expr) else []:
                yield from child.body if isinstance(child, ast.match_case | ast.ExceptHandler) else (child,)


def reflects(node: ast.AST) -> bool:
    """Whether a node may bind a name, or add a method to a class, without a statement for it."""
    name = node.attr if isinstance(node, ast.Attribute) else named(node)
    return name in _REFLECTIVE or (
        isinstance(node, ast.Attribute) and name == "modules" and named(node.value) == "sys"
    )


def parts(node: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without its inner statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.withitem | ast.match_case):
            yield from ast.walk(child.pattern if isinstance(child, ast.match_case) else child)


def asks(node: ast.AST) -> bool:
    """Whether a statement guards an import in it, which may fail or need not run."""
    if isinstance(node, ast.Try):
        return any(_catches_imports(handler) for handler in node.handlers)
    if isinstance(node, ast.With):
        return any("suppress" in name for item in node.items for name in _words(item.context_expr))
    return isinstance(node, ast.If) and any(_IF_THERE.search(name) for name in _words(node.test))


def _words(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name | ast.Attribute):
            yield part.attr if isinstance(part, ast.Attribute) else part.id


def modules(node: ast.stmt) -> list[str]:
    """The first parts of the names of the modules that a statement imports; relative ones begin with dots."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    names = [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]
    return ["." * node.level + name for name in names]


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if any(isinstance(node, ast.Raise) for node in handler.body):
        return False
    return any(kind is None or getattr(kind, "id", "") in _OPTIONAL for kind in kinds)


def removes(node: ast.stmt, name: str) -> bool:
    """Whether a statement deletes a name."""
    return isinstance(node, ast.Delete) and any(getattr(target, "id", "") == name for target in node.targets)


def binds(node: ast.stmt, name: str) -> bool:
    """Whether a statement binds a name, without the statements in it."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name == name
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((alias.asname or alias.name) in (name, "*") for alias in node.names)
    return any(
        isinstance(inner.ctx, ast.Store) and inner.id == name
        if isinstance(inner, ast.Name)
        else isinstance(inner, ast.MatchAs | ast.MatchStar) and inner.name == name
        for inner in parts(node)
    )


def reached(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Nodes that always run when these statements do, in about that order; nothing is executed.

    No condition, loop, ``with`` or handler stands before them. Nodes: imports, ``raise`` and the expressions
    that are read.
    """
    waiting = [*reversed([*body])]
    while waiting:
        node = waiting.pop()
        for expression in _evaluated(node):
            yield from certain(expression)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise):
            yield node
        if isinstance(node, ast.Raise):
            return
        if leaves(node):
            waiting.clear()
        waiting += reversed(_unconditional(node))


def leaves(node: ast.stmt) -> bool:
    """Whether a statement may end its function without an error, so that what follows may not run."""
    return any(isinstance(inner, ast.Return) for inner in own_nodes([node]))


def _unconditional(node: ast.stmt) -> list[ast.stmt]:
    """Statements inside a statement that always run with it."""
    if isinstance(node, ast.ClassDef):
        return node.body
    if isinstance(node, ast.If) and truth(node.test) is not None:
        return node.body if truth(node.test) else node.orelse
    if isinstance(node, ast.Try):
        stopped = bool(node.handlers) or any(leaves(last) for last in node.finalbody)
        return [*([] if stopped else [*node.body, *node.orelse]), *node.finalbody]
    return []


def _evaluated(node: ast.stmt) -> list[ast.expr]:
    """Expressions that a statement reads whenever it runs; targets and annotations are left out."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.decorator_list, *node.args.defaults, *(each for each in node.args.kw_defaults if each)]
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [node.items[0].context_expr]
    read = (getattr(node, field, None) for field in ("value", "iter", "test", "subject", "exc"))
    return [expression for expression in read if isinstance(expression, ast.expr)]

"""Expressions of a Python syntax tree: constant conditions, parts that are always evaluated, bound names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


def truth(test: ast.expr) -> bool | None:
    """Value of a constant condition, of ``not`` one, and of ``TYPE_CHECKING``; None for any other."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = truth(test.operand)
        return None if inner is None else not inner
    name = test.attr if isinstance(test, ast.Attribute) else named(test)
    if name == "TYPE_CHECKING":
        return False
    return bool(test.value) if isinstance(test, ast.Constant) else None


def certain(expression: ast.expr) -> Iterator[ast.expr]:
    """Parts of an expression that are always evaluated with it, from left to right."""
    waiting: list[ast.AST] = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr):
            yield node
        waiting += reversed(_parts(node))


def _parts(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.BoolOp):
        return [node.values[0]]
    if isinstance(node, ast.IfExp):
        return [node.test]
    if isinstance(node, ast.Compare):
        return [node.left, node.comparators[0]]
    if isinstance(node, ast.Lambda):
        return [*node.args.defaults, *(value for value in node.args.kw_defaults if value)]
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return [node.generators[0].iter]
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.keyword)]


def own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes of some statements without the bodies of functions and classes."""
    waiting = [*body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def bindings(body: Iterable[ast.AST]) -> set[str]:
    """Names that some statements may bind in their own scope."""
    names: set[str] = set()
    nodes = [*own_nodes(body)]
    within = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    inner = {id(part) for target in within for part in ast.walk(target)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names |= {node.id} if id(node) not in inner else set()
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, _NAMED) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
        elif type(node).__name__ == "TypeAlias":  # Python 3.12's
            names.add(named(node.name))  # type: ignore[attr-defined]
    return names


def named(node: ast.AST) -> str:
    """Name of a node; empty if the node is not a name."""
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """``a`` or ``a.b`` of such a node; empty for any other, however deep."""
    if isinstance(node, ast.Attribute):
        return f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else ""
    return named(node)


def first_line(node: ast.AST) -> str:
    """First line of a node's text, cut; empty if it is nested too deep to be written."""
    try:
        return ast.unparse(node).partition("\n")[0][:100]
    except RecursionError:
        return ""

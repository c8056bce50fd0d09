"""Habits of a model.py, from its syntax tree: loading at the first request, joining requests."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.python_source import CLASS

JOINS = frozenset(
    {"concatenate", "vstack", "hstack", "stack", "cat", "pad_sequence", "row_stack", "asarray_chkfinite"}
)
"""Functions that put the tensors of several requests into one, which needs equal shapes."""


def late(context: ModelContext) -> tuple[str, int] | None:
    """An attribute that ``execute`` sets at the first request, ``if self.x is None: …``, and its line."""
    for method in _reached(context):
        for node in ast.walk(method):
            if not isinstance(node, ast.If):
                continue
            for inner in ast.walk(ast.Module(body=node.body, type_ignores=[])):
                if isinstance(inner, ast.Assign) and _calls(inner.value):
                    for target in inner.targets:
                        name = _attribute(target)
                        if name and name in _asked(node.test):
                            return name, inner.lineno
    return None


def joins(context: ModelContext) -> bool:
    """Whether the requests of an execution become one tensor; True also if the code cannot be read."""
    source = _tree(context)
    if source is None:
        return True
    calls = (node.func for node in ast.walk(source) if isinstance(node, ast.Call))
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}
    return bool(names & JOINS)


def _tree(context: ModelContext) -> ast.Module | None:
    for number in reversed(context.selected):
        file = context.file(number)
        if file is not None and file.is_file():
            return context.repo.python(file).tree
    return None


def _reached(context: ModelContext) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """``execute`` and the methods of the class that it calls."""
    tree = _tree(context)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)] if tree else []
    for each in classes:
        if each.name != CLASS:
            continue
        methods = {
            node.name: node for node in each.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        waiting, seen = ["execute"], set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in methods:
                continue
            seen.add(name)
            yield methods[name]
            for node in ast.walk(methods[name]):
                if isinstance(node, ast.Call) and (called := _attribute(node.func)):
                    waiting.append(called)


def _attribute(node: ast.expr) -> str:
    """``x`` of ``self.x``, else empty."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def _calls(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Call) for each in ast.walk(node))


def _asked(test: ast.expr) -> set[str]:
    """Attributes of ``self`` whose absence a condition asks for."""
    names = {_attribute(node) for node in ast.walk(test) if isinstance(node, ast.expr)}
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("hasattr", "getattr"):
            names |= {str(each.value) for each in node.args if isinstance(each, ast.Constant)}
    nothing = any(
        isinstance(node, ast.Not) or (isinstance(node, ast.Constant) and node.value is None)
        for node in ast.walk(test)
    )
    return names - {""} if nothing else set()

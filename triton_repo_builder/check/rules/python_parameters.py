"""Keys that a model.py surely looks up in the parameters of its config.pbtxt."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Place
from triton_repo_builder.check.python_nodes import dotted, named
from triton_repo_builder.check.python_source import OF_CLASS, PythonSource

_PARAMETERS = "parameters"


def check(context: ModelContext, file: Path, source: PythonSource) -> Iterator[Finding]:
    """The look-ups in ``initialize`` that fail for want of the parameter, the first of each."""
    method, completion = source.method("initialize"), source.method(OF_CLASS)
    if (
        source.tree is None
        or method is None
        or len(method.args.args) < 2
        or (completion and _names_parameters(completion))
    ):
        return
    looked_up = [node for node in source.used("initialize") if isinstance(node, ast.Subscript)]
    if not looked_up:
        return
    values = Values(source.tree, method.args.args[1].arg)
    absent: set[str] = set()
    for node in looked_up:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if (
            isinstance(key, str)
            and key not in {*context.config.parameters, *absent}
            and values.are_parameters(node.value)
        ):
            remedy = f'add it to config.pbtxt: parameters {{ key: "{key}" value {{ string_value: "…" }} }}'
            where = Place(file, node.lineno, node.col_offset + 1)
            absent.add(key)
            yield report("python-raises", where, f"KeyError: {key!r}", remedy=remedy)


def _names_parameters(method: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Constant) and node.value == _PARAMETERS for node in ast.walk(method))


class Values:
    """What names stand for, where one statement of the module binds them and nothing can change the value."""

    def __init__(self, tree: ast.Module, arguments: str) -> None:
        self._arguments = arguments
        nodes = [*ast.walk(tree)]
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        self._bound = {dotted(target): node.value for node in assigned for target in node.targets}
        names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
        self._stores = Counter(dotted(node) for node in names if not isinstance(node.ctx, ast.Load))
        self._loads = Counter(dotted(node) for node in names if isinstance(node.ctx, ast.Load))
        self._reads = Counter(dotted(read) for node in nodes for read in _only_read(node))

    def are_parameters(self, node: ast.expr) -> bool:
        """Whether this is the configuration's map of parameters, as the backend gives it."""
        node = self._value(node)
        return looks_up(node, _PARAMETERS) and self.is_config(node.value)

    def is_config(self, node: ast.expr) -> bool:
        """Whether this is ``json.loads(args["model_config"])``."""
        node = self._value(node)
        if not isinstance(node, ast.Call) or dotted(node.func) != "json.loads" or len(node.args) != 1:
            return False
        given = node.args[0]
        return looks_up(given, "model_config") and named(given.value) == self._arguments

    def _value(self, node: ast.expr) -> ast.expr:
        name = dotted(node)
        if name and self._stores[name] == 1 and self._loads[name] == self._reads[name]:
            return self._bound.get(name, node)
        return node


def looks_up(node: ast.expr, key: str) -> TypeGuard[ast.Subscript]:
    """Whether an expression is ``a["key"]``."""
    index = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(index, ast.Constant) and index.value == key


def _only_read(node: ast.AST) -> list[ast.expr]:
    """What a node reads and cannot change, or hand to what changes it."""
    if isinstance(node, ast.Subscript):
        return [node.value] if isinstance(node.ctx, ast.Load) else []
    if isinstance(node, ast.Attribute):
        return [node.value] if node.attr in ("get", "items", "keys", "values") else []
    if isinstance(node, ast.Compare):
        return [*node.comparators]
    if isinstance(node, ast.Call) and dotted(node.func).startswith("pb_utils."):
        return [*node.args]
    return []

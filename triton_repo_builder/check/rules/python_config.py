"""Uses of ``args["model_config"]`` that Python always refuses: it is JSON text, of a known form."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Place
from triton_repo_builder.check.python_nodes import dotted, named
from triton_repo_builder.check.python_source import PythonSource
from triton_repo_builder.check.rules.python_parameters import Values, looks_up

_TEXT = "TypeError: string indices must be integers"
_PARSE = 'parse it first: json.loads(args["model_config"])'
_KEYS = frozenset(
    {
        *("model_config", "model_instance_device_id", "model_instance_kind", "model_instance_name"),
        *("model_name", "model_repository", "model_version"),
    }
)
"""Keys of the mapping that ``initialize`` is called with."""
_OF_A_DICT = ("get", "items", "keys", "values")
_BY_NAME = {"get_input_config_by_name": "input", "get_output_config_by_name": "output"}
Use = ast.Subscript | ast.Call | ast.Attribute


def check(context: ModelContext, file: Path, source: PythonSource) -> Iterator[Finding]:
    """Each use that surely runs in ``initialize``, or in ``execute`` of what it has kept."""
    initialize = source.method("initialize")
    if source.tree is None or initialize is None or len(initialize.args.args) < 2:
        return
    uses = _Uses(context, source, initialize)
    for method in ("initialize", "execute") if uses.known else ():
        for node in source.used(method):
            message, remedy = uses.fault(node)
            if message:
                where = Place(file, node.lineno, node.col_offset + 1)
                yield report("python-raises", where, message, remedy=remedy)


class _Uses:
    """What an expression of the class means, if it stems from what ``initialize`` gets."""

    def __init__(self, context: ModelContext, source: PythonSource, initialize: ast.FunctionDef) -> None:
        assert source.tree is not None  # The caller has looked.
        self._arguments = initialize.args.args[1].arg
        nodes, inner = [*ast.walk(source.tree)], [*ast.walk(initialize)]
        stored = (node for node in nodes if isinstance(node, ast.Name | ast.Attribute))
        stores = Counter(dotted(node) for node in stored if not isinstance(node.ctx, ast.Load))
        assigned = [node for node in inner if isinstance(node, ast.Assign)]
        self._bound = {
            name: node.value
            for node in assigned
            for target in node.targets
            if (name := dotted(target)) and stores[name] == 1
        }
        self._values = Values(source.tree, self._arguments)
        self._context = context
        self._complete = not source.completes and context.model.error is None
        # What else gets the mapping may put something else into it.
        read = [
            node.value for node in inner if isinstance(node, ast.Subscript | ast.Attribute) and _loads(node)
        ]
        read += [node.args[0] for node in inner if isinstance(node, ast.Call) and self._parses_mapping(node)]
        uses = sum(named(node) == self._arguments for node in inner)
        self.known = uses == sum(named(node) == self._arguments for node in read)
        looked_up = [node.value for node in inner if isinstance(node, ast.Subscript) and _loads(node)]
        self._only_keys = uses == sum(named(node) == self._arguments for node in looked_up)

    def fault(self, node: Use) -> tuple[str, str]:
        """What Python says, and the remedy; empty if it may be right."""
        if isinstance(node, ast.Subscript):
            return self._looked_up(node)
        if isinstance(node, ast.Attribute):
            if self._is_mapping(node.value) and not hasattr(dict, node.attr):
                remedy = f'write {self._arguments}["{node.attr}"]'
                return f"AttributeError: 'dict' object has no attribute '{node.attr}'", remedy
            text = node.attr in _OF_A_DICT and self._is_text(node.value)
            return (
                (f"AttributeError: 'str' object has no attribute '{node.attr}'", _PARSE) if text else ("", "")
            )
        if self._parses_mapping(node):
            message = "TypeError: the JSON object must be str, bytes or bytearray, not dict"
            return message, f'write json.loads({self._arguments}["model_config"])'
        if node.args and _function(node) in _BY_NAME and self._is_text(node.args[0]):
            return _TEXT, _PARSE
        if named(node.func) in ("int", "float") and len(node.args) == 1:
            given = self._bound.get(dotted(node.args[0]), node.args[0])
            if isinstance(given, ast.Subscript) and self._values.are_parameters(given.value):
                kinds = {"int": "a string, a bytes-like object", "float": "a string"}[named(node.func)]
                start = f"TypeError: {named(node.func)}() argument must be {kinds} or a real number"
                return f"{start}, not 'dict'", 'a parameter is a message: add ["string_value"]'
        return "", ""

    def _looked_up(self, node: ast.Subscript) -> tuple[str, str]:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            return "", ""
        if self._is_mapping(node.value) and self._only_keys and key not in _KEYS:
            return f"KeyError: {key!r}", f"the keys are: {', '.join(sorted(_KEYS))}"
        if self._is_text(node.value):
            return _TEXT, _PARSE
        inner = node.value
        listed = looks_up(inner, "input") or looks_up(inner, "output")
        if listed and isinstance(inner, ast.Subscript) and self._values.is_config(inner.value):
            remedy = "it is a list: use pb_utils.get_output_config_by_name, or get_input_config_by_name"
            return "TypeError: list indices must be integers or slices, not str", remedy
        call = self._bound.get(dotted(node.value), node.value)
        role = _BY_NAME.get(_function(call), "")
        name = call.args[1] if isinstance(call, ast.Call) and role and len(call.args) == 2 else None
        if isinstance(name, ast.Constant) and isinstance(call, ast.Call) and self._complete:
            names = {str(item.get("name", "")) for item in self._context.messages(role)}
            if (
                isinstance(name.value, str)
                and name.value not in names
                and self._values.is_config(call.args[0])
            ):
                message = f"TypeError: 'NoneType' object is not subscriptable: no {role} is '{name.value}'"
                return message, f"the {role}s of config.pbtxt are: {', '.join(sorted(names)) or 'none'}"
        return "", ""

    def _is_mapping(self, node: ast.expr) -> bool:
        return named(node) == self._arguments

    def _is_text(self, node: ast.expr) -> bool:
        node = self._bound.get(dotted(node), node)
        return looks_up(node, "model_config") and self._is_mapping(node.value)

    def _parses_mapping(self, node: ast.Call) -> bool:
        return dotted(node.func) == "json.loads" and len(node.args) == 1 and self._is_mapping(node.args[0])


def _loads(node: ast.Subscript | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _function(node: ast.expr) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""

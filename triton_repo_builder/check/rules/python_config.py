"""Uses of ``args["model_config"]`` that Python always refuses: it is JSON text, of a known form."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeGuard

from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Place
from triton_repo_builder.check.python_nodes import dotted, named
from triton_repo_builder.check.python_source import OF_CLASS, PythonSource

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
_PARAMETERS = "parameters"
Use = ast.Subscript | ast.Call | ast.Attribute
_NO_FAULT = ("", "")


def check(context: ModelContext, file: Path, source: PythonSource) -> Iterator[Finding]:
    """Each use that always runs: in ``initialize``, or in ``execute`` of values that it kept."""
    initialize = source.method("initialize")
    if source.tree is None or initialize is None or len(initialize.args.args) < 2:
        return
    uses = _Uses(context, source, initialize)
    for method in ("initialize", "execute"):
        for node in source.used(method):
            message, remedy = uses.fault(node)
            if message:
                where = Place(file, node.lineno, node.col_offset + 1)
                yield report("python-raises", where, message, remedy=remedy)


class _Uses:
    """Meaning of the expressions that stem from the argument of ``initialize``."""

    def __init__(self, context: ModelContext, source: PythonSource, initialize: ast.FunctionDef) -> None:
        assert source.tree is not None  # The caller has looked.
        self._context = context
        self._arguments = initialize.args.args[1].arg
        self._complete = not source.completes and context.model.error is None
        completion = source.method(OF_CLASS)
        self._parameters = (
            None
            if context.model.error is not None or (completion and _names_parameters(completion))
            else {*context.config.parameters}
        )
        """Parameters that the model may look up; None if they are unknown."""
        self._bound, self._unchanged = _bound(source.tree)
        # A function that gets the mapping may put something else into it.
        inner = [*ast.walk(initialize)]
        uses = sum(named(node) == self._arguments for node in inner)
        loaded = [node for node in inner if isinstance(node, ast.Subscript | ast.Attribute) and _loads(node)]
        keys = sum(self._names_mapping(node.value) for node in loaded if isinstance(node, ast.Subscript))
        parsed = [node for node in inner if isinstance(node, ast.Call) and self._parses_mapping(node)]
        self._only_read = uses == sum(self._names_mapping(node.value) for node in loaded) + len(parsed)
        self._only_keys = uses == keys

    def fault(self, node: Use) -> tuple[str, str]:
        """Python's error, and the remedy; empty if the use may be right."""
        if isinstance(node, ast.Subscript):
            return self._looked_up(node)
        if isinstance(node, ast.Attribute):
            if self._is_mapping(node.value) and not hasattr(dict, node.attr):
                remedy = f'write {self._arguments}["{node.attr}"]'
                return f"AttributeError: 'dict' object has no attribute '{node.attr}'", remedy
            if node.attr in _OF_A_DICT and self._is_text(node.value):
                return f"AttributeError: 'str' object has no attribute '{node.attr}'", _PARSE
            return _NO_FAULT
        if self._only_read and self._parses_mapping(node):
            message = "TypeError: the JSON object must be str, bytes or bytearray, not dict"
            return message, f'write json.loads({self._arguments}["model_config"])'
        if node.args and _function(node) in _BY_NAME and self._is_text(node.args[0]):
            return _TEXT, _PARSE
        if named(node.func) in ("int", "float") and len(node.args) == 1:
            argument = self._bound.get(dotted(node.args[0]), node.args[0])
            if isinstance(argument, ast.Subscript) and self._are_parameters(argument.value):
                kinds = {"int": "a string, a bytes-like object", "float": "a string"}[named(node.func)]
                start = f"TypeError: {named(node.func)}() argument must be {kinds} or a real number"
                return f"{start}, not 'dict'", 'a parameter is a message: add ["string_value"]'
        return _NO_FAULT

    def _looked_up(self, node: ast.Subscript) -> tuple[str, str]:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            return _NO_FAULT
        if self._only_keys and self._is_mapping(node.value) and key not in _KEYS:
            return f"KeyError: {key!r}", f"the keys are: {', '.join(sorted(_KEYS))}"
        if self._is_text(node.value):
            return _TEXT, _PARSE
        if self._parameters is not None and key not in self._parameters and self._are_parameters(node.value):
            self._parameters.add(key)  # reported once
            remedy = f'add it to config.pbtxt: parameters {{ key: "{key}" value {{ string_value: "…" }} }}'
            return f"KeyError: {key!r}", remedy
        inner = node.value
        if (_looks_up(inner, "input") or _looks_up(inner, "output")) and self._is_config(inner.value):
            remedy = "it is a list: use pb_utils.get_output_config_by_name, or get_input_config_by_name"
            return "TypeError: list indices must be integers or slices, not str", remedy
        return self._by_name(self._bound.get(dotted(inner), inner))

    def _by_name(self, call: ast.expr) -> tuple[str, str]:
        """Fault of a look-up in the configuration of a tensor that ``call`` asks for by its name."""
        role = _BY_NAME.get(_function(call), "")
        if not isinstance(call, ast.Call) or not role or len(call.args) != 2 or not self._complete:
            return _NO_FAULT
        name = call.args[1].value if isinstance(call.args[1], ast.Constant) else None
        names = {str(item.get("name", "")) for item in self._context.messages(role)}
        if not isinstance(name, str) or name in names or not self._is_config(call.args[0]):
            return _NO_FAULT
        message = f"TypeError: 'NoneType' object is not subscriptable: no {role} is '{name}'"
        return message, f"the {role}s of config.pbtxt are: {', '.join(sorted(names)) or 'none'}"

    def _names_mapping(self, node: ast.expr) -> bool:
        return named(node) == self._arguments

    def _is_mapping(self, node: ast.expr) -> bool:
        """Whether this is the unchanged argument of ``initialize``."""
        return self._only_read and self._names_mapping(node)

    def _is_text(self, node: ast.expr) -> bool:
        """Whether this is ``args["model_config"]``."""
        node = self._bound.get(dotted(node), node)
        return _looks_up(node, "model_config") and self._is_mapping(node.value)

    def _are_parameters(self, node: ast.expr) -> bool:
        """Whether this is the configuration's map of parameters, as the backend gives it."""
        node = self._unchanged_value(node)
        return _looks_up(node, _PARAMETERS) and self._is_config(node.value)

    def _is_config(self, node: ast.expr) -> bool:
        """Whether this is ``json.loads(args["model_config"])``."""
        node = self._unchanged_value(node)
        if not isinstance(node, ast.Call) or dotted(node.func) != "json.loads" or len(node.args) != 1:
            return False
        return _looks_up(node.args[0], "model_config") and self._names_mapping(node.args[0].value)

    def _unchanged_value(self, node: ast.expr) -> ast.expr:
        name = dotted(node)
        return self._bound[name] if name in self._unchanged else node

    def _parses_mapping(self, node: ast.Call) -> bool:
        return dotted(node.func) == "json.loads" and len(node.args) == 1 and self._names_mapping(node.args[0])


def _looks_up(node: ast.expr, key: str) -> TypeGuard[ast.Subscript]:
    """Whether an expression is ``a["key"]``."""
    index = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(index, ast.Constant) and index.value == key


@lru_cache(maxsize=16)  # as python_source.parse keeps trees
def _bound(tree: ast.Module) -> tuple[Mapping[str, ast.expr], frozenset[str]]:
    """Values by the names that one statement of the module binds; those whose value nothing can change."""
    nodes = [*ast.walk(tree)]
    names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
    stores = Counter(dotted(node) for node in names if not isinstance(node.ctx, ast.Load))
    loads = Counter(dotted(node) for node in names if isinstance(node.ctx, ast.Load))
    reads = Counter(dotted(part) for node in nodes for part in _only_read(node))
    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    bound = {dotted(target): node.value for node in assigned for target in node.targets}
    once = {name: value for name, value in bound.items() if name and stores[name] == 1}
    return once, frozenset(name for name in once if loads[name] == reads[name])


def _only_read(node: ast.AST) -> list[ast.expr]:
    """Expressions that a node reads and neither changes nor passes to code that might."""
    if isinstance(node, ast.Subscript):
        return [node.value] if _loads(node) else []
    if isinstance(node, ast.Attribute):
        return [node.value] if node.attr in _OF_A_DICT else []
    if isinstance(node, ast.Compare):
        return [*node.comparators]
    if isinstance(node, ast.Call) and dotted(node.func).startswith("pb_utils."):
        return [*node.args]
    return []


def _names_parameters(method: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Constant) and node.value == _PARAMETERS for node in ast.walk(method))


def _loads(node: ast.Subscript | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _function(node: ast.expr) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""

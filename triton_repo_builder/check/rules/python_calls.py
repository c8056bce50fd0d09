"""Values that a model.py returns to the backend: a completed configuration, and responses of execute."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Place, Severity
from triton_repo_builder.check.python_nodes import bindings, named, own_nodes
from triton_repo_builder.check.python_source import OF_CLASS, PythonSource
from triton_repo_builder.check.python_statements import leaves

_PROPERTIES = ("name", "data_type", "dims", "optional")
_LISTS = (ast.List, ast.ListComp, ast.Tuple, ast.Dict)
_SENDER = "sender"
"""Part of the names through which a model answers without returning a value."""


def check(context: ModelContext, file: Path, source: PythonSource) -> Iterator[Finding]:
    """The findings on one model.py."""
    for node, message in _completed(context, source.method(OF_CLASS)):
        yield report(
            "python-completion", Place(file, node.lineno, node.col_offset + 1), f"ValueError: {message}"
        )
    execute = source.method("execute")
    if execute is None or any(
        isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(execute.body)
    ):
        return
    message = ""
    severity: Severity = "warning"
    if context.config.raw.get("model_transaction_policy", {}).get("decoupled") and _returns_lists(execute):
        message = (
            f"Python model '{context.name}_0' is using the decoupled mode and the execute function must "
            "return None."
        )
        remedy = "send each response with request.get_response_sender(), return None; or drop decoupled"
        if any(sample.get("batch_size") for sample in context.messages("model_warmup")):
            # Seen on 24.10: most loads are refused in these words, some end the whole server (signal 11).
            severity, message = (
                "error",
                f"{message} The warm-up calls it: the load fails, or the server dies.",
            )
    elif _loses_responses(execute) and not source.mentions(_SENDER):
        message = f"execute of model '{context.name}' returns no responses and sends none: each request hangs"
        remedy = "return a list with one pb_utils.InferenceResponse for each request"
    if message:
        where = Place(file, execute.lineno, execute.col_offset + 1)
        yield report("python-signature", where, message, remedy=remedy, severity=severity)


def _completed(context: ModelContext, method: ast.FunctionDef | None) -> Iterator[tuple[ast.Call, str]]:
    """The calls of the completion that triton_python_backend_utils.py refuses for this config.pbtxt."""
    arguments = method.args.args if method else []
    tensors: dict[str, list[dict[str, Any]]] = {
        kind: [dict(tensor) for tensor in context.messages(kind)] for kind in ("input", "output")
    }
    if method is None or not arguments or arguments[-1].arg in bindings(method.body):
        return
    for node in method.body:
        if leaves(node):
            return
        uses = sum(named(part) == arguments[-1].arg for part in ast.walk(node))
        call = node.value if isinstance(node, ast.Expr) else None
        if (
            not isinstance(call, ast.Call)
            or not isinstance(call.func, ast.Attribute)
            or named(call.func.value) != arguments[-1].arg
            or len(call.args) != 1
            or uses > 1
        ):
            if uses:
                return  # What else gets it, as_dict() too, may change it.
            continue
        try:
            value = ast.literal_eval(call.args[0])
        except (ValueError, TypeError, RecursionError, MemoryError):
            continue
        kind = call.func.attr.removeprefix("add_")
        message = ""
        if call.func.attr == "set_max_batch_size" and isinstance(value, int):
            if value < context.max_batch_size:
                message = (
                    f"configuration specified max_batch_size {context.max_batch_size}, but in "
                    f"auto-complete-config function for model '{context.name}' specified max_batch_size "
                    f"{value}"
                )
        elif call.func.attr == "set_model_transaction_policy" and isinstance(value, dict):
            message = _policy(context, value)
        elif kind in tensors and kind != call.func.attr and isinstance(value, dict):
            message = _tensor(context, kind, value, tensors[kind])
            tensors[kind].append(value)
        if message:
            yield call, message


def _policy(context: ModelContext, value: dict[str, Any]) -> str:
    if {*value} - {"decoupled"}:
        return (
            "model transaction property in auto-complete-config function for model "
            f"'{context.name}' contains property other than 'decoupled'."
        )
    stated = bool(context.config.raw.get("model_transaction_policy", {}).get("decoupled", False))
    if "decoupled" in value and context.written("model_transaction_policy") and value["decoupled"] != stated:
        return (
            f"trying to change decoupled property in auto-complete-config for model '{context.name}', which "
            f"is already set to '{stated}'."
        )
    return ""


def _tensor(context: ModelContext, kind: str, value: dict[str, Any], declared: list[dict[str, Any]]) -> str:
    """Reason why a tensor cannot be added to the declared ones, compared field by field."""
    properties = _PROPERTIES if kind == "input" else _PROPERTIES[:-1]
    of = f"in auto-complete-config function for model '{context.name}'"
    name = value.get("name", "")
    if {*value} - {*properties} and name:
        listed = ", ".join(f"'{each}'" for each in properties[:-1])
        return f"{kind} '{name}' {of} contains property other than {listed} and '{properties[-1]}'."
    if lacking := [each for each in ("name", "data_type", "dims") if each not in value]:
        tensor = f"{kind} '{name}'" if name else kind
        return f"{tensor} {of} is missing '{lacking[0]}' property."
    for tensor_ in (each for each in declared if each.get("name", "") == name):
        data_type, dims = tensor_.get("data_type", "TYPE_INVALID"), tensor_.get("dims", [])
        if data_type not in ("TYPE_INVALID", value["data_type"]):
            return (
                f"unable to load model '{context.name}', configuration expects datatype {data_type} for "
                f"{kind} '{name}', model provides {value['data_type']}"
            )
        if dims and dims != value["dims"]:
            return (
                f"model '{context.name}', tensor '{name}': the model expects dims {value['dims']} but the "
                f"model configuration specifies dims {dims}"
            )
    return ""


def _returns_lists(execute: ast.FunctionDef) -> bool:
    inner = [*own_nodes(execute.body)]
    values = [node.value for node in inner if isinstance(node, ast.Return)]
    return isinstance(execute.body[-1], ast.Return) and all(_is_list(value, inner) for value in values)


def returns_nothing(method: ast.FunctionDef) -> bool:
    """Whether a method certainly gives None: nothing in it returns or yields a value, or raises."""
    inner = [*own_nodes(method.body)]
    values = [node.value for node in inner if isinstance(node, ast.Return) and node.value]
    ends = any(isinstance(node, ast.Raise | ast.Yield | ast.YieldFrom) for node in inner)
    return not ends and all(isinstance(value, ast.Constant) and value.value is None for value in values)


def _loses_responses(execute: ast.FunctionDef) -> bool:
    """Whether the method creates responses but returns nothing."""
    inner = [*own_nodes(execute.body)]
    values = [node.value for node in inner if isinstance(node, ast.Return) and node.value]
    calls = [node.func for node in inner if isinstance(node, ast.Call)]
    responds = any(getattr(call, "attr", named(call)) == "InferenceResponse" for call in calls)
    nothing = all(isinstance(value, ast.Constant) and value.value is None for value in values)
    return responds and nothing and not any(isinstance(node, ast.Raise) for node in inner)


def _is_list(value: ast.expr | None, nodes: list[ast.AST]) -> bool:
    """Whether a value is certainly a list: a literal, or a name bound once to one."""
    if isinstance(value, _LISTS):
        return True
    name = named(value) if value else ""
    stores = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    stores = [node for node in stores if isinstance(node.ctx, ast.Store)]
    bound = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign) and any(target in stores for target in node.targets)
    ]
    return len(stores) == 1 and len(bound) == 1 and isinstance(bound[0], _LISTS)

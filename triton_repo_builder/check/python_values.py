"""Values in a Python syntax tree that Python refuses whenever it comes to them, whatever the names mean."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterable

from triton_repo_builder.check.python_nodes import dotted, shown

_QUOTIENTS: dict[type[ast.operator], str] = {
    ast.Div: "ZeroDivisionError: division by zero",
    ast.FloorDiv: "ZeroDivisionError: division by zero",
    ast.Mod: "ZeroDivisionError: modulo by zero",
}
_REMOVED = {
    "collections": frozenset(
        {
            *("Awaitable", "Coroutine", "AsyncIterable", "AsyncIterator", "AsyncGenerator", "Hashable"),
            *("Iterable", "Iterator", "Generator", "Reversible", "Sized", "Container", "Callable"),
            *("Collection", "Set", "MutableSet", "Mapping", "MutableMapping", "MappingView", "KeysView"),
            *("ItemsView", "ValuesView", "Sequence", "MutableSequence", "ByteString"),
        }
    )
}
"""Names that Python 3.10, the oldest of any release, no longer has; ``collections.abc`` has these."""
_MUTABLE: dict[type[ast.AST], str] = {ast.List: "list", ast.Dict: "dict", ast.Set: "set"}
_DATACLASS = "dataclass"
_OF_PATTERNS = {
    f"re.{function}": arguments
    for function, arguments in (
        *(("compile", 1), ("match", 2), ("fullmatch", 2), ("search", 2), ("findall", 2), ("split", 2)),
        *(("sub", 3), ("subn", 3)),
    )
}
"""Functions that take a pattern, with the number of their arguments when no flags are among them."""
_LONGEST_PATTERN = 10_000
_BY_VERSION = ("multiple repeat", "global flags", "unknown extension")
"""In errors that depend on the version: 3.11 takes possessive quantifiers, and flags at the start only."""


def quotient(node: ast.BinOp) -> str:
    """What Python says of a division of numbers by 0; empty for any other operation."""
    if not _is_number(node.left) or not _is_number(node.right, zero=True):
        return ""
    return _QUOTIENTS.get(type(node.op), "")


def removed(node: ast.Import | ast.ImportFrom) -> str:
    """What Python says of an import of what no Python of a server has any more."""
    names = _REMOVED.get(node.module or "", ()) if isinstance(node, ast.ImportFrom) and not node.level else ()
    gone = next((alias.name for alias in node.names if alias.name in names), "")
    message = f"ImportError: cannot import name '{gone}' from 'collections': it is in collections.abc"
    return message if gone else ""


def bad_pattern(call: ast.Call, rebound: Collection[str]) -> str:
    """What ``re`` says of a pattern that is written there and that no Python takes."""
    if _OF_PATTERNS.get(dotted(call.func)) != len(call.args) or call.keywords or "re" in rebound:
        return ""
    text = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
    if not isinstance(text, str | bytes) or len(text) > _LONGEST_PATTERN:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except re.error as error:
        return "" if any(words in str(error) for words in _BY_VERSION) else f"error: {error}"
    except (OverflowError, RecursionError, MemoryError):  # this Python's limits may not be the server's
        pass
    return ""


def dataclass_decorators(nodes: Iterable[ast.AST], rebound: Collection[str]) -> frozenset[str]:
    """The names that the decorator of the standard library has in a module, and nothing else has there."""
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names: dict[str, set[str]] = {}
    for node in imports:
        for alias in node.names:
            names.setdefault(alias.asname or alias.name, set()).add(f"{node.module}.{alias.name}")
    own = f"dataclasses.{_DATACLASS}"
    return frozenset(name for name, meant in names.items() if meant == {own}) | (
        set() if "dataclasses" in rebound else {own}
    )


def shared_default(node: ast.ClassDef, decorators: Collection[str]) -> tuple[ast.AnnAssign, str] | None:
    """A field of a dataclass whose default all objects would share, and what Python says of it."""
    of_class = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    if not any(dotted(each) in decorators for each in of_class):
        return None
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        kind = _MUTABLE.get(type(field.value), "") if field.value else ""
        if kind and "ClassVar" not in shown(field.annotation):
            message = (
                f"ValueError: mutable default <class '{kind}'> for field {field.target.id} is not "
                "allowed: use default_factory"
            )
            return field, message
    return None


def _is_number(node: ast.expr, *, zero: bool = False) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        node = node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, int | float) and not (zero and value != 0)

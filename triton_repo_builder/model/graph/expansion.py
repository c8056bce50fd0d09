"""How large a graph becomes once its functions are inlined, counted without doing it.

ONNX's shape inference and ONNX Runtime follow every call of a model's own functions: 40 functions of which
each calls the next one twice are 2**39 calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

from triton_repo_builder.model.graph import walk

MOST = 500_000
"""Nodes of an expanded graph; a large language model has some 50,000."""

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def fault(model: onnx.ModelProto) -> str:
    """Why the model's functions cannot be followed; empty if they can."""
    if not model.functions:
        return ""
    calls = {
        _key(function): Counter(map(_called, walk.with_subgraphs(function.node)))
        for function in model.functions
    }
    sizes: dict[Key, int] = {}
    for key in calls:
        if not _measure(key, calls, sizes):
            return f"its function '{key[1]}' calls itself"
    graph = (node for part in walk.graphs(model.graph) for node in part.node)
    total = sum(sizes.get(_called(node), 1) for node in graph)
    if total <= MOST:
        return ""
    return (
        f"its functions call each other so often that it has {total:,} nodes: at most {MOST:,} can be served"
    )


def _measure(first: Key, calls: dict[Key, Counter[Key]], sizes: dict[Key, int]) -> bool:
    """Set the size of a function and of those that it calls; False if one calls itself."""
    waiting: list[tuple[Key, Iterator[Key]]] = [(first, _inner(first, calls, sizes))]
    under_way = {first}
    while waiting:
        key, rest = waiting[-1]
        if (callee := next(rest, None)) is None:
            sizes[key] = sum(count * sizes.get(name, 1) for name, count in calls[key].items())
            under_way.discard(key)
            waiting.pop()
        elif callee in under_way:
            return False
        elif callee not in sizes:
            under_way.add(callee)
            waiting.append((callee, _inner(callee, calls, sizes)))
    return True


def _inner(key: Key, calls: dict[Key, Counter[Key]], sizes: dict[Key, int]) -> Iterator[Key]:
    callees: Iterable[Key] = calls[key]
    return iter([name for name in callees if name in calls and name not in sizes])


def _key(function: onnx.FunctionProto) -> Key:
    return function.domain, function.name, str(getattr(function, "overload", ""))


def _called(node: onnx.NodeProto) -> Key:
    return node.domain, node.op_type, str(getattr(node, "overload", ""))

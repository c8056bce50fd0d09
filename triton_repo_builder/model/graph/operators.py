"""Operators of a graph that the ONNX Runtime of a release has no CPU kernel for."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from triton_repo_builder.base.releases import CONTRIB, Release
from triton_repo_builder.model.graph import reader, walk
from triton_repo_builder.model.read.skeleton import Skeleton

STANDARD = {"ai.onnx": ""}
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", CONTRIB)
LATEST = 2**31 - 1
"""The largest opset that onnx can look up; a file can state larger ones."""


def lacking(graph: Skeleton, release: Release) -> tuple[str, ...]:
    """Names of the operators, those that are not standard with their domain; in the order of the graph.

    Functions that the model defines itself are left out.
    """
    operators: dict[str, None] = {}
    for node, since in without_kernel(graph, release):
        domain = STANDARD.get(node.domain, node.domain)
        operators[f"{domain}.{node.op_type}" if domain else f"{node.op_type} of opset {since}"] = None
    return tuple(operators)


def without_kernel(graph: Skeleton, release: Release) -> Iterator[tuple[onnx.NodeProto, int]]:
    """The first node of each such operator, and the opset that its version of it came with."""
    model = reader.load(graph)
    functions = {(function.domain, function.name) for function in model.functions}
    versions = {STANDARD.get(entry.domain, entry.domain): int(entry.version) for entry in model.opset_import}
    seen: set[tuple[str, str]] = set()
    for node in walk.nodes(model):
        domain = STANDARD.get(node.domain, node.domain)
        if (node.domain, node.op_type) in functions or (node.domain, node.op_type) in seen:
            continue
        seen.add((node.domain, node.op_type))
        since = _since(node.op_type, versions.get(domain, 1), domain)
        if not release.runs(domain, node.op_type, since):
            yield node, since


def of_libraries(graph: Skeleton, release: Release) -> tuple[str, ...]:
    """Operators of other domains than ONNX Runtime's own, each with its domain; in the order of the graph."""
    model = reader.load(graph)
    functions = {(function.domain, function.name) for function in model.functions}
    nodes = (node for node in walk.nodes(model) if node.domain not in DOMAINS)
    return tuple(
        dict.fromkeys(
            f"{node.domain}:{node.op_type}"
            for node in nodes
            if (node.domain, node.op_type) not in functions and not release.knows(node.domain, node.op_type)
        )
    )


def _since(operator: str, opset: int, domain: str) -> int:
    """Opset that the node's version of the operator came with; 1 for operators that onnx does not know."""
    try:
        return int(onnx.defs.get_schema(operator, max(0, min(opset, LATEST)), domain).since_version)
    except onnx.defs.SchemaError:
        return 1

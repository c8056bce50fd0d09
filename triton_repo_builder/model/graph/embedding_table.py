"""How many rows the table has that ``input_ids`` indexes: the ids a tokenizer may produce."""

from __future__ import annotations

import onnx

from triton_repo_builder.model.graph import walk

PASSES_INDEX = {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Compress", "Slice"}
PASSES_TABLE = {"Cast", "Identity", "DequantizeLinear", "Mul"}


def vocabulary(graph: onnx.GraphProto) -> int | None:
    """Rows of the embedding table, or None if the graph does not show it plainly.

    Follows ``input_ids`` forward through shape and type changes to a Gather, and its table back through
    dequantisation to an initializer.
    """
    tables = {tensor.name: tensor.dims for tensor in graph.initializer}
    producer = {output: node for node in graph.node for output in node.output}
    carriers = {"input_ids"}
    # EmbeddingBag is exported as a Loop that looks its rows up.
    for node in (node for inner in walk.graphs(graph) for node in inner.node):
        if node.op_type in PASSES_INDEX and node.input and node.input[0] in carriers:
            carriers.update(node.output)
        elif node.op_type == "Gather" and len(node.input) > 1 and node.input[1] in carriers:
            rows = _rows(node.input[0], tables, producer)
            if rows is not None:
                return rows
    return None


def _rows(name: str, tables: dict[str, list[int]], producer: dict[str, onnx.NodeProto]) -> int | None:
    for _ in range(8):
        if name in tables:
            return int(tables[name][0]) if len(tables[name]) >= 2 else None
        node = producer.get(name)
        if node is None or node.op_type not in PASSES_TABLE:
            return None
        name = node.input[0]
    return None

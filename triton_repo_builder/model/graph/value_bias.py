"""The bias of an attention's values moves into the bias of the projection after it: for int8 only.

The weights of each query sum to 1, so a number added to every value is added to every answer:

    softmax(s) (v + b) w + c   =   softmax(s) v w + (b w + c)

Both sides are equal but for rounding, and the right one saves a pass over the tokens in each layer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from triton_repo_builder.model.graph import weights
from triton_repo_builder.model.graph.packing import attention
from triton_repo_builder.model.graph.packing.facts import GraphFacts


def move(model: onnx.ModelProto, folder: Path, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Rewrite every attention that is of this form; the new biases by name, all under ``prefix``.

    ``folder`` is where the model's weights lie.
    """
    facts = GraphFacts(model)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name in facts.initializers}
    biases: dict[str, npt.NDArray[Any]] = {}
    for head in attention.find(facts):
        added = facts.producer.get(head.value.source)
        product = _only_taker(facts, head.output, "MatMul")
        total = _only_taker(facts, product.output[0], "Add") if product is not None else None
        if added is None or added.op_type != "Add" or product is None or total is None or head.value.factors:
            continue
        bias, after = (_constant(node, tensors, 1) for node in (added, total))
        matrix = _constant(product, tensors, 2)
        lone = _only_taker(facts, head.value.source, "Reshape") is not None
        if bias is None or after is None or matrix is None or product.input[0] != head.output or not lone:
            continue
        b, w, c = (
            weights.array(tensors[node.input[place]], folder).astype(np.float64)
            for node, place in ((added, bias), (product, matrix), (total, after))
        )
        name = f"{prefix}value_bias/{total.output[0]}"
        biases[name] = (b @ w + c).astype(np.float32)
        total.input[after] = name
        for reader in facts.readers[head.value.source]:
            reader.input[:] = [
                added.input[1 - bias] if read == head.value.source else read for read in reader.input
            ]
        model.graph.node.remove(added)
    return biases


def _only_taker(facts: GraphFacts, name: str, kind: str) -> onnx.NodeProto | None:
    """The one node that takes the numbers of a tensor, if it is of that kind."""
    takers = facts.takers(name)
    return takers[0] if len(takers) == 1 and (takers[0].domain, takers[0].op_type) == ("", kind) else None


def _constant(node: onnx.NodeProto, tensors: dict[str, onnx.TensorProto], axes: int) -> int | None:
    """The place of the one input that is a float initializer of so many axes."""
    places = [place for place, name in enumerate(node.input) if name in tensors]
    if len(places) != 1 or len(node.input) != 2:
        return None
    tensor = tensors[node.input[places[0]]]
    return places[0] if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == axes else None

"""Gelu by Erf in the orders that exporters write, and what only looks like it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tiny import save
from tiny_onnx import node, tensor

from triton_repo_builder.model.graph import gelu

ROOT = node("Div", ["x", "root"], ["scaled"])
ERF = [node("Erf", ["scaled"], ["erf"]), node("Add", ["erf", "one"], ["sum"])]
HALF_LAST = [node("Mul", ["x", "sum"], ["product"]), node("Mul", ["product", "half"], ["g"])]
OF_ANOTHER = [node("Mul", ["bias", "sum"], ["product"]), HALF_LAST[1]]
HALF_FIRST = [node("Mul", ["half", "x"], ["h"]), node("Mul", ["h", "sum"], ["g"])]
HALF_BETWEEN = [node("Mul", ["sum", "half"], ["share"]), node("Mul", ["share", "x"], ["g"])]
ORDERS = {
    "half last": [ROOT, *ERF, *HALF_LAST],
    "half first": [ROOT, *ERF, *HALF_FIRST],
    "half between": [ROOT, *ERF, *HALF_BETWEEN],
    "times": [node("Mul", ["inverse", "x"], ["scaled"]), *ERF, *HALF_LAST],
}
CONSTANTS = {"root": math.sqrt(2), "inverse": math.sqrt(0.5), "one": 1.0, "half": 0.5}


def _model(nodes: list[onnx.NodeProto], more: tuple[str, ...] = (), **constants: float) -> onnx.ModelProto:
    """y = the negative of Gelu of x + bias; half of the constants are nodes."""
    values = {name: np.array(value, np.float32) for name, value in {**CONSTANTS, **constants}.items()}
    made = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values.pop(name), name))
        for name in ("root", "one")
    ]
    values["bias"] = np.linspace(-1, 1, 8, dtype=np.float32)
    graph = helper.make_graph(
        [*made, node("Add", ["given", "bias"], ["x"]), *nodes, node("Neg", ["g"], ["y"])],
        "g",
        [tensor("given", ["n", 8])],
        [tensor(name, ["n", 8]) for name in ("y", *more)],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _run(model: onnx.ModelProto) -> npt.NDArray[Any]:
    given = np.linspace(-6, 6, 400, dtype=np.float32).reshape(-1, 8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], {"given": given})[0])


@pytest.mark.parametrize("order", ORDERS)
def test_gelu_in_any_order_becomes_one_kernel(order: str, tmp_path: Path) -> None:
    model = _model([*ORDERS[order]])
    exact = _run(model)
    assert len(gelu.approximate(model.graph, "p/")) == 1
    onnx.checker.check_model(model, full_check=True)
    kinds = [one.op_type for one in model.graph.node]
    assert "Erf" not in kinds and "Constant" not in kinds
    assert 0 < np.abs(_run(model) - exact).max() < 5e-4
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    path = save(tmp_path / "model.onnx", model.graph, opset=17)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = [one.op_type for one in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert kinds == ["FastGelu", "Neg"]


@pytest.mark.parametrize(
    "model",
    [
        _model(ORDERS["half last"], root=2.0),
        _model(ORDERS["half last"], half=0.6),
        _model(ORDERS["half last"], one=2.0),
        _model(ORDERS["half last"], ("erf",)),
        _model([ROOT, *ERF, node("Mul", ["sum", "sum"], ["g"])]),
        _model(
            [ROOT, *ERF, node("Mul", ["bias", "sum"], ["product"]), node("Mul", ["product", "half"], ["g"])]
        ),
        _model([*ORDERS["half last"][:-1], node("Add", ["product", "half"], ["g"])]),
    ],
)
def test_what_only_looks_like_gelu_stays(model: onnx.ModelProto) -> None:
    before = model.SerializeToString(deterministic=True)
    assert not gelu.approximate(model.graph, "p/")
    assert model.SerializeToString(deterministic=True) == before


def test_half_that_others_read_stays() -> None:
    model = _model(ORDERS["half first"], ("h",))
    exact = _run(model)
    assert len(gelu.approximate(model.graph, "p/")) == 1
    assert np.abs(_run(model) - exact).max() < 5e-4
    assert "h" in {name for one in model.graph.node for name in one.output}


def test_an_erf_that_a_subgraph_reads_stays() -> None:
    model = _model(ORDERS["half last"])
    branch = helper.make_graph([node("Neg", ["sum"], ["b"])], "b", [], [tensor("b", ["n", 8])])
    yes = numpy_helper.from_array(np.array(True), "yes")
    model.graph.initializer.append(yes)
    model.graph.node.append(helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch))
    assert not gelu.approximate(model.graph, "p/")


def test_no_gelu_is_less_than_the_least() -> None:
    """The scale of int8 is taken from the largest number alone (per_row.py); y is the negative of Gelu."""
    model = _model([*ORDERS["half last"]])
    exact = _run(model)
    gelu.approximate(model.graph, "p/")
    assert max(exact.max(), _run(model).max()) <= -gelu.LEAST < 0.171


def test_an_output_that_is_called_gelu_meets_no_name_of_ours() -> None:
    """PyTorch's newer exporter calls them ``gelu``, ``gelu_1``, …"""
    model = _model([*ORDERS["half last"]])
    exact = _run(model)
    for names in (names for one in model.graph.node for names in (one.input, one.output)):
        names[:] = ["gelu" if name == "g" else name for name in names]
    assert gelu.approximate(model.graph, "p/") == {"gelu"}
    assert 0 < np.abs(_run(model) - exact).max() < 5e-4

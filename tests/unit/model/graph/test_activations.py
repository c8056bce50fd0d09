"""Softmax and sigmoid are known where an exporter wrote them in their parts."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import helper

from triton_repo_builder.model.graph import activations

node = helper.make_node
POWERS = [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e"], ["sum"])]
LESS = [node("Neg", ["x"], ["-x"]), node("Exp", ["-x"], ["e"]), node("Add", ["one", "e"], ["sum"])]


def made(nodes: list[Any]) -> str:
    graph = onnx.GraphProto(node=nodes)
    return activations.made_by(graph, {"y"})["y"]


@pytest.mark.parametrize(
    ("nodes", "operator"),
    [
        ([*POWERS, node("Div", ["e", "sum"], ["y"])], "Softmax"),
        (
            [
                *POWERS,
                node("Cast", ["sum"], ["s"]),
                node("Div", ["e", "s"], ["z"]),
                node("Cast", ["z"], ["y"]),
            ],
            "Softmax",
        ),
        ([*POWERS, node("Reciprocal", ["sum"], ["r"]), node("Mul", ["e", "r"], ["y"])], "Softmax"),
        ([*POWERS, node("Reciprocal", ["sum"], ["r"]), node("Mul", ["r", "e"], ["y"])], "Softmax"),
        ([*LESS, node("Reciprocal", ["sum"], ["y"])], "Sigmoid"),
        ([*LESS, node("Div", ["one", "sum"], ["y"])], "Sigmoid"),
        ([node("Softmax", ["x"], ["z"]), node("Identity", ["z"], ["y"])], "Softmax"),
        ([node("Softmax", ["x"], ["z"]), node("Reshape", ["z", "shape"], ["y"])], "Softmax"),
        (
            [
                node("Softmax", ["x"], ["z"]),
                node("QuantizeLinear", ["z", "scale", "zero"], ["q"]),
                node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
            ],
            "Softmax",
        ),
        ([*POWERS, node("Div", ["x", "sum"], ["y"])], "Div"),
        ([*POWERS, node("Div", ["sum", "e"], ["y"])], "Div"),
        ([*POWERS, node("Mul", ["e", "sum"], ["y"])], "Mul"),
        ([*LESS, node("Div", ["-x", "sum"], ["y"])], "Div"),
        ([node("Reciprocal", ["x"], ["y"])], "Reciprocal"),
        ([node("Identity", ["z"], ["y"]), node("Identity", ["y"], ["z"])], "Identity"),
    ],
)
def test_what_makes_an_output(nodes: list[Any], operator: str) -> None:
    assert made(nodes) == operator

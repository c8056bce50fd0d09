"""Decisions for all rows at once, and chance."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from triton_repo_builder.model.graph import control
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.skeleton import Skeleton

BRANCHES = """If (c) <
    then_branch = a () => (float[n,4] A) { A = Relu (X) },
    else_branch = b () => (float[n,4] B) { B = Neg (X) }
  >"""
LOOP = """Loop (COUNT, COND, X) <
    body = b (int64 i, bool c, float[n,4] s) => (bool d, float[n,4] t) { d = KEEP (c) t = Relu (s) }
  >"""


def graph(folder: Path, nodes: str) -> Skeleton:
    path = folder / "model.onnx"
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n,4] X) => (float[n,4] Y)
    <float zero = {{0.0}}, int64 three = {{3}}, bool yes = {{1}}, int64 one = {{1}}> {{
      {nodes}
    }}"""
    path.write_bytes(parser.parse_model(text).SerializeToString())
    return skeleton.read(path)


DECIDED = {
    "If by a mean of all": "m = ReduceMean <keepdims = 0> (X) c = Greater (m, zero) [branch] Y = " + BRANCHES,
    "If by the first row": (
        "r = Gather (X, one) m = ReduceMax <keepdims = 0> (r) c = Less (m, zero) [branch] Y = " + BRANCHES
    ),
    "Loop as long as a value says": (
        "m = ReduceMax <keepdims = 0> (X) k = Cast <to = 7> (m) [branch] Y = "
        + LOOP.replace("COUNT", "k").replace("COND", "yes").replace("KEEP", "Identity")
    ),
    "Where by the largest of a batch": (
        "m = ReduceMax <axes = [0], keepdims = 1> (X) c = Greater (m, zero) z = Neg (X) "
        "[branch] Y = Where (c, X, z)"
    ),
}
FREE = {
    "If by a size": "s = Shape (X) r = Gather (s, three) c = Greater (one, three) [branch] Y = " + BRANCHES,
    "Loop with a fixed count": (
        "[branch] Y = " + LOOP.replace("COUNT", "three").replace("COND", "yes").replace("KEEP", "Identity")
    ),
    "Where by the largest of a row": (
        "m = ReduceMax <axes = [1], keepdims = 1> (X) c = Greater (m, zero) z = Neg (X) "
        "[branch] Y = Where (c, X, z)"
    ),
    "a mean of all that decides nothing": "m = ReduceMean <axes = [0], keepdims = 1> (X) Y = Sub (X, m)",
}
"""What is only computed from all rows is seen when they are tried."""


@pytest.mark.parametrize("name", DECIDED)
def test_what_is_decided_for_all_rows(name: str, tmp_path: Path) -> None:
    said = control.decides(graph(tmp_path, DECIDED[name]))
    assert said.startswith(f"its {name.split()[0]} 'branch' is decided by")


@pytest.mark.parametrize("name", FREE)
def test_what_is_not(name: str, tmp_path: Path) -> None:
    assert control.decides(graph(tmp_path, FREE[name])) == ""


def test_random_numbers(tmp_path: Path) -> None:
    said = control.draws(graph(tmp_path, "[noise] r = RandomNormalLike (X) Y = Add (X, r)"))
    assert said == "its RandomNormalLike 'noise' draws random numbers"
    assert control.draws(graph(tmp_path, "Y = Relu (X)")) == ""

"""A ``raise`` in a model.py that always runs, and one that may not: verdicts of a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.check import python_source

EXECUTE = "    def execute(self, requests):\n        return []\n"
MODEL = f"class TritonPythonModel:\n{EXECUTE}"
METHOD = f"class TritonPythonModel:\n    def initialize(self, args):\n{{}}\n{EXECUTE}"


def ending(folder: Path, source: str) -> int:
    """Line of the ``raise`` that no load gets past; 0 if there is none."""
    file = folder / "model.py"
    file.write_text(source)
    statement = python_source.parse(file.read_bytes(), file.name, (3, 10)).ending()
    return statement.lineno if statement else 0


@pytest.mark.parametrize(
    ("top", "line"),
    [
        ("raise ValueError", 1),
        ("if True:\n    raise ValueError", 2),
        ("class A:\n    raise ValueError", 2),
        ("try:\n    x = 1\nfinally:\n    raise ValueError", 4),
        ("try:\n    raise ValueError\nfinally:\n    x = 1", 2),
        ("x = 1\nraise ValueError(1)\nraise KeyError", 2),
    ],
)
def test_a_raise_that_runs_at_import(tmp_path: Path, top: str, line: int) -> None:
    assert ending(tmp_path, f"{top}\n{MODEL}") == line


@pytest.mark.parametrize(
    "top",
    [
        "try:\n    raise ValueError\nexcept ValueError:\n    pass",
        "from contextlib import suppress\nwith suppress(ValueError):\n    raise ValueError",
        "while False:\n    raise ValueError",
        "if False:\n    raise ValueError",
        "if id(1):\n    raise ValueError",
        "for i in []:\n    raise ValueError",
        "def f():\n    raise ValueError",
    ],
)
def test_a_raise_that_may_not_run_at_import(tmp_path: Path, top: str) -> None:
    assert ending(tmp_path, f"{top}\n{MODEL}") == 0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("raise ValueError(1)", 3),
        ("try:\n            pass\n        finally:\n            raise ValueError(1)", 6),
    ],
)
def test_a_raise_that_always_runs_in_initialize(tmp_path: Path, body: str, line: int) -> None:
    assert ending(tmp_path, METHOD.format(f"        {body}")) == line


@pytest.mark.parametrize(
    "body",
    [
        "if args:\n            return\n        raise ValueError(1)",
        "for name in args:\n            return\n        raise ValueError(1)",
        "raise ValueError(1)\n        yield",
        "return 1\n        raise ValueError(1)",
        "def inner():\n            raise ValueError(1)",
        "try:\n            raise ValueError\n        finally:\n            return",
        "try:\n            return\n        finally:\n            pass\n        raise ValueError(1)",
    ],
)
def test_initialize_may_pass(tmp_path: Path, body: str) -> None:
    assert ending(tmp_path, METHOD.format(f"        {body}")) == 0


def used(folder: Path, body: str) -> list[int]:
    """Lines of the look-ups and calls that always run in ``initialize``."""
    file = folder / "model.py"
    file.write_text(METHOD.format(f"        {body}"))
    return [
        node.lineno for node in python_source.parse(file.read_bytes(), file.name, (3, 10)).used("initialize")
    ]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("x = args['a']", [3]),
        ("x = False and args['a']", []),
        ("x = 1 if True else args['a']", []),
        ("f = lambda: args['a']", []),
        ("x = [args['a'] for _ in range(0)]", [3]),  # range(0) itself
        ("if args['a']:\n            args['b']", [3]),
        ("for x in args['a']:\n            args['b']", [3]),
        ("with args['a']:\n            args['b']", [3]),
        ("args['a'] = 1\n        args['b']", [4]),
        ("return 1\n        args['a']", []),
    ],
)
def test_what_always_runs_in_initialize(tmp_path: Path, body: str, lines: list[int]) -> None:
    assert used(tmp_path, body) == lines


def test_an_expression_of_any_depth_is_followed(tmp_path: Path) -> None:
    deep = " + ".join(["1"] * 900)
    assert used(tmp_path, f"x = {deep} + args['a']") == [3]


@pytest.mark.parametrize("top", ["{}", "y = {}", "raise {}", "@{}\ndef f(): pass", "assert False, {}"])
def test_a_chain_of_calls_of_any_depth_is_read(tmp_path: Path, top: str) -> None:
    chain = "x" + ".f()" * 400
    assert ending(tmp_path, f"x = 1\n{top.format(chain)}\nraise ValueError\n{MODEL}")

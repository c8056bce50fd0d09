"""Where the class and its methods may come from: the verdicts are those of a real server."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from triton_repo_builder.check import python_source
from triton_repo_builder.check.python_source import PythonSource

EXECUTE = "    def execute(self, requests):\n        return []\n"
MODEL = f"class TritonPythonModel:\n{EXECUTE}"
MINE = f"class Mine:\n{EXECUTE}"

INITIALIZE = "class TritonPythonModel:\n    def initialize(self): raise ValueError\n"
INITIALIZE_INSIDE = "class TritonPythonModel:\n        def initialize(self): raise ValueError\n"


def read(folder: Path, source: str) -> PythonSource:
    file = folder / "model.py"
    file.write_text(source)
    return python_source.parse(file.read_bytes(), file.name, (3, 10))


@pytest.mark.parametrize(
    "source",
    [
        f"{MODEL}_B = TritonPythonModel\ndel TritonPythonModel\nclass TritonPythonModel(_B): pass\n",
        f"{MINE}def __getattr__(name):\n    return Mine\n",
        f"import sys\n{MINE}sys.modules[__name__].TritonPythonModel = Mine\n",
        f"{MINE}def make():\n    global TritonPythonModel\n    TritonPythonModel = Mine\nmake()\n",
        f"{MINE}locals()['TritonPythonModel'] = Mine\n",
        f"{MINE}def add(c):\n    globals()['TritonPythonModel'] = c\nadd(Mine)\n",
        f"class B:\n    def __init_subclass__(c): globals()['TritonPythonModel'] = c\nclass M(B):\n{EXECUTE}",
        f"{MODEL}if id(1) == 0:\n    del TritonPythonModel\n",
        f"{MINE}match Mine:\n    case TritonPythonModel: pass\n",
    ],
)
def test_a_module_that_may_have_the_class_has_it(tmp_path: Path, source: str) -> None:
    assert read(tmp_path, source).binds_class


@pytest.mark.parametrize(
    "source",
    [
        MINE,
        f"{MODEL}del TritonPythonModel\n",
        f"{MINE}class Other:\n    def set(self, key, value):\n        setattr(self, key, value)\n",
        f"{MINE}def f():\n    class TritonPythonModel: pass\n",
    ],
)
def test_a_module_without_the_class(tmp_path: Path, source: str) -> None:
    assert not read(tmp_path, source).binds_class


@pytest.mark.parametrize(
    "source",
    [
        "def add(c):\n    c.execute = print\n    return c\n@add\nclass TritonPythonModel: pass\n",
        "class TritonPythonModel(metaclass=Meta): pass\n",
        "class TritonPythonModel: pass\nTritonPythonModel.execute = print\n",
        "class TritonPythonModel:\n    from helper import execute\n",
        "class TritonPythonModel:\n    if id(1):\n        def execute(self, requests): return []\n",
        "class TritonPythonModel:\n    def initialize(self, args):\n        self.execute = print\n",
        "class TritonPythonModel:\n    def __getattr__(self, name): return print\n",
        "class TritonPythonModel:\n    locals()['execute'] = print\n",
        f"class TritonPythonModel: pass\n{MINE}TritonPythonModel = Mine\n",
        "class TritonPythonModel: pass\nregister(TritonPythonModel)\n",
    ],
)
def test_execute_may_come_from_elsewhere(tmp_path: Path, source: str) -> None:
    model = read(tmp_path, source)
    assert model.model is None or "execute" in model.methods


@pytest.mark.parametrize(
    "source",
    [
        f"{INITIALIZE}    initialize = staticmethod(initialize)\n{EXECUTE}",
        f"{INITIALIZE}{EXECUTE}TritonPythonModel.initialize = print\n",
        f"try:\n    import a\n    {INITIALIZE_INSIDE}except ImportError:\n    {INITIALIZE_INSIDE}",
        f"{INITIALIZE}    def __new__(cls): return Real()\n{EXECUTE}",
    ],
)
def test_a_method_that_is_replaced_is_not_judged(tmp_path: Path, source: str) -> None:
    model = read(tmp_path, source)
    assert model.refuses("initialize", 1) == ""
    assert model.ending() is None


def test_a_dataclass_is_judged(tmp_path: Path) -> None:
    model = read(tmp_path, f"@dataclass\nclass TritonPythonModel:\n    def initialize(self): pass\n{EXECUTE}")
    assert model.refuses("initialize", 1).startswith("TypeError")


@pytest.mark.parametrize(
    "statement",
    [
        "with suppress(ImportError):\n    import absent",
        "try:\n    if 1:\n        import absent\nexcept ImportError:\n    absent = None",
        "try:\n    import json\nexcept ImportError:\n    pass\nelse:\n    import absent",
        "if find_spec('absent'):\n    import absent",
        "if sys.version_info < (3, 8):\n    import absent",
    ],
)
def test_an_import_that_need_not_be_there(tmp_path: Path, statement: str) -> None:
    assert "absent" not in dict(read(tmp_path, f"{statement}\n{MODEL}").imports())


def test_an_import_that_is_raised_again_is_needed(tmp_path: Path) -> None:
    statement = "try:\n    import absent\nexcept ImportError:\n    raise RuntimeError('install it')"
    assert dict(read(tmp_path, f"{statement}\n{MODEL}").imports()) == {"absent": 2}


def test_what_surely_runs(tmp_path: Path) -> None:
    source = """import a
if id(1):
    import b
class TritonPythonModel:
    def initialize(self, args):
        import c
        if args:
            import d
    def execute(self, requests):
        import e
"""
    model = read(tmp_path, source)
    assert {name for name, _ in model.certain("execute")} == {"a", "c", "e"}
    assert {name for name, _ in model.certain()} == {"a", "c"}


def test_pythons_own_warnings_are_not_shown(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path, f"x = '\\d'\n{MODEL}").tree

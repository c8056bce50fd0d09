"""What a model.py surely raises, and what it only may: the verdicts are those of a real server's Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.check import python_source

MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
EXECUTE = "    def execute(self, requests):\n        return []\n"
METHOD = f"class TritonPythonModel:\n    def initialize(self, args):\n{{}}\n{EXECUTE}"


def ending(folder: Path, source: str) -> str:
    file = folder / "model.py"
    file.write_text(source)
    found = python_source.parse(file.read_bytes(), file.name, (3, 10)).ending()
    return found.message if found else ""


@pytest.mark.parametrize(
    "top",
    [
        "foo",
        "foo()",
        "x = foo + 1",
        "foo.bar = 1",
        "x += 1",
        "@foo\ndef f(): pass",
        "def f(a=foo): pass",
        "def f(a: foo): pass",
        "def f() -> foo: pass",
        "class A(foo): pass",
        "class A:\n    x = foo",
        "class A:\n    def f(self, a: foo): pass",
        "x: foo = 1",
        "print(y)\ny = 1",
        "x = 1\ndel x\nx",
        "x = [a for a in foo]",
        "pb_utils.Logger",
        "if True:\n    foo",
        "if foo:\n    pass",
        "for i in foo: pass",
        "while foo: pass",
        'x = f"{foo}"',
        "with open(__file__) as f:\n    json.load(f)",
        "f(x := 1)",
        "match foo:\n    case 1: pass",
        "[foo for foo in [1]]\nprint(foo)",
        "try:\n    1\nexcept ValueError as foo: pass\nprint(foo)",
        "if TYPE_CHECKING:\n    import foo\ndef f(a: foo): pass",
        "try:\n    x = 1\nfinally:\n    foo",
        "try:\n    foo\nfinally:\n    x = 1",
        "class A(Exception):\n    x = foo",
    ],
)
def test_an_undefined_name_is_found_where_it_is_surely_read(tmp_path: Path, top: str) -> None:
    assert ending(tmp_path, f"{top}\n{MODEL}").startswith("NameError: name ")


@pytest.mark.parametrize(
    "top",
    [
        "from __future__ import annotations\nx: foo = 1\ndef f(a: foo) -> foo: pass",
        "f = lambda: foo",
        "x = [foo for _ in range(0)]",
        "x = (foo for _ in [1])",
        "x = False and foo",
        "x = 1 if True else foo",
        "x = 1 > 2 > foo",
        "from numpy import *\nzeros(1)",
        "try:\n    foo\nexcept NameError:\n    pass",
        "from contextlib import suppress\nwith suppress(NameError):\n    foo",
        "(__file__, __name__, __spec__, __builtins__, __doc__, __loader__, __package__)",
        "with open(__file__) as f: pass\nf",
        "globals()['foo'] = 1\nfoo",
        "import builtins\nbuiltins.foo = 1\nfoo",
        "def g():\n    global foo\n    foo = 1\ng()\nfoo",
        "for i in []:\n    foo = 1\nfoo",
        "if id(1):\n    import foo\nfoo",
        "if (y := 1): pass\ny",
        "x = (y := 1, y)",
        "try:\n    import a as foo\nexcept ImportError:\n    foo = None\nfoo",
        "import a.b\na.b",
        "class A:\n    x = 1\n    y = x\n    z = [i for i in range(x)]",
        "def f():\n    foo",
        "import gettext\nprint(_('a'))",
        "match 1:\n    case [x, *y]: pass\n    case {'a': z, **w}: pass\n    case q: pass\n(x, y, z, w, q)",
        "while False:\n    foo",
        "if False:\n    foo",
        "exit",
        "a = [0, 0]\ni, a[i] = 0, 1",
        "d = {}\nx = d[x] = 5",
        "def exit(): pass\nexit()",
        "from os import getpid as quit\nquit()",
        "class sys:\n    def exit(*a): pass\nsys.exit(1)",
        "from contextlib import suppress as open\nwith open(ValueError):\n    raise ValueError",
        "class M(type):\n    def __prepare__(*a): return dict(foo=1)\nclass A(metaclass=M):\n    foo",
        "from aenum import AutoEnum\nclass A(AutoEnum):\n    foo",
        "e = 1\ntry:\n    pass\nexcept ValueError as e: pass\nprint(e)",
        "try:\n    raise ValueError\nexcept ValueError:\n    pass",
        "TYPE_CHECKING = True\nif TYPE_CHECKING:\n    foo = int\ndef f(a: foo): pass",
    ],
)
def test_a_name_that_may_be_there_or_may_not_be_read_is_none(tmp_path: Path, top: str) -> None:
    assert ending(tmp_path, f"{top}\n{MODEL}") == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("x = -1 % 0", "ZeroDivisionError: modulo by zero"),
        ("self.c = json.loads(args['model_config'])", "NameError: name 'json' is not defined"),
        ("x = y\n        y = 1", "UnboundLocalError: 'y' is used before it has a value"),
        ("if foo: pass", "NameError: name 'foo' is not defined"),
        ("execute", "NameError: name 'execute' is not defined"),
        ("args['nope']", "KeyError: 'nope'"),
        ("raise ValueError(1)", "ValueError: 1"),
        ("try:\n            pass\n        finally:\n            raise ValueError(1)", "ValueError: 1"),
        ("import sys\n        sys.exit(1)", "sys.exit(1): the model never loads"),
    ],
)
def test_initialize_fails_for_sure(tmp_path: Path, body: str, message: str) -> None:
    assert ending(tmp_path, METHOD.format(f"        {body}")) == message


@pytest.mark.parametrize(
    "body",
    [
        "if args:\n            return\n        raise ValueError(1)",
        "for name in args:\n            return\n        foo",
        "raise ValueError(1)\n        yield",
        "return 1\n        foo",
        "global z\n        z = 1\n        z",
        "TritonPythonModel",
        "later",
        "x = 1 / len(args)\n        '%s' % 0",
        "args['model_name'], args['model_instance_name']",
        "args['mine'] = 1\n        args['mine']",
        "args.update(mine=1)\n        args['mine']",
        "helper(args)\n        args['mine']",
        "def inner():\n            foo",
        "try:\n            foo\n        finally:\n            return",
        "self.__model_config",
        "__class__",
        "x = [x for x in args]",
        "print(later)\n        self.l = [later for later in args]",
        "def inner():\n            nonlocal z\n            z = 1\n        inner()\n        z\n        z = 2",
        "try:\n            raise ValueError\n        finally:\n            return",
        "try:\n            return\n        finally:\n            pass\n        foo",
    ],
)
def test_initialize_may_pass(tmp_path: Path, body: str) -> None:
    source = METHOD.format(f"        {body}") + "later = 1\ndef helper(args): pass\n"
    assert ending(tmp_path, source) == ""


def test_a_package_has_the_modules_that_it_imports_from(tmp_path: Path) -> None:
    assert ending(tmp_path, f"from .helpers import scale\ndel helpers\n{MODEL}") == ""


def test_a_name_that_the_module_has_taken_away_is_none(tmp_path: Path) -> None:
    source = "import json\ndel json\n" + METHOD.format("        json.loads('1')")
    assert ending(tmp_path, source) == "NameError: name 'json' is not defined"


def test_an_expression_of_any_depth_is_followed(tmp_path: Path) -> None:
    deep = " + ".join(["1"] * 900)
    assert ending(tmp_path, f"x = {deep} + foo\n{MODEL}") == "NameError: name 'foo' is not defined"


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ("import re\nx = re.compile('(a')", "error: missing ), unterminated subpattern at position 0"),
        ("import re\nx = re.sub('[a', '', 'b')", "error: unterminated character set at position 0"),
        ("import re\nx = re.compile('(a', re.VERBOSE)", ""),
        ("import re\nx = re.compile('a*+')", ""),
        ("import regex as re\nx = re.compile('(a')", ""),
        (
            "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass A:\n    x: dict = {}",
            "ValueError: mutable default <class 'dict'> for field x is not allowed: use default_factory",
        ),
        ("from pydantic import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: list = []", ""),
        (
            "from dataclasses import dataclass\nfrom pydantic.dataclasses import dataclass\n"
            "@dataclass\nclass A:\n    x: list = []",
            "",
        ),
        ("from pydantic.dataclasses import dataclass\n@dataclass\nclass A:\n    x: list = []", ""),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: tuple = ()", ""),
    ],
)
def test_a_value_that_python_refuses_is_found(tmp_path: Path, top: str, message: str) -> None:
    assert ending(tmp_path, f"{top}\n{MODEL}") == message


@pytest.mark.parametrize("top", ["{}", "y = {}", "raise {}", "@{}\ndef f(): pass", "assert False, {}"])
def test_a_chain_of_calls_of_any_depth_is_read(tmp_path: Path, top: str) -> None:
    chain = "x" + ".f()" * 400
    source = f"import re\nx = 1\n{top.format(chain)}\nre.compile('(a')\n{MODEL}"
    assert ending(tmp_path, source)

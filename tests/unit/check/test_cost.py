"""Work grows with the input: counted, for the clock depends on who else is at the machine."""

from __future__ import annotations

import cProfile
import pstats
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.pbtxt_document import Document

MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
IO = (
    'input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
)


def put(root: Path, name: str, config: str, source: str = MODEL) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    (root / name / "1" / "model.py").write_text(source)


def ensemble(step: str) -> str:
    return (
        f'platform: "ensemble"\n{IO}ensemble_scheduling {{ step [ {{ model_name: "{step}" model_version: -1 '
        'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } ] }\n'
    )


def inputs(root: Path, size: int) -> None:
    many = "".join(f'input {{ name: "Z{i}" data_type: TYPE_FP32 dims: [ 0 ] }}\n' for i in range(size))
    put(root, "m", f'backend: "python"\n{many}')


def parameters(root: Path, size: int) -> None:
    many = "".join(f'parameters {{ key: "k{i}" value {{ string_value: "{i}" }} }}\n' for i in range(size))
    put(root, "m", f'backend: "python"\n{IO}{many}')


def chain(root: Path, size: int) -> None:
    for index in range(size):
        put(root, f"e{index}", ensemble(f"e{index + 1}" if index < size - 1 else "m"))
    put(root, "m", f'backend: "python"\n{IO}')


def ring(root: Path, size: int) -> None:
    for index in range(size):
        put(root, f"e{index}", ensemble(f"e{(index + 1) % size}"))


def steps(root: Path, size: int) -> None:
    maps = ", ".join(
        f'{{ model_name: "m" model_version: -1 input_map {{ key: "X" value: "t{i}" }} '
        f'output_map {{ key: "Y" value: "t{i + 1}" }} }}'
        for i in reversed(range(size))
    )
    put(root, "e", f'platform: "ensemble"\n{IO}ensemble_scheduling {{ step [ {maps} ] }}\n')
    put(root, "m", f'backend: "python"\n{IO}')


def onnx_names(root: Path, size: int) -> None:
    onnx_model(root, "".join(f"float[N,4] X{i}, " for i in range(size)), "Z")


def onnx_types(root: Path, size: int) -> None:
    onnx_model(root, "".join(f"float[N,4] X{i}, " for i in range(size)), "X")


def onnx_model(root: Path, inputs: str, names: str) -> None:
    """A graph of many inputs, each of them wrong in config.pbtxt; half of the outputs are cut into pieces."""
    size = inputs.count("float")
    outputs = ", ".join(f"float[N,4] Y{i}" for i in range(size))
    nodes = " ".join(f"Y{i} = Identity(X{i})" for i in range(size))
    opsets = '"" : 17, "com.microsoft" : 1'
    text = f"<ir_version: 8, opset_import: [{opsets}]> g ({inputs[:-2]}) => ({outputs}) {{ {nodes} }}"
    wrong = "".join(f'input {{ name: "{names}{i}" data_type: TYPE_INT64 dims: 5 }}\n' for i in range(size))
    wrong += "".join(f'output {{ name: "Y{i}" data_type: TYPE_FP32 dims: 5 }}\n' for i in range(size))
    cut = "".join(f'batch_output {{ target_name: "Y{i}" source_input: "X0" }}\n' for i in range(0, size, 2))
    (root / "m" / "1").mkdir(parents=True)
    (root / "m" / "config.pbtxt").write_text(f'backend: "onnxruntime"\nmax_batch_size: 4\n{wrong}{cut}')
    (root / "m" / "1" / "model.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())


def modules(root: Path, size: int) -> None:
    put(root, "m", f'backend: "python"\n{IO}', f"from . import m0\n{MODEL}")
    for index in range(size):
        source = f"from . import m{index + 1}, m0\n" if index < size - 1 else "from . import m0\n"
        (root / "m" / "1" / f"m{index}.py").write_text(source)


def calls(root: Path) -> int:
    profile = cProfile.Profile()
    profile.enable()
    check.check(repository.read(root), releases.default())
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("make", [inputs, parameters, chain, ring, steps, onnx_names, onnx_types, modules])
def test_work_is_linear(make: Callable[[Path, int], None], tmp_path: Path) -> None:
    made = []
    for size in (10, 100, 400):  # the first one pays for imports
        root = tmp_path / str(size)
        root.mkdir()
        make(root, size)
        made.append(calls(root))
    assert made[2] < 5 * made[1]


def test_a_field_costs_a_few_calls(tmp_path: Path) -> None:
    """Each is read once, and its place is not looked up where nothing is found."""
    parameters(tmp_path, 1000)
    calls(tmp_path)  # imports
    assert calls(tmp_path) < 450 * 1000


@pytest.mark.parametrize("escape", ["a", "\\n", '\\"', "\\101", "\\x41", "\\u00e9", "\\?", "\\\\"])
def test_memory_of_a_long_string_is_a_few_times_the_text(escape: str) -> None:
    text = f'parameters {{ key: "a" value {{ string_value: "{escape * 300_000}" }} }} # {"x" * 300_000}\n'
    pbtxt.parse(text[:0])  # imports
    tracemalloc.start()
    pbtxt.parse(text)
    assert Document(text).fields
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * len(text)


CHAIN = f"""x = 1
y = x{".f()" * 400}
class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
    def execute(self, requests):
        return []
"""


@pytest.mark.parametrize(
    "source",
    [CHAIN, "x = " + "(" * 5000 + ")" * 5000, "x = " + "+".join("1" * 20000), "x = " + "-" * 50000 + "1"],
    ids=["chain", "brackets", "sum", "minus"],
)
def test_deep_sources_are_a_finding_at_most(source: str, tmp_path: Path) -> None:
    put(tmp_path, "m", f'backend: "python"\n{IO}', f"{MODEL}{source}\n")
    found = check.check(repository.read(tmp_path), releases.default())
    assert {finding.code for finding in found} <= {"python-syntax"}


def test_a_large_source_is_not_analysed(tmp_path: Path) -> None:
    put(tmp_path, "m", f'backend: "python"\n{IO}', f"{MODEL}{'x = [1, 2, 3, 4]; ' * 15_000}\n")
    (finding,) = check.check(repository.read(tmp_path), releases.default())
    assert (finding.code, finding.severity) == ("python-syntax", "warning")
    assert "trb check reads at most 262,144 of it" in finding.message


@pytest.mark.parametrize("manifest", ["[" * 100_000, '{"a":' * 100_000, '{"files": 1}'])
def test_a_broken_manifest_is_one_finding(manifest: str, tmp_path: Path) -> None:
    put(tmp_path, "m", f'backend: "python"\n{IO}max_batch_size: -1')
    (tmp_path / "manifest.json").write_text(manifest)
    found = check.check(repository.read(tmp_path, lenient=True), releases.default())
    assert "max-batch-size" in {finding.code for finding in found}


def test_a_name_of_five_thousand_characters_and_links_in_circles(tmp_path: Path) -> None:
    labelled = IO.replace('name: "Y"', f'name: "Y" label_filename: "{"x" * 5000}"')
    put(tmp_path, "m", f'backend: "python"\n{labelled}')
    put(tmp_path, "n", f'backend: "python"\n{IO}max_batch_size: -1')
    (tmp_path / "n" / "up").symlink_to(tmp_path)
    (tmp_path / "n" / "1" / "self").symlink_to("self")
    found = check.check(repository.read(tmp_path, lenient=True), releases.default())
    assert {"file-unreadable", "max-batch-size"} <= {finding.code for finding in found}

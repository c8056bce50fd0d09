"""Time and memory of ``trb check`` on repositories that are large, or made to be slow.

    .venv/bin/python benchmarks/check_cost.py [--output FOLDER]

Writes each repository to a scratch folder and runs ``trb check`` as a user would, in a process of its own.
Writes check_cost.md to docs/benchmarks/, or --output.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import common
from onnx import TensorProto, helper

PYTHON = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
IO = (
    'input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
)
MEGABYTES = 16 * 2**20


def put(root: Path, name: str, config: str, source: str | bytes = PYTHON) -> None:
    """One model."""
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    if isinstance(source, bytes):
        (folder / "model.onnx").write_bytes(source)
    else:
        (folder / "model.py").write_text(source)


def wrong_inputs(root: Path, *, declared: str, graph: int) -> None:
    """Ten thousand inputs of an ONNX model that the graph does not have, or has in other types and shapes."""
    names = [f"x{i}" for i in range(graph)]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in [*names, "y"]]
    body = helper.make_graph([helper.make_node("Sum", names, ["y"])], "g", tensors[:-1], tensors[-1:])
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    entries = "".join(
        f'input {{ name: "{declared}{i}" data_type: TYPE_INT64 dims: 5 }}\n' for i in range(10_000)
    )
    output = 'output { name: "y" data_type: TYPE_FP32 dims: 4 }\n'
    config = f'backend: "onnxruntime"\nmax_batch_size: 4\n{entries}{output}'
    put(root, "m", config, model.SerializeToString())


def python_inputs(root: Path) -> None:
    """Ten thousand inputs with a wrong size."""
    entries = "".join(f'input {{ name: "Z{i}" data_type: TYPE_FP32 dims: 0 }}\n' for i in range(10_000))
    put(root, "m", f'backend: "python"\n{entries}')


def ensembles(root: Path, *, ring: bool) -> None:
    """1,500 ensembles, each a step of the one before."""
    for index in range(1500):
        following = f"e{(index + 1) % 1500}" if ring or index < 1499 else "m"
        maps = 'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
        step = f'{{ model_name: "{following}" model_version: -1 {maps} }}'
        config = f'platform: "ensemble"\n{IO}ensemble_scheduling {{ step [ {step} ] }}\n'
        put(root, f"e{index}", config, "")
    put(root, "m", f'backend: "python"\n{IO}')


def string(root: Path, *, part: str) -> None:
    """A parameter of 16 MB."""
    value = part * (MEGABYTES // len(part))
    put(root, "m", f'backend: "python"\n{IO}parameters {{ key: "a" value {{ string_value: "{value}" }} }}\n')


def text(root: Path, *, tail: str) -> None:
    """A configuration with something at its end."""
    put(root, "m", f'backend: "python"\n{IO}{tail}')


def source(root: Path, *, expression: str) -> None:
    """A deep expression in model.py."""
    put(root, "m", f'backend: "python"\n{IO}', f"{PYTHON}x = {expression}\n")


def manifest(root: Path) -> None:
    """Brackets in manifest.json."""
    put(root, "m", f'backend: "python"\n{IO}')
    (root / "manifest.json").write_text("[" * 100_000)


def thousand(root: Path) -> None:
    """A thousand models without a fault."""
    for index in range(1000):
        put(root, f"m{index}", f'backend: "python"\n{IO}')


CASES: dict[str, Callable[[Path], None]] = {
    "10,000 inputs that the ONNX graph does not have": partial(wrong_inputs, declared="z", graph=1),
    "10,000 ONNX inputs of another type and shape": partial(wrong_inputs, declared="x", graph=10_000),
    "10,000 inputs of a Python model with size 0": python_inputs,
    "a chain of 1,500 ensembles": partial(ensembles, ring=False),
    "a ring of 1,500 ensembles": partial(ensembles, ring=True),
    "a string of 16 MB: letters": partial(string, part="a"),
    "a string of 16 MB: `\\n`": partial(string, part="\\n"),
    'a string of 16 MB: `\\"`': partial(string, part='\\"'),
    "a string of 16 MB: `\\101`": partial(string, part="\\101"),
    "a string of 16 MB: `\\u00e9`": partial(string, part="\\u00e9"),
    "a comment of 16 MB": partial(text, tail=f"#{'x' * MEGABYTES}\n"),
    "blanks of 16 MB": partial(text, tail=" " * MEGABYTES),
    "a string that never ends, 16 MB of backslashes": partial(text, tail='name: "' + "\\" * MEGABYTES),
    "model.py: 50,000 brackets": partial(source, expression="(" * 50_000 + ")" * 50_000),
    "model.py: a sum of 20,000": partial(source, expression="+".join("1" * 20_000)),
    "model.py: 50,000 minuses": partial(source, expression="-" * 50_000 + "1"),
    "manifest.json: 100,000 brackets": manifest,
    "1,000 sound models": thousand,
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run took."""

    wall: float
    cpu: float
    megabytes: float
    code: int


# In a small process of its own: what the parent held before exec counts as the child's peak.
RUN = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, errors="replace")
wall, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
assert "Traceback" not in done.stderr, done.stderr[-2000:]
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, done.returncode]))
"""


def measure(repository: Path) -> Cost:
    """One run of ``trb check``."""
    trb = str(Path(sys.executable).with_name("trb"))
    argv = [sys.executable, "-c", RUN, trb, "check", str(repository)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    wall, cpu, megabytes, code = json.loads(done.stdout)
    return Cost(wall=wall, cpu=cpu, megabytes=megabytes, code=code)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=common.RESULTS)
    args = parser.parse_args()
    report = common.Result("check_cost", "What `trb check` costs", args.output)
    report.add(
        "The fastest of three runs of `trb check` in a process of its own, start included. That the work "
        "grows with the input, and not faster, is held by `tests/unit/check/test_cost.py`. Where the wall "
        "clock shows more than the seconds of CPU, other programs had the machine."
    )
    rows, costs = [], {}
    for name, make in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            make(Path(scratch))
            best = min((measure(Path(scratch)) for _ in range(3)), key=lambda cost: cost.cpu)
        costs[name] = vars(best)
        rows.append([name, f"{best.wall:.2f}", f"{best.cpu:.2f}", f"{best.megabytes:.0f}", str(best.code)])
        common.say(" | ".join(rows[-1]))
    report.add(common.table(["repository", "seconds", "seconds of CPU", "MB", "exit code"], rows))
    report.data["costs"] = costs
    report.write()


if __name__ == "__main__":
    main()

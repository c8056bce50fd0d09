"""Measure the highest IR version and opset each ONNX Runtime accepts: the source of releases.toml.

    python benchmarks/probe_releases.py [--cache FOLDER] [VERSION ...]
    python benchmarks/probe_releases.py --operators [--cache FOLDER]
    python benchmarks/probe_releases.py --shapes GRAPHS [--cache FOLDER] VERSION

Installs every ONNX Runtime version that releases.toml names (CPU wheel from PyPI, without dependencies,
into a folder of its own), then loads one-node models of rising ``ir_version`` and opset in a fresh
process per version. A version that PyPI does not have is replaced by the nearest lower one, and marked.
Prints the ``[onnxruntime]`` tables of releases.toml. With ``--operators`` it prints operators.toml: from
which version on an operator has a CPU kernel, is known at all, and has each attribute, as each ONNX Runtime
lists them itself; the last two tables, of values and of shapes, are kept as they are. ``--shapes`` compares
the output shapes that trb gives, for a release of that version, with those of that version, on each .onnx
file below GRAPHS (the tests of the onnx package, say), as it is and without what it states of its outputs.
Needs the network, numpy<2 (old wheels) and onnx.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from triton_repo_builder.base import releases

IR = range(7, 20)
OPSET = range(13, 36)

# Runs in the process that has one particular onnxruntime: prints "ir N" and "opset N" for each success.
CHILD = """
import onnx, onnxruntime as ort
from onnx import TensorProto, helper
assert ort.__version__ == {version!r}, (ort.__version__, ort.__file__)
ort.set_default_logger_severity(4)

def accepted(ir, opset):
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "XY"]
    graph = helper.make_graph([helper.make_node("Relu", ["X"], ["Y"])], "g", io[:1], io[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = ir
    try:
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:
        text = str(error)
        # Any other refusal would be a fault of this probe, not a limit of the runtime.
        assert "IR version" in text or "under development" in text or "opset" in text, text
        return False
    return True

for ir in range({ir.start}, {ir.stop}):
    print("ir", ir, int(accepted(ir, {opset.start})), flush=True)
for opset in range({opset.start}, {opset.stop}):
    print("opset", opset, int(accepted({ir.start}, opset)), flush=True)
"""


KERNELS = """
import json
from onnxruntime.capi import onnxruntime_pybind11_state as state
kernels = {(k.domain, k.op_name, *k.version_range)
           for k in state.get_all_opkernel_def() if k.provider == "CPUExecutionProvider"}
schemas = {(s.domain, s.name) for s in state.get_all_operator_schema()}
attributes = [(s.name, name) for s in state.get_all_operator_schema() if s.domain == "com.microsoft"
              for name in s.attributes]
print(json.dumps([sorted(kernels), sorted(schemas), sorted(attributes)]))
"""
SHAPES = """
import json, sys
import onnxruntime as ort
options = ort.SessionOptions()
options.log_severity_level = 4
for line in sys.stdin:
    try:
        session = ort.InferenceSession(line.rstrip("\\n"), options, providers=["CPUExecutionProvider"])
        tensors = (value for value in session.get_outputs() if value.type.startswith("tensor"))
        shapes = {value.name: value.shape for value in tensors}
    except Exception:
        shapes = None
    print(json.dumps(shapes), flush=True)
"""
OPEN = 2**31 - 1
"""End of a kernel that is for exactly one version of its operator."""
HIDDEN = "com.microsoft.nchwc"
"""Of nodes that ONNX Runtime makes itself."""


def published() -> list[str]:
    """The versions PyPI has a wheel of for this Python, newest first."""
    text = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "onnxruntime"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    line = next(line for line in text.splitlines() if line.startswith("Available versions:"))
    return re.findall(r"[\d.]+", line)


def key(version: str) -> tuple[int, ...]:
    """A version as numbers; a pre-release counts below the version it precedes."""
    numbers = tuple(int(part) for part in version.split("-")[0].split("."))
    return (*numbers, -1) if "-" in version else (*numbers, 0)


def install(version: str, folder: Path) -> Path:
    """One version alone in a folder; left as it is where an earlier run put it there."""
    target = folder / version
    if not (target / "onnxruntime").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
        subprocess.run([*pip, "--only-binary=:all:", f"onnxruntime=={version}"], check=True)
    return target


def measure(version: str, target: Path) -> dict[str, int]:
    """Highest accepted ``ir`` and ``opset``; the accepted ones must be contiguous, and an end be seen."""
    code = CHILD.format(version=version, ir=IR, opset=OPSET)
    argv = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(target)!r})\n{code}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"onnxruntime {version}:\n{done.stderr}")
    found: dict[str, list[tuple[int, bool]]] = {"ir": [], "opset": []}
    for line in done.stdout.splitlines():
        what, number, ok = line.split()
        found[what].append((int(number), ok == "1"))
    limits = {}
    for what, tries in found.items():
        good = [number for number, ok in tries if ok]
        if not good or good != list(range(tries[0][0], good[-1] + 1)) or good[-1] == tries[-1][0]:
            raise SystemExit(f"onnxruntime {version}: no clear limit of {what}: {tries}")
        limits[what] = good[-1]
    return limits


def kernels(
    target: Path, since: dict[tuple[str, str], set[int]]
) -> tuple[set[tuple[str, str, int]], set[tuple[str, str]], set[tuple[str, str]]]:
    """(domain, operator, version of the operator) that the version in that folder runs; all it knows;
    and (operator, attribute) of com.microsoft."""
    argv = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(target)!r})\n{KERNELS}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    entries, schemas, attributes = json.loads(done.stdout)
    runs = {
        (domain, name, version)
        for domain, name, first, last in entries
        if domain != HIDDEN
        for version in since.get((domain, name), {first})
        if version == first or (last != OPEN and first <= version <= last)
    }
    return runs, {(domain, name) for domain, name in schemas}, {(name, key) for name, key in attributes}


def operators(versions: list[str], cache: Path) -> str:
    """operators.toml."""
    import onnx.defs

    schemas = onnx.defs.get_all_schemas_with_history()
    since: dict[tuple[str, str], set[int]] = {}
    for schema in schemas:
        since.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    found: dict[tuple[str, str, int], str] = {}
    schemas_of: dict[tuple[str, str], str] = {}
    attributes: dict[str, str] = {}
    with_attributes: set[str] = set()
    available = published()
    for version in versions:
        if version not in available:
            continue
        have, registered, pairs = kernels(install(version, cache), since)
        for name, key in sorted(pairs):
            if name in with_attributes:
                attributes.setdefault(f"{name}.{key}", version)
            else:
                attributes[f"{name}.{key}"] = ""  # as old as the operator
        with_attributes |= {name for name, _ in pairs}
        own_domains = {entry for entry in registered if entry[0] not in ("", "ai.onnx.ml")}
        running = {(domain, name) for domain, name, _ in {*found, *have}}
        schemas_of |= dict.fromkeys(own_domains - schemas_of.keys() - running, version)
        if lost := found.keys() - have:
            raise SystemExit(f"onnxruntime {version} lost kernels: {sorted(lost)}")
        found |= dict.fromkeys(have - found.keys(), version)
    bodies = {
        (schema.domain, schema.name, schema.since_version)
        for schema in schemas
        if schema.has_function or schema.has_context_dependent_function
    }
    known = {
        (schema.domain, schema.name, schema.since_version) for schema in schemas if not schema.deprecated
    }
    standard = {kernel for kernel in known if kernel[0] in ("", "ai.onnx.ml")} - bodies
    lines = [
        "# From which ONNX Runtime on operators have a CPU kernel: benchmarks/probe_releases.py --operators",
        "[standard]",
        "# Versions of standard operators that the oldest ONNX Runtime lacks.",
    ]
    for version in versions[1:]:
        own = sorted(k for k in standard if found.get(k) == version)
        names = [f"{f'{domain}.' if domain else ''}{name}:{number}" for domain, name, number in own]
        lines += [f'"{version}" = {json.dumps(names)}'] if names else []
    lines += ["", "[contrib]", "# Of com.microsoft: all."]
    for version in versions:
        own = sorted(k for k, first in found.items() if k[0] == "com.microsoft" and first == version)
        lines += [f'"{version}" = {json.dumps([name for _, name, _ in own])}'] if own else []
    lines += [
        "",
        "[known]",
        "# Of its own domains: what it knows without a CPU kernel, which comes later or never.",
    ]
    for version in versions:
        names = sorted(_full_name(*entry) for entry, first in schemas_of.items() if first == version)
        lines += [f'"{version}" = {json.dumps(names)}'] if names else []
    lines += [
        "",
        "[attributes]",
        "# Attributes of com.microsoft's operators that came later than the operator.",
    ]
    for version in versions:
        names = [name for name, first in attributes.items() if first == version]
        lines += [f'"{version}" = {json.dumps(names)}'] if names else []
    present = (Path(releases.__file__).with_name("operators.toml")).read_text(encoding="utf-8")
    return "\n".join(lines) + "\n\n" + present[present.index("[values]") :]


def _full_name(domain: str, name: str) -> str:
    return name if domain == "com.microsoft" else f"{domain}.{name}"


def shapes(graphs: Path, version: str, cache: Path) -> int:
    """Compare on each graph; how many outputs differ."""
    import onnx

    from triton_repo_builder.model.graph import reader, shape_inference
    from triton_repo_builder.model.read import skeleton
    from triton_repo_builder.model.read.signature import refine

    release = next(each for each in releases.load().values() if each.onnxruntime == version)
    start = f"import sys; sys.path.insert(0, {str(install(version, cache))!r})\n{SHAPES}"
    child = subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    outputs = differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate(sorted(graphs.rglob("*.onnx"))):
            model = onnx.load(source, load_external_data=False)
            bare = Path(folder) / f"{number}.onnx"
            del model.graph.value_info[:]
            for value in model.graph.output:
                value.type.tensor_type.ClearField("shape")
            bare.write_bytes(model.SerializeToString())
            for path in (source, bare):
                child.stdin.write(f"{path}\n")
                child.stdin.flush()
                theirs = json.loads(child.stdout.readline())
                if theirs is None:
                    continue
                graph = skeleton.read(path)
                read = reader.signature(graph)
                ours = refine(read, shape_inference.output_shapes(graph, read, release).sizes)
                for spec in ours.outputs:
                    if spec.name in theirs:
                        outputs += 1
                        sizes = [size if isinstance(size, int) else -1 for size in theirs[spec.name]]
                        if list(spec.dims) != sizes:
                            differ += 1
                            print(f"{source} {spec.name}: {list(spec.dims)}, {version} has {sizes}")
    child.stdin.close()
    child.wait()
    print(f"{outputs} outputs, {differ} differ")
    return differ


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, help="keep the installed wheels here")
    parser.add_argument("--operators", action="store_true", help="print operators.toml")
    parser.add_argument("--shapes", type=Path, metavar="GRAPHS", help="compare the shapes of outputs")
    parser.add_argument("versions", nargs="*", help="default: all that releases.toml names")
    args = parser.parse_args()
    wanted = args.versions or sorted({r.onnxruntime for r in releases.load().values()}, key=key)
    if args.operators:
        with tempfile.TemporaryDirectory() as scratch:
            print(operators(wanted, args.cache or Path(scratch)), end="")
        return
    if args.shapes:
        with tempfile.TemporaryDirectory() as scratch:
            raise SystemExit(1 if shapes(args.shapes, wanted[0], args.cache or Path(scratch)) else 0)
    available = published()
    with tempfile.TemporaryDirectory() as scratch:
        for version in wanted:
            used = version
            if version not in available:
                used = next(other for other in available if key(other) < key(version))
            limits = measure(used, install(used, args.cache or Path(scratch)))
            note = "" if used == version else f"  # not on PyPI: measured with {used}"
            print(
                f'"{version}" = {{ max_ir = {limits["ir"]}, max_opset = {limits["opset"]} }}{note}',
                flush=True,
            )


if __name__ == "__main__":
    main()

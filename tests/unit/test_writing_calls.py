"""Who opens a file for writing: ``files``, and the few modules whose names nobody else can plant."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "triton_repo_builder"
PRIVATE = "in a private folder (tempfile.mkdtemp: a random name, mode 0700)"
STAGED = "in a staging folder (private), from which files are renamed into their place"
ALLOWED = {
    "base/files.py": "the door itself",
    "base/user_file.py": "a device that the user names; else through files.create",
    "produce/write/install.py": STAGED,
    "produce/write/publish.py": STAGED,
    "measure/bench/report/files.py": STAGED,
    "measure/doctor/doctor.py": STAGED,
    "measure/optimize/output.py": STAGED,
    "measure/optimize/steps.py": STAGED,
    "model/graph/weights.py": STAGED,
    "run/demo/samples.py": STAGED,
    "base/transfer.py": STAGED,
    "produce/convert/convert.py": STAGED,
    "produce/convert/worker.py": STAGED,
    "ship/rendered.py": STAGED,
    "ship/stores/oci_layers.py": STAGED,
    "ship/stores/objects.py": STAGED,
    "ship/stores/external_weights.py": "a new file in a staging folder (x)",
    "ship/stores/s3.py": PRIVATE,
    "ship/deploy/preflight.py": PRIVATE,
    "ship/vcs/tree.py": PRIVATE,
    "produce/check_files.py": PRIVATE,
    "run/serve/embedded/engine.py": PRIVATE,
    "run/serve/embedded/install.py": PRIVATE,
    "run/serve/embedded/supervisor.py": "the log, with O_NOFOLLOW",
    "run/serve/docker/handle.py": "the log, with O_NOFOLLOW",
    "run/serve/gateway_process.py": "the log, with O_NOFOLLOW",
    "run/serve/loading/start.py": "the user's log: with O_NOFOLLOW in a folder like /tmp",
    "base/process.py": "the log, with O_NOFOLLOW",
    "ship/canary/state.py": "a lock, which is empty",
    "measure/tune/study.py": "the search's log, with O_NOFOLLOW",
    "run/serve/docker/volume.py": "a pipe that is open already",
    "ship/container_image/context.py": "a stream that is open already",
    "model/graph/sessions.py": "/proc of its own process",
    "cli/__init__.py": "/dev/null",
    "cli/interrupts.py": "/dev/null",
}
"""Modules that write, each with its reason. Anything else calls ``files.write`` or ``files.create``."""
METHODS = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "tofile", "save_model_to_file"}
FUNCTIONS = {
    ("os", "link"),
    ("os", "symlink"),
    ("shutil", "copy"),
    ("shutil", "copy2"),
    ("shutil", "copyfile"),
    ("shutil", "copytree"),
    ("onnx", "save"),
}


def writes(tree: ast.AST) -> Iterator[int]:
    """Lines of the calls that open something for writing by its name."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        match call.func:
            case ast.Attribute(value=ast.Name(id="os"), attr="open"):
                flags = "".join(map(ast.dump, call.args[1:]))
                if "O_RDONLY" not in flags or "O_CREAT" in flags:
                    yield call.lineno
            case ast.Name(id="open") | ast.Attribute(attr="open" | "fdopen"):
                modes = [a.value for a in ast.walk(call) if isinstance(a, ast.Constant)]
                if any(isinstance(m, str) and len(m) < 4 and set(m) & set("wax+") for m in modes):
                    yield call.lineno
            case ast.Attribute(attr=name) if name in METHODS:
                yield call.lineno
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in FUNCTIONS:
                yield call.lineno


def found() -> dict[str, list[int]]:
    """Lines of such calls, by module; ``runtime`` runs in the server and writes nothing."""
    lines = {
        path.relative_to(ROOT).as_posix(): sorted(writes(ast.parse(path.read_text(encoding="utf-8"))))
        for path in ROOT.rglob("*.py")
    }
    return {module: numbers for module, numbers in lines.items() if numbers}


def test_only_these_modules_open_files_for_writing() -> None:
    modules = found()
    assert {module: numbers for module, numbers in modules.items() if module not in ALLOWED} == {}
    assert sorted(ALLOWED.keys() - modules.keys()) == [], "no longer needed"


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("path.write_text(text)", True),
        ("path.open('wb')", True),
        ("open(path, mode='a')", True),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", True),
        ("os.open(path, flags)", True),
        ("shutil.copyfile(a, b)", True),
        ("path.open('rb')", False),
        ("os.open(path, os.O_RDONLY)", False),
        ("path.read_text()", False),
    ],
)
def test_it_sees_what_writes(code: str, is_found: bool) -> None:
    assert bool([*writes(ast.parse(code))]) is is_found

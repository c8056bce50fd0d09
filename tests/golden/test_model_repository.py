"""``model_repository/`` in the checkout is what ``trb build`` makes of ``examples/sentiment``.

``make golden`` (this file as a program) writes it anew. The vendored library and the versions of the
tools that recorded it are not compared: they change with the environment, not with the builder.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "model_repository"
sys.path.insert(0, str(ROOT / "examples" / "sentiment"))


def make(folder: Path) -> Path:
    """Build the example under ``folder``."""
    import make_model

    from triton_repo_builder.base.hardware import Hardware
    from triton_repo_builder.model.read.options import BuildOptions
    from triton_repo_builder.produce import build
    from triton_repo_builder.produce.write import publish

    make_model.main(folder / "model")
    options = BuildOptions(model=folder / "model", name="sentiment", output=folder / "model_repository")
    machine = Hardware(cores=2, gpus=())
    publish.publish(publish.prepare(build.build(options, machine=machine), options.output))
    return options.output


def tree(repository: Path) -> dict[str, Any]:
    """Comparable content of every file but the vendored ones."""
    contents: dict[str, Any] = {}
    for path in sorted(repository.rglob("*")):
        name = path.relative_to(repository).as_posix()
        if not path.is_file() or "/vendor/" in name or "__pycache__" in name or name.endswith(".onnx"):
            continue
        contents[name] = comparable(name, path.read_bytes())
    return contents


def comparable(name: str, content: bytes) -> Any:
    if name == "manifest.json":
        manifest = json.loads(content)
        for entry in manifest["endpoints"].values():
            del entry["tools"]
            del entry["sources"]
        manifest["files"] = sorted(path for path in manifest["files"] if "/vendor/" not in path)
        del manifest["generator"]
        return manifest
    if name.endswith("config.pbtxt"):
        # The example model's bytes depend on the onnx that wrote it.
        return re.sub(r'("trb\.(?:model|source)_sha256"|"trb\.version") value .*', r"\1", content.decode())
    if name.endswith("smoke.json"):
        return re.sub(r'"recorded_with": "[^"]*"', "", content.decode())
    return content


def test_committed_repository_is_what_the_builder_writes(tmp_path: Path) -> None:
    assert tree(COMMITTED) == tree(make(tmp_path)), "run 'make golden' and review the diff"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        shutil.rmtree(COMMITTED, ignore_errors=True)
        shutil.copytree(make(Path(scratch)), COMMITTED)

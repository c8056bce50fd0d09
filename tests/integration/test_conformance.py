"""A part of ``make conformance``: a few cells of each kind, exported, served and compared with PyTorch."""

from pathlib import Path

import pytest
from conformance import __main__ as conformance
from conformance import serve, tasks
from conformance.tasks import Cell

pytestmark = [pytest.mark.server, pytest.mark.exported]

CELLS = (
    "BERT/tokenization",
    "BERT/text-classification (multi-label)",
    "BERT, truncation side left/tokenization",
    "BERT, slow-only vocab.txt/tokenization",
    "BERT, cased by tokenizer_config.json/tokenization",
    "RoBERTa/embedding (mean)",
    "RoBERTa, position_ids given/embedding (mean",
    "XLM-R/tokenization",
    "XLM-R/embedding (lasttoken)",
    "DeBERTa-v2/text-classification",
    "ViT/tensor",
)


@pytest.fixture(scope="module")
def exports() -> Path:
    assert conformance.EXPORT_PYTHON.exists(), "no export environment: run the tests with 'make test'"
    conformance.export(CELLS)
    return conformance.EXPORTS


def test_cells_answer_as_pytorch_does(exports: Path) -> None:
    cells: list[Cell] = tasks.cells(CELLS)
    found = list(conformance.results(cells))
    assert len(found) == len(cells) >= len(CELLS)
    assert [f"{result.cell}: {result.reason}" for result in found if result.state == serve.FAIL] == []
    passed = [result for result in found if result.state == serve.PASS]
    assert all(result.asked >= 50 and result.same == result.asked for result in passed)
    assert {result.cell.row.name for result in passed} == {cell.row.name for cell in cells}

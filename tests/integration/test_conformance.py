"""A part of ``make conformance``: a few cells of each kind, served and compared with PyTorch.

Cells whose exports are in the repository are asked every day; the others are exported first.
"""

from pathlib import Path

import pytest
from conformance import __main__ as conformance
from conformance import serve, tasks
from conformance.serve import Result
from conformance.tasks import Cell

from tests.support.zoo import Zoo
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = pytest.mark.server

EVERYDAY = (
    "BERT, truncation side left/tokenization",
    "BERT, slow-only vocab.txt/tokenization",
    "BERT, cased by tokenizer_config.json/tokenization",
    "RoBERTa, position_ids given/embedding (mean",
    "DeBERTa-v2/text-classification",
    "BERT by torch.onnx/embedding (mean)",
)
KEPT = Path(__file__).resolve().parents[1] / "data" / "models" / "conformance"
CELLS = (
    *EVERYDAY,
    "BERT/tokenization",
    "BERT/text-classification (multi-label)",
    "RoBERTa/embedding (mean)",
    "XLM-R/tokenization",
    "XLM-R/embedding (lasttoken)",
    "ViT/tensor",
)


def test_kept_cells_answer_as_pytorch_does(zoo: Zoo, tmp_path: Path) -> None:
    cells = [cell for cell in tasks.cells(EVERYDAY) if (KEPT / cell.export).is_dir()]
    repository = tmp_path / "model_repository"
    for cell in cells:
        assert serve.pending(cell, serve.build(cell, KEPT, repository)) == ""
    with zoo.serving(repository) as server:
        client = GrpcClient(server.urls.grpc, timeout=120)
        results = [serve.ask(client, cell, KEPT) for cell in cells]
        client.close()
    check(cells, results)
    assert {cell.export for cell in cells} == {path.name for path in KEPT.iterdir()}


@pytest.mark.exported
@pytest.mark.timeout(900)  # exports of a dozen models, on a busy machine
def test_cells_answer_as_pytorch_does() -> None:
    assert conformance.EXPORT_PYTHON.exists(), "no export environment: run the tests with 'make test-all'"
    conformance.export(CELLS)
    cells = tasks.cells(CELLS)
    assert len(cells) >= len(CELLS)
    check(cells, list(conformance.results(cells)))


def check(cells: list[Cell], results: list[Result]) -> None:
    """Every cell passed, with enough inputs to mean something."""
    assert [f"{result.cell}: {result.reason}" for result in results if result.state == serve.FAIL] == []
    assert len(results) == len(cells)
    passed = [result for result in results if result.state == serve.PASS]
    assert all(result.asked >= 50 and result.same == result.asked for result in passed)
    assert {result.cell.row.name for result in passed} == {cell.row.name for cell in cells}

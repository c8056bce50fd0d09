"""Int8 of the real all-MiniLM-L6-v2: small, near, and the same in every batch on a real server."""

import json
from pathlib import Path

import pytest
from cli import FEW, call, trb

pytestmark = pytest.mark.server
PASSED = {"passed", "ok"}


@pytest.fixture(scope="module")
def optimised(exported_minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("optimised") / "minilm"
    trb("optimize", exported_minilm / "minilm_fp32", "-o", out)
    return out


@pytest.mark.exported
def test_it_is_a_quarter_of_the_size_and_near(optimised: Path) -> None:
    original, int8 = json.loads((optimised / "optimize.json").read_text())["steps"]
    assert int8["step"] == "int8 per-row"
    assert int8["bytes"] < 0.26 * original["bytes"]
    assert int8["accuracy"]["mean"] > 0.996
    assert int8["accuracy"]["quantile_1_percent"] > 0.99


@pytest.mark.exported
def test_what_quantize_dynamic_gives_is_refused(exported_minilm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call("optimize", exported_minilm / "minilm_fp32", "-o", out, "--steps", "int8:dynamic")
    assert (done.returncode, "[accuracy-lost]" in done.stderr, out.exists()) == (1, True, False)


@pytest.mark.exported
def test_served_answers_do_not_depend_on_the_batch(optimised: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    trb("build", "--model", optimised, "--output", repository, "--instances", "1")
    facts = json.loads((repository / "manifest.json").read_text())["endpoints"]["minilm"]
    assert '"padding": "ragged"' in json.dumps(facts) and '"rows": "groups"' in json.dumps(facts)
    report = json.loads(trb("smoke", repository, "--json"))
    assert {check["status"] for check in report["checks"]} <= PASSED
    batched = [
        check for check in report["checks"] if check["group"] in ("in a batch", "beside another request")
    ]
    assert batched and all(check["allowed"] <= 1e-4 for check in batched)


def test_a_small_model_by_row_joins_in_batches(exported: Path, tmp_path: Path) -> None:
    out, repository = tmp_path / "int8", tmp_path / "repository"
    steps = ("--steps", "int8:per-row", "--max-drop", "0.2")
    trb("optimize", exported / "minilm_fp32", "-o", out, *steps)
    trb("build", "--model", out, "--output", repository, "--instances", "1")
    manifest = (repository / "manifest.json").read_text()
    assert '"rows": "packed"' in manifest
    report = json.loads(trb("smoke", repository, *FEW, "--json"))
    assert {check["status"] for check in report["checks"]} <= PASSED
    allowed = {check["group"]: check["allowed"] for check in report["checks"] if check["allowed"]}
    assert allowed["golden cases"] > allowed["in a batch"] == allowed["beside another request"]

"""all-MiniLM-L6-v2 itself, exported by optimum in fp32: the served answers are those of PyTorch."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.integration.test_main_job import infer
from tests.support.cli import trb
from tests.support.zoo import Zoo

pytestmark = [pytest.mark.server, pytest.mark.exported]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["minilm_fp32", "minilm_pooled"])
def test_the_real_model_answers_as_pytorch_does(
    name: str, zoo: Zoo, exported_minilm: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "model_repository"
    trb("build", "--model", str(exported_minilm / name), "--output", str(repository), "--batching", "on")
    reference = json.loads((exported_minilm / name / "reference.json").read_text())
    with zoo.serving(repository) as server:
        together = infer(server, name, reference["texts"], "embedding")
        alone = np.concatenate([infer(server, name, [text], "embedding") for text in reference["texts"]])
    np.testing.assert_allclose(together, np.array(reference["answers"]), atol=1e-4)
    np.testing.assert_allclose(alone, np.array(reference["answers"]), atol=1e-4)

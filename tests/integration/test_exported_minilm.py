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
@pytest.mark.parametrize(
    ("name", "options"),
    # optimum's sentence-transformers export leaves out sentence_bert_config.json, which has the limit of 256.
    [("minilm_fp32", ()), ("minilm_pooled", ("--max-length", "256"))],
)
def test_the_real_model_answers_as_pytorch_does(
    name: str, options: tuple[str, ...], zoo: Zoo, exported_minilm: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "model_repository"
    model = str(exported_minilm / name)
    trb("build", "--model", model, "--output", str(repository), "--batching", "on", *options)
    reference = json.loads((exported_minilm / name / "reference.json").read_text())
    with zoo.serving(repository) as server:
        together = infer(server, name, reference["texts"], "embedding")
        alone = np.concatenate([infer(server, name, [text], "embedding") for text in reference["texts"]])
    np.testing.assert_allclose(together, np.array(reference["answers"]), atol=1e-4)
    np.testing.assert_allclose(alone, np.array(reference["answers"]), atol=1e-4)

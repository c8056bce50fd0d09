"""Build the repository that tests/clients serves; run by the environment that has trb.

PYTHONPATH=.:tests:tests/support python tests/clients/repository.py FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import tiny

from tests.support import gateways

PROMPTS = {"prompts": {"query": "query: ", "document": "passage: "}}


def main(folder: Path) -> None:
    """``folder/model_repository``: an endpoint of every task, and an embedder with prompts by name."""
    repository = gateways.repository(folder)
    model = folder / "models" / "asymmetric"
    shutil.copytree(gateways.MODELS / "embedding" / "minilm_fp32", model)
    (model / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    tiny.put(model, repository, name=model.name, instances=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

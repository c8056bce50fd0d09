"""The cut model that the others are made from, and the answers of all-MiniLM-L6-v2 itself.

PYTHONPATH=. .venv-export/bin/python -m tests.models.source MINILM_FOLDER SOURCE ANSWERS
"""

import json
import sys
from pathlib import Path

from tests.models import embedding, retrieval, texts
from tests.models.vocabulary import embedder, rounded

WORDS = "the cat sat on a mat and we all saw it passage represent question"
"""Words of tests that must be one token each."""


def main(minilm: Path, source: Path, answers: Path) -> None:
    said = [*embedding.TEXTS, *texts.TEXTS, *retrieval.TEXTS, *(WORDS.split() * 99)]
    said += [label for row in texts.LABELS for label in row]
    embedder(minilm, source, said)
    answers.mkdir(parents=True)
    document = {"texts": embedding.TEXTS, "output": "embedding", "answers": embedding.embeddings(minilm)}
    (answers / "reference.json").write_text(json.dumps(rounded(document)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""A repository with one small endpoint of every task, and ``trb gateway`` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tiny
import tiny_detectors
import tiny_images
import tiny_sounds

from tests.support.cli import ARGV, own
from tests.support.serve_repository import until
from triton_repo_builder.measure.bench.load import texts

MODELS = Path(__file__).resolve().parents[1] / "data" / "models"
EXPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "minilm": ("embedding/minilm_fp32", {}),
    "prompted": ("embedding/minilm_prompt", {"prompt": ""}),
    "rerank": ("tasks/rerank", {}),
    "sentiment": ("embedding/classifier", {}),
    "ner": ("tasks/ner", {}),
    "qa": ("tasks/qa", {}),
    "mask": ("tasks/mlm", {}),
    "nli": ("tasks/nli", {"task": "zero-shot-classification"}),
    "splade": ("retrieval/splade", {"task": "sparse-embedding"}),
    "colbert": ("retrieval/colbert", {}),
    "vit": ("vision/vit", {}),
    "clip_image": ("vision/clip_vision", {}),
}
"""Endpoint → the folder of its model, and options of its build."""
REFERENCED = ("minilm", "sentiment")
"""Endpoints with a reference of texts like those of ``traffic.py``."""
TOXIC = {"0": "toxic", "1": "insult", "2": "threat"}
AREAS = {"0": "sky", "1": "road", "2": "wall", "3": "tree"}
BATCH = 32
"""max_batch_size of every endpoint."""


def repository(root: Path, only: Sequence[str] = ()) -> Path:
    """A repository of every task, or of some endpoints; its models are of a megabyte or less."""
    target = root / "model_repository"
    reference = root / "reference.txt"
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text("\n".join(texts.corpus(None)))
    for name, (model, options) in EXPORTED.items():
        if not only or name in only:
            if name in REFERENCED:
                options = {**options, "reference": reference}
            tiny.put(MODELS / model, target, name=name, instances=1, **options)
    for model in _tiny(root / "models"):
        if not only or model.name in only:
            tiny.put(model, target, name=model.name, instances=1)
    return target


def _tiny(root: Path) -> Iterator[Path]:
    moderator = tiny.classifier(root / "moderator", labels=len(TOXIC))
    architectures = ["BertForSequenceClassification"]
    multi = "multi_label_classification"
    yield tiny.describe(moderator, architectures=architectures, id2label=TOXIC, problem_type=multi)
    yield tiny_images.towers(root / "clip")
    yield tiny_detectors.detr(root / "yolos")
    config = {"architectures": ["SegformerForSemanticSegmentation"], "model_type": "segformer"}
    yield tiny_images.folder(root / "segformer", rank=4, config={**config, "id2label": AREAS})
    yield tiny_sounds.recogniser(root / "speech")
    yield tiny_sounds.classifier(root / "sounds")


@contextmanager
def running(tmp: Path, triton: str, *arguments: str) -> Iterator[str]:
    """The URL of a gateway in front of a gRPC address; ended with SIGTERM."""
    for folder in (tmp, tmp / "tmp"):
        folder.mkdir(exist_ok=True)
    out, err = tmp / "stdout", tmp / "stderr"
    argv = [*ARGV, "gateway", "--url", triton, "--port", "0", "--json", "--drain", "0", *arguments]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(argv, stdout=stdout, stderr=stderr, env={**os.environ, **own(tmp)})
    try:
        until(lambda: out.read_text().endswith("\n") or process.poll() is not None)
        assert process.poll() is None, err.read_text()
        yield str(json.loads(out.read_text())["url"])
    finally:
        process.terminate()
        process.wait(60)

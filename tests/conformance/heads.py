"""What is put on an architecture before it is exported: the transformers class and its labels. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def _labels(*names: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}


@dataclass(frozen=True, kw_only=True)
class Head:
    """One export of an architecture."""

    auto: str
    """The transformers Auto class."""
    task: str
    """As the exporter calls it."""
    config: Mapping[str, Any] = field(default_factory=dict)


HEADS = {
    "base": Head(auto="AutoModel", task="feature-extraction"),
    "late": Head(auto="AutoModel", task="late-interaction"),
    "classes": Head(
        auto="AutoModelForSequenceClassification",
        task="text-classification",
        config={**_labels("negative", "neutral", "positive"), "problem_type": "single_label_classification"},
    ),
    "multi": Head(
        auto="AutoModelForSequenceClassification",
        task="text-classification",
        config={
            **_labels(*(f"topic {n}" for n in range(12))),
            "problem_type": "multi_label_classification",
        },
    ),
    "one": Head(
        auto="AutoModelForSequenceClassification",
        task="text-classification",
        config={**_labels("toxic")},
    ),
    "cross": Head(
        auto="AutoModelForSequenceClassification",
        task="text-classification",
        config={**_labels("LABEL_0")},
    ),
    "nli": Head(
        auto="AutoModelForSequenceClassification",
        task="text-classification",
        config={**_labels("contradiction", "neutral", "entailment")},
    ),
    "tokens": Head(
        auto="AutoModelForTokenClassification",
        task="token-classification",
        config={**_labels("O", "B-PER", "I-PER", "B-LOC", "I-LOC")},
    ),
    "span": Head(auto="AutoModelForQuestionAnswering", task="question-answering"),
    "mask": Head(auto="AutoModelForMaskedLM", task="fill-mask"),
    "image classes": Head(
        auto="AutoModelForImageClassification",
        task="image-classification",
        config={**_labels(*(f"class {n}" for n in range(7)))},
    ),
    "sound classes": Head(
        auto="AutoModelForAudioClassification",
        task="audio-classification",
        config={**_labels(*(f"sound {n}" for n in range(7)))},
    ),
    "speech": Head(
        auto="AutoModelForCTC",
        task="automatic-speech-recognition",
        config={"vocab_size": 32, "pad_token_id": 0},
    ),
    "towers": Head(
        auto="AutoModelForZeroShotImageClassification",
        task="zero-shot-image-classification",
        config={},
    ),
    "areas": Head(
        auto="AutoModelForSemanticSegmentation",
        task="semantic-segmentation",
        config={**_labels(*(f"class {n}" for n in range(7)))},
    ),
    "objects": Head(
        auto="AutoModelForObjectDetection",
        task="object-detection",
        config={**_labels(*(f"class {n}" for n in range(7)))},
    ),
}

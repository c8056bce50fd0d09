"""Entities of a text, from the scores of its tokens: the rules of transformers' TokenClassificationPipeline.

``answer.py`` beside ``model.py``. Parameters: ``labels`` (JSON list) and ``aggregation``. Needs only numpy.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

SUBWORD, NO_TEXT = 1, -1
"""Third column of ``trb_spans``: see TokenKind in the tokenizer's model.py."""
OUTSIDE = "O"


class Answer:
    """trb_spans [tokens, 3], trb_scores [tokens or more, labels], TEXT → entities."""

    def __init__(self, parameters: dict[str, str], folder: Path) -> None:
        """Read the parameters."""
        self.labels = [str(label) for label in json.loads(parameters["labels"])]
        self.aggregation = parameters["aggregation"]

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """The entities of one text, as JSON and as arrays of equal length."""
        text = row["TEXT"][0].decode("utf-8")
        tokens = [
            (int(start), int(end), kind == SUBWORD, row["trb_scores"][index])
            for index, (start, end, kind) in enumerate(row["trb_spans"].tolist())
            if kind > NO_TEXT
        ]
        entities = [entity for entity in self.entities(tokens) if entity[0] != OUTSIDE]
        document = [
            {"label": label, "score": number(score), "start": start, "end": end, "text": text[start:end]}
            for label, score, start, end in entities
        ]
        return {
            "entities": [json.dumps(document, ensure_ascii=False).encode()],
            "start": [start for _, _, start, _ in entities],
            "end": [end for _, _, _, end in entities],
            "label": [label.encode() for label, _, _, _ in entities],
            "score": [score for _, score, _, _ in entities],
            "text": [text[start:end].encode() for _, _, start, end in entities],
        }

    def entities(self, tokens: list[Any]) -> list[Any]:
        """(label, score, start, end) of each token, or of each group of them."""
        if self.aggregation in ("none", "simple"):
            single = [self.labelled([token]) for token in tokens]
            return single if self.aggregation == "none" else grouped(single)
        words: list[list[Any]] = []
        for token in tokens:
            if words and token[2]:
                words[-1].append(token)
            else:
                words.append([token])
        return grouped([self.labelled(word) for word in words])

    def labelled(self, word: list[Any]) -> Any:
        """One word by the label of its first token, of its most certain one, or of their mean."""
        if self.aggregation == "max":
            scores = max((token[3] for token in word), key=lambda scores: scores.max())
        elif self.aggregation == "average":
            scores = np.nanmean(np.stack([token[3] for token in word]), axis=0)
        else:
            scores = word[0][3]
        best = int(scores.argmax())
        return self.labels[best], scores[best], word[0][0], word[-1][1]


def number(score: Any) -> float | None:
    """JSON has no NaN."""
    return float(score) if np.isfinite(score) else None


def grouped(entities: list[Any]) -> list[Any]:
    """Neighbours of one kind as one entity; a label that starts with ``B-`` begins a new one."""
    groups: list[list[Any]] = []
    for entity in entities:
        if groups and not entity[0].startswith("B-") and kind(entity[0]) == kind(groups[-1][-1][0]):
            groups[-1].append(entity)
        else:
            groups.append([entity])
    return [
        (
            group[0][0].split("-", 1)[-1],
            np.nanmean([entity[1] for entity in group]),
            group[0][2],
            group[-1][3],
        )
        for group in groups
    ]


def watch(metrics: Any) -> Any:
    """Entities by type."""
    entities = metrics.labelled("trb_entities_total", "Entities by type", "type")

    def count(rows: list[dict[str, Any]]) -> None:
        for label, number in Counter(kind(label.decode()) for row in rows for label in row["label"]).items():
            entities(label, number)

    return count


def kind(label: str) -> str:
    """The label without ``B-`` or ``I-``."""
    return label[2:] if label.startswith(("B-", "I-")) else label

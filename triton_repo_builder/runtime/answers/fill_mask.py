"""The likeliest tokens of each mask, by name.

``answer.py`` beside ``model.py``; ``tokens.json`` lists the text of every token of the vocabulary.
Parameter: ``mask_id``. Needs only numpy.
"""

import json
from pathlib import Path
from typing import Any


class Answer:
    """trb_tokens [tokens], trb_ids and trb_scores [masks or more, top_k] → tokens, ids and scores."""

    def __init__(self, parameters: dict[str, str], folder: Path) -> None:
        """The vocabulary as bytes, so that nothing is encoded anew for each answer."""
        self.mask_id = int(parameters["mask_id"])
        names = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        self.names = [name.encode() for name in names]

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """Per mask of one text its best tokens, best first."""
        masks = int((row["trb_tokens"] == self.mask_id).sum())
        ids = row["trb_ids"][:masks]
        tokens = [[self.name(number) for number in mask] for mask in ids.tolist()]
        return {"tokens": tokens, "ids": ids, "scores": row["trb_scores"][:masks]}

    def name(self, number: int) -> bytes:
        """A model may have more rows than its tokenizer has tokens."""
        return self.names[number] if number < len(self.names) else b""

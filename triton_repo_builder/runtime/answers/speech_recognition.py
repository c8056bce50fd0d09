"""Tokens of each moment → text: the rules of transformers' Wav2Vec2CTCTokenizer.

``answer.py`` beside ``model.py``; ``tokens.json`` is the vocabulary by number. Parameters: ``blank`` (the
token between tokens), ``delimiter`` (between words), ``space`` (what becomes of it), ``lower`` (``true``: in
small letters), ``clean`` (``true``: no blanks before punctuation). Needs only the standard library.
"""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

CLEANED = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'")),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
)
"""``clean_up_tokenization`` of transformers, in its order."""


class Answer:
    """trb_ids [moments] → text."""

    def __init__(self, parameters: dict[str, str], folder: Path) -> None:
        """The vocabulary."""
        self.tokens = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        self.blank, self.delimiter = parameters["blank"], parameters["delimiter"]
        self.space = parameters.get("space", " ")
        self.lower, self.clean = (parameters.get(name, "") == "true" for name in ("lower", "clean"))

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """One file's text."""
        return {"text": [self.text(row["trb_ids"].tolist()).encode()]}

    def text(self, ids: list[int]) -> str:
        """Repeats become one, blanks nothing, the delimiter a space or what the tokenizer has for it."""
        heard = [token for token, _ in groupby(self.tokens[number] for number in ids)]
        said = [self.space if token == self.delimiter else token for token in heard if token != self.blank]
        text = "".join(said).strip()
        text = text.lower() if self.lower else text
        for before, after in CLEANED if self.clean else ():
            text = text.replace(before, after)
        return text


def watch(metrics: Any) -> Any:
    """Lengths of transcripts."""
    characters = metrics.characters()

    def count(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            characters(len(row["text"][0].decode()))

    return count

"""Tokens of each moment → text: the rules of transformers' Wav2Vec2CTCTokenizer.

``answer.py`` beside ``model.py``; ``tokens.json`` is the vocabulary by number. Parameters: ``blank`` (the
token between tokens), ``delimiter`` (between words), ``lower`` (``true``: in small letters). Needs only the
standard library.
"""

import json
from itertools import groupby
from pathlib import Path
from typing import Any


class Answer:
    """trb_ids [moments] → text."""

    def __init__(self, parameters: dict[str, str], folder: Path) -> None:
        """The vocabulary."""
        self.tokens = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        self.blank, self.delimiter = parameters["blank"], parameters["delimiter"]
        self.lower = parameters.get("lower", "") == "true"

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """One file's text."""
        return {"text": [self.text(row["trb_ids"].tolist()).encode()]}

    def text(self, ids: list[int]) -> str:
        """Repeats become one, blanks nothing, the delimiter a space."""
        heard = [token for token, _ in groupby(self.tokens[number] for number in ids)]
        said = [" " if token == self.delimiter else token for token in heard if token != self.blank]
        text = "".join(said).strip()
        return text.lower() if self.lower else text

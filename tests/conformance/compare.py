"""One served answer against that of PyTorch: the same labels, texts and positions, and numbers within 1e-4.

Every function takes one row of the endpoint's outputs by name and what PyTorch answered, and gives the
largest difference of a number. What must be the same and is not raises ``Different``.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

TOLERANCE = 1e-4
Row = Mapping[str, "np.ndarray[Any, Any]"]


class Different(Exception):
    """What differs, in one line."""


def _number(got: Any, expected: Any) -> float:
    """The largest difference of two arrays of one shape."""
    mine, theirs = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if mine.size != theirs.size:
        raise Different(f"{mine.size} numbers, expected {theirs.size}")
    moved = np.abs(mine.reshape(-1) - theirs.reshape(-1))
    if not np.isfinite(moved).all():
        raise Different("a number is not finite")
    return float(moved.max(initial=0.0))


def _same(what: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise Different(f"{what} {_short(got)}, expected {_short(expected)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _texts(row: Row, name: str) -> list[str]:
    return [_text(value) for value in row[name].reshape(-1)]


def numbers(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The only output."""
    return _number(next(iter(row.values())), expected)


def tokens(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The tokenizer model's ids and types; -1 ends a ragged row, the mask a padded one."""
    ids = row["trb_tokens" if "trb_tokens" in row else "input_ids"].reshape(-1)
    mask = row["attention_mask"].reshape(-1) if "attention_mask" in row else (ids >= 0).astype(int)
    length = int(mask.sum())
    _same("mask", mask.tolist(), [1] * length + [0] * (len(ids) - length))
    wanted = expected["input_ids"] or ids[:length].tolist()[:1]
    _same("ids", ids[:length].tolist(), wanted)
    for name in ("token_type_ids", "trb_types"):
        if name in row:
            _same("types", row[name].reshape(-1)[:length].tolist(), expected["token_type_ids"])
    return 0.0


def scores(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """Every label's score, and the best by name where the endpoint has it."""
    moved = _number(row["scores"], expected["scores"])
    if "label" in row:
        _same("label", _texts(row, "label")[0], expected["label"])
    if "score" in row:
        moved = max(moved, _number(row["score"], expected["score"]))
    return moved


def score(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """One score."""
    return _number(row["score"], expected)


def entities(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The entities' labels and places, and that each is a piece of the user's text."""
    found = json.loads(_texts(row, "entities")[0])
    places = [(item["label"], item["start"], item["end"]) for item in found]
    _same("entities", places, [(item["label"], item["start"], item["end"]) for item in expected])
    for item in found:
        _same("text", item["text"], entry["TEXT"][item["start"] : item["end"]])
    return _number([item["score"] for item in found], [item["score"] for item in expected])


def answer(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The answer, its place, and that it is a piece of the context."""
    start, end = int(row["start"].reshape(-1)[0]), int(row["end"].reshape(-1)[0])
    _same("place", (start, end), (expected["start"], expected["end"]))
    _same("answer", _texts(row, "answer")[0], expected["answer"])
    return _number(row["score"], expected["score"])


def masks(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The best tokens of every mask, in order."""
    wanted = [token["text"] for best in expected for token in best]
    _same("tokens", _texts(row, "tokens")[: len(wanted)], wanted)
    found = row["scores"].reshape(-1)[: len(wanted)]
    return _number(found, [token["score"] for best in expected for token in best])


def topics(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The labels in order of their scores."""
    count = len(expected["labels"])
    _same("labels", _texts(row, "labels")[:count], expected["labels"])
    return _number(row["scores"].reshape(-1)[:count], expected["scores"])


def sparse(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The weights of both as one vector; an index of -1 is padding."""
    found = zip(row["indices"].reshape(-1).tolist(), row["values"].reshape(-1).tolist(), strict=True)
    mine = {index: value for index, value in found if index >= 0}
    theirs = dict(zip(expected["indices"], expected["values"], strict=True))
    return max((abs(mine.get(n, 0.0) - theirs.get(n, 0.0)) for n in mine.keys() | theirs.keys()), default=0.0)


def late(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """Every token's vector; more rows than tokens are padding, all 0."""
    found = row["token_embeddings"].reshape(-1, len(expected[0]))
    moved = _number(found[len(expected) :], np.zeros_like(found[len(expected) :]))
    return max(moved, _number(found[: len(expected)], expected))


def image_scores(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The best label and the five best, in order."""
    _same("label", _texts(row, "label")[0], expected["labels"][0])
    _same("top labels", _texts(row, "top_labels")[:5], expected["labels"])
    return max(
        _number(row["top_scores"].reshape(-1)[:5], expected["scores"]),
        _number(row["score"], expected["scores"][0]),
    )


def objects(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """Every object once, in any order; boxes as shares of the image's longer side."""
    count = int(row["count"].reshape(-1)[0])
    _same("count", count, len(expected["labels"]))
    found = np.column_stack([row["scores"].reshape(-1), row["boxes"].reshape(-1, 4) / expected["size"]])[
        :count
    ]
    wanted = np.column_stack(
        [expected["scores"], np.array(expected["boxes"]).reshape(-1, 4) / expected["size"]]
    )
    mine, theirs = _texts(row, "labels")[:count], expected["labels"]
    _same("labels", sorted(mine), sorted(theirs))
    left = list(range(count))
    worst = 0.0
    for label, numbers_of in zip(theirs, wanted, strict=True):
        off = {n: _number(found[n], numbers_of) for n in left if mine[n] == label}
        nearest = min(off, key=lambda n: off[n])
        worst = max(worst, off[nearest])
        left.remove(nearest)
    return worst


def sound_scores(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The best labels of a sound."""
    return image_scores(row, expected, entry)


def speech(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The text, character by character."""
    _same("text", _texts(row, "text")[0], expected)
    return 0.0


def areas(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The share of pixels with another label; the names and shares are those of the map."""
    from PIL import Image

    places = np.asarray(Image.open(io.BytesIO(base64.b64decode(row["label_map"].reshape(-1)[0]))))
    width, height = expected["size"]
    _same("size", places.shape, (height, width))
    names = [text for text in _texts(row, "labels") if text]
    numbers_of = dict(zip(names, row["label_ids"].reshape(-1).tolist(), strict=False))
    shares = [float((places == number).mean()) for number in numbers_of.values()]
    moved = _number(row["shares"].reshape(-1)[: len(names)], shares)
    _same("order", shares, sorted(shares, reverse=True))
    wrong = np.ones(places.shape, dtype=bool)
    for label, data in expected["masks"].items():
        mask = np.frombuffer(base64.b64decode(data), dtype=np.uint8).reshape(height, width) > 0
        wrong &= ~(mask & (places == numbers_of.get(label, -1)))
    return max(moved, float(wrong.mean()))


def tensors(row: Row, expected: Any, entry: Mapping[str, Any]) -> float:
    """The logits."""
    return _number(row["logits"], expected["logits"])

"""The best span of a context, by the rules of the question-answering pipeline of transformers 4.

``answer.py`` beside ``model.py``. Parameters: ``impossible`` (``true``: no answer is an answer) and
``longest_answer`` in tokens. Needs only numpy.
"""

from pathlib import Path
from typing import Any

import numpy as np

PLAIN, NO_TEXT, CHUNK_SEPARATOR = 0, -1, -2
"""Third column of ``trb_spans``: see TokenKind in the tokenizer's model.py."""
MASKED = np.float32(-10000.0)
CANDIDATES = 12
"""Best spans of each chunk: 2 * 1 + 10, since several spans may be one group of words."""


class Answer:
    """trb_spans [tokens, 5], trb_starts and trb_ends [tokens or more], CONTEXT → answer."""

    def __init__(self, parameters: dict[str, str], folder: Path) -> None:
        """Read the parameters."""
        self.impossible = parameters.get("impossible", "") == "true"
        self.longest = int(parameters.get("longest_answer", "15"))

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """The best answer of all chunks of the context."""
        context = row["CONTEXT"][0].decode("utf-8")
        offsets = row["trb_spans"]
        separators = np.flatnonzero(offsets[:, 2] == CHUNK_SEPARATOR).tolist()
        candidates: dict[str, list[Any]] = {}
        null = np.inf
        begins = [0, *(index + 1 for index in separators)]
        for begin, end in zip(begins, [*separators, len(offsets)], strict=True):
            null = min(null, self.chunk(context, offsets[begin:end], row, slice(begin, end), candidates))
        answers = list(candidates.values())
        if self.impossible:
            answers.append([float(null), 0, 0])
        # No candidate at all, as in a context of blanks, is no answer.
        score, start, stop = max(answers, key=lambda answer: answer[0]) if answers else (0.0, 0, 0)
        text = context[start:stop]
        return {"answer": [text.encode()], "start": [start], "end": [stop], "score": [score]}

    def chunk(
        self,
        context: str,
        offsets: Any,
        row: dict[str, Any],
        tokens: slice,
        candidates: dict[str, list[Any]],
    ) -> float:
        """Add the candidates of one chunk by their text; returns the score of no answer."""
        # Without what fills it up: a sum of more numbers, be they 0, may end in another digit, and an answer
        # must not depend on the longest row of its batch. One token after the last candidate ends the row.
        kept = int(np.flatnonzero(offsets[:, 2] > NO_TEXT).max(initial=0)) + 2
        offsets = offsets[:kept]
        tokens = slice(tokens.start, tokens.start + len(offsets))
        allowed = offsets[:, 2] > NO_TEXT
        starts = shares(row["trb_starts"][tokens], allowed)
        ends = shares(row["trb_ends"][tokens], allowed)
        null = float(starts[0] * ends[0])
        starts[0] = ends[0] = 0.0
        for first, last, score in best_spans(starts, ends, self.longest):
            if not (allowed[first] and allowed[last]):
                continue
            # If one end is in no word, neither end is widened to its word.
            widened = offsets[first, 2] == offsets[last, 2] == PLAIN
            begin, stop = int(offsets[first, 0 if widened else 3]), int(offsets[last, 1 if widened else 4])
            same = candidates.setdefault(context[begin:stop].lower(), [0.0, begin, stop])
            same[0] += float(score)
        return null


def watch(metrics: Any) -> Any:
    """Answers, and questions without."""
    name, about = "trb_question_answers_total", "Questions with an answer, and without"
    answered = metrics.counter(name, about, outcome="answer")
    unanswered = metrics.counter(name, about, outcome="none")

    def count(rows: list[dict[str, Any]]) -> None:
        answers = sum(bool(row["answer"][0]) for row in rows)
        answered(answers)
        unanswered(len(rows) - answers)

    return count


def shares(logits: Any, allowed: Any) -> Any:
    """Softmax over the tokens that may be in an answer."""
    values = np.where(allowed, logits, MASKED)
    values = np.exp(values - values.max())
    return values / (values[allowed].sum() or values.sum())


def best_spans(starts: Any, ends: Any, longest: int) -> list[tuple[int, int, Any]]:
    """(first token, last token, score) of the best candidates, best first.

    Only spans of at most ``longest`` tokens are computed: row d of ``scores`` holds those of d + 1 tokens.
    """
    count = len(starts)
    depth = min(longest, count)
    scores = np.zeros((depth, count), starts.dtype)
    for more in range(depth):
        scores[more, : count - more] = starts[: count - more] * ends[more:]
    flat = scores.reshape(-1)
    order = np.arange(flat.size)
    if flat.size > CANDIDATES:
        order = np.argpartition(-flat, CANDIDATES)[:CANDIDATES]
    order = order[np.argsort(-flat[order])]
    return [
        (int(index % count), int(index % count + index // count), flat[index])
        for index in order
        if index % count + index // count < count
    ]

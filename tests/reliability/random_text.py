"""Random text models: layers, pooling, head, ids, masks drawn by a seed; every token matters."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from onnx import TensorProto
from tiny_onnx import INT32, INT64, tensor

from tests.reliability.graph_writer import Graph, Rows, Writer, float_of

POOLED = "sentence_embedding"
PADDINGS = ("ragged", "ragged", "ragged", "ragged", "batch", "rows", "fixed:24")
WORDS = (*tiny.LETTERS, "hello", "the", "fox", "fox hello", "zebra", "the the", "é", "日本")
TEXTS = 7


def make(folder: Path, seed: int) -> Graph:
    """Export a model with its tokenizer; the same one for the same seed."""
    rng = random.Random(f"text {seed}")
    name = f"text_{seed:03d}"
    place = folder / name
    body = _Body(rng)
    width = body.width
    kind = rng.choice(("vectors", "vectors", "pooled", "classes", "classes", "tokens"))
    labels = rng.randint(2, 5)
    shape: list[int | str] = ["batch", "sequence"]
    options: dict[str, Any] = {"padding": rng.choice(PADDINGS)}
    hidden = body.hidden()
    if kind == "vectors":
        outputs = [tensor(body.named("last_hidden_state", hidden), [*shape, width])]
        mode = rng.choice(
            (
                "mean_tokens",
                "cls_token",
                "max_tokens",
                "mean_sqrt_len_tokens",
                "weightedmean_tokens",
                "lasttoken",
            )
        )
        tiny.pooling(place, f"pooling_mode_{mode}", normalise=rng.random() < 0.6)
        body.drawn.append(mode)
    elif kind == "pooled":
        outputs = [tensor(body.named(POOLED, body.pool(hidden)), ["batch", width])]
    elif kind == "tokens":
        outputs = [tensor(body.named("logits", body.linear(hidden, width, labels)), [*shape, labels])]
        options["padding"] = "ragged"
    else:
        logits = body.linear(body.pool(hidden), width, labels)
        outputs = [tensor(body.named("logits", logits), ["batch", labels])]
    body.save(place / "model.onnx", body.inputs(shape), outputs)
    config: dict[str, Any] = {"id2label": {str(number): f"label {number}" for number in range(labels)}}
    if kind == "tokens":
        config["id2label"] = {str(n): f"{'BI'[n % 2]}-{n // 2}" for n in range(labels)}
        config["architectures"] = ["BertForTokenClassification"]
    elif kind == "classes":
        config["architectures"] = ["BertForSequenceClassification"]
        config["problem_type"] = rng.choice(
            (None, "single_label_classification", "multi_label_classification")
        )
    tiny.describe(place, **(config if kind in ("tokens", "classes") else {}))
    if rng.random() < 0.2:
        options["max_batch_size"] = rng.choice((1, 3, 8))
    if rng.random() < 0.2:
        options["max_length"] = rng.randint(5, 24)
    about = f"{kind} {options} {' '.join(body.drawn)}"
    return Graph(name=name, model=place, options=options, rows=_rows(rng), about=about)


def _rows(rng: random.Random) -> Rows:
    """Texts of unlike lengths, two of the same length, one empty, one longer than any limit."""
    lengths = [rng.randint(1, 12) for _ in range(TEXTS - 3)]
    texts = [" ".join(rng.choice(WORDS) for _ in range(length)) for length in (*lengths, lengths[0], 40)]
    texts.append(rng.choice(("", " ", "##", "[MASK] [PAD]")))
    rng.shuffle(texts)
    return [{"TEXT": np.array([text.encode()], dtype=object)} for text in texts]


class _Body(Writer):
    """Inputs, embeddings and layers."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.width = rng.choice((4, 8, 12))
        self.ids = rng.choice((INT32, INT64))
        self.has_types = rng.random() < 0.4
        self.masked = rng.choice(("input", "input", "input", "input", "inner", "none"))
        self.drawn += [{INT32: "int32", INT64: "int64"}[self.ids], f"mask:{self.masked}"]
        self.mask = self._mask()

    def inputs(self, shape: list[int | str]) -> list[Any]:
        names = ["input_ids"]
        names += ["attention_mask"] if self.masked == "input" else []
        names += ["token_type_ids"] if self.has_types else []
        return [tensor(name, shape, self.ids) for name in names]

    def _mask(self) -> str:
        """[batch, sequence] of FP32."""
        if self.masked == "input":
            return float_of(self, "attention_mask")
        if self.masked == "inner":
            return float_of(self, self.add("Cast", "input_ids", to=TensorProto.BOOL))
        zeros = self.add("Sub", "input_ids", "input_ids")
        return self.add("Add", float_of(self, zeros), self.constant(1, np.float32))

    def column(self) -> str:
        """The mask as [batch, sequence, 1]."""
        return self.add("Unsqueeze", self.mask, self.constant([2]))

    def hidden(self) -> str:
        """[batch, sequence, width]."""
        state = self.add("Gather", self.weight(tiny.ROWS, self.width, scale=1.0), "input_ids")
        if self.has_types:
            kinds = self.add("Gather", self.weight(2, self.width, scale=1.0), "token_type_ids")
            state = self.add("Add", state, kinds)
        layers: tuple[Callable[[str], str], ...] = (
            self._feed_forward,
            self._attention,
            self._context,
            self._positions,
            self._convolution,
            self._recurrence,
            self._previous,
            self._normalised,
        )
        for _ in range(self.rng.randint(1, 4)):
            layer = self.rng.choice(layers)
            self.drawn.append(layer.__name__.strip("_"))
            state = self.add("Add", state, layer(state)) if layer != self._normalised else layer(state)
        return state

    def pool(self, hidden: str) -> str:
        """[batch, width], in the model's own way."""
        kind = self.rng.choice(("first", "mean", "max"))
        self.drawn.append(f"pool:{kind}")
        if kind == "first":
            return self.add("Gather", hidden, self.constant(0), axis=1)
        if kind == "mean":
            return self.add("Squeeze", self._mean(hidden), self.constant([1]))
        far = self.add("Mul", self._absent(self.column()), self.constant(1e4, np.float32))
        return self.add("ReduceMax", self.add("Sub", hidden, far), axes=[1], keepdims=0)

    def _absent(self, mask: str) -> str:
        return self.add("Sub", self.constant(1, np.float32), mask)

    def _mean(self, state: str) -> str:
        total = self.add("MatMul", self.add("Unsqueeze", self.mask, self.constant([1])), state)
        count = self.add("ReduceSum", self.column(), self.constant([1]), keepdims=1)
        return self.add("Div", total, self.add("Max", count, self.constant(1, np.float32)))

    def _feed_forward(self, state: str) -> str:
        wide = self.activation(self.linear(state, self.width, 2 * self.width))
        return self.linear(wide, 2 * self.width, self.width)

    def _attention(self, state: str) -> str:
        query, key, value = (self.linear(state, self.width, self.width) for _ in range(3))
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 2, 1]))
        scores = self.add("Div", scores, self.constant(np.sqrt(self.width), np.float32))
        row = self._absent(self.add("Unsqueeze", self.mask, self.constant([1])))
        scores = self.add("Sub", scores, self.add("Mul", row, self.constant(1e4, np.float32)))
        return self.add("MatMul", self.add("Softmax", scores, axis=-1), value)

    def _context(self, state: str) -> str:
        return self._mean(state)

    def _positions(self, state: str) -> str:
        """Positions count what is not masked."""
        place = self.add("CumSum", self.mask, self.constant(1))
        angle = self.add("Mul", self.add("Unsqueeze", place, self.constant([2])), self.weight(self.width))
        return self.add("Sin", angle)

    def _convolution(self, state: str) -> str:
        """Of each token with its neighbours; what is masked is as nothing."""
        seen = self.add("Transpose", self.add("Mul", state, self.column()), perm=[0, 2, 1])
        kernel = self.weight(self.width, self.width, 3, scale=1 / np.sqrt(3 * self.width))
        return self.add("Transpose", self.add("Conv", seen, kernel, pads=[1, 1]), perm=[0, 2, 1])

    def _recurrence(self, state: str) -> str:
        """From the first token on: what comes after a token does not change it."""
        steps = self.add("Transpose", state, perm=[1, 0, 2])
        weights = [self.weight(1, 3 * self.width, self.width, scale=0.4) for _ in range(2)]
        found = self.add("GRU", steps, *weights, hidden_size=self.width)
        return self.add("Transpose", self.add("Squeeze", found, self.constant([1])), perm=[1, 0, 2])

    def _previous(self, state: str) -> str:
        """The token before each."""
        pads = self.constant([0, 1, 0, 0, 0, 0])
        shifted = self.add("Pad", state, pads)
        ends = self.constant([-1]), self.constant([1])
        return self.add("Slice", shifted, self.constant([0]), *ends)

    def _normalised(self, state: str) -> str:
        return self.norm(state, self.width)

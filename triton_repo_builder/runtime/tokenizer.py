"""Runs inside tritonserver: texts → what the model takes, either the tensors of a transformer (input_ids,
attention_mask …) or ``trb_tokens``, the ids alone, from which the model's graph derives the rest.

Copied byte for byte to ``<model>/1/model.py``. What varies comes from config.pbtxt: the inputs (one text, a
pair of texts, or a text and its labels), the outputs and their types, and the parameters:

- ``max_length`` (0: no limit), ``truncation`` (which text of a pair is cut), ``stride`` (tokens that the
  pieces of a long second text share; without it there is one piece), ``pad_id``, ``pad_to`` (0: to the
  longest row of the request, with ``pad_together`` to that of all requests of the batch, so that they
  have one shape and the model's batcher joins them);
- ``truncation_side`` (``left`` keeps the end of a long text) and ``positions_from_pad`` (``true``: position
  ids count from ``pad_id`` + 1 and skip padding, as RoBERTa's do);
- ``prompt``: what goes before every text;
- ``hypothesis``: a sentence with ``{}``; the second input is then a list of labels for each text;
- ``spans`` (``tokens`` or ``words``): where each token lies in its text, for ``trb_spans``;
- ``most_rows``: rows of the model that one row of a request may stand for (0: any number);
- ``required_id`` and ``required_token``: a text without this token is refused; ``unk_id``, ``cls_id``;
  ``no_empty``: empty texts are refused.

Needs only numpy and ``tokenizers``, which lies in ``vendor/`` beside this file.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).resolve().parent

TOKENS, TYPES, SPANS = "trb_tokens", "trb_types", "trb_spans"
FILLER, BREAK = -1, -2
"""No token has these ids. The first ends the shorter rows of ``trb_tokens`` where a request has several; the
second parts the rows of the model that one row of the request stands for."""
PLAIN, SUBWORD, WORDLESS, NO_TEXT = 0, 1, 1, -1
"""Third column of ``trb_spans``: a token of the text; of ``tokens`` one that goes on with a word; of
``words`` one that is in none; and what is no text."""


class TritonPythonModel:
    """One instance: one tokenizer, one call of it for all requests of an execute."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and switch off whatever padding and truncation it was saved with."""
        config = json.loads(args["model_config"])
        # The library's threads are per process: with several instances they would only compete.
        alone = sum(group.get("count", 1) for group in config.get("instance_group", [])) <= 1
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if alone else "false")
        if (HERE / "vendor").is_dir():
            sys.path.insert(0, str(HERE / "vendor"))
        from tokenizers import Tokenizer

        parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        self.pad_id = int(parameters.get("pad_id", "0"))
        self.pad_to = int(parameters.get("pad_to", "0"))
        self.pad_together = parameters.get("pad_together") == "true"
        self.positions_from_pad = parameters.get("positions_from_pad") == "true"
        self.stride = int(parameters.get("stride", "0"))
        self.prompt = parameters.get("prompt", "")
        self.hypothesis = parameters.get("hypothesis", "")
        self.spans = parameters.get("spans", "")
        self.most_rows = int(parameters.get("most_rows", "0"))
        self.required_id = int(parameters.get("required_id", "-1"))
        self.required_token = parameters.get("required_token", "")
        self.unk_id = int(parameters.get("unk_id", "-1"))
        self.cls_id = int(parameters.get("cls_id", "-1"))
        self.no_empty = parameters.get("no_empty", "") == "true"
        self.inputs = [entry["name"] for entry in config.get("input", [{"name": "TEXT"}])]
        self.outputs = [
            (output["name"], pb_utils.triton_string_to_numpy(output["data_type"]))
            for output in config["output"]
        ]
        self.batched = config.get("max_batch_size", 0) > 0
        self.tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.max_length = int(parameters.get("max_length", "0"))
        if self.max_length:
            strategy = parameters.get("truncation", "longest_first")
            side = parameters.get("truncation_side", "right")
            self.tokenizer.enable_truncation(
                self.max_length, stride=self.stride, strategy=strategy, direction=side
            )
        # Only such a tokenizer says by its tokens where a word begins (as transformers decides it).
        self.marks_subwords = bool(getattr(self.tokenizer.model, "continuing_subword_prefix", None))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request; one that cannot be read fails alone."""
        units: list[Any] = []
        found: list[Any] = []
        for request in requests:
            try:
                rows = self.read(request)
            except ValueError as error:
                found.append(pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
                continue
            places = []
            for row in rows:
                places.append(slice(len(units), len(units) + len(row)))
                units.extend(row)
            found.append(places)
        encodings = self.encode(units)
        made = [self.assemble(places, encodings) if isinstance(places, list) else places for places in found]
        widths = [self.width(rows) for rows in made if isinstance(rows, list)]
        together = max(widths, default=0) if self.pad_together else 0
        return [
            self.respond([units[place.start] for place in places], rows, together)
            if isinstance(rows, list)
            else pb_utils.InferenceResponse(error=rows)
            for places, rows in zip(found, made, strict=True)
        ]

    def read(self, request: Any) -> list[list[Any]]:
        """Per row of a request what is to be encoded for it: texts, or pairs of them."""
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        first, second = self.inputs[0], self.inputs[-1]
        texts = decode(given[first], first)
        if self.no_empty:
            self.refuse_empty(texts, first)
        if second == first or second not in given:
            return [[self.prompt + text] for text in texts]
        others = decode(given[second], second)
        if self.no_empty:
            self.refuse_empty(others, second)
        if not self.hypothesis:
            pairs = zip(texts, others, strict=True)
            # transformers' text-classification takes an empty second text for none.
            return [[text if second == "TEXT_PAIR" and not other else (text, other)] for text, other in pairs]
        each = len(others) // len(texts) if texts else 0
        rows = []
        for number, text in enumerate(texts):
            # An empty label only fills the row of a text that has fewer of them than its neighbours.
            labels = [label for label in others[number * each : (number + 1) * each] if label]
            if not labels:
                raise ValueError(f"row {number} of input '{second}' has no label")
            # Before they are encoded: each costs a run of the tokenizer over the whole text.
            if problem := self.too_many(number, len(labels)):
                raise ValueError(problem)
            rows.append([(text, self.hypothesis.format(label)) for label in labels])
        return rows

    def refuse_empty(self, texts: list[str], name: str) -> None:
        """ValueError for an empty text where it has no answer."""
        if "" in texts:
            raise ValueError(f"text {texts.index('')} of input '{name}' is empty")

    def too_many(self, number: int, count: int) -> str:
        """Why a row that stands for ``count`` rows of the model is refused; empty where it is not."""
        if not 0 < self.most_rows < count:
            return ""
        return (
            f"row {number} of input '{self.inputs[-1]}' makes {count} rows of the model, {self.most_rows} is "
            "the most (parameter most_rows in the tokenizer's config.pbtxt): send less in one row"
        )

    def encode(self, units: list[Any]) -> list[Any]:
        """All texts in one call; one by one only if that fails, so that a bad text is found."""
        try:
            return self.call(units)
        except BaseException as error:
            ours(error)
            return [self.encode_one(unit) for unit in units]

    def encode_one(self, unit: Any) -> Any:
        """The encoding, or the exception that this text causes."""
        try:
            return self.call([unit])[0]
        except BaseException as error:
            ours(error)
            return ValueError(str(error))

    def call(self, units: list[Any]) -> list[Any]:
        """The library's call: the fast one does not say where tokens lie in the text."""
        if self.spans:
            return list(self.tokenizer.encode_batch(units))
        return list(self.tokenizer.encode_batch_fast(units))

    def assemble(self, places: list[Any], encodings: list[Any]) -> Any:
        """The rows of one request, each of one or more segments; or the error that answers it."""
        rows = []
        for number, place in enumerate(places):
            problem = self.problem(number, encodings[place])
            if problem:
                return pb_utils.TritonError(problem, pb_utils.TritonError.INVALID_ARG)
            row = self.segments(encodings[place])
            if problem := self.too_many(number, len(row)):
                return pb_utils.TritonError(problem, pb_utils.TritonError.INVALID_ARG)
            rows.append(row)
        return rows

    def width(self, rows: list[Any]) -> int:
        """Tokens of a request's longest row, or ``pad_to``.

        A model cannot run on no tokens at all: a text without any becomes one masked token.
        """
        longest = max((sum(len(part.ids) + 1 for part in row) - 1 for row in rows), default=1)
        return self.pad_to or max(1, longest)

    def respond(self, texts: list[Any], rows: list[Any], together: int) -> Any:
        """The answer to one request, padded to its longest row, or to ``together``."""
        ids = [joined([segment.ids for segment in row], BREAK) for row in rows]
        width = together or self.width(rows)
        tensors = []
        for name, dtype in self.outputs:
            values = (
                self.located(rows, texts, width, dtype)
                if name == SPANS
                else self.rows(name, rows, ids, width, dtype)
            )
            tensors.append(pb_utils.Tensor(name, values))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def problem(self, number: int, found: list[Any]) -> str:
        """Why a row cannot be answered; empty where it can."""
        for row in found:
            if isinstance(row, Exception):
                names = " and ".join(f"'{name}'" for name in self.inputs)
                # The library's words for it: truncation that cannot reach, or a stride beyond what is left.
                short = "too short" in str(row) or "stride" in str(row)
                why = (
                    f"what is never cut of it leaves no room within {self.max_length} tokens"
                    if short
                    else row
                )
                return f"text {number} of input {names} cannot be tokenized: {why}"
            if self.required_id >= 0 and self.required_id not in row.ids:
                return (
                    f"text {number} of input '{self.inputs[0]}' has no {self.required_token} "
                    "within the tokens that the model takes"
                )
        return ""

    def segments(self, found: list[Any]) -> list[Any]:
        """The rows of the model for one row of a request: with a stride all pieces of a long text."""
        return [piece for row in found for piece in (row, *row.overflowing)] if self.stride else found

    def rows(self, name: str, rows: list[Any], ids: list[list[int]], width: int, dtype: Any) -> Any:
        """One output, [rows, width]."""
        fill = {"input_ids": self.pad_id, TOKENS: FILLER}.get(name, 0)
        if len(ids) == 1 and len(ids[0]) == width and name in ("input_ids", TOKENS):
            return np.array(ids, dtype=dtype)
        values = np.full((len(ids), width), fill, dtype=dtype)
        for number, row in enumerate(ids):
            if name in ("input_ids", TOKENS):
                values[number, : len(row)] = row
            elif name == "attention_mask":
                values[number, : len(row)] = 1
            elif name in ("token_type_ids", TYPES):
                values[number, : len(row)] = joined([segment.type_ids for segment in rows[number]], 0)
            elif name == "position_ids":
                values[number] = self.positions(row, width)
        return values

    def positions(self, ids: list[int], width: int) -> Any:
        """Position ids of one row, [width]."""
        if not self.positions_from_pad:
            return np.pad(np.arange(len(ids)), (0, width - len(ids)))
        real = np.zeros(width, dtype=np.int64)
        real[: len(ids)] = np.array(ids, dtype=np.int64) != self.pad_id
        return np.cumsum(real) * real + self.pad_id

    def located(self, rows: list[Any], texts: list[Any], width: int, dtype: Any) -> Any:
        """``trb_spans``, [rows, width, 3]: first character, the one after the last, and the kind.

        With ``words`` the characters are those of the word, and two more columns have the token's own.
        """
        columns = 5 if self.spans == "words" else 3
        values = np.zeros((len(rows), width, columns), dtype=dtype)
        values[:, :, 2] = FILLER
        for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
            spans: list[list[int]] = []
            for segment in row:
                spans += [[0, 0, BREAK, 0, 0][:columns]] if spans else []
                spans += self.words(segment) if self.spans == "words" else self.tokens(segment, text)
            if spans:
                values[number, : len(spans)] = spans
        return values

    def tokens(self, segment: Any, text: str) -> list[list[int]]:
        """Each token's own characters; whether it goes on with a word is decided as transformers does."""
        spans = []
        for token, number, special, (start, end) in zip(
            segment.tokens, segment.ids, segment.special_tokens_mask, segment.offsets, strict=True
        ):
            if self.marks_subwords:
                inner = len(token) != end - start
            else:
                inner = start > 0 and " " not in text[start - 1 : start + 1]
            kind = SUBWORD if inner and number != self.unk_id else PLAIN
            spans.append([start, end, NO_TEXT if special else kind])
        return spans

    def words(self, segment: Any) -> list[list[int]]:
        """Of each token that may be in an answer the characters of its word, and its own; all else is none.

        The first token stays a candidate as transformers keeps it: models point there for "no answer".
        """
        spans = []
        known: dict[Any, Any] = {None: None}
        for word, sequence, number, own in zip(
            segment.word_ids, segment.sequence_ids, segment.ids, segment.offsets, strict=True
        ):
            if sequence != 1 and number != self.cls_id:
                spans.append([*own, NO_TEXT, *own])
                continue
            if word not in known:
                known[word] = segment.word_to_chars(word, 1)
            spans.append([*known[word], PLAIN, *own] if known[word] else [*own, WORDLESS, *own])
        return spans


def joined(parts: list[list[int]], between: int) -> list[int]:
    """The parts in one list."""
    if len(parts) == 1:
        return parts[0]
    whole: list[int] = []
    for number, part in enumerate(parts):
        whole += [between, *part] if number else part
    return whole


def ours(error: BaseException) -> None:
    """A panic of the Rust library is no ``Exception``; what must end the process is raised again."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error


def decode(raw: Any, name: str) -> list[str]:
    """The texts of one input; ValueError names the one that is not UTF-8."""
    texts = []
    for number, item in enumerate(raw.reshape(-1)):
        try:
            texts.append(item.decode("utf-8") if isinstance(item, bytes) else str(item))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"text {number} of input '{name}' is not valid UTF-8: {error.reason} at byte {error.start}"
            ) from None
    return texts

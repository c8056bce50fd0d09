"""Runs inside tritonserver: texts → what the model takes, either the tensors of a transformer (input_ids,
attention_mask …) or ``trb_tokens``, the ids alone, from which the model's graph derives the rest.

Copied byte for byte to ``<model>/1/model.py``. What varies comes from config.pbtxt: the inputs (one text, a
pair of texts, or a text and its labels), the outputs and their types, and the parameters:

- ``max_length`` (0: no limit), ``truncation`` (which text of a pair is cut), ``stride`` (tokens shared by
  neighbouring chunks of a long second text; without it there is one chunk), ``pad_id``, ``pad_to`` (0: to the
  longest row of the request; with ``pad_together`` to the longest of all requests of the batch, so that all
  have one shape and the model's batcher joins them);
- ``row_length`` (0: none): each chunk gets as many tokens, filled up with ``pad_id``;
- ``truncation_side`` (``left`` keeps the end of a long text) and ``positions_from_pad`` (``true``: position
  ids count from ``pad_id`` + 1 and skip padding, as RoBERTa's do);
- ``split_special_tokens`` (``true``: special tokens that are written in a text are text like any other);
- ``prompt``: put before every text;
- ``hypothesis``: a sentence with ``{}``; the last input is then a list of labels for each text, or image;
- ``spans`` (``tokens`` or ``words``): offsets of each token in its text, for ``trb_spans``;
- ``most_rows``: limit of chunks for one row of a request (0: none);
- ``max_text_bytes``: limit of bytes for one text; a request may have eight times as many (``long_texts.py``);
- ``most_tokens``: a text of more is refused, for its run would take more memory than there is (0: none is);
- ``vocabulary``: rows of the embedding (0: all tokens have one); a text with a token beyond is refused;
- ``required_id`` and ``required_token``: a text without this token is refused; ``unk_id``, ``cls_id``;
  ``no_empty``: empty texts are refused;
- ``unknown_id``: token of text that is not in the vocabulary, for the metrics (-1: none);
- ``answers_model`` and ``answers``: the model behind this one and its outputs to count by sample
  (``answer_metrics.py``);
- ``cache``: encodings kept of so many texts (``token_cache.py``; 0: none).

A row of a request is encoded to one chunk or more: one for each label, or for each piece of a long text.

Needs only numpy, ``tokenizers``, which is in ``vendor/`` beside this file, ``long_texts.py``, ``metrics.py``
and ``spans.py`` there and, for a cache, ``token_cache.py``.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).resolve().parent

TOKENS, TYPES, OFFSETS = "trb_tokens", "trb_types", "trb_spans"
PAD, CHUNK_SEPARATOR = -1, -2
"""No token has these ids. PAD ends the shorter rows of ``trb_tokens`` if a request has several;
CHUNK_SEPARATOR stands between the chunks of one row."""
MOST_BYTES = 1 << 20
"""Of one text, unless ``max_text_bytes`` says otherwise."""
TEXTS = 8
"""Largest texts that one request may have."""
PARALLELISM = "TOKENIZERS_PARALLELISM"
"""Read by the library at each call: whether its threads share the texts."""
WORTH_THREADS = 4096
"""Characters of a batch. For fewer, waking the threads costs more than they save; on busy cores they wait for
their turn longer than the work takes."""


class TokenKind:
    """Third column of ``trb_spans``. Not an IntEnum: numpy takes twice as long to read a list of these."""

    PLAIN = 0
    """A token of the text."""
    SUBWORD = 1
    """With ``tokens``: it continues a word."""
    WORDLESS = 1
    """With ``words``: it is outside of any word."""
    NO_TEXT = -1
    """Not part of the text."""


class Refused(ValueError):
    """Why a request is refused: for its sender, and in a word for the metrics."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class Item:
    """One request: what is to be encoded, then the encodings, or the error that answers it."""

    rows: list[list[Any]] = field(default_factory=list)
    """Per row of the request its texts, or pairs of texts."""
    chunks: list[list[Any]] = field(default_factory=list)
    """Per row of the request its encodings."""
    refused: Refused | None = None
    unknown: int = 0
    """Unknown tokens."""


class Counts:
    """The numbers of one instance for the metrics page: docs/metrics.md."""

    def __init__(self, module: Any, args: dict[str, str]) -> None:
        self.metrics = metrics = module.Metrics(args)
        metrics.reference()
        self.text = metrics.counter("trb_texts_total", "Texts, or pairs of texts, that became tokens")
        self.token = metrics.counter("trb_tokens_total", "Tokens of these texts")
        self.unknown = metrics.counter("trb_unknown_tokens_total", "Tokens of text outside of the vocabulary")
        self.truncated = metrics.counter("trb_truncated_texts_total", "Texts that were cut to fit the model")
        self.refused = metrics.labelled(
            "trb_refused_texts_total", "Texts because of which a request was refused", "reason"
        )
        self.length = metrics.histogram("trb_text_tokens", "Tokens of a text", module.TEXT_TOKENS)
        self.rows = metrics.rows()
        self.tokenize, self.write = metrics.phase("tokenize"), metrics.phase("write")

    def cache(self) -> tuple[Any, Any]:
        """Counters of hits and misses."""
        hits = self.metrics.counter("trb_token_cache_hits_total", "Texts whose tokens the cache held")
        return hits, self.metrics.counter("trb_token_cache_misses_total", "Texts that the cache did not hold")

    def execution(self, items: list[Item], strided: bool, limit: int) -> None:
        """Add one execution; ``strided``: the pieces of a row are one text."""
        rows, truncated = 0, 0
        lengths: list[int] = []
        for item in items:
            if item.refused is not None:
                self.refused(item.refused.reason)
                continue
            rows += len(item.rows)
            for row in item.chunks:
                lengths += [sum(map(len, row))] if strided else map(len, row)
                if limit and not strided:
                    truncated += sum(len(piece) >= limit and bool(piece.overflowing) for piece in row)
        for length in lengths:
            self.length(length)
        self.text(len(lengths))
        self.token(sum(lengths))
        self.unknown(sum(item.unknown for item in items))
        self.truncated(truncated)
        if rows:
            self.rows(rows)


class TritonPythonModel:
    """One instance: one tokenizer, one call of it for all requests of an execute."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and switch off whatever padding and truncation it was saved with."""
        config = json.loads(args["model_config"])
        self.broken = False
        # The library's threads are per process: with several instances they would only compete.
        alone = sum(group.get("count", 1) for group in config.get("instance_group", [])) <= 1
        self.threads = alone and PARALLELISM not in os.environ
        os.environ.setdefault(PARALLELISM, "false")
        if (HERE / "vendor").is_dir():
            sys.path.insert(0, str(HERE / "vendor"))
        from tokenizers import Tokenizer

        parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        self.pad_id = int(parameters.get("pad_id", "0"))
        self.pad_to = int(parameters.get("pad_to", "0"))
        self.row_length = int(parameters.get("row_length", "0"))
        self.pad_together = parameters.get("pad_together") == "true"
        self.positions_from_pad = parameters.get("positions_from_pad") == "true"
        self.stride = int(parameters.get("stride", "0"))
        self.prompt = parameters.get("prompt", "")
        self.hypothesis = parameters.get("hypothesis", "")
        self.spans = parameters.get("spans", "")
        self.max_chunks = int(parameters.get("most_rows", "0"))
        self.vocabulary = int(parameters.get("vocabulary", "0"))
        self.most_tokens = int(parameters.get("most_tokens", "0"))
        self.required_id = int(parameters.get("required_id", "-1"))
        self.required_token = parameters.get("required_token", "")
        self.unk_id = int(parameters.get("unk_id", "-1"))
        self.unknown_id = int(parameters.get("unknown_id", "-1"))
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
        self.tokenizer.encode_special_tokens = parameters.get("split_special_tokens", "") == "true"
        self.max_length = int(parameters.get("max_length", "0"))
        self.truncation = {
            "stride": self.stride,
            "strategy": parameters.get("truncation", "longest_first"),
            "direction": parameters.get("truncation_side", "right"),
        }
        if self.max_length:
            self.tokenizer.enable_truncation(self.max_length, **self.truncation)
        self.max_text_bytes = int(parameters.get("max_text_bytes", MOST_BYTES))
        self.long_texts = beside("long_texts")
        self.shortener = self.long_texts.Shortener(
            self.tokenizer, self.max_length, self.truncation, self.max_chunks, bool(self.spans)
        )
        metrics = beside("metrics")
        self.counts = Counts(metrics, args)
        self.sample = (
            beside("answer_metrics").AnswerSample(metrics.Metrics, args)
            if "answers_model" in parameters
            else None
        )
        most = int(parameters.get("cache", "0"))
        self.encodings = (
            beside("token_cache").TokenCache(self.encode, most, *self.counts.cache()) if most else self.encode
        )
        spans = beside("spans")
        self.steps, self.busy = spans.Steps(args), spans.Busy()
        # Only the tokens of such a tokenizer show where a word begins (as transformers decides it).
        self.marks_subwords = bool(getattr(self.tokenizer.model, "continuing_subword_prefix", None))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request; one that cannot be read fails alone."""
        with self.busy:
            return self.respond_all(requests)

    def respond_all(self, requests: list[Any]) -> list[Any]:
        """The responses, in the order of the requests."""
        start, end = perf_counter(), self.steps.begin(requests)
        items = [self.parse_request(request) for request in requests]
        texts = [text for item in items for row in item.rows for text in row]
        encodings = iter(self.encodings(texts))
        for item in items:
            self.collect_chunks(item, encodings)
        tokenized = perf_counter()
        end("tokenize", texts=len(texts))
        width = 0
        if self.pad_together:
            width = max((self.width(item.chunks) for item in items if item.refused is None), default=0)
        responses = [self.build_response(item, width) for item in items]
        end("write")
        self.counts.execution(items, self.stride > 0, self.max_length)
        self.counts.tokenize(tokenized - start)
        self.counts.write(perf_counter() - tokenized)
        if self.sample is not None:
            self.sample.offer(responses)
        return responses

    def is_ready(self) -> bool:
        """Answer the server's readiness check, which Triton 26.03 and later ask.

        False while stuck, and if a panic of the library left it unable to encode anything.
        """
        return not (self.busy.stuck or self.broken)

    def finalize(self) -> None:
        """Deliver the last numbers and spans."""
        if self.sample is not None:
            self.sample.close()
        self.counts.metrics.close()
        self.steps.close()

    def parse_request(self, request: Any) -> Item:
        """The texts of a request, or its error."""
        try:
            return Item(rows=self.texts(request))
        except Refused as error:
            return Item(refused=error)
        except ValueError as error:
            return Item(refused=Refused(str(error), "other"))

    def texts(self, request: Any) -> list[list[Any]]:
        """Per row of a request what is to be encoded: texts, or pairs of them."""
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        for name, raw in tensors.items():
            try:
                self.long_texts.refuse_large(raw, name, self.max_text_bytes, TEXTS * self.max_text_bytes)
            except ValueError as error:
                raise Refused(str(error), "too_long") from None
        first, second = self.inputs[0], self.inputs[-1]
        if self.hypothesis and first == second:
            return self.hypotheses([""] * len(tensors[first]), decode(tensors[first], first))
        texts = decode(tensors[first], first)
        if self.no_empty:
            self.refuse_empty(texts, first)
        if second == first or second not in tensors:
            return [[self.prompt + text] for text in texts]
        others = decode(tensors[second], second)
        if self.no_empty:
            self.refuse_empty(others, second)
        if self.hypothesis:
            return self.hypotheses(texts, others)
        pairs = zip(texts, others, strict=True)
        # transformers' text-classification treats an empty second text as none.
        return [[text if second == "TEXT_PAIR" and not other else (text, other)] for text, other in pairs]

    def hypotheses(self, texts: list[str], labels: list[str]) -> list[list[Any]]:
        """Per text a pair with each of its labels; the labels alone if they are the only input."""
        each = len(labels) // len(texts) if texts else 0
        rows = []
        for number, text in enumerate(texts):
            # An empty label only fills the row of a text that has fewer of them than its neighbours.
            own = [label for label in labels[number * each : (number + 1) * each] if label]
            if not own:
                raise Refused(f"row {number} of input '{self.inputs[-1]}' has no label", "no_label")
            # Before they are encoded: each costs a run of the tokenizer over the whole text.
            if refused := self.too_many_chunks(number, len(own)):
                raise refused
            sentences = [self.hypothesis.format(label) for label in own]
            rows.append([(text, s) for s in sentences] if len(self.inputs) > 1 else sentences)
        return rows

    def refuse_empty(self, texts: list[str], name: str) -> None:
        """``Refused`` for an empty text."""
        if "" in texts:
            raise Refused(f"text {texts.index('')} of input '{name}' is empty", "empty")

    def too_many_chunks(self, number: int, count: int) -> Refused | None:
        """Why a row of ``count`` chunks is refused; None if it is not."""
        if not 0 < self.max_chunks < count:
            return None
        return Refused(
            f"row {number} of input '{self.inputs[-1]}' makes at least {count} rows of the model, "
            f"{self.max_chunks} is the most (parameter most_rows in the tokenizer's config.pbtxt): "
            "send less in one row, or build with --most-rows",
            "too_many_rows",
        )

    def encode(self, texts: list[Any]) -> list[Any]:
        """All texts in one call; if that fails, one by one, with an exception for each bad text."""
        try:
            return self.encode_batch(texts)
        except BaseException as error:
            reraise_if_fatal(error)
            return [self.encode_one(text) for text in texts]

    def encode_one(self, text: Any) -> Any:
        """The encoding, or the exception that this text causes."""
        try:
            return self.encode_batch([text])[0]
        except BaseException as error:
            reraise_if_fatal(error)
            if not isinstance(error, Exception):
                self.broken = not self.encodes()
            return ValueError(str(error))

    def encodes(self) -> bool:
        """Whether the library still takes an ordinary text: a panic may leave a lock that nobody can take.

        Tried here, not in ``is_ready``, which runs beside ``execute``: texts change the tokenizer's settings.
        """
        try:
            self.tokenizer.encode_batch_fast(["ready"])
        except Exception:  # an error of this text, not of the library
            return True
        except BaseException as error:
            reraise_if_fatal(error)
            return False
        return True

    def encode_batch(self, texts: list[Any]) -> list[Any]:
        """The library's call: the fast one gives no offsets."""
        texts = [self.shortener(text) for text in texts]
        if self.threads:
            characters = sum(len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts)
            os.environ[PARALLELISM] = "false" if characters < WORTH_THREADS else "true"
        if self.spans:
            return list(self.tokenizer.encode_batch(texts))
        return list(self.tokenizer.encode_batch_fast(texts))

    def collect_chunks(self, item: Item, encodings: Iterator[Any]) -> None:
        """Take the item's encodings, and with a stride all pieces of a long text; or set its error."""
        rows = [list(islice(encodings, len(row))) for row in item.rows]
        for number, row in enumerate(rows):
            refused = self.encoding_problem(number, row)
            if refused is None:
                chunks = [piece for one in row for piece in (one, *one.overflowing)] if self.stride else row
                refused = self.too_many_chunks(number, len(chunks))
            if refused is not None:
                item.refused = refused
                return
            item.chunks.append(chunks)

    def encoding_problem(self, number: int, encodings: list[Any]) -> Refused | None:
        """Why a row cannot be answered; None if it can."""
        for encoding in encodings:
            if isinstance(encoding, Exception):
                names = " and ".join(f"'{name}'" for name in self.inputs)
                # The library's words for it: truncation that cannot reach, or a stride beyond what is left.
                short = "too short" in str(encoding) or "stride" in str(encoding)
                why = (
                    f"what is never cut of it leaves no room within {self.max_length} tokens"
                    if short
                    else encoding
                )
                message = f"text {number} of input {names} cannot be tokenized: {why}"
                return Refused(message, "too_long" if short else "not_tokenizable")
            if 0 < self.most_tokens < len(encoding.ids):
                names = " and ".join(f"'{name}'" for name in self.inputs)
                return Refused(
                    f"text {number} of input {names} has {len(encoding.ids)} tokens, and there is memory for "
                    f"{self.most_tokens} (parameter most_tokens in the tokenizer's config.pbtxt)",
                    "too_long",
                )
            if self.vocabulary and (problem := self.beyond_vocabulary(number, encoding)):
                return Refused(problem, "vocabulary")
            if self.required_id >= 0 and self.required_id not in encoding.ids:
                return Refused(
                    f"text {number} of input '{self.inputs[0]}' has no {self.required_token} "
                    "within the tokens that the model takes",
                    "mask_missing",
                )
        return None

    def beyond_vocabulary(self, number: int, encoding: Any) -> str:
        """The problem of a text that spells a token for which the model has no row; empty if it has none."""
        for piece in (encoding, *(encoding.overflowing if self.stride else ())):
            if (largest := max(piece.ids, default=0)) >= self.vocabulary:
                token = self.tokenizer.id_to_token(largest)
                names = " and ".join(f"'{name}'" for name in self.inputs)
                return f"text {number} of input {names} has the token {token}, which the model does not know"
        return ""

    def width(self, rows: list[list[Any]]) -> int:
        """Tokens of a request's longest row, or ``pad_to``.

        A model cannot run on no tokens at all: a text without any becomes one masked token.
        """
        least = self.row_length
        longest = max((sum(max(len(chunk), least) + 1 for chunk in row) - 1 for row in rows), default=1)
        return self.pad_to or max(1, longest)

    def build_response(self, item: Item, shared_width: int) -> Any:
        """The answer to one request, padded to its longest row, or to the width of all requests."""
        if item.refused is not None:
            error = pb_utils.TritonError(str(item.refused), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        ids = [join([self.filled(chunk.ids) for chunk in row], CHUNK_SEPARATOR) for row in item.chunks]
        if self.unknown_id >= 0:
            item.unknown = sum(row.count(self.unknown_id) for row in ids)
        width = shared_width or self.width(item.chunks)
        tensors = []
        for name, dtype in self.outputs:
            values = (
                self.offset_tensor(item, width, dtype)
                if name == OFFSETS
                else self.token_tensor(name, item.chunks, ids, width, dtype)
            )
            tensors.append(pb_utils.Tensor(name, values))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def filled(self, ids: list[int]) -> list[int]:
        """The tokens of a chunk, and pad ids up to ``row_length``."""
        return [*ids, *[self.pad_id] * (self.row_length - len(ids))] if self.row_length else ids

    def token_tensor(
        self, name: str, rows: list[list[Any]], ids: list[list[int]], width: int, dtype: Any
    ) -> Any:
        """One output, [rows, width]."""
        pad = {"input_ids": self.pad_id, TOKENS: PAD}.get(name, 0)
        if len(ids) == 1 and len(ids[0]) == width and name in ("input_ids", TOKENS):
            return np.array(ids, dtype=dtype)
        values = np.full((len(ids), width), pad, dtype=dtype)
        for number, row in enumerate(ids):
            if name in ("input_ids", TOKENS):
                values[number, : len(row)] = row
            elif name == "attention_mask":
                values[number, : len(row)] = 1
            elif name in ("token_type_ids", TYPES):
                values[number, : len(row)] = join([chunk.type_ids for chunk in rows[number]], 0)
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

    def offset_tensor(self, item: Item, width: int, dtype: Any) -> Any:
        """``trb_spans``, [rows, width, 3]: first character, end (exclusive), and the ``TokenKind``.

        With ``words`` the characters are those of the word, and two more columns have the token's own.
        """
        columns = 5 if self.spans == "words" else 3
        values = np.zeros((len(item.chunks), width, columns), dtype=dtype)
        values[:, :, 2] = PAD
        for number, (chunks, texts) in enumerate(zip(item.chunks, item.rows, strict=True)):
            offsets: list[list[int]] = []
            for chunk in chunks:
                offsets += [[0, 0, CHUNK_SEPARATOR, 0, 0][:columns]] if offsets else []
                words = self.spans == "words"
                offsets += self.word_offsets(chunk) if words else self.token_offsets(chunk, texts[0])
            if offsets:
                values[number, : len(offsets)] = offsets
        return values

    def token_offsets(self, chunk: Any, text: str) -> list[list[int]]:
        """Each token's own characters; whether it continues a word is decided as in transformers."""
        offsets = []
        for token, number, special, (start, end) in zip(
            chunk.tokens, chunk.ids, chunk.special_tokens_mask, chunk.offsets, strict=True
        ):
            if self.marks_subwords:
                inner = len(token) != end - start
            else:
                inner = start > 0 and " " not in text[start - 1 : start + 1]
            kind = TokenKind.SUBWORD if inner and number != self.unk_id else TokenKind.PLAIN
            offsets.append([start, end, TokenKind.NO_TEXT if special else kind])
        return offsets

    def word_offsets(self, chunk: Any) -> list[list[int]]:
        """The word's and the token's own characters of each token that may be in an answer.

        The first token stays a candidate as in transformers: models point to it for "no answer".
        """
        offsets = []
        known: dict[Any, Any] = {None: None}
        for word, sequence, number, own in zip(
            chunk.word_ids, chunk.sequence_ids, chunk.ids, chunk.offsets, strict=True
        ):
            if sequence != 1 and number != self.cls_id:
                offsets.append([*own, TokenKind.NO_TEXT, *own])
                continue
            if word not in known:
                known[word] = chunk.word_to_chars(word, 1)
            kind = TokenKind.PLAIN if known[word] else TokenKind.WORDLESS
            offsets.append([*(known[word] or own), kind, *own])
        return offsets


def beside(name: str) -> Any:
    """The module of that name in this folder."""
    spec = importlib.util.spec_from_file_location(f"trb_{name}", HERE / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"no {name}.py in {HERE}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def join(parts: list[list[int]], separator: int) -> list[int]:
    """The parts in one list."""
    if len(parts) == 1:
        return parts[0]
    whole: list[int] = []
    for number, part in enumerate(parts):
        whole += [separator, *part] if number else part
    return whole


def reraise_if_fatal(error: BaseException) -> None:
    """A panic of the Rust library is no ``Exception``; what must end the process is raised again."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error


def decode(raw: Any, name: str) -> list[str]:
    """The texts of one input; ``Refused`` names the one that is not UTF-8."""
    texts = []
    for number, item in enumerate(raw.reshape(-1)):
        try:
            texts.append(item.decode("utf-8") if isinstance(item, bytes) else str(item))
        except UnicodeDecodeError as error:
            problem = f"is not valid UTF-8: {error.reason} at byte {error.start}"
            raise Refused(f"text {number} of input '{name}' {problem}", "not_utf8") from None
    return texts

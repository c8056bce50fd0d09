"""Runs inside tritonserver: TEXT → what the model takes, either the tensors of a transformer (input_ids,
attention_mask …) or ``trb_tokens``, the ids alone, from which the model's graph derives the rest.

Copied byte for byte to ``<model>/1/model.py``. What varies comes from config.pbtxt: the outputs and their
types, and the parameters ``max_length`` (0: no limit), ``pad_id``, ``pad_to`` (0: to the longest row of the
request), ``truncation_side`` (``left`` keeps the end of a long text) and ``positions_from_pad`` (``true``:
position ids count from ``pad_id`` + 1 and skip padding, as RoBERTa's do). Needs only numpy and
``tokenizers``, which lies in ``vendor/`` beside this file.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).resolve().parent

TOKENS, TYPES = "trb_tokens", "trb_types"
FILLER = -1
"""Ends the shorter rows of ``trb_tokens`` where a request has several: no token has this id."""


class TritonPythonModel:
    """One instance: one tokenizer, one ``encode_batch`` for all requests of an execute."""

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
        self.positions_from_pad = parameters.get("positions_from_pad") == "true"
        self.outputs = [
            (output["name"], pb_utils.triton_string_to_numpy(output["data_type"]))
            for output in config["output"]
        ]
        self.batched = config.get("max_batch_size", 0) > 0
        self.tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        max_length = int(parameters.get("max_length", "0"))
        if max_length:
            side = parameters.get("truncation_side", "right")
            self.tokenizer.enable_truncation(max_length, direction=side)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request; one that cannot be read fails alone."""
        texts: list[str] = []
        spans: list[Any] = []
        for request in requests:
            try:
                mine = decode(request.inputs()[0].as_numpy())  # the only input is TEXT
            except ValueError as error:
                spans.append(pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
                continue
            spans.append(slice(len(texts), len(texts) + len(mine)))
            texts.extend(mine)
        encodings = self.encode(texts)
        return [self.respond(span, encodings) for span in spans]

    def encode(self, texts: list[str]) -> list[Any]:
        """All texts in one call; one by one only if that fails, so that a bad text is found."""
        try:
            return list(self.tokenizer.encode_batch_fast(texts))
        except BaseException as error:
            ours(error)
            return [self.encode_one(text) for text in texts]

    def encode_one(self, text: str) -> Any:
        """The encoding, or the exception that this text causes."""
        try:
            return self.tokenizer.encode_batch_fast([text])[0]
        except BaseException as error:
            ours(error)
            return ValueError(str(error))

    def respond(self, span: Any, encodings: list[Any]) -> Any:
        """The rows of one request, padded to its longest row or to ``pad_to``."""
        if not isinstance(span, slice):
            return pb_utils.InferenceResponse(error=span)
        rows = encodings[span]
        for number, row in enumerate(rows):
            if isinstance(row, Exception):
                message = f"text {number} of input 'TEXT' cannot be tokenized: {row}"
                error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
                return pb_utils.InferenceResponse(error=error)
        ids = [row.ids for row in rows]
        # A model cannot run on no tokens at all: a text without any becomes one masked token.
        width = self.pad_to or max(1, *map(len, ids)) if ids else 1
        tensors = []
        for name, dtype in self.outputs:
            tensors.append(pb_utils.Tensor(name, self.rows(name, rows, ids, width, dtype)))
        return pb_utils.InferenceResponse(output_tensors=tensors)

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
                values[number, : len(row)] = rows[number].type_ids
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


def ours(error: BaseException) -> None:
    """A panic of the Rust library is no ``Exception``; what must end the process is raised again."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error


def decode(raw: Any) -> list[str]:
    """The texts of one request; ValueError names the one that is not UTF-8."""
    texts = []
    for number, item in enumerate(raw.reshape(-1)):
        try:
            texts.append(item.decode("utf-8") if isinstance(item, bytes) else str(item))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"text {number} of input 'TEXT' is not valid UTF-8: {error.reason} at byte {error.start}"
            ) from None
    return texts

"""Models of a few words, for pages that show an answer of a task: every word has its own logits.

The graphs are real ONNX files with the usual inputs, the tokenizers real tokenizer.json files, so everything
that ``trb`` does is seen on them. Their knowledge is the table of words alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
Rows = Mapping[str, Sequence[float]]
PER_TOKEN = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "example">
words (int64[batch, tokens] input_ids, int64[batch, tokens] attention_mask,
       int64[batch, tokens] token_type_ids)
  => (float[batch, tokens, {width}] logits)
{{
    each = Gather (weights, input_ids)
    mask = Cast <to = 1> (attention_mask)
    last = Constant <value = int64[1] {{-1}}> ()
    column = Unsqueeze (mask, last)
    types = Cast <to = 1> (token_type_ids)
    zero = Constant <value = float {{0.0}}> ()
    none = Mul (types, zero)
    nothing = Unsqueeze (none, last)
    seen = Mul (each, column)
    logits = Add (seen, nothing)
}}
"""
SUMMED = PER_TOKEN.replace("float[batch, tokens, {width}]", "float[batch, {width}]").replace(
    "    logits = Add (seen, nothing)\n",
    "    all = Add (seen, nothing)\n    axis = Constant <value = int64[1] {{1}}> ()\n"
    "    logits = ReduceSum <keepdims = 0> (all, axis)\n",
)
SPANS = (
    PER_TOKEN.replace(
        "(float[batch, tokens, {width}] logits)",
        "(float[batch, tokens] start_logits, float[batch, tokens] end_logits)",
    )
    .replace(
        "    logits = Add (seen, nothing)\n",
        "    all = Add (seen, nothing)\n    start, end = Split <axis = -1, num_outputs = 2> (all)\n"
        "    start_logits = Squeeze (start, last)\n    end_logits = Squeeze (end, last)\n",
    )
    .replace('"" : 17', '"" : 18')
)


def write(
    folder: Path, graph: str, words: Rows, labels: Sequence[str], architecture: str, **config: object
) -> None:
    """The folder that an exporter would write."""
    folder.mkdir(parents=True, exist_ok=True)
    width = len(next(iter(words.values())))
    table = {**dict.fromkeys(SPECIAL, [0.0] * width), **words}
    model = onnx.parser.parse_model(graph.format(width=width))
    model.graph.initializer.append(
        numpy_helper.from_array(np.array([*table.values()], np.float32), "weights")
    )
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    vocabulary = {word: number for number, word in enumerate(table)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    named = dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True)
    )
    settings = {"tokenizer_class": "BertTokenizerFast", "model_max_length": 64, **named}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    about = {"architectures": [architecture], "model_type": "bert", "vocab_size": len(table), **config}
    if labels:
        about["id2label"] = {str(number): label for number, label in enumerate(labels)}
    (folder / "config.json").write_text(json.dumps(about))


def mask(word: str, scores: Mapping[str, float], words: Sequence[str]) -> Rows:
    """Logits over the whole vocabulary, for the place of ``word``."""
    names = (*SPECIAL, *words)
    row = [scores.get(name, -9.0) for name in names]
    return {**{name: [0.0] * len(names) for name in words}, word: row}


SKY = ("the", "sky", "is", *"abcdefghijkl", "blue", "red", "green")
MAKERS: Mapping[str, Callable[[Path], None]] = {
    "words/ner": partial(
        write,
        graph=PER_TOKEN,
        words={"anna": [0, 6, 0], "lives": [5, 0, 0], "in": [5, 0, 0], "berlin": [0, 0, 7], ".": [5, 0, 0]},
        labels=("O", "B-PER", "B-LOC"),
        architecture="BertForTokenClassification",
    ),
    "words/nli": partial(
        write,
        graph=SUMMED,
        words={"match": [0, 0, 0], "sports": [-1, 0, 3], "politics": [1, 0, 0], "cooking": [1.5, 0, -0.5]},
        labels=("contradiction", "neutral", "entailment"),
        architecture="BertForSequenceClassification",
        label2id={"contradiction": 0, "neutral": 1, "entailment": 2},
    ),
    "words/squad": partial(
        write,
        graph=SPANS,
        words={
            "anna": [1, 1],
            "has": [0, 0],
            "lived": [0, 0],
            "in": [1, 0],
            "berlin": [7, 7],
            "since": [0, 1],
        },
        labels=(),
        architecture="BertForQuestionAnswering",
    ),
    "words/mlm": partial(
        write,
        graph=PER_TOKEN,
        words=mask("[MASK]", {"blue": 6.0, "green": 4.5, "red": 4.0}, SKY),
        labels=(),
        architecture="BertForMaskedLM",
    ),
    "words/rerank": partial(
        write,
        graph=SUMMED,
        words={"reset": [1.0], "password": [1.0], "we": [-1.5], "invoices": [-2.0], "by": [-0.5]},
        labels=("relevant",),
        architecture="BertForSequenceClassification",
    ),
}

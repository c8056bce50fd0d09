"""A text classifier small enough to read: writes a folder as an exporter would.

    python examples/sentiment/make_model.py FOLDER
    trb build --model FOLDER --name sentiment

Every word has a weight per label, a text's logits are the sum over its words. The file is a real ONNX
model with the usual inputs and a real tokenizer.json, so everything ``trb`` does can be seen on it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = {  # word: (weight of negative, weight of positive)
    "[PAD]": (0, 0), "[UNK]": (0.1, 0.1), "good": (-2, 2), "great": (-3, 3), "love": (-3, 3), "nice": (-1, 1),
    "bad": (2, -2), "awful": (3, -3), "hate": (3, -3), "slow": (1, -1), "not": (1, -0.5), "very": (0.2, 0.2),
}  # fmt: skip

GRAPH = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "example">
sentiment (int64[batch, tokens] input_ids, int64[batch, tokens] attention_mask)
  => (float[batch, 2] logits)
{
    each = Gather (weights, input_ids)
    mask = Cast <to = 1> (attention_mask)
    last = Constant <value = int64[1] {-1}> ()
    column = Unsqueeze (mask, last)
    seen = Mul (each, column)
    axis = Constant <value = int64[1] {1}> ()
    logits = ReduceSum <keepdims = 0> (seen, axis)
}
"""


def main(folder: Path) -> None:
    """Write model.onnx, tokenizer.json, tokenizer_config.json and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.parser.parse_model(GRAPH)
    weights = np.array(list(WORDS.values()), dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "weights"))
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]",
                "model_max_length": 64}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = {"architectures": ["ExampleForSequenceClassification"], "vocab_size": len(WORDS),
              "id2label": {"0": "negative", "1": "positive"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A sentence-transformers model like all-MiniLM-L6-v2 and as small as a picture: its tokenizer, cut."""

from __future__ import annotations

import json
import shutil
import string
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertConfig, BertModel

SIZE = 700
SPECIAL = ("[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HIDDEN = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
SPREAD = 0.177
"""Standard deviation of weights that keeps the variance: different texts then give different answers."""


def cut(source: Path, target: Path, texts: Iterable[str]) -> None:
    """The folder's tokenizer with ``SIZE`` tokens: the special ones, ASCII, then the texts' most frequent."""
    whole = Tokenizer.from_file(str(source / "tokenizer.json"))
    whole.no_padding()
    whole.no_truncation()
    known = whole.get_vocab()
    counts = Counter(token for text in texts for token in whole.encode(text, add_special_tokens=False).tokens)
    ascii_characters = [c for c in string.printable if c in known]
    order = [*SPECIAL, *ascii_characters, *(f"##{c}" for c in ascii_characters if f"##{c}" in known)]
    order += [token for token, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    vocabulary = {token: number for number, token in enumerate(list(dict.fromkeys(order))[:SIZE])}
    document = json.loads((source / "tokenizer.json").read_text())
    document["model"]["vocab"] = vocabulary
    for token in document["added_tokens"]:
        token["id"] = vocabulary[token["content"]]
    for name, token in document["post_processor"].get("special_tokens", {}).items():
        token["ids"] = [vocabulary[name]]
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False))
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings.pop("added_tokens_decoder", None)
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
    (target / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    shutil.copyfile(source / "special_tokens_map.json", target / "special_tokens_map.json")


def embedder(source: Path, target: Path, texts: Iterable[str]) -> Path:
    """A folder with the modules of all-MiniLM-L6-v2 around a BERT of 2 layers."""
    cut(source, target, texts)
    torch.manual_seed(3)
    size = len(AutoTokenizer.from_pretrained(target))
    config = BertConfig(vocab_size=size, initializer_range=SPREAD, **HIDDEN)
    BertModel(config, add_pooling_layer=False).eval().save_pretrained(target)
    for name in ("modules.json", "sentence_bert_config.json"):
        shutil.copyfile(source / name, target / name)
    (target / "1_Pooling").mkdir()
    pooling = json.loads((source / "1_Pooling" / "config.json").read_text())
    pooling["word_embedding_dimension"] = HIDDEN["hidden_size"]
    (target / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return target


def rounded(value: Any) -> Any:
    """Numbers to six places: a hundredth of what the tests allow, and half the bytes."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value

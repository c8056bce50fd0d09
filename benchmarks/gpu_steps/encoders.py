"""Encoders of any size with random weights, written without torch.

BERT's arithmetic operator by operator, as an exporter leaves it: what a step measures depends on the shapes
and not on what the weights mean. The tokenizer and the pooling are those of a folder that is there.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gpu_steps.step import ROOT, Setting

TINY = ROOT / "tests" / "data" / "models" / "embedding" / "minilm_fp32"
MINILM = ROOT / ".cache" / "exports" / "minilm_pooled"
"""all-MiniLM-L6-v2, as the other scripts export it and ``gpu.py prepare`` packs it."""
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
POSITIONS = 512


@dataclass(frozen=True, kw_only=True)
class Size:
    """An encoder's shape."""

    layers: int
    hidden: int
    heads: int
    inner: int


SIZES = {
    "small": Size(layers=2, hidden=32, heads=4, inner=64),
    "minilm": Size(layers=6, hidden=384, heads=12, inner=1536),
    "arctic-m": Size(layers=12, hidden=768, heads=12, inner=3072),
    "large": Size(layers=24, hidden=1024, heads=16, inner=4096),
}
"""``arctic-m`` is BERT-base, as snowflake-arctic-embed-m-v1.5 is; ``large`` is BERT-large, 1.3 GB."""


def tokenizer_folder(small: bool) -> Path:
    """all-MiniLM-L6-v2's if it was packed or exported, else the tests' of 540 words."""
    return TINY if small or not (MINILM / "tokenizer.json").is_file() else MINILM


def encoder(name: str, setting: Setting) -> Path:
    """The exported folder, made if it is not there yet; the smallest one for a small run."""
    chosen = "small" if setting.small else name
    tokenizer = tokenizer_folder(setting.small)
    folder = setting.cache / f"{chosen}-{tokenizer.name}"
    if not (folder / "config.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        vocabulary = len(json.loads((tokenizer / "tokenizer.json").read_text())["model"]["vocab"])
        onnx.save(graph(SIZES[chosen], vocabulary), folder / "model.onnx")
        for file in FILES:
            shutil.copyfile(tokenizer / file, folder / file)
        # Written last: it says that the folder is whole.
        (folder / "config.json").write_text(json.dumps(config(SIZES[chosen], vocabulary), indent=1))
    return folder


def minilm(setting: Setting) -> Path:
    """all-MiniLM-L6-v2 itself where it is, else its shape with random weights."""
    real = not setting.small and (MINILM / "model.onnx").is_file()
    return MINILM if real else encoder("minilm", setting)


def config(size: Size, vocabulary: int) -> dict[str, Any]:
    """What transformers would write beside it."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "intermediate_size": size.inner,
        "max_position_embeddings": POSITIONS,
        "vocab_size": vocabulary,
        "pad_token_id": 0,
    }


def graph(size: Size, vocabulary: int) -> onnx.ModelProto:
    """input_ids and attention_mask in; token_embeddings and sentence_embedding, mean over tokens, out."""
    made = _Graph()
    half = size.hidden // size.heads
    words = made.op("Gather", made.random("word_embeddings", vocabulary, size.hidden), "input_ids")
    length = made.op("Gather", made.op("Shape", "input_ids"), made.constant(np.int64(1)))
    steps = made.op("Range", made.constant(np.int64(0)), length, made.constant(np.int64(1)))
    places = made.op("Gather", made.random("position_embeddings", POSITIONS, size.hidden), steps)
    state = made.norm(made.op("Add", words, places), size.hidden)
    mask = made.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    wide = made.op("Unsqueeze", mask, made.constant(np.array([1, 2])))
    away = made.op("Mul", made.op("Sub", made.float(1.0), wide), made.float(-1e4))
    split = made.constant(np.array([0, 0, size.heads, half]))
    joined = made.constant(np.array([0, 0, size.hidden]))
    for _ in range(size.layers):
        parts = [made.op("Reshape", made.dense(state, size.hidden, size.hidden), split) for _ in range(3)]
        query, value = (made.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (parts[0], parts[2]))
        key = made.op("Transpose", parts[1], perm=[0, 2, 3, 1])
        scores = made.op("Mul", made.op("MatMul", query, key), made.float(half**-0.5))
        weights = made.op("Softmax", made.op("Add", scores, away), axis=-1)
        mixed = made.op("Transpose", made.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        attended = made.dense(made.op("Reshape", mixed, joined), size.hidden, size.hidden)
        state = made.norm(made.op("Add", state, attended), size.hidden)
        inner = made.dense(state, size.hidden, size.inner)
        bent = made.op("Add", made.op("Erf", made.op("Mul", inner, made.float(2**-0.5))), made.float(1.0))
        active = made.op("Mul", made.op("Mul", inner, bent), made.float(0.5))
        state = made.norm(made.op("Add", state, made.dense(active, size.inner, size.hidden)), size.hidden)
    made.op("Identity", state, to_="token_embeddings")
    column = made.op("Unsqueeze", mask, made.constant(np.array([1])))
    total = made.op("Squeeze", made.op("MatMul", column, state), made.constant(np.array([1])))
    length = made.op("Sqrt", made.op("ReduceSum", made.op("Mul", total, total), made.constant(np.array([1]))))
    made.op("Div", total, length, to_="sentence_embedding")
    return made.model(size.hidden)


class _Graph:
    """Nodes and weights as they are added; every name is made here."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, to_: str = "", **attributes: Any) -> str:
        """Add an operator and return its output's name."""
        output = to_ or f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def float(self, value: float) -> str:
        return self.constant(np.float32(value))

    def random(self, name: str, *shape: int, scale: float = 0.05) -> str:
        values = self._random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        self._weights.append(numpy_helper.from_array(values, f"{name}_{len(self._weights)}"))
        return self._weights[-1].name

    def dense(self, state: str, width: int, out: int) -> str:
        product = self.op("MatMul", state, self.random("weight", width, out, scale=width**-0.5))
        return self.op("Add", product, self.random("bias", out))

    def norm(self, state: str, width: int) -> str:
        scale = self.constant(np.ones(width, np.float32))
        return self.op("LayerNormalization", state, scale, self.random("shift", width), epsilon=1e-12)

    def model(self, width: int) -> onnx.ModelProto:
        batch = ["batch", "sequence"]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, batch)
            for name in ("input_ids", "attention_mask")
        ]
        outputs = [
            helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, [*batch, width]),
            helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", width]),
        ]
        made = helper.make_graph(self._nodes, "encoder", inputs, outputs, self._weights)
        # As exporters of opset 17 write: the 1.19 of the release reads up to 10.
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

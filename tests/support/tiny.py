"""Tiny exports for tests, made in milliseconds: a BERT-like ONNX model, its tokenizer, their folder.

The model's answer to a row depends on every unmasked token of that row and on nothing else, so padding,
truncation and batching all show. Its table is large enough to be taken out of the skeleton.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tiny_onnx import FLOAT, INT64, node, tensor

from triton_repo_builder.model.read.option_checks import check
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build as builder
from triton_repo_builder.produce.build import Build
from triton_repo_builder.produce.write import publish
from triton_repo_builder.produce.write.publish import Publication

WIDTH = 8
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = (*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "hello", "the", "fox")
ROWS = 64
"""Rows of the embedding table: 64 * 8 floats are 2,048 bytes, more than the skeleton keeps inside."""

Sizes = Sequence[int | str]


def weights(*shape: int, seed: int = 0, dtype: int = FLOAT) -> np.ndarray[Any, Any]:
    """Repeatable random numbers."""
    values = np.random.default_rng(seed).normal(size=shape)
    return values.astype(helper.tensor_dtype_to_np_dtype(dtype))


def text_model(
    path: Path,
    *,
    output: str = "last_hidden_state",
    labels: int = 3,
    ids: int = INT64,
    dtype: int = FLOAT,
    mask: str = "input",
    types: bool = True,
    batch: int | str = "batch",
    length: int | str = "sequence",
    opset: int = 17,
    ir_version: int = 8,
    rows: int = ROWS,
    names: Sequence[tuple[str, str]] = (),
) -> Path:
    """input_ids, attention_mask, token_type_ids → token vectors.

    Logits of a text, or of each token, if ``output`` is ``logits`` or ``token_logits``.

    ``mask``: ``input``, ``none`` (padding is read like text) or ``inner`` (made from the ids in the graph,
    under the name attention_mask). ``names`` renames tensors, to collide with ours.
    """
    shape = [batch, length]
    inputs = [tensor("input_ids", shape, ids)]
    if mask == "input":
        inputs.append(tensor("attention_mask", shape, ids))
    if types:
        inputs.append(tensor("token_type_ids", shape, ids))
    initializers = [
        numpy_helper.from_array(weights(rows, WIDTH, seed=1, dtype=dtype), "table"),
        numpy_helper.from_array(weights(2, WIDTH, seed=2, dtype=dtype), "type_table"),
        numpy_helper.from_array(weights(WIDTH, labels, seed=3, dtype=dtype), "classifier"),
        numpy_helper.from_array(np.array([0, 1, -1]), "as_row"),
        numpy_helper.from_array(np.array([0, -1, 1]), "as_column"),
        numpy_helper.from_array(np.array(1, helper.tensor_dtype_to_np_dtype(dtype)), "one"),
        numpy_helper.from_array(np.array(0), "first"),
    ]
    nodes = [node("Gather", ["table", "input_ids"], ["words"])]
    if mask == "none":
        nodes += [
            node("Shape", ["input_ids"], ["ids_shape"]),
            node("ConstantOfShape", ["ids_shape"], ["mask"], value=_one(dtype)),
        ]
    elif mask == "inner":
        nodes += [
            node("Cast", ["input_ids"], ["signs"], to=TensorProto.BOOL),
            node("Cast", ["signs"], ["attention_mask"], to=INT64),
        ]
    if mask != "none":
        nodes.append(node("Cast", ["attention_mask"], ["mask"], to=dtype))
    nodes += [
        node("Reshape", ["mask", "as_row"], ["mask_row"]),
        node("Reshape", ["mask", "as_column"], ["mask_column"]),
        node("MatMul", ["mask_row", "words"], ["total"]),
        node("MatMul", ["mask_row", "mask_column"], ["count"]),
        node("Max", ["count", "one"], ["safe"]),
        node("Div", ["total", "safe"], ["context"]),
        node("Add", ["words", "context"], ["mixed"]),
    ]
    if types:
        nodes += [
            node("Gather", ["type_table", "token_type_ids"], ["kinds"]),
            node("Add", ["mixed", "kinds"], ["hidden"]),
        ]
    else:
        nodes.append(node("Identity", ["mixed"], ["hidden"]))
    if output == "logits":
        nodes += [
            node("Gather", ["hidden", "first"], ["first_token"], axis=1),
            node("MatMul", ["first_token", "classifier"], ["logits"]),
        ]
        outputs = [tensor("logits", [batch, labels], dtype)]
    elif output == "token_logits":
        initializers.append(numpy_helper.from_array(weights(WIDTH, rows, seed=5, dtype=dtype), "vocabulary"))
        nodes.append(node("MatMul", ["hidden", "vocabulary"], ["logits"]))
        outputs = [tensor("logits", [batch, length, rows], dtype)]
    else:
        nodes.append(node("Identity", ["hidden"], [output]))
        outputs = [tensor(output, [batch, length, WIDTH], dtype)]
    graph = helper.make_graph(nodes, "tiny_bert", inputs, outputs, initializer=initializers)
    return save(path, _renamed(graph, dict(names)), opset=opset, ir_version=ir_version)


def _one(dtype: int) -> onnx.TensorProto:
    return helper.make_tensor("one_value", dtype, [1], [1])


def _renamed(graph: onnx.GraphProto, names: dict[str, str]) -> onnx.GraphProto:
    for item in graph.node:
        item.input[:] = [names.get(name, name) for name in item.input]
        item.output[:] = [names.get(name, name) for name in item.output]
    for value in graph.initializer:
        value.name = names.get(value.name, value.name)
    return graph


def rename(path: Path, names: dict[str, str]) -> None:
    """Tensors of a model file, its inputs and outputs among them."""
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    _renamed(model.graph, names)
    onnx.save(model, path)


def save(path: Path, graph: onnx.GraphProto, *, opset: int = 17, ir_version: int = 8) -> Path:
    """Write a graph as a model file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    path.write_bytes(model.SerializeToString())
    return path


def externalise(path: Path, location: str = "model.onnx_data") -> Path:
    """Rewrite the model with its large weights in a file beside it, as exporters do above 2 GB."""
    model = onnx.load(path)
    onnx.save_model(model, path, save_as_external_data=True, location=location, size_threshold=1024)
    return path


def tensor_model(
    path: Path,
    *,
    batch: int | str = "batch",
    out: Sizes | None = None,
    inputs: Sequence[str] = ("X",),
    outputs: Sequence[str] = ("Y",),
    opset: int = 17,
    ir_version: int = 8,
) -> Path:
    """Each input [batch, 32] times a matrix of 4,096 bytes, summed: rows are independent."""
    matrix = numpy_helper.from_array(weights(32, 32, seed=5), "W")
    nodes = [node("MatMul", [name, "W"], [f"{name}_W"]) for name in inputs]
    nodes.append(node("Sum", [f"{name}_W" for name in inputs], ["all"]))
    nodes += [node("Identity", ["all"], [name]) for name in outputs]
    shape: Sizes = [batch, 32]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [tensor(name, shape) for name in inputs],
        [tensor(name, shape if out is None else out) for name in outputs],
        initializer=[matrix],
    )
    return save(path, graph, opset=opset, ir_version=ir_version)


def tokenizer(path: Path, *, special: bool = True, baked: bool = True, extra: Sequence[str] = ()) -> Path:
    """A WordPiece tokenizer.json over letters, with padding and truncation saved in it if ``baked``."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate((*WORDS, *extra))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=1000))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    if special:
        made.add_special_tokens(list(SPECIAL))
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    if baked:
        made.enable_padding(length=20, pad_id=0, pad_token="[PAD]")
        made.enable_truncation(12)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save(str(path))
    return path


def put_json(path: Path, document: Any) -> Path:
    """Write a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def pooling(folder: Path, mode: str = "pooling_mode_mean_tokens", *, normalise: bool = True) -> None:
    """The sentence-transformers files."""
    kinds = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        *([("Normalize", "2_Normalize")] if normalise else []),
    ]
    put_json(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (kind, path) in enumerate(kinds)
        ],
    )
    put_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": WIDTH, mode: True})


def describe(folder: Path, **config: Any) -> Path:
    """config.json, tokenizer.json and tokenizer_config.json, as a text model's export has them."""
    put_json(
        folder / "config.json",
        {
            "model_type": "bert",
            "max_position_embeddings": 32,
            "vocab_size": ROWS,
            "pad_token_id": 0,
            **config,
        },
    )
    put_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 24, "pad_token": "[PAD]"},
    )
    tokenizer(folder / "tokenizer.json")
    return folder


def embedder(folder: Path, **model: Any) -> Path:
    """An exported sentence embedding model."""
    text_model(folder / "model.onnx", **model)
    pooling(folder)
    return describe(folder)


def classifier(folder: Path, labels: int = 3, problem: str | None = None, **model: Any) -> Path:
    """An exported text classification model."""
    text_model(folder / "model.onnx", output="logits", labels=labels, **model)
    return describe(
        folder,
        architectures=["BertForSequenceClassification"],
        id2label={str(number): f"label {number}" for number in range(labels)},
        problem_type=problem,
    )


def make(model: Path, output: Path, *, golden: bool = False, **options: Any) -> Build:
    """``trb build`` up to the files, nothing written; without golden cases unless asked for."""
    return builder.build(check(BuildOptions(model=model, output=output, golden=golden, **options)))


def put(model: Path, output: Path, *, force: bool = False, **options: Any) -> Publication:
    """``trb build``, written."""
    publication = publish.prepare(make(model, output, **options), output, force=force)
    publish.publish(publication)
    return publication


def config(made: Build, name: str) -> str:
    """The text of one model's config.pbtxt."""
    return next(file.content for file in made.files if file.path == f"{name}/config.pbtxt").decode()


def tree(folder: Path) -> dict[str, str]:
    """sha256 of every file, where a link points to, and "" for folders: all that a change would show."""
    return {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*"))}


def _digest(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def mount_tmpfs(folder: Path, options: str) -> bool:
    """Mount a tmpfs; False where this user may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.mount(b"none", str(folder).encode(), b"tmpfs", 0, options.encode()) == 0)


def unmount(folder: Path) -> None:
    """Take a mount away."""
    assert ctypes.CDLL(None, use_errno=True).umount2(str(folder).encode(), 2) == 0


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """A file system of this size at ``folder``; yields whether there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = mount_tmpfs(folder, f"size={size}")
    try:
        yield mounted
    finally:
        if mounted:
            unmount(folder)

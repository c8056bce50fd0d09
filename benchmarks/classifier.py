"""A BERT classifier whose body is real: all-MiniLM-L6-v2 with a linear head on the vector of its first token.

The classes are the clusters that k-means finds in those vectors; the head is the least-squares fit to them.
So it separates what the model itself tells apart, and no label had to be invented.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CLASSES = 4
ROUNDS = 50


def make(body: Path, target: Path, texts: Sequence[str]) -> Path:
    """The folder of a ``BertForSequenceClassification`` export, made now if it is not there yet."""
    if target.is_dir():
        return target
    weights, bias = _head(_vectors(body, texts))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "made"
        shutil.copytree(body, made, ignore=shutil.ignore_patterns("model.onnx", "*1_Pooling", "modules.json"))
        _append(body / "model.onnx", made / "model.onnx", weights, bias)
        config = json.loads((body / "config.json").read_text())
        names = {str(number): f"cluster {number}" for number in range(CLASSES)}
        config |= {"architectures": ["BertForSequenceClassification"], "id2label": names}
        config["label2id"] = {name: int(number) for number, name in names.items()}
        (made / "config.json").write_text(json.dumps(config, indent=2))
        made.rename(target)
    return target


def _vectors(body: Path, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Of each text's first token."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(body / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    session = onnxruntime.InferenceSession(body / "model.onnx", providers=["CPUExecutionProvider"])
    vectors = []
    for text in texts:
        row = tokenizer.encode(text)
        given = {"input_ids": row.ids, "attention_mask": row.attention_mask, "token_type_ids": row.type_ids}
        feed = {item.name: np.array([given[item.name]], np.int64) for item in session.get_inputs()}
        vectors.append(session.run(None, feed)[0][0, 0])
    return np.stack(vectors)


def _head(vectors: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(weights [classes, width], bias [classes]) of the fit to clusters begun at evenly spread vectors."""
    centres = vectors[:: len(vectors) // CLASSES][:CLASSES]
    for _ in range(ROUNDS):
        nearest = ((vectors[:, None] - centres) ** 2).sum(2).argmin(1)
        groups = [vectors[nearest == number] for number in range(CLASSES)]
        centres = np.stack(
            [group.mean(0) if len(group) else centre for group, centre in zip(groups, centres, strict=True)]
        )
    wanted = 8 * np.eye(CLASSES)[nearest] - 4
    given = np.hstack([vectors, np.ones((len(vectors), 1))])
    # A ridge: there are fewer texts than would fix 384 numbers for each class.
    inner = given.T @ given + 0.1 * len(vectors) * np.eye(given.shape[1])
    solution = np.linalg.solve(inner, given.T @ wanted).astype(np.float32)
    return solution[:-1].T.copy(), solution[-1].copy()


def _append(
    body: Path, target: Path, weights: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]
) -> None:
    """The graph with ``logits`` [batch, classes] as its one output."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(str(body))
    constants = {"first_place": np.array(0), "classifier.weight": weights, "classifier.bias": bias}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    hidden = model.graph.output[0].name
    model.graph.node.append(helper.make_node("Gather", [hidden, "first_place"], ["first_token"], axis=1))
    inputs = ["first_token", "classifier.weight", "classifier.bias"]
    model.graph.node.append(helper.make_node("Gemm", inputs, ["logits"], transB=1))
    del model.graph.output[:]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    model.graph.output.append(logits)
    onnx.save(model, str(target))

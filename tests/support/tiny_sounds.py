"""Tiny audio exports, and sounds as files: for tests of a server without torch."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import tiny
import tiny_onnx
from onnx import numpy_helper
from tiny_onnx import FLOAT, node, tensor

RATE = 16_000
KERNEL, STRIDE = 400, 320
PROCESSOR = {
    "feature_extractor_type": "Wav2Vec2FeatureExtractor",
    "feature_size": 1,
    "sampling_rate": RATE,
    "padding_value": 0.0,
    "do_normalize": True,
    "return_attention_mask": False,
}
LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ETAOINSH")
LABELS = {"0": "bark", "1": "meow", "2": "sneeze", "3": "Tür"}


def model(
    path: Path,
    *,
    moments: bool,
    width: int,
    batch: int | str = "batch",
    dtype: int = FLOAT,
    mean: bool = False,
) -> Path:
    """Samples → logits [batch, width] or, of ``moments``, [batch, moments, width]: a convolution.

    With ``mean`` an answer changes with the other files of a batch.
    """
    name = tiny_onnx.helper.tensor_dtype_to_np_dtype(dtype)
    weights = np.random.default_rng(7).standard_normal((width, 1, KERNEL)).astype(name) / 4
    nodes = [
        node("Unsqueeze", ["input_values", "one"], ["channel"]),
        node("Conv", ["channel", "weights"], ["waves"], strides=[STRIDE]),
        node("Transpose", ["waves"], ["made"], perm=[0, 2, 1]),
        *(() if moments else (node("ReduceMax", ["made"], ["best"], axes=[1], keepdims=0),)),
    ]
    last = "made" if moments else "best"
    if mean:
        nodes += [node("ReduceMean", [last], ["mean"], axes=[0]), node("Sub", [last, "mean"], ["logits"])]
    else:
        nodes += [node("Identity", [last], ["logits"])]
    content = tiny_onnx.model(
        nodes,
        [tensor("input_values", [batch, "samples"], dtype)],
        [tensor("logits", [batch, "moments", width] if moments else [batch, width], dtype)],
        initializers=[
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.array([1]), "one"),
        ],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def classifier(folder: Path, *, processor: dict[str, Any] | None = None, **graph: Any) -> Path:
    """An export for audio-classification."""
    model(folder / "model.onnx", moments=False, width=len(LABELS), **graph)
    return _described(folder, processor, "Wav2Vec2ForSequenceClassification", {"id2label": LABELS})


def recogniser(folder: Path, *, processor: dict[str, Any] | None = None, **graph: Any) -> Path:
    """An export for automatic-speech-recognition, with the vocab.json of a Wav2Vec2CTCTokenizer."""
    model(folder / "model.onnx", moments=True, width=len(LETTERS), **graph)
    tiny.put_json(folder / "vocab.json", {letter: number for number, letter in enumerate(LETTERS)})
    settings = {"tokenizer_class": "Wav2Vec2CTCTokenizer", "pad_token": "<pad>", "unk_token": "<unk>"}
    tiny.put_json(folder / "tokenizer_config.json", {**settings, "word_delimiter_token": "|"})
    return _described(folder, processor, "Wav2Vec2ForCTC", {"vocab_size": len(LETTERS)})


def _described(folder: Path, processor: dict[str, Any] | None, name: str, config: dict[str, Any]) -> Path:
    tiny.put_json(folder / "preprocessor_config.json", PROCESSOR if processor is None else processor)
    convolutions = {"conv_kernel": [KERNEL], "conv_stride": [STRIDE]}
    described = {"architectures": [name], "model_type": "wav2vec2", **convolutions, **config}
    tiny.put_json(folder / "config.json", described)
    return folder


def noise(count: int, channels: int = 1, seed: int = 0) -> Any:
    """[frames, channels] of 16-bit samples."""
    return np.random.default_rng(seed).integers(-9000, 9000, (count, channels)).astype("<i2")


def wav(samples: Any, rate: int = RATE) -> bytes:
    """A WAV file of [frames, channels] 16-bit samples, by Python's own writer."""
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(samples.shape[1])
        made.setsampwidth(2)
        made.setframerate(rate)
        made.writeframes(samples.tobytes())
    return file.getvalue()


def samples(file: bytes) -> Any:
    """What Python's own reader finds in such a file, the mean of its channels."""
    with wave.open(io.BytesIO(file)) as found:
        raw = np.frombuffer(found.readframes(found.getnframes()), dtype="<i2")
        return (raw.reshape(-1, found.getnchannels()) / 32_768).mean(axis=1).astype(np.float32)

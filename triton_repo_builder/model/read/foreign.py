"""Files and folders without an ONNX model: their kind, and a command or hint that leads to one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError

HEAD = 512
"""Bytes of a file that show its kind."""
LISTED = 50
"""Most files of a folder that are looked at."""
WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
OPTIMUM = "optimum-cli export onnx --model NAME FOLDER"
TASKS = (
    ("ForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "token-classification"),
    ("ForQuestionAnswering", "question-answering"),
    ("ForMaskedLM", "fill-mask"),
    ("ForImageClassification", "image-classification"),
    ("ForObjectDetection", "object-detection"),
    ("ForSemanticSegmentation", "semantic-segmentation"),
    ("ForAudioClassification", "audio-classification"),
    ("ForCTC", "automatic-speech-recognition"),
)
"""Endings of architectures, and optimum's name of their task, which it does not guess for a folder."""
FEATURES, TOWERS = "feature-extraction", "zero-shot-image-classification"
"""Tasks without a head: one tower, and two."""
EXPORTED = (FEATURES, *(task for _, task in TASKS), TOWERS)
"""The exporter's tasks of which trb builds endpoints."""
SPEECH = ("wav2vec", "hubert", "wavlm", "unispeech", "sew", "data2vec-audio")
"""Beginnings of model_type: their ForSequenceClassification classifies audio."""


def _export(path: Path) -> str:
    """The line that exports the model whose weights are at ``path``."""
    folder = path if path.is_dir() else path.parent
    config = _config(folder)
    if not config:
        return f"export the model to ONNX first, e.g. {OPTIMUM}"
    stated = config.get("architectures")
    names = map(str, stated) if isinstance(stated, list) else ()
    task = next(filter(None, (head_task(name, config) for name in names)), FEATURES)
    output = shlex.quote(f"{folder.resolve().name}-onnx")
    return f"export it: optimum-cli export onnx --model {shlex.quote(str(folder))} --task {task} {output}"


def head_task(architecture: str, config: Mapping[str, Any]) -> str:
    """optimum's name of the task of an architecture's head; empty if its name states none."""
    task = next((task for end, task in TASKS if architecture.endswith(end)), "")
    if task == TASKS[0][1] and str(config.get("model_type")).startswith(SPEECH):
        return "audio-classification"
    return task


def _convert_weights(path: Path) -> str:
    """The line that converts a folder's weights; their export without a config.json beside them."""
    folder = path if path.is_dir() else path.parent
    if not _config(folder):
        return _export(path)
    output = shlex.quote(f"{folder.resolve().name}-onnx")
    return f"convert it: trb convert {shlex.quote(str(folder))} -o {output}; or trb build --convert"


def _config(folder: Path) -> Mapping[str, Any]:
    """config.json, or empty."""
    if not containment.is_within(folder, folder / "config.json"):
        return {}
    try:
        document = files.load_json(files.read(folder / "config.json", files.LARGEST_DOCUMENT))
    except (OSError, *files.DAMAGED):
        return {}
    return document if isinstance(document, dict) else {}


def _unpack(path: Path) -> str:
    """The line that unpacks an archive beside it."""
    name = re.sub(r"(\.tar)?\.\w+$", "", path.name) or path.name
    target = shlex.quote(str(path.parent / f"{name}-unpacked"))
    unpack = f"mkdir {target} && tar -xf {shlex.quote(str(path))} -C {target}"
    return f"unpack it: {unpack} && trb build --model {target}"


def _original(path: Path) -> str:
    return "name the .onnx file that it was made from: it cannot be made an ONNX model again"


def _convert(path: Path) -> str:
    output = shlex.quote(str(path.with_suffix(".tf.onnx")))
    convert = f"python -m tf2onnx.convert --tflite {shlex.quote(str(path))} --output {output}"
    return f"convert it: pip install tf2onnx && {convert}"


def _own(path: Path) -> str:
    return "export it from its own library, which writes ONNX: model.save_model('model.onnx', format='onnx')"


Remedy = Callable[[Path], str]
KINDS: tuple[tuple[int, bytes, str, Remedy], ...] = (
    (4, b"ORTM", "a model in ONNX Runtime's own format (.ort)", _original),
    (0, b"\x1f\x8b", "a gzip archive (.tar.gz), perhaps one of SageMaker", _unpack),
    (257, b"ustar", "a tar archive", _unpack),
    (0, b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint (.pt, .bin)", _export),
    (8, b'{"', "a safetensors file, weights without a graph", _convert_weights),
    (0, b"\x89HDF", "an HDF5 file, perhaps a Keras model", _export),
    (0, b"\x80\x02", "a Python pickle", _export),
    (0, b"GGUF", "a GGUF file, weights for llama.cpp", _export),
    (0, b"ftrt", "a TensorRT engine", _original),
    (4, b"TFL3", "a TensorFlow Lite model", _convert),
    (0, b"CBM1", "a model in CatBoost's own format", _own),
    (0, b"<", "an HTML or XML page, perhaps a failed download", _export),
    (0, b"{", "a JSON file", _export),
)
"""Offset and bytes that show a kind of file, its name, and the remedy."""


def _kind(head: bytes) -> tuple[str, Remedy]:
    for offset, magic, looks, remedy in KINDS:
        if head[offset:].startswith(magic) or (magic in (b"<", b"{") and head.lstrip().startswith(magic)):
            return looks, remedy
    return "", _export


def refused(path: Path, head: bytes) -> TrbError:
    """NOT_ONNX on a file, of which ``head`` is the start."""
    looks, remedy = _kind(head)
    return TrbError(
        Code.NOT_ONNX,
        "this is not an ONNX model" + (f": it looks like {looks}" if looks else ""),
        where=str(path),
        remedy=remedy(path),
    )


def nothing(folder: Path) -> TrbError:
    """NOT_FOUND for a folder without an ONNX file, with a remedy for the files in it."""
    message = "no .onnx file in this folder"
    deeper = sorted(folder.glob("*/*.onnx")) or sorted(folder.glob("*/*/*.onnx"))
    if deeper:
        place = shlex.quote(str(deeper[0].parent if len(deeper) == 1 else deeper[0]))
        shown = f"{deeper[0].relative_to(folder)}" + (f" and {len(deeper) - 1} more" if deeper[1:] else "")
        message, remedy = f"{message}, but {shown} below it", f"name one, e.g. --model {place}"
        return TrbError(Code.NOT_FOUND, message, where=str(folder), remedy=remedy)
    for file in sorted(folder.glob("*"))[:LISTED]:  # empty if it may not be read
        if not files.is_file(file) or not containment.is_within(folder, file):
            continue
        try:
            with files.opened(file) as opened:
                looks, advice = _kind(opened.read(HEAD))
        except OSError:
            continue
        if looks and (advice not in (_export, _convert_weights) or file.suffix in WEIGHTS):
            message = f"{message}; {file.name} looks like {looks}"
            return TrbError(Code.NOT_FOUND, message, where=str(folder), remedy=advice(file))
    remedy = f"export the model first, e.g. {OPTIMUM}"
    return TrbError(Code.NOT_FOUND, message, where=str(folder), remedy=remedy)


def refuse_encoder_decoder(folder: Path, models: Sequence[Path]) -> None:
    """``TrbError`` UNSUPPORTED_MODEL if a folder's ONNX files are parts of one model that generates text."""
    encoders = [file for file in models if "encoder" in _words(file)]
    decoders = [file for file in models if "decoder" in _words(file)]
    inner = models[0].parent
    config = _config(folder) or (_config(inner.resolve().parent) if inner.name == "onnx" else {})
    optimum = any(file.stem.startswith("decoder_model") for file in decoders)
    if not decoders or not (optimum or config.get("is_encoder_decoder")):
        return
    kind = "an encoder and a decoder" if encoders else "a decoder"
    named = f" ({config['model_type']})" if isinstance(config.get("model_type"), str) else ""
    part = shlex.quote(str((encoders or decoders)[0].relative_to(folder)))
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        f"this model{named} is {kind} in several graphs, and generates text: trb builds no text generation",
        where=str(folder),
        remedy="serve it with vLLM or TensorRT-LLM, or one graph as plain tensors with "
        f"--file {part} --task tensor",
    )


def _words(file: Path) -> list[str]:
    return re.split(r"[^a-z0-9]+", file.stem.lower())

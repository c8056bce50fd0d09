"""Exports the models of the given cells and records what transformers answers. Runs in .venv-export:

    PYTHONPATH=tests .venv-export/bin/python -m conformance.export FOLDER MINILM [ARCHITECTURE/TASK ...]

One folder per export with ``model.onnx``, its configuration and tokenizer, and ``answers/<task>.json``. What
is there and was made by the same code is kept. A failure is written to ``failed.txt`` beside it: it becomes
the cell's reason.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import traceback
import zlib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput, ModelOutput

from conformance import families, inputs, references, tasks
from conformance.architecture import Architecture
from conformance.heads import HEADS, Head
from conformance.tasks import Cell, Task, slug

HERE = Path(__file__).parent
MODEL_SOURCES = ("heads.py", "families.py", "corpus.py", "export.py")
"""Beside the row itself: another row makes no export stale."""
ANSWER_SOURCES = (*MODEL_SOURCES, "references.py", "inputs.py", "images.py", "sounds.py")
OPSET = 17
WEIGHTS = "--weights"
"""Flag: save weights in place of an ONNX file."""


def fingerprint(names: tuple[str, ...], *more: str) -> str:
    """Of the code that made something, and of the versions it ran on."""
    parts = [(HERE / name).read_bytes() for name in names]
    parts += [text.encode() for text in (torch.__version__, transformers.__version__, *more)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def build(row: Architecture, head: Head, scratch: Path, minilm: Path) -> tuple[Any, Any]:
    """The PyTorch model with its tokenizer or image processor; the same weights every time."""
    torch.manual_seed(zlib.crc32(f"{row.name} {head}".encode()))
    if row.family == "minilm":
        return (
            transformers.AutoModel.from_pretrained(minilm).eval(),
            transformers.AutoTokenizer.from_pretrained(minilm),
        )
    settings = {**row.config, **head.config}
    vocabulary = scratch.parent / "vocabularies" / row.family
    companion = _processor(row) if row.processor else _tokenizer(row, vocabulary, scratch)
    if head.task == "zero-shot-image-classification":
        companion = Companions(_tokenizer(row, vocabulary, scratch), companion)
        own = {**_special_ids(companion.tokenizer), "vocab_size": len(companion.tokenizer)}
        settings["text_config"] = {**settings["text_config"], **own}
    if head.task == "automatic-speech-recognition":
        companion = Companions(_letters(scratch), companion)
    if not row.processor:
        # mT5 has no mask token and ModernBERT no token for unknown words: only what there is is said.
        settings |= _special_ids(companion)
        settings["vocab_size"] = len(companion) - row.without_vectors
    if row.model_type == "modernbert":
        settings |= {"cls_token_id": companion.cls_token_id, "sep_token_id": companion.sep_token_id}
    if row.auto:
        config = getattr(transformers, row.auto).config_class(**settings)
    else:
        config = transformers.AutoConfig.for_model(row.model_type, **settings)
    config._attn_implementation = attention = "sdpa" if row.by_torch else "eager"
    made = getattr(transformers, row.auto)(config) if row.auto else _auto(head, config, attention)
    _spread(made)
    module = "Projected" if head.task == "late-interaction" else row.module
    return (MODULES[module](made) if module else made).eval(), companion


def _special_ids(tokenizer: Any) -> dict[str, int]:
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {name: number for name in names if (number := getattr(tokenizer, name)) is not None}


@dataclass
class Companions:
    """What a model with two towers comes with."""

    tokenizer: Any
    processor: Any


def _auto(head: Head, config: Any, attention: str) -> Any:
    return getattr(transformers, head.auto).from_config(config, attn_implementation=attention)


def _spread(model: Any) -> None:
    """Random heads answer nearly the same to everything; larger weights tell the labels apart."""
    for name, parameter in model.named_parameters():
        last = name.endswith(
            ("classifier.weight", "classifier.out_proj.weight", "classifier.1.weight", "qa_outputs.weight")
        )
        of_labels = parameter.dim() == 2 and last and "pre_classifier" not in name
        of_objects = model.config.model_type in ("yolos", "detr") and name.endswith(OF_OBJECTS)
        of_areas = parameter.dim() == 4 and name.endswith(OF_AREAS)
        of_sounds = model.config.model_type in WAVES and parameter.dim() >= 2
        if of_sounds and not name.endswith(("lm_head.weight", "classifier.weight")):
            torch.nn.init.normal_(parameter, std=(2 / parameter[0].numel()) ** 0.5)
        elif of_labels or of_objects or of_areas or of_sounds:
            torch.nn.init.normal_(parameter, std=0.5)
        elif parameter.dim() == 4 and model.config.model_type.startswith("mobilenet"):
            torch.nn.init.kaiming_normal_(parameter)  # its own are so small that nothing is left at the end


WAVES = (
    *("wav2vec2", "hubert", "wavlm", "unispeech"),
    *("unispeech-sat", "sew", "data2vec-audio", "wav2vec2-conformer"),
)
"""Their own weights make all moments alike."""
OF_AREAS = ("head.classifier.weight", "classifier.convolution.weight", "head.head.4.weight")
"""The last layer of a segmenter."""
OF_OBJECTS = (
    *("detection_tokens", "query_position_embeddings.weight", "class_labels_classifier.weight"),
    *("class_labels_classifier.layers.2.weight", "bbox_predictor.layers.2.weight"),
)
"""Parameters that tell the queries of a detector apart."""


class Projected(torch.nn.Module):
    """ColBERT: a linear layer without bias on every token vector."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.linear = torch.nn.Linear(model.config.hidden_size, 16, bias=False)

    def forward(self, **inputs: Any) -> tuple[Any]:
        return (self.linear(self.model(**inputs).last_hidden_state),)


class ByTask(torch.nn.Module):
    """jina-embeddings-v3: one number, given once, chooses the factors of each number of the answer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.tasks = torch.nn.Embedding(3, model.config.hidden_size)

    def forward(self, *, task_id: Any = None, **inputs: Any) -> Any:
        chosen = self.tasks(torch.tensor(1) if task_id is None else task_id)
        return BaseModelOutput(last_hidden_state=self.model(**inputs).last_hidden_state * chosen)


class ThreeVectors(torch.nn.Module):
    """BGE-M3: one vector of a text, a weight of each token, and a vector of each token but the first."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.sparse = torch.nn.Linear(model.config.hidden_size, 1)
        self.colbert = torch.nn.Linear(model.config.hidden_size, model.config.hidden_size)

    def forward(self, **inputs: Any) -> Any:
        hidden = self.model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][:, 1:, None]
        return ModelOutput(
            dense_vecs=torch.nn.functional.normalize(hidden[:, 0], dim=-1),
            sparse_vecs=torch.relu(self.sparse(hidden)),
            colbert_vecs=torch.nn.functional.normalize(self.colbert(hidden[:, 1:]) * mask, dim=-1),
        )


class Cached(torch.nn.Module):
    """A decoder as exporters write it for generation: each layer's keys and values of the tokens before."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    @property
    def past(self) -> dict[str, Any]:
        """Of three tokens of two rows."""
        config = self.config
        names = [f"{n}.{part}" for n in range(config.num_hidden_layers) for part in ("key", "value")]
        sizes = (2, config.num_key_value_heads, 3, config.head_dim)
        return {f"past_key_values.{name}": torch.zeros(sizes) for name in names}

    def forward(self, **inputs: Any) -> Any:
        values = [inputs.pop(name) for name in self.past if name in inputs]
        cache = transformers.DynamicCache.from_legacy_cache(
            tuple(zip(values[::2], values[1::2], strict=True))
        )
        answer = self.model(**inputs, past_key_values=cache, use_cache=True)
        present = [part for layer in answer.past_key_values.to_legacy_cache() for part in layer]
        names = [name.replace("past_key_values", "present") for name in self.past]
        return ModelOutput(
            last_hidden_state=answer.last_hidden_state, **dict(zip(names, present, strict=True))
        )


MODULES = {"Cached": Cached, "Projected": Projected, "ByTask": ByTask, "ThreeVectors": ThreeVectors}


def _tokenizer(row: Architecture, vocabulary: Path, scratch: Path) -> Any:
    """Made, saved and loaded again, as from a downloaded folder."""
    made = families.make(row.family, vocabulary, {})
    made.add_tokens([f"<without a vector {number}>" for number in range(row.without_vectors)])
    made.save_pretrained(scratch / "tokenizer", legacy_format=True if row.slow else None)
    file = scratch / "tokenizer" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **row.tokenizer}, indent=2))
    return transformers.AutoTokenizer.from_pretrained(scratch / "tokenizer", use_fast=True)


LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ")


def _letters(scratch: Path) -> Any:
    """The tokenizer of Wav2Vec2's English checkpoints."""
    folder = scratch / "tokenizer"
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({letter: n for n, letter in enumerate(LETTERS)}))
    made = transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"))
    made.save_pretrained(folder)
    return made


def _processor(row: Architecture) -> Any:
    if row.processor == "Wav2Vec2FeatureExtractor":
        return transformers.Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=False)
    size = {"shortest_edge": 32} if "ConvNext" in row.processor else {"height": 32, "width": 32}
    if row.edges:
        size = dict(zip(("shortest_edge", "longest_edge"), row.edges, strict=True))
    options: dict[str, Any] = {"size": size}
    if row.processor.startswith(("CLIP", "Bit", "Mobile")):
        options = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    options |= row.processing
    return getattr(transformers, row.processor)(**options)


def export(row: Architecture, head: Head, model: Any, folder: Path) -> None:
    """The ONNX file, by optimum where it knows the architecture and the task, else by torch itself."""
    from optimum.exporters.onnx import export as export_onnx
    from optimum.exporters.onnx import onnx_export_from_model
    from optimum.exporters.tasks import TasksManager

    task = row.exported_as or head.task
    model.config.architectures = [row.auto or type(getattr(model, "model", model)).__name__]
    if head.task != "late-interaction" and not row.module:
        model.config.architectures = [type(model).__name__]
    if row.by_torch:
        _by_todays_torch(model, folder / "model.onnx")
        model.config.save_pretrained(folder)
    elif row.auto == "CLIPTextModelWithProjection":
        constructor = TasksManager.get_exporter_config_constructor(
            "onnx",
            model_type="clip-text-with-projection",
            task="feature-extraction",
            library_name="diffusers",
        )
        export_onnx(model, constructor(model.config), folder / "model.onnx", OPSET)
        model.config.save_pretrained(folder)
    elif row.auto or row.inputs or head.task == "late-interaction" or (row.model_type, head.task) in BY_TORCH:
        _by_torch(row, model, folder / "model.onnx")
        model.config.save_pretrained(folder)
    elif task in TasksManager._SUPPORTED_MODEL_TYPE.get(row.model_type, {}).get("onnx", {}):
        onnx_export_from_model(model, folder, task=task, do_validation=False)
    else:
        _by_torch(row, model, folder / "model.onnx")
        model.config.save_pretrained(folder)


BY_TORCH = {
    ("modernbert", "question-answering"),
    ("dinov2", "feature-extraction"),
    ("dinov2", "image-classification"),
    ("dpt", "semantic-segmentation"),
    ("mobilenet_v2", "semantic-segmentation"),
    ("mobilevit", "semantic-segmentation"),
}
"""What optimum does not export."""


class Named(torch.nn.Module):
    """Positional inputs and outputs, as the exporter of torch wants them."""

    def __init__(self, model: Any, inputs: list[str]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, *values: Any) -> Any:
        found = self.model(**dict(zip(self.inputs, values, strict=True)))
        return found if isinstance(found, tuple) else found.to_tuple()


def _by_torch(row: Architecture, model: Any, file: Path) -> None:
    if row.processor:
        inputs = {"pixel_values": torch.zeros(2, 3, 32, 32)}
        axes = {"pixel_values": {0: "batch"}}
    else:
        ids = torch.randint(5, model.config.vocab_size, (2, 7))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "position_ids" in row.inputs:
            inputs["position_ids"] = torch.arange(2, 9).repeat(2, 1)
        if "token_type_ids" in row.inputs:
            inputs["token_type_ids"] = torch.zeros_like(ids)
        if "task_id" in row.inputs:
            inputs["task_id"] = torch.tensor(1)
        inputs = {name: inputs[name] for name in row.inputs or inputs}
        if isinstance(model, Cached):
            inputs |= model.past
            inputs["attention_mask"] = torch.ones(2, 10, dtype=torch.int64)
        axes = {name: {0: "batch", 1: "sequence"} for name, values in inputs.items() if values.ndim}
    _without_vmap()
    for name in inputs:
        if name.startswith("past_key_values"):
            axes[name] = {0: "batch", 2: "past_sequence_length"}
    with torch.no_grad():
        found = model(**inputs)
    names = ["last_hidden_state"] if isinstance(found, tuple) else list(found.keys())
    values = found if isinstance(found, tuple) else found.to_tuple()
    for name, value in zip(names, values, strict=True):
        axes[name] = {0: "batch", **({1: "sequence"} if value.shape[1:2] == (7,) else {})}
    torch.onnx.export(
        Named(model, list(inputs)).eval(),  # it would leave the model in training mode
        tuple(inputs.values()),
        str(file),
        input_names=list(inputs),
        output_names=names,
        dynamic_axes=axes,
        opset_version=OPSET,
        dynamo=False,
    )


def _by_todays_torch(model: Any, file: Path) -> None:
    """With the sizes and names that it gives by itself."""
    ids = torch.randint(5, model.config.vocab_size, (2, 7))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    shapes = dict.fromkeys(inputs, dynamic)
    torch.onnx.export(
        model, (), str(file), kwargs=inputs, dynamic_shapes=shapes, external_data=False, dynamo=True
    )
    made = onnx.load(file)
    for named in (made.graph, *made.graph.node, *made.graph.value_info, *made.graph.initializer):
        del named.metadata_props[:]  # stack traces, with the paths of this machine
    onnx.save(made, file)


def _without_vmap() -> None:
    """The masks of decoders by optimum's code, as in its own exports: torch's vmap cannot be traced."""
    from optimum.exporters.onnx import model_patcher
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as MASKS

    MASKS.register("sdpa", model_patcher.sdpa_mask_without_vmap)
    MASKS.register("eager", model_patcher.eager_mask_without_vmap)


def asked(task: Task, companion: Any) -> list[dict[str, Any]]:
    """The task's entries, with the tokenizer's own mask token, or the images."""
    if "AUDIO" in task.fields:
        from conformance import sounds

        return [{"AUDIO": sound} for sound in sounds.make()]
    if task.images:
        from conformance import images

        made: list[dict[str, Any]] = [{"IMAGE": image} for image in images.make()]
        if "LABELS" in task.fields:
            for number, entry in enumerate(made):
                entry["LABELS"] = inputs.LABELS[number % len(inputs.LABELS)]
        return made
    mask = getattr(companion, "mask_token", None) or ""
    entries = task.entries
    if task.head != "mask":
        return entries
    return [{**entry, "TEXT": entry["TEXT"].replace("{mask}", mask)} for entry in entries]


def _plain(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def record(task: Task, model: Any, companion: Any, file: Path, stamp: str) -> None:
    """Write what was asked and what PyTorch answered."""
    entries = asked(task, companion)
    answers = getattr(references, task.reference)(model, companion, entries, **task.settings)
    plain = [{name: _plain(value) for name, value in entry.items()} for entry in entries]
    document = {"stamp": stamp, "entries": plain, "answers": answers}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document))


def make(folder: Path, cells: list[Cell], minilm: Path, *, weights: bool = False) -> None:
    """One export with the answers of its cells; ``weights``: saved by ``save_pretrained`` for trb convert."""
    row, head = cells[0].row, HEADS[cells[0].task.head]
    stamp_file = folder / "stamp.txt"
    stamp = fingerprint(MODEL_SOURCES, repr(row), repr(head))
    answer_stamp = {cell.task.name: fingerprint(ANSWER_SOURCES, repr(cell)) for cell in cells}
    exported = stamp_file.is_file() and stamp_file.read_text() == stamp
    missing = [
        cell.task
        for cell in cells
        if not exported or _stamp(_answers(folder, cell.task)) != answer_stamp[cell.task.name]
    ]
    if exported and not missing:
        return
    if not exported:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    scratch = folder.with_name(f"{folder.name}.scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    model, companion = build(row, head, scratch, minilm)
    if not exported:
        if weights:
            model.save_pretrained(folder)
            # As anyone reads them: Gemma3's sliding window is half as wide after each reading.
            model = (
                type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            )
        else:
            export(row, head, model, folder)
        if (scratch / "tokenizer").is_dir():
            shutil.copytree(scratch / "tokenizer", folder, dirs_exist_ok=True)
        if row.processor or row.family == "minilm":
            getattr(companion, "processor", companion).save_pretrained(folder)
        stamp_file.write_text(stamp)
    for task in missing:
        record(task, model, companion, _answers(folder, task), answer_stamp[task.name])
    shutil.rmtree(scratch)


def _answers(folder: Path, task: Task) -> Path:
    return folder / "answers" / f"{slug(task.name)}.json"


def _stamp(file: Path) -> str:
    return str(json.loads(file.read_text())["stamp"]) if file.is_file() else ""


def main(target: Path, minilm: Path, wanted: list[str], *, weights: bool = False) -> None:
    cells = sorted(tasks.cells(wanted), key=lambda cell: cell.export)
    for name, group in groupby(cells, key=lambda cell: cell.export):
        failed = target / f"{name}.failed.txt"
        failed.unlink(missing_ok=True)
        try:
            make(target / name, list(group), minilm, weights=weights)
        except Exception as error:
            traceback.print_exc()
            failed.write_text(f"{type(error).__name__}: {error}")
        print(name, "failed" if failed.exists() else "ok", flush=True)


if __name__ == "__main__":
    names = [name for name in sys.argv[3:] if name != WEIGHTS]
    main(Path(sys.argv[1]), Path(sys.argv[2]), names, weights=WEIGHTS in sys.argv)

"""Exports PyTorch weights, and asks PyTorch itself. Runs inside the conversion environment, by its path:

    python -I worker.py REQUEST.json

It imports nothing of ours. No code of the model's own is run, no pickle is read, no connection is opened.
The answer goes to the file that the request names as ``report``.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

CLASSES = {
    "feature-extraction": "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
    "object-detection": "AutoModelForObjectDetection",
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "audio-classification": "AutoModelForAudioClassification",
    "automatic-speech-recognition": "AutoModelForCTC",
    "zero-shot-image-classification": "AutoModelForZeroShotImageClassification",
}
"""The exporter's tasks, and the classes that load a model for them."""
OPSET = 17
"""The newest that torch's tracing exporter writes."""
TOOLS = ("torch", "transformers", "optimum-onnx")
SHOWN = 5


class Refused(Exception):
    """The model cannot be converted: a kind that the caller knows, and the reason."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _without_network(event: str, _: object) -> None:
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise OSError("the conversion opens no connection")


class Loaded(NamedTuple):
    """A model in PyTorch, in 32-bit floats."""

    model: Any
    notes: list[str]
    pools: bool
    """Whether the weights have all parameters of its pooler."""


def load(folder: str, task: str, stated_class: str) -> Loaded:
    """Read the weights. Raises ``Refused``."""
    import torch
    import transformers

    config = json.loads(Path(folder, "config.json").read_text())
    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise Refused("unknown", f"transformers {transformers.__version__} has no such architecture")
    named = getattr(transformers, stated_class, None) if stated_class else None
    if stated_class and named is None:
        raise Refused("unknown", f"transformers {transformers.__version__} has no class {stated_class}")
    kind = named or getattr(transformers, CLASSES[task])
    settings = {"use_safetensors": True, "local_files_only": True, "trust_remote_code": False}
    model, loaded = kind.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **settings
    )
    missing = sorted(name for name in loaded["missing_keys"] if "pooler." not in name)
    if missing:
        raise Refused("weights", f"the weights lack {len(missing)} parameters: {', '.join(missing[:SHOWN])}")
    if loaded["mismatched_keys"]:
        raise Refused("weights", "the weights have other shapes than config.json says")
    unused = sorted(loaded["unexpected_keys"])
    notes = [f"weights that this task has no use for: {', '.join(unused[:SHOWN])}"] if unused else []
    return Loaded(model.eval(), notes, pools=not loaded["missing_keys"])


def export(request: dict[str, Any]) -> dict[str, Any]:
    """Write ``model.onnx``, by optimum if it knows architecture and task, else by ``torch.onnx``."""
    from optimum.exporters.onnx import onnx_export_from_model  # registers what it knows
    from optimum.exporters.tasks import TasksManager

    task, target = request["task"], Path(request["target"])
    model, notes, pools = load(request["model"], task, request["class"])
    model_type = model.config.model_type
    by_optimum: Any = TasksManager._SUPPORTED_MODEL_TYPE.get(model_type, {}).get("onnx", {})
    converter, why = "optimum", f"optimum does not export {task} of {model_type}"
    if pools and task in by_optimum and _loses_pooling(model, by_optimum[task], task):
        converter, why = "", f"optimum leaves out the pooling of {model_type}"
    elif task in by_optimum and not request["class"].endswith("WithProjection"):
        try:
            onnx_export_from_model(model, target, task=task, do_validation=False)
        except OSError:  # a full disk, not a model that it does not know
            raise
        except Exception as error:
            why = f"optimum failed ({type(error).__name__}: {str(error).strip()[:200]})"
            converter = ""
    else:
        converter = ""
    if not converter:
        for file in target.iterdir():
            file.unlink()
        model = load(request["model"], task, request["class"]).model  # as an exporter that failed left it
        _by_torch(model, request["model"], target / "model.onnx", why)
        converter = "torch.onnx"
        notes.append(f"exported by torch.onnx: {why}")
    return {"converter": converter, "notes": notes, "tools": {n: metadata.version(n) for n in TOOLS}}


def _loses_pooling(model: Any, constructor: Any, task: str) -> bool:
    """Whether a vision model has a pooled vector that optimum's graph would not have."""
    vision = task == "feature-extraction" and model.main_input_name == "pixel_values"
    return vision and "pooler_output" not in constructor(model.config, task=task).outputs


def _by_torch(model: Any, folder: str, file: Path, why: str) -> None:
    """The tracing exporter of torch, with open axes for batch and sequence."""
    import inspect

    import torch

    accepted = inspect.signature(model.forward).parameters
    inputs: dict[str, Any]
    if "input_ids" in accepted and "pixel_values" not in accepted:
        ids = torch.arange(14).reshape(2, 7) % max(1, model.config.vocab_size - 1) + 1
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "token_type_ids" in accepted and getattr(model.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = torch.zeros_like(ids)
        axes = {name: {0: "batch", 1: "sequence"} for name in inputs}
        try:  # torch's vmap, in today's masks, cannot be traced
            from optimum.exporters.onnx import model_patcher
            from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as MASKS

            MASKS.register("sdpa", model_patcher.sdpa_mask_without_vmap)
            MASKS.register("eager", model_patcher.eager_mask_without_vmap)
        except (ImportError, AttributeError):
            pass
    elif "pixel_values" in accepted and "input_ids" not in accepted:
        from PIL import Image
        from transformers import AutoImageProcessor

        processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        inputs = dict(processor([Image.new("RGB", (64, 64))] * 2, return_tensors="pt"))
        inputs = {"pixel_values": inputs["pixel_values"]}
        axes = {"pixel_values": {0: "batch"}}
    else:
        raise Refused("unknown", why)
    with torch.no_grad():
        tensors = {name: value for name, value in model(**inputs).items() if torch.is_tensor(value)}
    for name, value in tensors.items():
        axes[name] = {0: "batch", **({1: "sequence"} if value.shape[1:2] == (7,) else {})}
    torch.onnx.export(
        _named(model, list(inputs), list(tensors)),
        tuple(inputs.values()),
        str(file),
        input_names=list(inputs),
        output_names=list(tensors),
        dynamic_axes=axes,
        opset_version=OPSET,
        dynamo=False,
    )


def _named(model: Any, inputs: list[str], outputs: list[str]) -> Any:
    """Inputs and outputs by position, as the tracing exporter wants them."""
    import torch

    class Named(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            answer = self.model(**dict(zip(inputs, values, strict=True)))
            return tuple(answer[name] for name in outputs)

    return Named().eval()


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's outputs for each run's inputs, by weights that are read anew: no exporter touched them."""
    import numpy as np
    import torch

    model = load(request["model"], request["task"], request["class"]).model
    values: dict[str, Any] = {}
    with np.load(request["feeds"], allow_pickle=False) as feeds, torch.inference_mode():
        runs: dict[str, dict[str, Any]] = {}
        for entry in feeds.files:
            number, _, name = entry.partition(".")
            runs.setdefault(number, {})[name] = torch.from_numpy(feeds[entry])
        for number, inputs in runs.items():
            answer = model(**inputs)
            for place, name in enumerate(request["outputs"]):
                if answer.get(name) is None:
                    raise Refused("outputs", f"the graph's output '{name}' is not one of PyTorch's model")
                values[f"{number}.{place}"] = answer[name].numpy()
    np.savez(request["target"], **values)
    return {"runs": len(runs)}


def main(place: str) -> None:
    """Do what the request says."""
    request = json.loads(Path(place).read_text())
    sys.addaudithook(_without_network)
    try:
        report = {"export": export, "answers": answers}[request["action"]](request)
    except Refused as refusal:
        report = {"refused": refusal.kind, "message": str(refusal)}
    Path(request["report"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])

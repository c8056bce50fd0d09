"""Exports vision models with random weights. Run by .venv-export's Python (the fixture does):

    PYTHONPATH=. .venv-export/bin/python -m tests.models.vision FOLDER

Each folder below FOLDER holds preprocessor_config.json and ``pixels.npy``, what transformers' processor makes
of the test images; this adds the ONNX model, config.json and ``reference.npz``, the PyTorch model's answers.
There is no Pillow in that environment, and no PyTorch in the other.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    ConvNextConfig,
    ConvNextForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
    ResNetModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

SIZE = 64
LABELS = {number: f"thing {number}" for number in range(12)}
VIT = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": SIZE,
    "patch_size": 16,
}
CLIP_VISION = {**VIT, "projection_dim": 32}
CLIP_TEXT = {
    "vocab_size": 600,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 40,
    "projection_dim": 32,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
UNREAD = {("resnet_embed", "last_hidden_state"), ("clip_vision", "last_hidden_state")}
"""Answers that no test reads."""
CONVOLUTIONS = {"depths": [1, 1], "hidden_sizes": [24, 40]}


def spread(model: torch.nn.Module) -> torch.nn.Module:
    """Batch normalisation with its first statistics lets activations vanish: give it others."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_var, 0.2, 1.0)
    return model


def balance(model: Any, pixels: torch.Tensor) -> None:
    """Shift and stretch the logits, so that labels are the best of some images by a clear margin."""
    last = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        logits = model(pixels).logits
        stretch = 2 / logits.std(dim=0)
        last.weight.mul_(stretch[:, None])
        last.bias.copy_((last.bias - logits.mean(dim=0)) * stretch)


class Named(torch.nn.Module):
    """A model as a function of tensors that gives a tuple."""

    def __init__(self, model: torch.nn.Module, inputs: list[str], outputs: list[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answer = self.model(**dict(zip(self.inputs, tensors, strict=True)))
        return tuple(getattr(answer, name) for name in self.outputs)


def export(model: Any, folder: Path, inputs: dict[str, torch.Tensor], outputs: list[str]) -> Named:
    """model.onnx and config.json."""
    named = Named(model.eval(), list(inputs), outputs).eval()
    torch.onnx.export(
        named,
        tuple(inputs.values()),
        str(folder / "model.onnx"),
        input_names=list(inputs),
        output_names=outputs,
        dynamic_axes={
            **{
                name: {0: "batch"} if name == "pixel_values" else {0: "batch", 1: "tokens"} for name in inputs
            },
            **{name: {0: "batch"} for name in outputs},
        },
        opset_version=17,
        dynamo=False,
    )
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    return named


def image_model(model: Any, folder: Path, outputs: list[str]) -> None:
    """Export, and the answers to every image alone."""
    pixels = torch.from_numpy(np.load(folder / "pixels.npy"))
    if outputs == ["logits"]:
        balance(model.eval(), pixels)
    named = export(model, folder, {"pixel_values": pixels[:2]}, outputs)
    with torch.no_grad():
        rows = [named(pixels[row : row + 1]) for row in range(len(pixels))]
    answers = {
        name: torch.cat([row[n] for row in rows]).numpy()
        for n, name in enumerate(outputs)
        if (folder.name, name) not in UNREAD
    }
    np.savez(folder / "reference.npz", **answers)


def clip_text(folder: Path) -> None:
    """The text tower; token ids of the test texts lie in ids.npy, padded with the end token."""
    torch.manual_seed(6)
    model = CLIPTextModelWithProjection(CLIPTextConfig(**CLIP_TEXT)).eval()
    ids = torch.from_numpy(np.load(folder / "ids.npy"))
    mask = torch.from_numpy(np.load(folder / "mask.npy"))
    inputs = {"input_ids": ids[:2], "attention_mask": mask[:2]}
    named = export(model, folder, inputs, ["text_embeds", "last_hidden_state"])
    rows = []
    with torch.no_grad():
        for row in range(len(ids)):
            length = int(mask[row].sum())
            rows.append(named(ids[row : row + 1, :length], mask[row : row + 1, :length])[0])
    np.savez(folder / "reference.npz", text_embeds=torch.cat(rows).numpy())


def clip_both(folder: Path) -> None:
    """Both towers in one graph, which cannot be an endpoint of either."""
    torch.manual_seed(7)
    config = CLIPConfig(text_config=CLIP_TEXT, vision_config=CLIP_VISION, projection_dim=32)
    pixels = torch.zeros(2, 3, SIZE, SIZE)
    inputs = {"input_ids": torch.ones(2, 5, dtype=torch.int64), "pixel_values": pixels}
    export(CLIPModel(config), folder, inputs, ["text_embeds", "image_embeds"])
    np.savez(folder / "reference.npz")


def main(folder: Path) -> None:
    """Every model that is not there yet."""
    torch.manual_seed(0)
    labels = {"id2label": LABELS, "label2id": {name: number for number, name in LABELS.items()}}
    jobs = {
        "vit": lambda: (spread(ViTForImageClassification(ViTConfig(**VIT, **labels))), ["logits"]),
        "resnet": lambda: (
            spread(ResNetForImageClassification(ResNetConfig(**CONVOLUTIONS, **labels, embedding_size=16))),
            ["logits"],
        ),
        "convnext": lambda: (
            spread(
                ConvNextForImageClassification(
                    ConvNextConfig(
                        **CONVOLUTIONS, **labels, num_stages=2, problem_type="multi_label_classification"
                    )
                )
            ),
            ["logits"],
        ),
        "vit_embed": lambda: (ViTModel(ViTConfig(**VIT)), ["last_hidden_state", "pooler_output"]),
        "vit_tokens": lambda: (ViTModel(ViTConfig(**VIT), add_pooling_layer=False), ["last_hidden_state"]),
        "resnet_embed": lambda: (
            spread(ResNetModel(ResNetConfig(**CONVOLUTIONS, embedding_size=16))),
            ["last_hidden_state", "pooler_output"],
        ),
        "clip_vision": lambda: (
            CLIPVisionModelWithProjection(CLIPVisionConfig(**CLIP_VISION)),
            ["image_embeds", "last_hidden_state"],
        ),
    }
    for name, make in jobs.items():
        if not (folder / name / "reference.npz").is_file():
            torch.manual_seed(sum(map(ord, name)))
            model, outputs = make()
            image_model(model, folder / name, outputs)
    for name, job in {"clip_text": clip_text, "clip_both": clip_both}.items():
        if not (folder / name / "reference.npz").is_file():
            job(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

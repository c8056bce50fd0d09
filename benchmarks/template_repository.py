"""The usual template: what tutorials and transformer-deploy write for a text model on Triton.

    python benchmarks/template_repository.py MODEL_FOLDER REPOSITORY [NAME]

A Python model with the transformers tokenizer that pads each request by itself, the graph as it was exported,
an ensemble of both; where the graph does not pool, a second Python model does, as a post-processing step.
Written as the tutorials have it: dynamic batching, no instance_group and no thread count unless asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

BATCH = 32
CODE = Path(__file__).resolve().parent / "template_models"
BATCHING = "dynamic_batching { }\n"
TEXT = [("TEXT", "TYPE_STRING", "1")]


@dataclass(frozen=True, kw_only=True)
class Template:
    """How one differs from the usual one; None leaves Triton's and ONNX Runtime's defaults."""

    instances: int | None = None
    kind: str = "KIND_CPU"
    """Of these instances."""
    threads: int | None = None
    tokenizers: int | None = None
    batching: bool = True
    batch: int = BATCH
    """Triton's max_batch_size of every model."""
    inputs: tuple[str, ...] = ()
    """What the tokenizer makes; empty for what the graph takes."""


def write(source: Path, target: Path, name: str, template: Template | None = None) -> None:
    """Write the models NAME, NAME_tokenizer, NAME_model and, where needed, NAME_pool into a repository."""
    chosen = template or Template()
    inputs, outputs = _ports(source / "model.onnx")
    hidden = next((each for each in ("sentence_embedding", "logits") if each in outputs), "")
    finished = bool(hidden)
    hidden = hidden or next(iter(outputs))
    width = outputs[hidden] or json.loads((source / "config.json").read_text())["hidden_size"]
    encoded = _encoded(inputs)
    named = "logits" if hidden == "logits" else "embedding"
    answer = [(named, "TYPE_FP32", str(width))]
    made = [(hidden, "TYPE_FP32", str(width) if finished else f"-1, {width}")]
    batching = BATCHING if chosen.batching else ""
    tokenizer(source, target, name, replace(chosen, inputs=tuple(inputs)))
    tail = batching + _group(chosen.instances, chosen.kind)
    if chosen.threads:
        value = f'{{ string_value: "{chosen.threads}" }}'
        tail += f'parameters {{ key: "intra_op_thread_count" value {value} }}\n'
    _model(target, f"{name}_model", 'backend: "onnxruntime"', encoded, made, tail, chosen.batch)
    link = target / f"{name}_model" / "1" / "model.onnx"
    link.unlink(missing_ok=True)
    os.link(source / "model.onnx", link)
    if not finished:
        both = [(hidden, "TYPE_FP32", f"-1, {width}"), ("attention_mask", "TYPE_INT64", "-1")]
        _model(target, f"{name}_pool", 'backend: "python"', both, answer, batching, chosen.batch)
        shutil.copyfile(CODE / "pool.py", target / f"{name}_pool" / "1" / "model.py")
    steps = [_step(f"{name}_tokenizer", {"TEXT": "TEXT"}, {each: each for each in inputs})]
    if finished:
        steps.append(_step(f"{name}_model", {each: each for each in inputs}, {hidden: named}))
    else:
        steps.append(_step(f"{name}_model", {each: each for each in inputs}, {hidden: hidden}))
        mask = {hidden: hidden, "attention_mask": "attention_mask"}
        steps.append(_step(f"{name}_pool", mask, {"embedding": "embedding"}))
    tail = "ensemble_scheduling {\n  step [\n" + ",\n".join(steps) + "\n  ]\n}\n"
    _model(target, name, 'platform: "ensemble"', TEXT, answer, tail, chosen.batch)
    (target / name / "1" / ".gitkeep").write_text("")


def tokenizer(source: Path, target: Path, name: str, template: Template) -> None:
    """Write the model NAME_tokenizer alone."""
    tail = (BATCHING if template.batching else "") + _group(template.tokenizers)
    encoded = _encoded(template.inputs)
    _model(target, f"{name}_tokenizer", 'backend: "python"', TEXT, encoded, tail, template.batch)
    shutil.copyfile(CODE / "tokenizer.py", target / f"{name}_tokenizer" / "1" / "model.py")
    files = target / f"{name}_tokenizer" / "1" / "tokenizer"
    files.mkdir(exist_ok=True)
    for each in (
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "vocab.txt",
        "config.json",
    ):
        if (source / each).exists():
            shutil.copyfile(source / each, files / each)


def _encoded(names: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(each, "TYPE_INT64", "-1") for each in names]


def _ports(path: Path) -> tuple[list[str], dict[str, int]]:
    """Names of the inputs, and of the outputs with their last axis: 0 where the graph leaves it open."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    widths = {each.name: each.type.tensor_type.shape.dim[-1].dim_value for each in graph.output}
    return [each.name for each in graph.input], widths


Tensors = Sequence[tuple[str, str, str]]


def _model(
    target: Path, name: str, kind: str, inputs: Tensors, outputs: Tensors, tail: str, batch: int
) -> None:
    folder = target / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    parts = [f'name: "{name}"\n{kind}\nmax_batch_size: {batch}\n']
    for field, tensors in (("input", inputs), ("output", outputs)):
        entries = [
            f'  {{ name: "{each}" data_type: {kind_} dims: [ {dims} ] }}' for each, kind_, dims in tensors
        ]
        parts.append(f"{field} [\n" + ",\n".join(entries) + "\n]\n")
    (folder / "config.pbtxt").write_text("".join(parts) + tail)


def _group(count: int | None, kind: str = "KIND_CPU") -> str:
    return f"instance_group [ {{ count: {count} kind: {kind} }} ]\n" if count else ""


def _step(name: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    lines = [f'model_name: "{name}" model_version: -1']
    for field, pairs in (("input_map", inputs), ("output_map", outputs)):
        lines += [f'{field} {{ key: "{key}" value: "{value}" }}' for key, value in pairs.items()]
    return "    {\n" + "".join(f"      {line}\n" for line in lines) + "    }"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, metavar="MODEL_FOLDER", help="an exported model")
    parser.add_argument("target", type=Path, metavar="REPOSITORY", help="where the models are written")
    parser.add_argument("name", nargs="?", default="usual", metavar="NAME", help="default: %(default)s")
    given = parser.parse_args()
    write(given.source, given.target, given.name)

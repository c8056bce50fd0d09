"""Which audio task a model has, if any."""

from __future__ import annotations

from triton_repo_builder.base.dtypes import FP16, FP32
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import audio_processor
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.model.read.source import Source

NAME = "input_values"
SPECTROGRAMS = (NAME, "input_features")
"""Inputs of Whisper, AST and similar models."""


def audio_input(signature: ModelSignature) -> TensorSpec | None:
    """The only input, if it can be samples: floats called ``input_values``, [batch, samples]."""
    if len(signature.inputs) != 1:
        return None
    spec = signature.inputs[0]
    return spec if spec.name == NAME and spec.dtype in (FP32, FP16) and len(spec.dims) == 2 else None


def sounds(source: Source) -> bool:
    """Whether the model takes samples and a file describes how a file becomes samples."""
    if audio_input(source.signature) is None or source.preprocessor is None:
        return False
    return audio_processor.kind(source.preprocessor) == audio_processor.KIND


def unserved(source: Source) -> str:
    """Why a model of sounds is served as plain tensors, as far as its files say; empty for other models."""
    kind = audio_processor.kind(source.preprocessor) if source.preprocessor else ""
    samples = audio_input(source.signature) is not None
    floats = all(spec.dtype in (FP32, FP16) for spec in source.signature.inputs)
    if kind == audio_processor.KIND and floats and not samples:
        inputs = ", ".join(f"{spec.name} {list(spec.shape or ())}" for spec in source.signature.inputs)
        taken = f"one input {NAME} [batch, samples]"
        return f"{kind} prepares sounds for {taken}, and the graph has {inputs}: served as plain tensors"
    if samples and not kind:
        return "no preprocessor_config.json (--preprocessor names one): served as plain tensors"
    if samples or (kind.endswith("FeatureExtractor") and source.signature.inputs[0].name in SPECTROGRAMS):
        return f"{kind} is not served, only {audio_processor.KIND}: served as plain tensors"
    return ""


def check(source: Source, task: str) -> None:
    """``TrbError`` if the user asked for an audio task that this model cannot have."""
    if audio_input(source.signature) is None:
        names = ", ".join(f"{spec.name} {list(spec.shape or ())}" for spec in source.signature.inputs)
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{task} needs one input {NAME} [batch, samples], the model takes {names}",
            where=str(source.path),
            remedy="export a model that takes samples (Wav2Vec2, HuBERT, WavLM …), or use --task tensor",
        )
    if source.preprocessor is None:
        raise TrbError(
            Code.NOT_FOUND,
            "no preprocessor_config.json beside the model: no file states its sampling rate",
            where=str(source.path.parent),
            remedy="name one with --preprocessor, or use --task tensor",
        )
    audio_processor.read(source.preprocessor, source.config)

"""The output that a task's head gives: known by its name and its width, not by its rank alone.

A checkpoint of one task may be exported for another one (optimum-cli export onnx --task feature-extraction):
config.json then names a head that the graph does not have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

LOGITS = "logits"
FEATURES = re.compile(
    r"(encoder_|decoder_)?(last_)?hidden_states?(\W\d+)?|pooler_output|pooled(_output)?|contextual"
    r"|(sentence|token|text|image|word)_(embed(ding)?s?|features)|embeddings?"
)
"""Exporters' names for the input of a head."""
SCORES = re.compile(r"(^|_)(logits?|scores?|predictions?)$")
USUAL_LABELS = 2
"""Labels of a classifier whose config.json names none, as transformers' PretrainedConfig has it."""


def find(source: Source, rank: int, widths: Collection[int], axis: int = -1) -> TensorSpec | None:
    """``logits``, else the only output of this rank that may be a head's.

    ``widths``: the sizes that the ``axis`` of another name may have; empty if no file states any. An output
    as wide as the hidden states is taken for these, unless a head of that width is stated.
    """
    logits = source.signature.output(LOGITS)
    if logits is not None and len(logits.shape or ()) == rank and not _hidden(source, logits, widths, axis):
        return logits
    candidates = [
        spec
        for spec in source.signature.outputs
        if len(spec.shape or ()) == rank
        and not FEATURES.fullmatch(spec.name)
        and (spec.dims[axis] == -1 or not widths or spec.dims[axis] in widths)
        and (SCORES.search(spec.name) or spec.dims[axis] != hidden_size(source))
        and not _hidden(source, spec, widths, axis)
    ]
    named = [spec for spec in candidates if SCORES.search(spec.name)] or candidates
    return named[0] if len(named) == 1 else None


def _hidden(source: Source, spec: TensorSpec, widths: Collection[int], axis: int) -> bool:
    """Whether an output is as wide as the hidden states, and nothing says that a head is."""
    width = spec.dims[axis]
    return width > 0 and width == hidden_size(source) and width not in widths


def are_scores(source: Source, spec: TensorSpec) -> bool:
    """Whether an output of every token is a head's: by its name, or by the width of the vocabulary."""
    if SCORES.search(spec.name) or are_labels(source, spec):
        return True
    return spec.dims[-1] != hidden_size(source) and spec.dims[-1] in vocabularies(source)


def are_labels(source: Source, spec: TensorSpec) -> bool:
    """Whether an output is as wide as config.json names labels, and not as wide as the hidden states."""
    width, named = spec.dims[-1], id2label(source.config)
    hidden = hidden_size(source)
    return isinstance(named, dict) and 0 < hidden != width == len(named)


def hidden_size(source: Source) -> int:
    """The width of the model's hidden states as config.json says it; 0 without."""
    sizes = (source.config.get(name) for name in ("hidden_size", "d_model", "dim", "n_embd"))
    return next((size for size in sizes if isinstance(size, int)), 0)


def find_tokens(source: Source) -> TensorSpec | None:
    """The output of one logit for each token of the vocabulary."""
    widths = vocabularies(source)
    spec = find(source, 3, widths)
    if spec is None or (spec.dims[-1] != -1 and widths and spec.dims[-1] not in widths):
        return None
    return spec


def find_labels(source: Source, rank: int) -> TensorSpec | None:
    """The output of one logit for each label, for each row (rank 2) or token (rank 3)."""
    return find(source, rank, labels(source))


def need_tokens(source: Source, task: str) -> TensorSpec:
    """The output of ``find_tokens``. Raises ``TrbError`` TASK_UNCLEAR. ``task``: the task to export for."""
    axes = ("batch", "tokens", "vocabulary")
    return _needed(source, find_tokens(source), task, axes, vocabularies(source))


def need_labels(source: Source, task: str, *axes: str) -> TensorSpec:
    """The output of ``find_labels`` with these axes before the labels. Raises ``TrbError`` TASK_UNCLEAR."""
    output = find_labels(source, len(axes) + 1)
    return _needed(source, output, task, (*axes, "labels"), labels(source))


def _needed(
    source: Source, spec: TensorSpec | None, task: str, axes: tuple[str, ...], widths: Collection[int]
) -> TensorSpec:
    if spec is not None:
        return spec
    sizes = " or ".join(f"{width:,}" for width in sorted(widths))
    shape = ", ".join(axes) + (f"] ({axes[-1]}: {sizes})" if sizes else "]")
    other = "image-embedding" if task.startswith("image") else "embedding"
    raise TrbError(
        Code.TASK_UNCLEAR,
        f"the model has no output of scores [{shape} for the task {task}; it has {shown(source)}",
        where=str(source.path),
        remedy=f"export it for {task} (optimum-cli export onnx --task {task}), or use --task {other} or "
        "--task tensor",
    )


def shown(source: Source) -> str:
    """The graph's outputs with their shapes, in one line."""
    return ", ".join(map(str, source.signature.outputs[:4]))


def id2label(config: Mapping[str, Any]) -> Any:
    """Names of the labels in config.json, by number; from ``label2id`` if there is no ``id2label``."""
    named, numbers = config.get("id2label"), config.get("label2id")
    if named or not isinstance(numbers, dict):
        return named
    turned = {number: name for name, number in numbers.items() if type(number) is int}
    return turned if sorted(turned) == list(range(len(numbers))) else named


def labels(source: Source) -> frozenset[int]:
    """How many labels config.json says; empty without such a file."""
    config = source.config
    named = id2label(config)
    if isinstance(named, dict) and named:
        return frozenset({len(named)})
    if isinstance(count := config.get("num_labels"), int) and count > 0:
        return frozenset({count})
    return frozenset({USUAL_LABELS}) if config.get("architectures") else frozenset()


def vocabularies(source: Source) -> frozenset[int]:
    """The sizes of the vocabulary by the graph, config.json and the tokenizer; they may be padded."""
    sizes = [source.signature.vocabulary, source.config.get("vocab_size")]
    if source.tokenizer is not None:
        sizes.append(source.tokenizer_spec.library.get_vocab_size(with_added_tokens=True))
    return frozenset(size for size in sizes if isinstance(size, int) and size > 0)

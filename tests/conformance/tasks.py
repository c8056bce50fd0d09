"""The columns of the table: what is asked of which export, and how the answers are compared. Plain data.

A task that ``trb`` does not know yet gives *pending* cells, which run by themselves once it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance import inputs
from conformance.architecture import Architecture
from conformance.architectures import ARCHITECTURES, MORE_ROWS, POSITION_ROWS, TOKENIZER_ROWS

Entry = Mapping[str, Any]
"""One request's inputs by name; a tuple is several values of one row."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One column."""

    name: str
    task: str
    """What ``trb`` calls it."""
    head: str
    """The export it is built from (``heads``)."""
    fields: tuple[str, ...] = ("TEXT",)
    """The endpoint's inputs."""
    asked: Sequence[Any]
    """What is asked; a tuple per entry where there are several inputs."""
    reference: str
    """The function in ``references`` that answers in PyTorch."""
    compare: str
    """The function in ``compare``."""
    options: tuple[str, ...] = ()
    """Flags of trb build."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the reference is called with."""
    only: tuple[str, ...] = ()
    """Architectures it is run on; empty for all that have the head."""
    model: str = ""
    """The suffix of the model that is asked; the endpoint itself else."""
    images: bool = False
    """Whether files are asked, of images or of sounds."""

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What is asked, by the names of the inputs."""
        rows = [entry if len(self.fields) > 1 else (entry,) for entry in self.asked]
        return [dict(zip(self.fields, row, strict=True)) for row in rows]

    def fits(self, row: Architecture) -> bool:
        """Whether the table has this cell."""
        if self.images != bool(row.processor) or self.head not in row.heads:
            return False
        return row.name in self.only if self.only else True


VARIED = ("BERT", "RoBERTa", "XLM-R")
POOLED = (
    *("CLIP text tower", "DPR question encoder", "SigLIP text tower"),
    "XLM-R, three kinds of vectors",
)
DECODERS = (
    *("Qwen3 embedder", "Gemma3 embedder", "Llama", "Mistral, the end of each text", "GPT-NeoX", "GPT-Neo"),
    *("OPT", "Phi", "Gemma2"),
)
"""These give one vector per text themselves."""
_TOKEN_ROWS = tuple(
    row.name for row in ARCHITECTURES.values() if row.family and row.name not in (*POOLED, "Longformer")
)
_PLAIN_ROWS = tuple(name for name in _TOKEN_ROWS if name not in TOKENIZER_ROWS)


def _embedding(
    pooling: str, only: tuple[str, ...], *flags: str, normalize: bool = True, note: str = ""
) -> Task:
    return Task(
        name=f"embedding ({pooling}{note}{'' if normalize else ', not normalised'})",
        task="embedding",
        head="base",
        asked=inputs.TEXTS,
        reference="embedding",
        compare="numbers",
        options=("--pooling", pooling, "--normalize" if normalize else "--no-normalize", *flags),
        settings={"pooling": pooling, "normalize": normalize},
        only=only,
    )


def _entities(strategy: str, only: tuple[str, ...]) -> Task:
    return Task(
        name=f"token-classification ({strategy})",
        task="token-classification",
        head="tokens",
        asked=inputs.TEXTS,
        reference="entities",
        compare="entities",
        options=("--aggregation", strategy),
        settings={"aggregation_strategy": strategy},
        only=only,
    )


_ALL = (
    Task(
        name="tokenization",
        task="embedding",
        head="base",
        asked=inputs.TEXTS,
        reference="tokens",
        compare="tokens",
        options=("--pooling", "mean"),
        only=_TOKEN_ROWS,
        model="_tokenizer",
    ),
    Task(
        name="tokenization (padded rows)",
        task="embedding",
        head="base",
        asked=inputs.TEXTS,
        reference="tokens",
        compare="tokens",
        options=("--pooling", "mean", "--padding", "rows"),
        only=tuple(name for name in _TOKEN_ROWS if name not in MORE_ROWS),
        model="_tokenizer",
    ),
    _embedding("mean", (*_TOKEN_ROWS, "Longformer")),
    _embedding("mean", POSITION_ROWS, "--padding", "rows", note=", padded rows"),
    *(_embedding(pooling, VARIED) for pooling in ("cls", "max", "weightedmean")),
    _embedding("lasttoken", (*VARIED, *DECODERS)),
    _embedding("mean_sqrt_len", VARIED, normalize=False),
    Task(
        name="embedding (in the model)",
        task="embedding",
        head="base",
        asked=inputs.TEXTS,
        reference="text_embeds",
        compare="numbers",
        only=POOLED,
    ),
    Task(
        name="text-classification",
        task="text-classification",
        head="classes",
        asked=inputs.TEXTS,
        reference="scores",
        compare="scores",
    ),
    Task(
        name="text-classification (multi-label)",
        task="text-classification",
        head="multi",
        asked=inputs.TEXTS,
        reference="scores",
        compare="scores",
    ),
    Task(
        name="text-classification (one logit)",
        task="text-classification",
        head="one",
        asked=inputs.TEXTS,
        reference="scores",
        compare="scores",
    ),
    Task(
        name="text-classification (pairs)",
        task="text-classification",
        head="classes",
        fields=("TEXT", "TEXT_PAIR"),
        asked=inputs.PAIRS,
        reference="scores",
        compare="scores",
    ),
    Task(
        name="rerank",
        task="rerank",
        head="cross",
        fields=("QUERY", "DOCUMENT"),
        asked=inputs.DOCUMENTS,
        reference="rerank",
        compare="score",
        options=("--task", "rerank"),
    ),
    _entities("simple", ()),
    *(_entities(strategy, VARIED) for strategy in ("none", "first", "average", "max")),
    Task(
        name="question-answering",
        task="question-answering",
        head="span",
        fields=("QUESTION", "CONTEXT"),
        asked=inputs.QUESTIONS,
        reference="answers",
        compare="answer",
    ),
    Task(
        name="question-answering (impossible answers)",
        task="question-answering",
        head="span",
        fields=("QUESTION", "CONTEXT"),
        asked=inputs.QUESTIONS,
        reference="answers",
        compare="answer",
        options=("--handle-impossible-answer",),
        settings={"handle_impossible_answer": True},
        only=VARIED,
    ),
    Task(
        name="fill-mask",
        task="fill-mask",
        head="mask",
        asked=inputs.MASKED,
        reference="masks",
        compare="masks",
    ),
    Task(
        name="zero-shot-classification",
        task="zero-shot-classification",
        head="nli",
        fields=("TEXT", "LABELS"),
        asked=inputs.TOPICS,
        reference="topics",
        compare="topics",
        options=("--task", "zero-shot-classification"),
    ),
    Task(
        name="sparse-embedding",
        task="sparse-embedding",
        head="mask",
        asked=inputs.TEXTS,
        reference="sparse",
        compare="sparse",
        options=("--task", "sparse-embedding"),
    ),
    Task(
        name="late-interaction",
        task="late-interaction",
        head="late",
        asked=inputs.TEXTS,
        reference="late",
        compare="late",
        settings={"max_length": 180},
        options=("--task", "late-interaction"),
    ),
    Task(
        name="image-classification",
        task="image-classification",
        head="image classes",
        fields=("IMAGE",),
        asked=(),
        reference="image_scores",
        compare="image_scores",
        images=True,
    ),
    Task(
        name="image-embedding",
        task="image-embedding",
        head="base",
        fields=("IMAGE",),
        asked=(),
        reference="image_embedding",
        compare="numbers",
        only=(
            "ResNet",
            "ConvNeXt",
            "CLIP image tower",
            "DINOv2",
            "Swin",
            "MobileNetV2",
            "RegNet",
            "SigLIP image tower",
        ),
        images=True,
    ),
    Task(
        # optimum leaves ViT's pooler out of the export.
        name="image-embedding (cls)",
        task="image-embedding",
        head="base",
        fields=("IMAGE",),
        asked=(),
        reference="image_embedding",
        compare="numbers",
        options=("--pooling", "cls"),
        settings={"pooling": "cls"},
        only=("ViT",),
        images=True,
    ),
    Task(
        name="object-detection",
        task="object-detection",
        head="objects",
        fields=("IMAGE",),
        asked=(),
        reference="objects",
        compare="objects",
        options=("--score-threshold", "0.2"),
        settings={"threshold": 0.2},
        images=True,
    ),
    Task(
        name="semantic-segmentation",
        task="semantic-segmentation",
        head="areas",
        fields=("IMAGE",),
        asked=(),
        reference="areas",
        compare="areas",
        images=True,
    ),
    Task(
        name="zero-shot-image-classification",
        task="zero-shot-image-classification",
        head="towers",
        fields=("IMAGE", "LABELS"),
        asked=(),
        reference="pictures",
        compare="topics",
        images=True,
    ),
    Task(
        name="audio-classification",
        task="audio-classification",
        head="sound classes",
        fields=("AUDIO",),
        asked=(),
        reference="sound_scores",
        compare="sound_scores",
        images=True,
    ),
    Task(
        name="automatic-speech-recognition",
        task="automatic-speech-recognition",
        head="speech",
        fields=("AUDIO",),
        asked=(),
        reference="speech",
        compare="speech",
        images=True,
    ),
    Task(
        name="tensor",
        task="tensor",
        head="image classes",
        fields=("pixel_values",),
        asked=(),
        reference="image_logits",
        compare="tensors",
        options=("--task", "tensor"),
        images=True,
    ),
)
TASKS = {task.name: task for task in _ALL}
REFUSED = {
    "Longformer/embedding (mean)": "a tokenizer cannot fill its input 'global_attention_mask'",
    "ConvNeXt/image-embedding": "a layer norm of its own, which this export leaves out",
}
"""Cells that trb build has to refuse, in these words: what the export lacks nobody can add."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the table."""

    row: Architecture
    task: Task

    @property
    def export(self) -> str:
        """The folder of its export."""
        return slug(f"{self.row.name} {self.task.head}")

    @property
    def endpoint(self) -> str:
        """Its name on the server."""
        return slug(f"{self.row.name} {self.task.name}")

    def __str__(self) -> str:
        return f"{self.row.name}/{self.task.name}"


def cells(wanted: Sequence[str] = ()) -> list[Cell]:
    """Every cell, or those whose ``architecture/task`` starts as one of ``wanted`` does."""
    every = [
        Cell(row=row, task=task)
        for row in ARCHITECTURES.values()
        for task in TASKS.values()
        if task.fits(row)
    ]
    return [cell for cell in every if not wanted or any(str(cell).startswith(start) for start in wanted)]


def slug(text: str) -> str:
    """A name that Triton and a folder can carry."""
    return "_".join("".join(c if c.isalnum() else " " for c in text.lower()).split())

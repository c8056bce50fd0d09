"""A task: the head that it puts into the graph, its outputs, and the same arithmetic in numpy."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy.typing as npt

from triton_repo_builder.base.dtypes import INT32, INT64
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import input_names, tokenizer
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.model.read.tokenizer_template import TokenRules

Arrays = Mapping[str, npt.NDArray[Any]]


class Kind(Enum):
    """Kind of an endpoint's inputs."""

    TEXT = "text"
    IMAGE = "image"
    IMAGE_AND_TEXT = "image and text"
    AUDIO = "audio"
    TENSOR = "tensor"


class Task(Protocol):
    """A module of this package: one task, and an entry in ``TASKS``."""

    NAME: str
    KIND: Kind
    OPTIONS: tuple[str, ...]
    """Fields of ``BuildOptions`` that this task reads and not every task does."""
    ARCHITECTURES: tuple[str, ...]
    """Ends of the names in config.json's ``architectures`` of models with this task's head."""

    def fits(self, source: Source) -> bool:
        """Whether the model's files show that it was made for this task."""

    def plan(self, source: Source, options: BuildOptions) -> TaskPlan:
        """Raises ``TrbError`` if the model or the options do not fit."""


TEXT_INPUTS = tuple(input_names.ALIASES)
"""The graph inputs that a tokenizer can fill."""
MOST_ROWS = 128

Example = Mapping[str, tuple[str, ...]]
"""One row of a request: the texts of each of the endpoint's inputs."""
Encoded = Mapping[str, Any]
"""One row for the original model: ``input_ids``, ``token_type_ids``, other inputs of the answer."""


@dataclass(frozen=True, kw_only=True)
class TextInput:
    """One input of a text endpoint: one text for each row, or with ``several`` any number of them."""

    name: str
    several: bool = False
    optional: bool = False

    @property
    def plan(self) -> TensorPlan:
        """The input as config.pbtxt states it."""
        dims = (-1,) if self.several else (1,)
        return TensorPlan(name=self.name, data_type="TYPE_STRING", dims=dims, optional=self.optional)


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How the tokenizer model makes rows of tokens of the endpoint's texts."""

    truncation: str = "longest_first"
    """Which text of a pair is cut: ``longest_first``, ``only_first``, ``only_second``."""
    strided: bool = False
    """A long second text is not cut, but becomes several rows of the model."""
    longest: int | None = None
    """Most tokens of a row, if the task has a limit besides the model's."""
    offsets: str = ""
    """Character offsets for post-processing: of ``tokens`` or of ``words``; empty: none."""
    chunks: str = ""
    """How the front numbers the chunks of an item, if an item may be several rows of the model: by ``tokens``
    or ``rows`` (``model/graph/ragged.py``); empty if it never is."""
    one_run: str = ""
    """Why all rows of a batch must run at once; empty if groups of similar length may."""
    whole: str = ""
    """Shortest possible second text when it is never truncated."""
    probe: str = ""
    """Text that every valid input must contain (the mask token)."""
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Postprocess:
    """The Python model that makes the answer, if the answer needs the text again, or the image's size."""

    module: str
    """The post-processing's file in ``runtime/``, which is put beside ``runtime/postprocess.py``."""
    inputs: tuple[str, ...]
    """Names of the endpoint's inputs, of the tokenizer's and of the model's outputs."""
    outputs: tuple[TensorPlan, ...]
    """The endpoint's outputs."""
    parameters: tuple[tuple[str, str], ...] = ()
    files: Callable[[], Mapping[str, bytes]] = dict
    """Other files beside it: made only when it is written."""


@dataclass(frozen=True, kw_only=True)
class OriginalRun:
    """One item for the original model, and its outputs."""

    tokenizer: Any
    """transformers' tokenizer."""
    example: Example
    rows: Sequence[Encoded]
    outputs: Arrays
    """The original model's, [rows, longest, ...]."""
    mask: npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """One task for one model.

    ``reference`` computes the endpoint's outputs from the original model's outputs, its ``input_ids`` and
    the attention mask (all [rows, ...]), in numpy and apart from the head, so that the two can be compared. A
    task whose answer needs more than that has ``answer`` instead.
    """

    name: str
    head: Head | None
    outputs: tuple[TensorPlan, ...]
    """The model's outputs after the head, dims without the batch axis."""
    reference: Callable[[Arrays, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]
    texts: tuple[TextInput, ...] = (TextInput(name="TEXT"),)
    encoding: Encoding = Encoding()
    post: Postprocess | None = None
    examples: tuple[tuple[str, Example], ...] = ()
    """Golden inputs by name; empty: the single texts of ``examples.SINGLE``."""
    encode: Callable[[Any, Example, int | None], list[Encoded]] | None = None
    """transformers' tokenizer, texts and the limit of tokens → rows; None: the texts as they are."""
    answer: Callable[[OriginalRun], dict[str, npt.NDArray[Any]]] | None = None
    labels: tuple[str, ...] = ()
    facts: tuple[tuple[str, Any], ...] = ()
    """Settings for the manifest: pooling, activation."""
    notes: tuple[str, ...] = ()
    sparse: tuple[tuple[str, str], ...] = ()
    """Outputs (values, indices) that list the entries of a row that are not 0."""
    softmaxed: tuple[str, ...] = ()
    """Outputs of the graph that the head takes a softmax of, over their last axis."""
    pad_values: tuple[tuple[str, float], ...] = ()
    """(output, padding value) of outputs whose rows differ in length."""
    rules: TokenRules | None = None
    unsure: Callable[[Arrays, float], Collection[str]] | None = None
    """The original's outputs for one row, and the size of float noise → outputs that noise may change wholly:
    labels and the order of places. None: outputs of labels with equal ``top_scores``."""
    loose: Callable[[Arrays, float], float] | None = None
    """The original's outputs, and the noise → the share of an answer's many decisions, such as pixels, that
    noise may change."""

    @property
    def answers(self) -> tuple[TensorPlan, ...]:
        """The endpoint's outputs, dims without the batch axis."""
        return self.post.outputs if self.post else self.outputs


USUAL = {
    "mask_token": ("[MASK]", "<mask>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
}


def takes_text(signature: ModelSignature) -> bool:
    """Whether a tokenizer can fill every input of the model: rows of numbers, ids as integers."""
    names = {spec.name for spec in signature.inputs}
    ids = signature.input("input_ids")
    return (
        ids is not None
        and ids.dtype in (INT32, INT64)
        and names <= set(TEXT_INPUTS)
        and all(s.dtype.size and s.shape is not None and len(s.shape) == 2 for s in signature.inputs)
    )


def tokens_axis(source: Source) -> int:
    """Tokens of every row where the graph fixes them: then ONNX Runtime infers them of outputs; else -1."""
    ids = source.signature.input("input_ids")
    return ids.dims[1] if ids is not None and len(ids.dims) == 2 else -1


def by_rank(signature: ModelSignature, rank: int, *names: str) -> TensorSpec | None:
    """The output called one of ``names``, else the first one of that rank."""
    for name in names:
        spec = signature.output(name)
        if spec and spec.shape is not None and len(spec.shape) == rank:
            return spec
    return next((s for s in signature.outputs if s.shape is not None and len(s.shape) == rank), None)


def rows_of_texts(tokenizer: Any, example: Example, limit: int | None) -> list[Encoded]:
    """One row for the original model by transformers' tokenizer: the text, or the pair of texts."""
    row = tokenizer(
        *(texts[0] for texts in example.values()),
        truncation=limit is not None,
        max_length=limit,
        padding=False,
        return_token_type_ids=True,
        return_attention_mask=False,
    )
    return [{"input_ids": list(row["input_ids"]), "token_type_ids": list(row["token_type_ids"])}]


PROBABILITIES = {"Softmax": "a Softmax", "Sigmoid": "a Sigmoid"}


def probabilities(signature: ModelSignature, output: str) -> str:
    """A note if the graph itself makes scores of its logits; empty if it gives logits."""
    maker = PROBABILITIES.get(signature.made_by.get(output, ""))
    return f"output '{output}' comes from {maker}: its numbers are the scores" if maker else ""


def need_logits(source: Source, output: str, task: str) -> None:
    """``TrbError`` if the task needs logits and the graph has made probabilities of them."""
    if probabilities(source.signature, output):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"the task {task} needs logits, and output '{output}' comes from "
            f"{PROBABILITIES[source.signature.made_by[output]]}",
            where=str(source.path),
            remedy="export the model without that last operator (optimum's export gives logits), or use "
            "--raw-output",
        )


def architecture(source: Source, *kinds: str) -> str:
    """The first architecture of config.json that ends so; empty if there is none."""
    names = map(str, source.config.get("architectures") or ())
    return next((name for name in names if name.endswith(kinds)), "") if kinds else ""


def unnamed_logits(source: Source) -> int:
    """The width of ``logits`` [batch, tokens, width] if config.json names no architecture; else 0."""
    logits = source.signature.output("logits")
    if source.config.get("architectures") or logits is None or len(logits.dims) != 3:
        return 0
    return max(logits.dims[-1], 0)


def by_answer(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """The ``reference`` of a task that has ``answer``: the model's own outputs, to see how far they move."""
    return dict(outputs)


def token_id(source: Source, role: str) -> int:
    """The id of ``mask_token``, ``unk_token`` or ``cls_token`` as the tokenizer's files name it; -1: none."""
    return token(source, role)[1]


def token(source: Source, role: str) -> tuple[str, int]:
    """(text, id) of a special token; ("", -1) if the files name none or the vocabulary lacks it."""
    assert source.tokenizer is not None
    folder = source.tokenizer.parent
    document = json.loads(source.tokenizer_spec.served)
    added = {entry["content"]: entry["id"] for entry in document.get("added_tokens") or ()}
    vocabulary = document.get("model", {}).get("vocab")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        named = tokenizer.settings(folder, name).get(role)
        text = named.get("content") if isinstance(named, dict) else named
        if not isinstance(text, str):
            continue
        if text in added:
            return text, int(added[text])
        if isinstance(vocabulary, dict) and text in vocabulary:
            return text, int(vocabulary[text])
    # A folder without these files: the defaults of transformers' tokenizer classes.
    usual = next((text for text in USUAL.get(role, ()) if text in added), "")
    return (usual, int(added[usual])) if usual else ("", -1)


def most_rows(options: BuildOptions) -> tuple[str, str]:
    """Parameter of the tokenizer model: chunks that one item of a request may have.

    All of them are in memory at once, and one request must not be able to take it all.
    """
    return "most_rows", str(options.most_rows or MOST_ROWS)

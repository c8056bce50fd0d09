"""Options of ``trb build``, each declared once: flags, trb.toml, checks, manifest and docs come from here.

Which task takes which option, the tasks state (``OPTIONS``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from triton_repo_builder.base.declaration import Option, Topic, declare, flag, option
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import (
    Choice,
    Constants,
    Duration,
    FilePath,
    FilePaths,
    InvalidValue,
    Labels,
    Line,
    Number,
    Padding,
    Share,
    Sizes,
    Switch,
    Text,
    Version,
)
from triton_repo_builder.base.releases import Target
from triton_repo_builder.model.read.hub_name import ModelPath
from triton_repo_builder.repository.manifest import Conversion, HubModel

DEFAULT_MAX_BATCH_SIZE = 32
MOST_ROWS = 4096
MOST_ANSWERS = 1000
"""More of them are the tail of the vocabulary, and every one is sent."""
MOST_CACHED = 1_000_000
"""Texts: about a gigabyte of tokens."""
KEEP, AUTO = "keep", "auto"
"""Values of ``precision``."""
ORIGINS = "origins"
TASK_NAMES = (
    "embedding", "sparse-embedding", "late-interaction", "text-classification", "rerank",
    "token-classification", "question-answering", "fill-mask", "zero-shot-classification",
    "image-classification", "image-embedding", "object-detection", "semantic-segmentation",
    "zero-shot-image-classification", "audio-classification", "automatic-speech-recognition", "tensor",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The user's choices; None if the build decides."""

    model: Path = field(
        metadata=declare(
            ModelPath(),
            Topic.MODEL,
            "ONNX file, a folder that an exporter wrote, a model on the Hub (ORG/NAME, "
            "hf://ORG/NAME@REVISION) or of MLflow (models:/NAME/VERSION, runs:/RUN/PATH), or an s3:// "
            "or https:// address.",
            recorded=False,
        )
    )
    file: str | None = option(
        None,
        Text(),
        Topic.MODEL,
        "Which ONNX file of that folder, e.g. onnx/model_fp16.onnx.",
        default="model.onnx, or the only one",
        metavar="NAME",
        recorded=False,
    )
    from_model: Path | None = option(
        None,
        FilePath(),
        Topic.MODEL,
        "Folder of the model that was exported: its modules.json, prompts, pooling and activation, which "
        "exporters leave behind.",
        recorded=False,
    )
    input: tuple[tuple[str, str], ...] = option(
        (),
        Labels(),
        Topic.MODEL,
        "What the graph calls an input, e.g. input_ids=input.1; repeatable.",
        default="known names",
        metavar="NAME=INPUT",
        rare=True,
    )
    constant: tuple[tuple[str, str], ...] = option(
        (),
        Constants(),
        Topic.MODEL,
        "Number for an input that no request gives (a scalar, or one for each row), e.g. task_id=1; "
        "repeatable.",
        metavar="INPUT=VALUE",
        rare=True,
    )
    name: str | None = option(
        None, Text(), Topic.MODEL, "Endpoint name.", default="from the file or folder", recorded=False
    )
    task: str | None = option(
        None, Text(TASK_NAMES), Topic.MODEL, "What the model is for.", default="from the model's files"
    )
    tokenizer: Path | None = option(
        None,
        FilePath(),
        Topic.MODEL,
        "tokenizer.json or its folder.",
        default="beside the model",
        recorded=False,
    )
    preprocessor: Path | None = option(
        None,
        FilePath(),
        Topic.MODEL,
        "preprocessor_config.json of a model of images or audio, or its folder.",
        default="beside the model",
        recorded=False,
    )
    labels: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.ANSWER,
        "File with the names of a classifier's labels: one a line, or JSON of number and name.",
        default="id2label in config.json",
        recorded=False,
    )
    output: Path = option(
        Path("model_repository"),
        FilePath(),
        Topic.REPOSITORY,
        "Repository to write.",
        default="model_repository",
        also=("-o",),
        recorded=False,
    )
    version: int = option(
        1,
        Version(),
        Topic.REPOSITORY,
        "Version to write; next: a new one beside those that exist.",
        default="1",
        metavar="N|next",
        recorded=False,
    )
    batching: str = option(
        "auto",
        Choice(("on", "off", "auto")),
        Topic.BATCHING,
        "Join waiting requests, in each model of the endpoint: dynamic batching.",
        default="auto: on if the graph can batch",
    )
    max_batch_size: int | None = option(
        None, Number(), Topic.BATCHING, "Maximum items in a batch.", default="32; by memory on a GPU"
    )
    preferred_batch_size: tuple[int, ...] = option(
        (),
        Sizes(),
        Topic.BATCHING,
        "Batch sizes to wait for, e.g. 8,16. The largest one caps batches.",
        metavar="N,N",
        rare=True,
    )
    max_queue_delay: int = option(
        0,
        Duration(),
        Topic.BATCHING,
        "How long a request may wait for a batch to fill, e.g. 200us or 2ms.",
        default="0",
        metavar="TIME",
        rare=True,
    )
    """Microseconds."""
    max_queue_size: int | None = option(
        None,
        Number(),
        Topic.BATCHING,
        "Requests that may wait in the queue of a model; a further one is refused at once.",
        default="no limit",
        rare=True,
    )
    queue_timeout: int = option(
        0,
        Duration(),
        Topic.BATCHING,
        "How long a request may wait in the queue of a model, e.g. 500ms; then it is refused.",
        default="no limit",
        metavar="TIME",
        rare=True,
    )
    """Microseconds."""
    priority_levels: int | None = option(
        None,
        Number(2, 100),
        Topic.BATCHING,
        "Levels of requests: 1 goes ahead of 2 in the queues; a request that states none has the last.",
        default="all alike",
        rare=True,
    )
    precision: str = option(
        KEEP,
        Choice((KEEP, "fp16", "int8", AUTO)),
        Topic.MODEL,
        "Serve a smaller file of the model, if its answers stay what they were (trb optimize); auto: the one "
        "for this hardware, if it is faster.",
        default=KEEP,
    )
    accelerator: str = option(
        "none",
        Choice(("none", "tensorrt", "openvino")),
        Topic.BATCHING,
        "Engine below ONNX Runtime: tensorrt on a GPU (fixed shapes), openvino on a CPU.",
        default="none",
        rare=True,
    )
    device: str = option(
        "auto",
        Choice(("cpu", "gpu", "auto")),
        Topic.BATCHING,
        "Hardware that will serve the model.",
        default="auto: like this machine",
    )
    instances: int | None = option(
        None,
        Number(),
        Topic.BATCHING,
        "Instances of the model (on a GPU: on each); --explain says whether this machine has the cores.",
        default="one per core, or on each GPU; up to 4 cores share one without padding",
    )
    tokenizer_instances: int | None = option(
        None, Number(), Topic.BATCHING, "Instances of the tokenizer or image decoder.", default="1", rare=True
    )
    threads: int | None = option(
        None,
        Number(least=0),
        Topic.BATCHING,
        "ONNX Runtime threads per instance; 0: all cores.",
        default="1",
        rare=True,
    )
    max_length: int | None = option(
        None, Number(), Topic.TEXT, "Truncate after this many tokens.", default="the model's own maximum"
    )
    max_text_bytes: int | None = option(
        None,
        Number(),
        Topic.TEXT,
        "Refuse a text of more bytes, and a request of more than eight times as many.",
        default="1048576",
        rare=True,
    )
    run_tokens: int | None = option(
        None,
        Number(),
        Topic.TEXT,
        "Tokens that one run of the graph takes on a CPU, padding included; further texts go into another, "
        "a longer one runs alone. Fewer take less memory.",
        default="16384",
        rare=True,
    )
    tokenizer_cache: int | None = option(
        None,
        Number(most=MOST_CACHED),
        Topic.TEXT,
        "Texts whose tokens every tokenizer instance keeps, for texts that come again.",
        default="none",
        metavar="N",
        rare=True,
    )
    reference: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.TEXT,
        "Texts like those to come: one a line, or .jsonl or .csv with a field text. trb drift compares a "
        "server's texts and answers with them; of a long file 2000 are tokenized, 500 answered.",
        default="the golden cases: too few for a verdict",
        metavar="FILE",
        recorded=False,
    )
    padding: str = option(
        "ragged",
        Padding(),
        Topic.TEXT,
        "ragged: batch texts of any length, padded inside the graph; batch: pad to the longest text of "
        "the tokenizer's batch; rows: to the longest of the request; fixed:N: to N tokens.",
        default="ragged; batch if the graph cannot take ragged input; rows for --raw-output if an output "
        "is as long as its text",
        metavar="ragged|batch|rows|fixed:N",
    )
    pooling: str | None = option(
        None,
        Text(suggestions=("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len")),
        Topic.ANSWER,
        "How token vectors become one embedding.",
        default="from 1_Pooling/",
    )
    normalize: bool | None = option(
        None,
        Switch("no-normalize"),
        Topic.ANSWER,
        "Scale embeddings to length 1.",
        default="from modules.json",
    )
    truncate_dim: int | None = option(
        None,
        Number(),
        Topic.ANSWER,
        "Keep the first N values of an embedding, for models trained for it (Matryoshka).",
        default="from the model's files",
    )
    prompt: str | None = option(
        None,
        Text(),
        Topic.ANSWER,
        "Prefix of every text to embed: a name in config_sentence_transformers.json, or the text itself; "
        "'' for none.",
        default="that file's default_prompt_name",
        metavar="NAME|TEXT",
    )
    query: bool | None = option(
        None,
        Switch("document"),
        Topic.ANSWER,
        "Late interaction: encode queries, or documents.",
        default="document",
    )
    query_length: int | None = option(
        None,
        Number(),
        Topic.ANSWER,
        "Late interaction: tokens of a query.",
        default="from the model's files",
        rare=True,
    )
    aggregation: str | None = option(
        None,
        Text(suggestions=("none", "simple", "first", "average", "max")),
        Topic.ANSWER,
        "How tokens become entities.",
        default="simple",
    )
    handle_impossible_answer: bool | None = option(
        None,
        Switch("no-handle-impossible-answer"),
        Topic.ANSWER,
        "Question answering: allow an empty answer.",
        default="no, like transformers' pipeline",
        rare=True,
    )
    top_k: int | None = option(
        None,
        Number(most=MOST_ANSWERS),
        Topic.ANSWER,
        "How many tokens for a mask, labels for an image, or objects in it.",
        default="5; objects: as many as the model's own library keeps",
    )
    score_threshold: float | None = option(
        None,
        Share(),
        Topic.ANSWER,
        "Objects with no higher score are left out.",
        default="0.5; 0.25 for Ultralytics",
        metavar="X",
    )
    iou_threshold: float | None = option(
        None,
        Share(),
        Topic.ANSWER,
        "Ultralytics: a box that covers more of a better one of its class is left out.",
        default="0.7",
        metavar="X",
        rare=True,
    )
    hypothesis_template: str | None = option(
        None,
        Text(),
        Topic.ANSWER,
        "Zero-shot: sentence for a label.",
        default="that of transformers' pipeline",
    )
    multi_label: bool | None = option(
        None,
        Switch("single-label"),
        Topic.ANSWER,
        "Zero-shot: score each label by itself, or let labels compete.",
        default="single",
    )
    most_rows: int | None = option(
        None,
        Number(most=MOST_ROWS),
        Topic.ANSWER,
        "Rows of the model that one item may become: labels of zero-shot, pieces of a long context.",
        default="128",
        rare=True,
    )
    raw_output: bool = option(
        False, Switch(), Topic.ANSWER, "Serve the model's own outputs: no pooling, softmax or labels."
    )
    source_run: str | None = option(
        None,
        Line(),
        Topic.PROVENANCE,
        "Training run that made the model, e.g. of ClearML.",
        metavar="ID",
        recorded=False,
    )
    dataset_id: str | None = option(
        None,
        Line(),
        Topic.PROVENANCE,
        "Data set (version) that the model was trained on.",
        metavar="ID",
        recorded=False,
    )
    label: tuple[tuple[str, str], ...] = option(
        (),
        Labels(),
        Topic.PROVENANCE,
        "Anything else to record; repeatable.",
        metavar="KEY=VALUE",
        recorded=False,
    )
    triton_release: str | None = option(
        None,
        Text(),
        Topic.SERVER,
        "Triton release to build for; auto: the release of its engine (docs/releases.md).",
        default="auto",
        metavar="auto|YY.MM",
        rare=True,
    )
    engine: str = option(
        "auto",
        Choice(("auto", "embedded", "docker")),
        Topic.SERVER,
        "What will run it, for the release; auto: the embedded server if installed, else Docker.",
        rare=True,
    )
    image: str | None = option(
        None, Text(), Topic.SERVER, "Image that will run it, for the release.", metavar="NAME", rare=True
    )
    response_cache: bool = option(
        False, Switch(), Topic.SERVER, "Let the server cache the endpoint's answers.", rare=True
    )
    metrics: str = option(
        "on",
        Choice(("on", "off")),
        Topic.SERVER,
        "Count texts, tokens and answers on the server's metrics page (docs/metrics.md).",
        default="on",
        rare=True,
    )
    warmup: bool = option(
        True,
        Switch("no-warmup"),
        Topic.SERVER,
        "Run one request while loading; others: docs/cookbook/first-request.md.",
        default="warmup",
        rare=True,
    )
    golden: bool = option(
        True,
        Switch("no-golden"),
        Topic.REPOSITORY,
        "Record the original model's answers for trb smoke.",
        default="golden",
        rare=True,
    )
    share_tokenizer: bool | None = option(
        None,
        Switch("no-share-tokenizer"),
        Topic.REPOSITORY,
        "Store equal tokenizer models once, named by their content.",
        default="only with --all",
        rare=True,
    )
    tokenizers_wheel: Path | None = option(
        None,
        FilePath(),
        Topic.REPOSITORY,
        "Linux wheel of tokenizers to vendor, if not on Linux x86-64.",
        rare=True,
        recorded=False,
    )
    pillow_wheel: tuple[Path, ...] = option(
        (),
        FilePaths(),
        Topic.REPOSITORY,
        "Linux wheel of Pillow to vendor, one per Python that will serve; repeatable.",
        rare=True,
        recorded=False,
    )
    hub: HubModel | None = field(default=None, compare=False, repr=False)
    """The model on a Hub of which ``model`` is the folder in the cache."""
    target: Target | None = field(default=None, compare=False, repr=False)
    """The release that ``auto`` stands for; None: the embedded server's."""
    conversion: Conversion | None = field(default=None, compare=False, repr=False)
    """How ``trb convert`` made ``model``."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Files that set options, by option; options of the command line are left out."""


OPTIONS: dict[str, Option] = {
    entry.name: entry.metadata["option"] for entry in fields(BuildOptions) if entry.metadata
}
"""Every option by the name of its field."""


def usage(name: str, message: str, remedy: str) -> TrbError:
    """The error for an option that cannot be followed."""
    return TrbError(Code.USAGE, message, where=flag(name), remedy=remedy)


def parse(name: str, text: Any) -> Any:
    """The value of a flag. Raises ``TrbError`` USAGE."""
    try:
        return OPTIONS[name].value.parse(text)
    except InvalidValue as error:
        raise usage(name, error.message, error.remedy) from None


def fixed_padding(text: str) -> int:
    """N of ``fixed:N``, 0 for the other ways. Raises ``TrbError`` USAGE."""
    try:
        return Padding().width(text)
    except InvalidValue as error:
        raise usage("padding", error.message, error.remedy) from None

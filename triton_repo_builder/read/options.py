"""Options of ``trb build``, each declared once: flags, trb.toml, checks, manifest and docs come from here.

Which task takes which option, the tasks state (``OPTIONS``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.read.option_values import (
    Choice,
    Duration,
    FilePath,
    FilePaths,
    InvalidValue,
    Labels,
    Line,
    Number,
    Padding,
    Sizes,
    Switch,
    Text,
    Value,
    Version,
)

DEFAULT_MAX_BATCH_SIZE = 32
MOST_ANSWERS = 1000
"""More of them are the tail of the vocabulary, and every one is sent."""
ORIGINS = "origins"


class Topic(Enum):
    """A section of ``trb build --help`` and of docs/options.md."""

    MODEL = "The model"
    REPOSITORY = "The repository"
    BATCHING = "Batching and hardware"
    TEXT = "Text models"
    ANSWER = "What a task answers"
    PROVENANCE = "Provenance"
    REPORT = "Preview and report"
    SERVER = "The server"


@dataclass(frozen=True, kw_only=True)
class Option:
    """How an option is declared."""

    value: Value
    topic: Topic
    help: str
    default: str = ""
    """What applies without the option, for a reader."""
    metavar: str = ""
    rare: bool = False
    """Listed last."""
    recorded: bool = True
    """Part of the recorded options: says how to build, not where or who."""


def option(value: Value, topic: Topic, help: str, **more: Any) -> dict[str, Option]:
    """Metadata of a field of ``BuildOptions``."""
    return {"option": Option(value=value, topic=topic, help=help, **more)}


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What the user asked for; None if the build decides."""

    model: Path = field(
        metadata=option(
            FilePath(), Topic.MODEL, "ONNX file, or a folder that an exporter wrote.", recorded=False
        )
    )
    name: str | None = field(
        default=None,
        metadata=option(
            Text(), Topic.MODEL, "Endpoint name.", default="from the file or folder", recorded=False
        ),
    )
    task: str | None = field(
        default=None,
        metadata=option(
            Text(
                suggestions=(
                    "embedding",
                    "sparse-embedding",
                    "late-interaction",
                    "text-classification",
                    "rerank",
                    "token-classification",
                    "question-answering",
                    "fill-mask",
                    "zero-shot-classification",
                    "image-classification",
                    "image-embedding",
                    "tensor",
                )
            ),
            Topic.MODEL,
            "What the model is for.",
            default="from the model's files",
        ),
    )
    tokenizer: Path | None = field(
        default=None,
        metadata=option(
            FilePath(),
            Topic.MODEL,
            "tokenizer.json or its folder.",
            default="beside the model",
            recorded=False,
        ),
    )
    preprocessor: Path | None = field(
        default=None,
        metadata=option(
            FilePath(),
            Topic.MODEL,
            "preprocessor_config.json of an image model, or its folder.",
            default="beside the model",
            recorded=False,
        ),
    )
    output: Path = field(
        default=Path("model_repository"),
        metadata=option(
            FilePath(), Topic.REPOSITORY, "Repository to write.", default="model_repository", recorded=False
        ),
    )
    version: int = field(
        default=1,
        metadata=option(
            Version(),
            Topic.REPOSITORY,
            "Version to write; next: a new one beside those that exist.",
            default="1",
            metavar="N|next",
            recorded=False,
        ),
    )
    batching: str = field(
        default="auto",
        metadata=option(
            Choice(("on", "off", "auto")),
            Topic.BATCHING,
            "Enable dynamic batching.",
            default="auto: on if the graph can batch",
        ),
    )
    max_batch_size: int | None = field(
        default=None,
        metadata=option(
            Number(), Topic.BATCHING, "Maximum items in a batch.", default="32; by memory on a GPU"
        ),
    )
    preferred_batch_size: tuple[int, ...] = field(
        default=(),
        metadata=option(
            Sizes(),
            Topic.BATCHING,
            "Batch sizes to wait for, e.g. 8,16. The largest one caps batches.",
            metavar="N,N",
            rare=True,
        ),
    )
    max_queue_delay: int = field(
        default=0,
        metadata=option(
            Duration(),
            Topic.BATCHING,
            "How long a request may wait for a batch to fill, e.g. 200us.",
            default="0",
            metavar="TIME",
            rare=True,
        ),
    )
    """Microseconds."""
    device: str = field(
        default="auto",
        metadata=option(
            Choice(("cpu", "gpu", "auto")),
            Topic.BATCHING,
            "Hardware that will serve the model.",
            default="auto: like this machine",
        ),
    )
    instances: int | None = field(
        default=None,
        metadata=option(Number(), Topic.BATCHING, "Instances of the model.", default="one per core or GPU"),
    )
    tokenizer_instances: int | None = field(
        default=None,
        metadata=option(
            Number(),
            Topic.BATCHING,
            "Instances of the tokenizer or image decoder.",
            default="1",
            rare=True,
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=option(
            Number(least=0),
            Topic.BATCHING,
            "ONNX Runtime threads per instance; 0: all cores.",
            default="1",
            rare=True,
        ),
    )
    max_length: int | None = field(
        default=None,
        metadata=option(
            Number(), Topic.TEXT, "Truncate after this many tokens.", default="the model's own maximum"
        ),
    )
    padding: str = field(
        default="ragged",
        metadata=option(
            Padding(),
            Topic.TEXT,
            "ragged: batch texts of any length, padded inside the graph; batch: pad to the longest text of "
            "the tokenizer's batch; rows: to the longest of the request; fixed:N: to N tokens.",
            default="ragged; batch if the graph cannot take ragged input; rows for --raw-output if an output "
            "is as long as its text",
            metavar="ragged|batch|rows|fixed:N",
        ),
    )
    pooling: str | None = field(
        default=None,
        metadata=option(
            Text(suggestions=("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len")),
            Topic.ANSWER,
            "How token vectors become one embedding.",
            default="from 1_Pooling/",
        ),
    )
    normalize: bool | None = field(
        default=None,
        metadata=option(
            Switch("no-normalize"),
            Topic.ANSWER,
            "Scale embeddings to length 1.",
            default="from modules.json",
        ),
    )
    truncate_dim: int | None = field(
        default=None,
        metadata=option(
            Number(),
            Topic.ANSWER,
            "Keep the first N values of an embedding, for models trained for it (Matryoshka).",
            default="from the model's files",
        ),
    )
    prompt: str | None = field(
        default=None,
        metadata=option(
            Text(),
            Topic.ANSWER,
            "Prefix of every text to embed: a name in config_sentence_transformers.json, or the text itself; "
            "'' for none.",
            default="that file's default_prompt_name",
            metavar="NAME|TEXT",
        ),
    )
    query: bool | None = field(
        default=None,
        metadata=option(
            Switch("document"),
            Topic.ANSWER,
            "Late interaction: encode queries, or documents.",
            default="document",
        ),
    )
    query_length: int | None = field(
        default=None,
        metadata=option(
            Number(),
            Topic.ANSWER,
            "Late interaction: tokens of a query.",
            default="from the model's files",
            rare=True,
        ),
    )
    aggregation: str | None = field(
        default=None,
        metadata=option(
            Text(suggestions=("none", "simple", "first", "average", "max")),
            Topic.ANSWER,
            "How tokens become entities.",
            default="simple",
        ),
    )
    handle_impossible_answer: bool | None = field(
        default=None,
        metadata=option(
            Switch("no-handle-impossible-answer"),
            Topic.ANSWER,
            "Question answering: allow an empty answer.",
            default="no, like transformers' pipeline",
            rare=True,
        ),
    )
    top_k: int | None = field(
        default=None,
        metadata=option(
            Number(most=MOST_ANSWERS),
            Topic.ANSWER,
            "How many tokens for a mask, or labels for an image.",
            default="5",
        ),
    )
    hypothesis_template: str | None = field(
        default=None,
        metadata=option(
            Text(), Topic.ANSWER, "Zero-shot: sentence for a label.", default="'This example is {}.'"
        ),
    )
    multi_label: bool | None = field(
        default=None,
        metadata=option(
            Switch("single-label"),
            Topic.ANSWER,
            "Zero-shot: score each label by itself, or let labels compete.",
            default="single",
        ),
    )
    raw_output: bool = field(
        default=False,
        metadata=option(
            Switch(), Topic.ANSWER, "Serve the model's own outputs: no pooling, softmax or labels."
        ),
    )
    source_run: str | None = field(
        default=None,
        metadata=option(
            Line(),
            Topic.PROVENANCE,
            "Training run that made the model, e.g. of ClearML.",
            metavar="ID",
            recorded=False,
        ),
    )
    dataset_id: str | None = field(
        default=None,
        metadata=option(
            Line(),
            Topic.PROVENANCE,
            "Data set (version) that the model was trained on.",
            metavar="ID",
            recorded=False,
        ),
    )
    label: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=option(
            Labels(),
            Topic.PROVENANCE,
            "Anything else to record; repeatable.",
            metavar="KEY=VALUE",
            recorded=False,
        ),
    )
    triton_release: str | None = field(
        default=None,
        metadata=option(
            Text(),
            Topic.SERVER,
            "Triton release to build for.",
            default="24.10",
            metavar="YY.MM",
            rare=True,
        ),
    )
    response_cache: bool = field(
        default=False,
        metadata=option(Switch(), Topic.SERVER, "Let the server cache the endpoint's answers.", rare=True),
    )
    warmup: bool = field(
        default=True,
        metadata=option(
            Switch("no-warmup"), Topic.SERVER, "Run one request while loading.", default="warmup", rare=True
        ),
    )
    golden: bool = field(
        default=True,
        metadata=option(
            Switch("no-golden"),
            Topic.REPOSITORY,
            "Record the original model's answers for trb smoke.",
            default="golden",
            rare=True,
        ),
    )
    share_tokenizer: bool | None = field(
        default=None,
        metadata=option(
            Switch("no-share-tokenizer"),
            Topic.REPOSITORY,
            "Store equal tokenizer models once, named by their content.",
            default="only with --all",
            rare=True,
        ),
    )
    tokenizers_wheel: Path | None = field(
        default=None,
        metadata=option(
            FilePath(),
            Topic.REPOSITORY,
            "Linux wheel of tokenizers to vendor, if not on Linux x86-64.",
            rare=True,
            recorded=False,
        ),
    )
    pillow_wheel: tuple[Path, ...] = field(
        default=(),
        metadata=option(
            FilePaths(),
            Topic.REPOSITORY,
            "Linux wheel of Pillow to vendor, one per Python that will serve; repeatable.",
            rare=True,
            recorded=False,
        ),
    )
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Which file set an option; not those of the command line."""


OPTIONS: dict[str, Option] = {
    entry.name: entry.metadata["option"] for entry in fields(BuildOptions) if entry.metadata
}
"""Every option by the name of its field."""


def flag(name: str) -> str:
    """``--max-length`` for ``max_length``."""
    return "--" + name.replace("_", "-")


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


def check(options: BuildOptions) -> BuildOptions:
    """The same options. Raises ``TrbError`` USAGE for values out of range or in conflict."""
    for name, declared in OPTIONS.items():
        value = getattr(options, name)
        try:
            if value is not None:
                declared.value.check(value)
        except InvalidValue as error:
            raise usage(name, error.message, error.remedy) from None
    _check_batching(options)
    return options


def _check_batching(options: BuildOptions) -> None:
    waiting = "preferred_batch_size" if options.preferred_batch_size else "max_queue_delay"
    waits = bool(options.preferred_batch_size or options.max_queue_delay)
    if options.batching == "off" and waits:
        raise usage(waiting, "has no effect with --batching off", "leave it out, or use --batching on")
    if options.batching == "on" and options.max_batch_size == 1:
        raise usage(
            "batching",
            "on has nothing to batch with --max-batch-size 1",
            "leave --batching out, or raise --max-batch-size",
        )
    largest = options.max_batch_size or DEFAULT_MAX_BATCH_SIZE
    for size in options.preferred_batch_size:
        if size > largest:
            raise usage(
                "preferred_batch_size",
                f"{size} is larger than the maximum batch size {largest}",
                f"lower it, or raise --max-batch-size to {size}",
            )
    if options.max_batch_size == 1 and waits:
        raise usage(
            waiting, "has no effect with --max-batch-size 1", "leave it out, or raise --max-batch-size"
        )

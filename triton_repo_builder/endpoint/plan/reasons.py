"""Why a setting has its value: a kind with its data. It becomes text when it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from triton_repo_builder.model.read.options import BuildOptions


class Why(Enum):
    """The kinds of reasons; the value is the text, with the names of the data in it."""

    FLAG = "set by --{flag}"
    FILE = "set in {file}"

    HAS_GPU = "this machine's GPU is: {gpu}"
    NO_GPU = "this machine has no NVIDIA GPU; --device gpu builds for one"
    GPU_HIDDEN = "CUDA_VISIBLE_DEVICES hides what this machine has ({gpus}); --device gpu builds for one"

    GPU_ONE_INSTANCE = "one instance fills a GPU by batching; more only take memory"
    ONE_PER_CORE = "one per core {cores}, {threads}"
    CORES_TOGETHER = (
        "up to four cores compute a batch together, since the graph has no padding and its products are "
        "large: a lone request is answered in 0.6 of the time, and 32 clients get 0.9 of the requests/s that "
        "an instance on each core gives (measured on 2 cores of an AMD EPYC)"
    )
    CORES_SUFFICE = "{instances} with {threads} each fit {cores}"
    CORES_EXCEEDED = (
        "{instances} with {threads} each are more than {cores}, for which they compete: measure whether that "
        "serves more"
    )
    THREADS_TAKE_ALL = "its threads take all cores"
    THREADS_EXCEED = "its {threads} threads are more than {cores}"
    THREADS_SHARE = "as many as {cores} hold with {threads} threads each"

    GPU_ONE_THREAD = "the GPU computes; one thread of the CPU feeds it"
    SHARE_OF_CORES = "what each of {instances} gets of {cores}"
    ALL_CORES = "one for each of {cores}: there is one instance"
    ONE_CORE = "there is one core to use"
    ONE_THREAD = "threads of several instances would compete for the same cores"

    COMMON_LIMIT = "a common limit; a request may carry as many {items}"
    RUN_FITS = "so many of the longest texts take up to {memory} beside the weights, padded to one length"
    RUN_MEMORY = (
        "a run takes up to {memory} beside the weights, in each instance; further texts go into another run"
    )
    GPU_UNSEEN = "a start for a GPU that trb does not see here; measure"
    GPU_MEMORY_UNKNOWN = "a start: nvidia-smi does not tell the GPU's memory; measure"
    GPU_MEMORY_SHORT = "a start: it is a large model for {memory}; measure"
    GPU_MEMORY_FITS = "fits {memory} with half of it free, by a rule of thumb; measure"
    NO_BATCH_AXIS = "no batch axis: {obstacle}"

    ALL_TEXTS = "one instance encodes all waiting texts in one call, on all cores if they are many"
    TEXTS_OF_A_REQUEST = "one instance encodes the texts of one request in one call: requests are not joined"
    ONE_TEXT = "one instance encodes one text in a call: there are no batches"
    DECODING = "as many as of the model: decoding a large file takes as long as a small model"

    CANNOT_BATCH = "{obstacle}"
    ROWS_OF_A_REQUEST = (
        "no model of the endpoint joins requests, but one request may have several rows; "
        "--max-batch-size 1 takes one"
    )
    ONE_ROW = "one row at a time"
    NOTHING_TO_JOIN = "there is nothing to join with a maximum batch size of 1"
    GPU_BATCHES = "a GPU runs a batch in little more time than one row"
    JOINS = "joins whatever waits while an instance is busy; a lone request is never delayed"
    JOINS_DELAYED = (
        "joins whatever waits while an instance is busy; waits for more as long as max_queue_delay says"
    )
    NO_PADDING = (
        "joins any lengths: the graph runs without padding (measured on 2 cores of an AMD EPYC with "
        "all-MiniLM-L6-v2: 1.5 times the throughput of off with 32 clients, a lone request as fast)"
    )
    LENGTHS_MIX = (
        "joins any lengths: the graph runs similar ones together (measured on 2 cores of an AMD EPYC with "
        "all-MiniLM-L6-v2: 1.3 times the throughput of off with 32 clients, a lone request as fast)"
    )
    ROW_BY_ROW = "joins any lengths: the graph runs row by row, and a batch costs what its rows cost"
    PADDED_TOGETHER = "joins waiting requests that the tokenizer padded together: only they have one shape"
    EQUAL_LENGTHS = (
        "joins waiting requests of equal length only: texts of mixed lengths run nearly one by one "
        "(1.02 rows per execution, measured on 2 cores of an AMD EPYC with all-MiniLM-L6-v2 and 32 clients)"
    )
    EQUAL_SHAPES = (
        "joins waiting requests of equal shape only, and the model has inputs of open shape ({inputs})"
    )

    PREFERRED_CAPS = (
        "joined batches stop at {most} {items}; max-batch-size {limit} is then the limit of one request only"
    )
    PREFERRED_REACHES = "joined batches stop at {most} {items}, which max-batch-size allows"
    QUEUE_SIZE = "a request that finds so many waiting in a model's queue is refused at once"
    QUEUE_TIMEOUT = "a request that waited so long in a model's queue is refused; what runs is not counted"
    PRIORITIES = "a request's parameter 'priority' is its level; 1 goes first, the last one is the default"
    DELAY_UNIT = "a number without a unit is in µs; a request waits no longer than this for its batch to fill"

    FRONT_PACKED = "the graph runs all tokens of a batch end to end, and attention row by row"
    FRONT_GROUPS = "the graph runs rows of similar length together, not without padding: {reason}"
    FRONT_SINGLE = "the graph runs row by row, unpadded: {reason}"
    FRONT_PADS = "the graph pads to the longest row of a batch: {reason}"
    GRAPH_FIXED = "the graph takes exactly {tokens} tokens"
    MODEL_FIXED = "the model was trained on exactly {tokens} tokens, padding included"
    QUERY_FIXED = "late interaction: each query has {tokens} tokens"
    NO_FRONT = "no ragged front: {obstacle}"
    NO_FRONT_ALONE = "no ragged front: {obstacle}, so that it is never padded for another request"
    ONE_AT_A_TIME = "the model takes one text at a time: {obstacle}"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One reason; ``str`` is the text that users see."""

    why: Why
    data: dict[str, Any] = field(default_factory=dict)
    limited: Reason | None = None
    """Another limit of the setting."""

    def __str__(self) -> str:
        text = self.why.value.format(**self.data)
        return f"{text}; {self.limited}" if self.limited else text


def because(why: Why, **data: Any) -> Reason:
    """A reason with its data."""
    return Reason(why=why, data=data)


def set_by(options: BuildOptions, field: str, value: str = "") -> Reason:
    """The origin of an option: a file, or the command line."""
    if file := options.origins.get(field):
        return because(Why.FILE, file=file)
    return because(Why.FLAG, flag=f"{field.replace('_', '-')} {value}".rstrip())

"""Options of ``trb build``: defaults, then trb.toml, then flags, merged once and checked once."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from triton_repo_builder.errors import Code, TrbError

BATCHING = ("on", "off", "auto")
DEVICES = ("cpu", "gpu", "auto")
DEFAULT_MAX_BATCH_SIZE = 32
ORIGINS = "origins"
LONGEST_DELAY = 10_000_000
"""Ten seconds: no client waits longer for a batch to fill."""
_UNITS = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000}
_INT32 = 2**31 - 1
LARGEST = {
    # A version directory above this number aborts the server (TRITON.md, point 17).
    "version": 2**63 - 1,
    # Fields of ModelConfig, or read by the backend as one.
    "max_batch_size": _INT32,
    "instances": _INT32,
    "tokenizer_instances": _INT32,
    "threads": _INT32,
    "max_length": _INT32,
    "truncate_dim": _INT32,
    # Larger ones answer with the tail of the vocabulary, and every one of them is sent.
    "top_k": 1000,
}


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What the user asked for; None where the build decides."""

    model: Path
    name: str | None = None
    tokenizer: Path | None = None
    preprocessor: Path | None = None
    task: str | None = None
    output: Path = Path("model_repository")
    version: int = 1
    batching: str = "auto"
    max_batch_size: int | None = None
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay: int = 0
    """Microseconds."""
    device: str = "auto"
    instances: int | None = None
    tokenizer_instances: int | None = None
    threads: int | None = None
    max_length: int | None = None
    pooling: str | None = None
    normalize: bool | None = None
    aggregation: str | None = None
    handle_impossible_answer: bool | None = None
    top_k: int | None = None
    hypothesis_template: str | None = None
    multi_label: bool | None = None
    raw_output: bool = False
    truncate_dim: int | None = None
    """Values of an embedding that are given, the first ones."""
    prompt: str | None = None
    """Before every text: a name in config_sentence_transformers.json, or the text itself."""
    query: bool | None = None
    """Late interaction: encode queries; else documents."""
    query_length: int | None = None
    padding: str = "ragged"
    """``ragged``, ``batch``, ``rows``, or ``fixed:N``."""
    triton_release: str | None = None
    response_cache: bool = False
    warmup: bool = True
    golden: bool = True
    tokenizers_wheel: Path | None = None
    pillow_wheel: tuple[Path, ...] = ()
    share_tokenizer: bool | None = None
    """Call the tokenizer model by its content, so that equal ones are stored once. None: with ``--all``."""
    source_run: str | None = None
    """The training run that made the model, as the tracker names it."""
    dataset_id: str | None = None
    label: tuple[tuple[str, str], ...] = ()
    """Anything else to be found again at the running server: (key, value)."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Which file set an option; not those of the command line."""


def duration(text: str) -> int:
    """Microseconds in ``200us``, ``5ms``, ``0.1s`` or ``200``; raises ``TrbError`` USAGE."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s)?\s*", text)
    if not match:
        raise usage(
            "max_queue_delay", f"'{text}' is no duration", "write a number and a unit: 200us, 5ms, 0.1s"
        )
    value = Decimal(match[1]) * _UNITS[match[2] or "us"]
    if value != int(value) or value > LONGEST_DELAY:
        why = "longer than 10 s" if value > LONGEST_DELAY else "finer than a microsecond"
        raise usage("max_queue_delay", f"'{text}' is {why}", "give at most 10s, in whole microseconds")
    return int(value)


def sizes(text: str) -> tuple[int, ...]:
    """Batch sizes in ``8,16``, sorted, each once; raises ``TrbError`` USAGE."""
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise usage(
            "preferred_batch_size", f"'{text}' is no list of sizes", "write for example 8,16"
        ) from None


def labels(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """(key, value) of each ``key=value``, sorted; raises ``TrbError`` USAGE."""
    found: dict[str, str] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", key) or key in found:
            why = "is there twice" if key in found else "is no key=value"
            raise usage("label", f"'{text}' {why}", "write for example --label team=search, each key once")
        found[key] = value
    return tuple(sorted(found.items()))


def fixed_padding(text: str) -> int:
    """N of ``fixed:N``, 0 for the other ways; raises ``TrbError`` USAGE."""
    if text in ("ragged", "batch", "rows"):
        return 0
    match = re.fullmatch(r"fixed:([1-9]\d{0,6})", text)
    if not match:
        raise usage("padding", f"'{text}' is unknown", "use ragged, batch, rows or fixed:N, e.g. fixed:128")
    return int(match[1])


def usage(field: str, message: str, remedy: str) -> TrbError:
    """An option that cannot be followed."""
    return TrbError(Code.USAGE, message, where="--" + field.replace("_", "-"), remedy=remedy)


def load_toml(text: str) -> dict[str, Any]:
    """Parse TOML; ValueError where it is none."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    document: dict[str, Any] = tomllib.loads(text)
    return document


def read_toml(path: Path) -> dict[str, Any]:
    """The ``[build]`` table of a trb.toml, keys checked against ``BuildOptions``."""
    try:
        document = load_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrbError(
            Code.USAGE,
            f"cannot be read: {error.strerror}",
            where=str(path),
            remedy="check the path given to --config",
        ) from None
    except ValueError as error:
        raise TrbError(
            Code.USAGE, f"is no TOML: {error}", where=str(path), remedy="correct it there"
        ) from None
    unknown = [key for key in document if key != "build"]
    if unknown:
        raise TrbError(
            Code.USAGE,
            f"unknown table '{unknown[0]}'",
            where=str(path),
            remedy="options of trb build go into a table called [build]",
        )
    known = [entry.name for entry in fields(BuildOptions) if entry.name != ORIGINS]
    table = document.get("build", {})
    if not isinstance(table, dict):
        raise TrbError(
            Code.USAGE, "'build' is no table", where=str(path), remedy="write [build] on a line of its own"
        )
    values: dict[str, Any] = {}
    origin = path.name if path.name.isprintable() else "the file of --config"  # it is shown in comments
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TrbError(
                Code.USAGE,
                f"unknown option '{key}' in [build]",
                where=str(path),
                remedy=f"did you mean '{near[0]}'?" if near else "see 'trb build --help'",
            )
        values[name] = _typed(name, value, path)
    return {**values, ORIGINS: dict.fromkeys(values, origin)} if values else {}


def _typed(name: str, value: Any, path: Path) -> Any:
    if name == "max_queue_delay":
        return duration(str(value))
    if name == "preferred_batch_size":
        return sizes(",".join(map(str, value)) if isinstance(value, list) else str(value)) if value else ()
    if name == "pillow_wheel":
        return tuple(path.parent / str(one) for one in (value if isinstance(value, list) else [value]))
    if name == "label":
        pairs = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value
        return labels(pairs if isinstance(pairs, list) else [str(pairs)])
    annotation = next(entry.type for entry in fields(BuildOptions) if entry.name == name)
    wanted = bool if "bool" in str(annotation) else int if "int" in str(annotation) else str
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise TrbError(
            Code.USAGE,
            f"'{name}' must be {'an' if wanted is int else 'a'} {wanted.__name__}",
            where=f"{path} [build]",
            remedy=f"it is {value!r}",
        )
    return path.parent / str(value) if "Path" in str(annotation) else value


def layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Each overrides those before it, where it has a value; ``origins`` follow the values."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        given = {key: value for key, value in layer.items() if value is not None and key != ORIGINS}
        files = layer.get(ORIGINS, {})
        origins = {
            key: file for key, file in {**origins, **files}.items() if key not in given or key in files
        }
        values |= given
    return {**values, ORIGINS: origins}


def merge(flags: Mapping[str, Any], config: Path | None) -> BuildOptions:
    """Defaults, overridden by trb.toml, overridden by the flags that were given (not None)."""
    values = layered(read_toml(config) if config else {}, flags)
    if "model" not in values:
        raise usage("model", "no model given", "name an ONNX file or an exported folder: --model bert.onnx")
    return check(BuildOptions(**values))


def check(options: BuildOptions) -> BuildOptions:
    """The same options, or ``TrbError`` USAGE for values that contradict each other."""
    if options.device not in DEVICES:
        raise usage("device", f"'{options.device}' is unknown", f"use one of {', '.join(DEVICES)}")
    if options.batching not in BATCHING:
        raise usage("batching", f"'{options.batching}' is unknown", f"use one of {', '.join(BATCHING)}")
    for name in (
        "instances",
        "tokenizer_instances",
        "version",
        "max_batch_size",
        "max_length",
        "top_k",
        "truncate_dim",
    ):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise usage(name, f"must be at least 1, not {value}", "leave it out for the default")
    for name, largest in LARGEST.items():
        value = getattr(options, name)
        if value is not None and value > largest:
            raise usage(name, f"must be at most {largest}, not {value}", "give a smaller number")
    fixed_padding(options.padding)
    for name, text in (
        ("source_run", options.source_run),
        ("dataset_id", options.dataset_id),
        *(("label", value) for _, value in options.label),
    ):
        # They become trailers of a commit and values in a config.pbtxt: one line each.
        if text is not None and (not text.strip() or not text.isprintable()):
            raise usage(
                name, f"{text!r} is not one line of text", "give it as one line, without control characters"
            )
    if options.threads is not None and options.threads < 0:
        raise usage(
            "threads", f"must not be negative, but is {options.threads}", "0 lets ONNX Runtime choose"
        )
    waiting = "preferred_batch_size" if options.preferred_batch_size else "max_queue_delay"
    if options.batching == "off" and (options.preferred_batch_size or options.max_queue_delay):
        raise usage(waiting, "has no meaning with --batching off", "leave it out, or use --batching on")
    if options.batching == "on" and options.max_batch_size == 1:
        raise usage(
            "batching",
            "on has nothing to join with --max-batch-size 1",
            "leave --batching out, or raise --max-batch-size",
        )
    largest = options.max_batch_size or DEFAULT_MAX_BATCH_SIZE
    for size in options.preferred_batch_size:
        if size < 1:
            raise usage("preferred_batch_size", f"{size} is no batch size", "sizes start at 1")
        if size > largest:
            raise usage(
                "preferred_batch_size",
                f"{size} is larger than the maximum batch size {largest}",
                f"lower it, or raise --max-batch-size to {size}",
            )
    if options.max_batch_size == 1 and (options.preferred_batch_size or options.max_queue_delay):
        raise usage(
            waiting, "has no meaning with --max-batch-size 1", "leave it out, or raise --max-batch-size"
        )
    return options

"""Cause of a failed load, from the answer, the repository index or the log, and its remedy."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from triton_repo_builder.repository import Repository, composition
from triton_repo_builder.run.serve import log_lines
from triton_repo_builder.run.serve.engine import Failure

POLL = re.compile(r"Poll failed for model directory '([^']+)': (.*?)\"?$")
SYNTAX = re.compile(r"Error parsing text-format inference\.ModelConfig: (.+)$")
UNAVAILABLE = re.compile(r"^load failed for model '[^']*': version \d+ is at \w+ state: ")
CODE = re.compile(
    r"^(?:Internal|Invalid argument|Unsupported|Unavailable|Not found|Unknown|Already exists): "
)
WARMUP = re.compile(r"^warm-up of model '([^']+)' failed: (.+)$")
"""Our onnxruntime backend, just before a server that may not survive it."""
UNHEALTHY = re.compile(r"Stub process '[^']*' is not healthy")
HARMLESS = re.compile(
    r"CUDA|Cuda|pinned system memory|NVML|unable to create stream|DCGM|^Signal \(15\)|^ *\d+# "
)
"""Lines that a server without a GPU logs at every start, and frames of a crash."""
OVERLOADED = (
    "start it again: a fault of Triton's Python backend where processes wait long for a core (server issue "
    "8882); give the server more cores, or fewer instances"
)
TABLE = re.compile(r"^[|+]| ")
_CPU = "or build it with --device cpu (in a config.pbtxt made by hand: kind: KIND_CPU)"
_REMEDIES = (
    (
        # tritonserver, before any backend is asked.
        re.compile(r"has kind KIND_GPU but "),
        f"serve it on a machine with an NVIDIA GPU, {_CPU}",
    ),
    (
        # Our onnxruntime backend (ort_gpu.py), which names the command.
        re.compile(r"^a GPU instance needs CUDA: "),
        f"install what is missing and start again, {_CPU}",
    ),
    (
        re.compile(r"config\.pbtxt: No such file or directory|configuration expects 0 (in|out)puts"),
        "write backend, input and output into its config.pbtxt, or start the server again: trb serve has the "
        "server complete configurations unless trb wrote all of those that were there",
    ),
)


def failures(
    repository: Repository,
    answers: Mapping[str, str],
    index: Mapping[str, tuple[str, str]],
    log: str,
    earlier: tuple[Failure, ...] = (),
    ends: Mapping[str, str] | None = None,
) -> tuple[Failure, ...]:
    """Every model that failed, each with its own cause, without ensembles that only lack a step.

    ``ends``: how Python processes ended, which the server only calls "not healthy".
    """
    failed = {failure.model: failure for failure in earlier}
    for name, text in _polls(log).items():
        failed.setdefault(name, _failure(repository, name, text))
    for name, (state, reason) in index.items():
        if state == "UNAVAILABLE" and reason and reason != "unloaded":
            failed.setdefault(name, _failure(repository, name, reason))
    for name, text in answers.items():
        if text:
            failed.setdefault(name, _failure(repository, name, text))
    failed = {
        name: replace(failure, cause=with_end(failure.cause, name, ends or {}))
        for name, failure in failed.items()
    }
    return tuple(
        failure
        for name, failure in sorted(failed.items())
        if not composition.composing(name, repository.steps_of) & failed.keys()
    )


def with_end(cause: str, model: str, ends: Mapping[str, str]) -> str:
    """The exit of the model's Python process, if the server reports no cause; else the cause."""
    end = ends.get(model) or ends.get("")
    return f"its Python process ended while loading ({end})" if end and UNHEALTHY.search(cause) else cause


def warmups(log: str) -> tuple[Failure, ...]:
    """Models whose warm-up failed: that may have ended the server before it could answer."""
    causes = {match[1]: match[2] for match in map(WARMUP.match, log.splitlines()) if match}
    return tuple(
        Failure(model=name, cause=f"its warm-up failed, and tritonserver died of that: {text}")
        for name, text in sorted(causes.items())
    )


def remedy(failed: Sequence[Failure], default: str) -> str:
    """One remedy for all failures; ``default`` for causes without a remedy of their own."""
    return "; ".join(dict.fromkeys(_remedy(failure.cause) or default for failure in failed))


def _remedy(cause: str) -> str:
    return next((remedy for pattern, remedy in _REMEDIES if pattern.search(cause)), "")


def listed(failed: tuple[Failure, ...]) -> str:
    """Each failure with the first lines of its details, indented."""
    lines = []
    for failure in failed:
        lines.append(f"{failure.model}: {failure.cause}")
        lines += [f"  {line}" for line in failure.detail.splitlines()[:12]]
    return "\n".join(f"  {line}" for line in lines)


def death_remedy(log: str) -> str:
    """Remedy if the server itself ended from a cause recognized in its log; else empty."""
    return OVERLOADED if "boost::interprocess::lock_exception" in log else ""


def last_errors(log: str, count: int = 8) -> str:
    """The last error lines of a log."""
    lines = []
    for line in log.splitlines():
        match = log_lines.HEADER.match(line)
        text = log_lines.unquote(match["text"]) if match else line
        if match and match["level"] in "IW":
            continue
        if text.strip() and not HARMLESS.search(text) and (match or not TABLE.match(text)):
            lines.append(text.strip())
    return "\n".join(lines[-count:])


def explained(failure: Failure, log: Path, since: int = 0) -> Failure:
    """Add what a stub that ended without an answer may have written to its standard error."""
    return replace(failure, detail=last_errors(read(log, since), 4))


def read(log: Path, since: int = 0) -> str:
    """The log from this byte on, in Triton's own form."""
    try:
        data = log.read_bytes()[since:]
        if data.startswith(b"{"):  # JSON comes a little later than the server's answers
            time.sleep(2 * log_lines.IDLE)
            data = log.read_bytes()[since:]
    except OSError:
        return ""
    return log_lines.as_text(data.decode("utf-8", "replace"))


def _polls(log: str) -> dict[str, str]:
    """Models whose directory could not be read, with the parser's position of a syntax error.

    The parser reports just before the server names the model; polling is serial, so lines do not mix.
    """
    causes: dict[str, str] = {}
    syntax = ""
    for line in log.splitlines():
        parsed = SYNTAX.search(line)
        if parsed:
            syntax = parsed[1]
            continue
        poll = POLL.search(line)
        if poll:
            text = log_lines.unquote(poll[2])
            causes[poll[1]] = f"config.pbtxt:{syntax}" if syntax and "text proto" in text else text
            syntax = ""
    return causes


def _failure(repository: Repository, name: str, text: str) -> Failure:
    text = UNAVAILABLE.sub("", text.strip()).rstrip().removesuffix(";").rstrip()
    prefix = f"load failed for model '{name}': "
    text = CODE.sub("", text.removeprefix(prefix))
    first, _, rest = text.partition("\n")
    model = repository.model(name)
    if model is not None and model.error is not None and "failed to poll" in first:
        first = f"config.pbtxt:{model.error}"
    details = [
        line.strip()
        for line in rest.splitlines()
        if line.strip() and line.strip() != "At:" and "<frozen importlib" not in line
    ]
    return Failure(model=name, cause=first.strip(), detail="\n".join(details))

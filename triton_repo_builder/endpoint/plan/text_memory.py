"""Memory of texts on a CPU: of one run of the graph, and the settings that keep it within the machine."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.endpoint.plan import accelerator
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest
from triton_repo_builder.endpoint.plan.text_padding import Mode, PaddingPlan
from triton_repo_builder.model.graph import ragged, reader
from triton_repo_builder.model.graph.parts import Rows
from triton_repo_builder.model.graph.peak import Peak
from triton_repo_builder.model.read.options import DEFAULT_MAX_BATCH_SIZE

LONG = 1024
"""Tokens of a text above which its attention is worth taking in blocks of queries."""
ARENA = 2
"""ONNX Runtime takes memory in pieces that double: up to twice what a run needs at once."""
SHARE = 0.8
"""Share of the machine's memory: the weights and everything else need the rest."""


@dataclass(frozen=True, kw_only=True)
class RunMemory:
    """Memory of one text model's runs."""

    run_tokens: int = 0
    """Tokens of a run, if the graph puts several texts into one; else 0."""
    bytes: int = 0
    """Most that a run takes beside the weights; 0: not known."""
    blocks: bool = False
    """Whether attention over long rows runs in blocks of queries."""
    rows: int = 0
    """Texts of the greatest length that are one run at most, if the graph does not cut its batch; else 0."""
    most_tokens: int = 0
    """Largest text that there is memory for, if longer ones are not cut; else 0."""
    notes: tuple[str, ...] = ()


def decide(request: PlanRequest, padding: PaddingPlan, max_length: int | None, *, gpu: bool) -> RunMemory:
    """The decision for a CPU; a GPU's memory bounds ``max_batch_size`` instead."""
    if gpu:
        ignored = "--run-tokens has no effect on a GPU, which runs a whole batch at once"
        return RunMemory(notes=(ignored,) if request.options.run_tokens else ())
    run = request.options.run_tokens or ragged.MOST
    longest = padding.fixed.tokens or max_length or run
    in_loop = padding.mode is Mode.RAGGED and padding.rows is not Rows.PADDED
    cut = in_loop and padding.rows is not Rows.SINGLE
    packed = padding.rows is Rows.PACKED
    blocks = in_loop and not packed and longest > LONG and request.options.accelerator == accelerator.NONE
    peak = Peak(reader.load(request.source.skeleton), blocks=blocks, packed=packed and in_loop)
    alone, machine = ARENA * peak.bytes(1, longest), request.machine.memory
    most = 0 if padding.fixed.tokens or max_length or not peak.attends else run
    ignored = "--run-tokens has no effect: the graph does not put several texts into one run"
    unused = (ignored,) if request.options.run_tokens and not cut else ()
    notes = (f"a text of more than {run} tokens is refused (--run-tokens)",) if most else ()
    if machine and alone > SHARE * machine:
        most = _longest(peak, longest, SHARE * machine)
        room = f"takes about {described(alone)} beside the weights, and this machine has {described(machine)}"
        rest = f"a text of more than {most} tokens is refused (--max-length {most} cuts it instead)"
        notes = (f"one text of {longest} tokens {room}: {rest}",)
    rows = 0 if in_loop else _rows(run, longest, packed)
    lengths = {longest, min(longest, ragged.WIDE)} if cut else {longest}
    batch = request.options.max_batch_size or DEFAULT_MAX_BATCH_SIZE
    runs = [(min(batch, _rows(run, length, packed)) if cut else max(rows, 1), length) for length in lengths]
    return RunMemory(
        run_tokens=run if cut else 0,
        bytes=ARENA * max(peak.bytes(*shape) for shape in runs),
        blocks=blocks,
        rows=rows,
        most_tokens=most,
        notes=(*unused, *notes),
    )


def described(size: int) -> str:
    """Bytes, to two digits or so."""
    gib = size / (1 << 30)
    return f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB" if gib >= 0.1 else "0.1 GiB or less"


def _rows(run: int, tokens: int, packed: bool) -> int:
    """Rows of that length in a run of the front (``ragged.py``)."""
    pairs = run // tokens if packed else run * ragged.WIDE // tokens**2
    return max(1, min(run // tokens, pairs))


def _longest(peak: Peak, tokens: int, room: float) -> int:
    """The greatest length of a text with room for it, by halves; 1 at least."""
    fits, beyond = 1, tokens
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        fits, beyond = (middle, beyond) if ARENA * peak.bytes(1, middle) <= room else (fits, middle)
    return fits

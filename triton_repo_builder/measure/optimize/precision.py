"""``trb build --precision``: the model of the options, or another file of it that passed the gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from triton_repo_builder.base import hardware
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.endpoint.plan import defaults
from triton_repo_builder.measure.optimize import output, recipe, run
from triton_repo_builder.measure.options import OptimizeOptions
from triton_repo_builder.model.read import source
from triton_repo_builder.model.read.options import AUTO, BuildOptions


def applied(
    options: BuildOptions,
    folder: Path,
    progress: Callable[[str], None] = lambda message: None,
    machine: Hardware | None = None,
) -> tuple[BuildOptions, tuple[str, ...]]:
    """Options whose model is in ``folder``, or the same ones, and notes for the user. Raises ``TrbError``.

    The first way to int8 that passes is taken, not the fastest, so that timing decides nothing in the files;
    only ``auto`` on a CPU asks whether it is faster at all.
    """
    machine = machine or hardware.here()
    on_gpu = defaults.on_gpu(options, machine)
    name = options.precision if options.precision != AUTO else recipe.FP16 if on_gpu else recipe.INT8
    settings = OptimizeOptions(steps=name, fastest=False)
    try:
        outcome = run.optimize(
            replace(options, golden=False),
            settings,
            folder,
            lambda message, done, total: progress(f"--precision {options.precision}: {message}"),
            machine,
        )
    except TrbError as error:
        if options.precision == AUTO and error.code is Code.UNSUPPORTED_MODEL:
            return _kept(options, error.message)
        raise
    last = outcome.lines[-1]
    slower = last.speed.ratio <= 1 and not on_gpu
    if options.precision == AUTO and (outcome.failure or slower):
        how = "no faster than" if last.speed.ratio == 1 else f"{last.speed.ratio:.2f} times as fast as"
        slow = f"{last.step} is {how} the original here"
        return _kept(options, outcome.failure or slow)
    if outcome.failure:
        raise TrbError(
            Code.ACCURACY_LOST,
            f"--precision {options.precision}: {outcome.failure}",
            where=str(options.model),
            remedy="leave --precision out, or see what other steps and bounds give: trb optimize --help",
        )
    model = folder / "optimised"
    output.write(outcome, model, folder)
    agreement = last.accuracy
    share = 100 * last.bytes / outcome.lines[0].bytes
    note = (
        f"--precision {options.precision}: {last.step}, {share:.0f} % of the size, "
        f"{last.speed.ratio:.2f} times as fast on one thread, {agreement.measure} {agreement.mean:.4f}"
    )
    name = options.name or source.default_name(outcome.source.path)
    return replace(options, model=model, file=None, name=name), (note,)


def _kept(options: BuildOptions, why: str) -> tuple[BuildOptions, tuple[str, ...]]:
    return options, (f"--precision auto keeps the model: {why}",)

"""The GPU pass: everything that only a GPU can show, in one command.

    .venv/bin/python benchmarks/gpu.py                  # or: make gpu
    .venv/bin/python benchmarks/gpu.py --device cpu --small

Steps of under ten minutes, each in a process of its own. A step's result is OUTPUT/gpu/STEP.json: run again,
the pass takes up what is missing or failed. At the end OUTPUT/gpu.md is written from all results.
Exit code 0 if every step holds, 1 if one does not, 2 if the GPU or something that is needed is missing, 130
after Ctrl-C.

For a machine without a package index:

    .venv/bin/python benchmarks/gpu.py prepare --pack .cache/gpu-pack       # here: wheels in parts of 36 MiB
    python3 benchmarks/gpu.py prepare --unpack .cache/gpu-pack              # there: makes .venv-gpu
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpu_steps import BY_NAME, ENVIRONMENT, STEPS, environment, step
from gpu_steps.step import CPU, GPU, ROOT, Setting, Step, StepFailed

SCRIPT = Path(__file__).resolve()
GRACE = 20.0
"""Seconds for a step that is stopped to stop its server."""
MISSING = 2
INTERRUPTED = 130


def run(chosen: Step, setting: Setting) -> dict[str, Any]:
    """Run one step in a process of its own and write its result, whatever becomes of it."""
    started, clock = datetime.now(timezone.utc), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "found.json"
        argv = [sys.executable, str(SCRIPT), "step", chosen.name, str(told), *setting.arguments()]
        child = subprocess.Popen(argv, env=variables(setting))
        try:
            child.wait(chosen.limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(child)
        result = step.read(told)
    if not result:
        seconds = time.monotonic() - clock
        late = f"took longer than {chosen.limit:g} s" if seconds >= chosen.limit else ""
        result = {"ok": False, "error": late or f"ended with exit code {child.returncode}, see above"}
    result = {
        "step": chosen.name,
        "setting": step.described(setting),
        **result,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 1),
        "command": f"python benchmarks/gpu.py --device {setting.device}{' --small' * setting.small}",
        "machine": step.machine(),
    }
    step.write(chosen.file(setting), result)
    return result


def variables(setting: Setting) -> dict[str, str]:
    """The environment of a step: CUDA visible or not, and its libraries on the loader's path."""
    path = environment.library_path() if setting.device == GPU else {}
    here = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **path, "PYTHONPATH": here, "TRB_BENCH_DEVICE": setting.device}


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def inside(name: str, told: Path, setting: Setting) -> int:
    """What the step's own process does."""
    commit = _commit()
    try:
        result: dict[str, Any] = {"ok": True, "found": BY_NAME[name].function(setting)}
    except KeyboardInterrupt:  # of the terminal: the pass says so
        return INTERRUPTED
    except StepFailed as error:
        result = {"ok": False, "error": str(error), "found": error.found}
    except Exception as error:
        if type(error).__name__ not in ("TrbError", "ProcessFailed", "RequestFailed"):
            raise
        result = {"ok": False, "error": str(error)}
    step.write(told, {**result, "commit": commit, "versions": environment.versions()})
    return 0 if result["ok"] else 1


def _commit() -> str:
    try:
        import common
    except ImportError:
        return "unknown"
    return common.commit()


def every(steps: tuple[Step, ...], setting: Setting, again: frozenset[str]) -> int:
    """Run what is missing, and say how each step ended."""
    bad = 0
    for number, chosen in enumerate(steps, 1):
        label = f"{number}/{len(steps)} {chosen.name}"
        # What is installed may have changed since; it takes a second.
        if chosen.done(setting) and chosen.name not in again and chosen is not ENVIRONMENT:
            print(f"{label}: kept, {chosen.file(setting)}", flush=True)
            continue
        print(f"{label}: {chosen.shows}", flush=True)
        result = run(chosen, setting)
        print(f"{label}: {'ok' if result['ok'] else result['error']} ({result['seconds']} s)", flush=True)
        bad += not result["ok"]
        if chosen is ENVIRONMENT and not result["ok"]:
            return MISSING
    return 1 if bad else 0


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=(GPU, CPU), default=GPU, help="default: %(default)s")
    parser.add_argument(
        "--small", action="store_true", help="tiny models, few clients, fractions of a second"
    )
    parser.add_argument(
        "--output", type=Path, help="folder of the results (default docs/benchmarks on a GPU)"
    )


def _setting(arguments: argparse.Namespace) -> Setting:
    usual = ROOT / ("docs/benchmarks" if arguments.device == GPU else ".cache/gpu-on-cpu")
    output = arguments.output or usual
    return Setting(device=arguments.device, small=arguments.small, output=output.resolve())


def main(argv: list[str]) -> int:
    """The pass, one of its steps, its page, or what it needs."""
    if argv[:1] == ["step"]:  # our own process, see run()
        parser = argparse.ArgumentParser()
        _options(parser)
        return inside(argv[1], Path(argv[2]), _setting(parser.parse_args(argv[3:])))
    if argv[:1] == ["prepare"]:
        from gpu_steps import prepare

        return prepare.main(argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    _options(parser)
    names = sorted(BY_NAME)
    parser.add_argument("verb", nargs="?", choices=("report",), help="report: only write the page anew")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="STEP", help="this step; repeatable"
    )
    parser.add_argument("--again", action="append", choices=names, metavar="STEP", help="repeat it")
    parser.add_argument("--list", action="store_true", help="name the steps, and do nothing")
    arguments = parser.parse_args(argv)
    setting = _setting(arguments)
    if arguments.list:
        for each in STEPS:
            state = "done" if each.done(setting) else "to do"
            print(f"{each.name:<14} {state:<6} {each.shows}")
        return 0
    from gpu_steps import page

    code = 0
    if arguments.verb != "report":
        only = arguments.only or [each.name for each in STEPS]
        steps = tuple(each for each in STEPS if each.name in only or each is ENVIRONMENT)
        try:
            code = every(steps, setting, frozenset([*(arguments.again or ()), *(arguments.only or ())]))
        except KeyboardInterrupt:
            print("interrupted: run it again, it takes up what is missing")
            return INTERRUPTED
    if code != MISSING:
        print(f"wrote {page.write(setting)}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A step of the GPU pass, what it is given, and where its result lies."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 540.0
"""Seconds of one step: a lent machine gives a command ten minutes."""
CPU, GPU = "cpu", "gpu"


class StepFailed(Exception):
    """What a step measured is not what it promises: the answers differ, or the GPU took no part."""

    def __init__(self, message: str, found: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.found = found or {}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What every step is told."""

    device: str = GPU
    small: bool = False
    """Models of a few hundred kilobytes and a few clients: to see that the step runs."""
    output: Path = ROOT / "docs" / "benchmarks"

    @property
    def results(self) -> Path:
        """Folder of the steps' results."""
        return self.output / "gpu"

    @property
    def cache(self) -> Path:
        """Models that are made once and used by several steps."""
        return ROOT / ".cache" / "gpu"

    @property
    def clients(self) -> tuple[int, ...]:
        """Loads of the curves."""
        return (1, 4) if self.small else (1, 16, 64, 256, 1024)

    @property
    def window(self) -> float:
        """Seconds of one window; a level has three."""
        return 0.4 if self.small else 2.0

    def arguments(self) -> list[str]:
        """The same as options of ``gpu.py``."""
        given = ["--device", self.device, "--output", str(self.output)]
        return [*given, "--small"] if self.small else given


@dataclass(frozen=True, kw_only=True)
class Step:
    """One part of the pass; it runs in a process of its own."""

    name: str
    shows: str
    where: str
    """``module:function`` of this package: imported only by the process that runs it."""
    limit: float = LIMIT

    @property
    def function(self) -> Callable[[Setting], dict[str, Any]]:
        """Takes the setting and returns plain values for JSON; raises ``StepFailed``."""
        module, name = self.where.split(":")
        function: Callable[[Setting], dict[str, Any]]
        function = getattr(importlib.import_module(f"gpu_steps.{module}"), name)
        return function

    def file(self, setting: Setting) -> Path:
        """Where its result is written."""
        return setting.results / f"{self.name}.json"

    def done(self, setting: Setting) -> bool:
        """Whether a result is there that was made with this setting and holds."""
        result = read(self.file(setting))
        return bool(result.get("ok")) and result.get("setting") == described(setting)


def described(setting: Setting) -> dict[str, Any]:
    """What makes two results comparable."""
    return {"device": setting.device, "small": setting.small}


def read(file: Path) -> dict[str, Any]:
    """A result, or nothing where there is none or it was cut off."""
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result


def write(file: Path, result: dict[str, Any]) -> None:
    """As a whole or not at all: a step that is killed leaves no half of a result."""
    file.parent.mkdir(parents=True, exist_ok=True)
    staged = file.with_suffix(".part")
    staged.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    staged.replace(file)


def gpus() -> list[dict[str, str]]:
    """Name, memory, driver and compute capability of every GPU, as nvidia-smi lists them."""
    fields = ("name", "memory.total", "driver_version", "compute_cap")
    argv = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        listed = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[part.strip() for part in line.split(",")] for line in listed.splitlines() if line.strip()]
    return [dict(zip(fields, row, strict=False)) for row in rows]


def machine() -> dict[str, Any]:
    """Where a step ran, as far as the standard library tells."""
    return {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": gpus(),
    }

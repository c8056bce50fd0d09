"""Metrics of an execution: rows, seconds, and the answers of a model that trb built (docs/metrics.md)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = "trb.version"
"""Parameter of models that trb built: outputs of others may have the same names and mean something else."""


class Meter:
    """The metrics of one instance."""

    def __init__(self, args: dict[str, str], config: dict[str, Any]) -> None:
        self._metrics = _module("metrics").Metrics(args)
        self._rows, self._seconds = self._metrics.rows(), self._metrics.phase("infer")
        ours = OURS in (config.get("parameters") or {})
        outputs = [output["name"] for output in config["output"]] if ours else []
        self._answers = _module("answer_metrics").Answers(self._metrics, outputs)
        self.close = self._metrics.close

    def __call__(self, rows: int, seconds: float, outputs: Mapping[str, Any]) -> None:
        """One execution."""
        # No answer may fail for its metrics.
        with suppress(Exception):
            self._rows(rows)
            self._seconds(seconds)
            self._answers(outputs)


def _module(name: str) -> Any:
    """A module that other Python models have beside them: it is copied into this folder, too."""
    file = f"{name}.py"
    path = next(folder / file for folder in (HERE, HERE.parent) if (folder / file).is_file())
    spec = importlib.util.spec_from_file_location(f"trb_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

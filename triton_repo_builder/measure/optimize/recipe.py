"""Record of the steps applied to a model, which can be repeated from it: ``recipe.json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.options import OptimizeOptions
from triton_repo_builder.model.read.signature import PER_ROW

PRUNE, FUSE, FP16, INT8 = "prune", "fuse", "fp16", "int8"
NAMES = (PRUNE, FUSE, FP16, INT8)
PER_CHANNEL, STATIC = "per-channel", "static"
HOWS = (PER_ROW, PER_CHANNEL, STATIC, "dynamic")
"""Ways to int8: ours, and the ways of ONNX Runtime's quantisers."""
FILE = "recipe.json"


@dataclass(frozen=True, kw_only=True)
class RecipeStep:
    """One change of the file."""

    name: str
    how: str = ""
    """Way to int8; empty to search for one."""
    excluded: tuple[str, ...] = ()
    """Outputs (per-row) or nodes (static) that stay in float."""

    def __str__(self) -> str:
        kept = f", {len(self.excluded)} {self.unit} in float" if self.excluded else ""
        return f"{self.name} {self.how}{kept}" if self.how else self.name

    @property
    def unit(self) -> str:
        """Kind of the ``excluded`` names."""
        return "nodes" if self.how == STATIC else "products"

    def as_json(self) -> dict[str, Any]:
        """The step as plain values."""
        values: dict[str, Any] = {"step": self.name}
        if self.how:
            values["how"] = self.how
        if self.excluded:
            values["excluded"] = list(self.excluded)
        return values


def planned(options: OptimizeOptions) -> tuple[RecipeStep, ...]:
    """The steps that the options ask for. Raises ``TrbError`` USAGE."""
    if options.recipe and options.steps:
        raise TrbError(Code.USAGE, "--recipe and --steps both say what to do", remedy="leave one of them out")
    steps = (
        read(options.recipe) if options.recipe else parse(INT8 if options.steps is None else options.steps)
    )
    if not steps:
        raise TrbError(Code.USAGE, "there is no step to take", remedy="--steps int8, for instance")
    return steps


def parse(text: str) -> tuple[RecipeStep, ...]:
    """``fuse,int8`` or ``int8:per-channel``. Raises ``TrbError`` USAGE."""
    return tuple(_step(*word.strip().partition(":")[::2]) for word in text.split(",") if word.strip())


def read(path: Path) -> tuple[RecipeStep, ...]:
    """The steps of a recipe file. Raises ``TrbError``."""
    try:
        document = files.load_json(files.read(path))
        listed = document["steps"]
        return tuple(
            _step(entry["step"], entry.get("how", ""), tuple(map(str, entry.get("excluded", ()))))
            for entry in listed
        )
    except OSError as error:
        raise files.unreadable(path, error) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TrbError(
            Code.USAGE,
            "this is not a recipe of trb optimize",
            where=str(path),
            remedy=f"name the {FILE} that trb optimize wrote",
        ) from None


def _step(name: str, how: str = "", excluded: tuple[str, ...] = ()) -> RecipeStep:
    if name not in NAMES:
        raise TrbError(
            Code.USAGE, f"no step is called '{name}'", where="--steps", remedy=f"one of {', '.join(NAMES)}"
        )
    if how and (name != INT8 or how not in HOWS):
        reason = f"int8 knows {', '.join(HOWS)}" if name == INT8 else f"{name} has no ways"
        raise TrbError(
            Code.USAGE, f"'{name}:{how}': {reason}", where="--steps", remedy=f"e.g. int8:{PER_ROW}"
        )
    return RecipeStep(name=name, how=how, excluded=excluded)

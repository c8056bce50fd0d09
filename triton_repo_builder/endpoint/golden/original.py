"""The original model: ONNX Runtime on the *untouched* file, which shares nothing with serving.

``text.py``, ``image.py`` and ``tensor.py`` record its answers as golden cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import text
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden.pytorch import PyTorchAnswers
from triton_repo_builder.endpoint.golden.tolerance import ABSOLUTE, HALF, tolerance
from triton_repo_builder.model.graph import control, isolated
from triton_repo_builder.model.graph.session import ModelSession
from triton_repo_builder.model.graph.session import load as load_session
from triton_repo_builder.model.read.empty_cache import IDS, EmptyCache
from triton_repo_builder.model.read.input_constants import InputConstant
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository.cases import Case, CaseFile, Tolerance
from triton_repo_builder.repository.reference import Reference

_LOCALE = re.compile(r"Failed to construct locale with name:([\w.@-]+)")
_ONNXRUNTIME = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .* failed:)?")


def rows_interact(source: Source) -> str:
    """Why the graph itself shows that rows change each other's answers; empty if it does not."""
    if source.signature.quantised:
        return "it quantises activations at run time, by the largest number of all rows in a batch"
    return control.decides(source.skeleton) or draws(source)


def draws(source: Source) -> str:
    """Which random operator the graph has; empty without one."""
    return control.draws(source.skeleton)


@dataclass(frozen=True)
class OriginalModel:
    """The original model in ONNX Runtime, and the noise of the device whose answers will be compared.

    It runs in a process of its own, with a limit on time and memory (``isolated.py``).
    """

    session: ModelSession
    noise: float = ABSOLUTE
    own_noise: float = ABSOLUTE
    """Float noise of the CPU, which computes these answers."""
    rounding: float = 0.0
    """``ModelSignature.rounding``."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """``Skeleton.renamed``: the file's own names of inputs."""
    flat: tuple[str, str] | None = None
    """``Skeleton.flat``: the file takes the tokens of all rows end to end."""
    constants: tuple[InputConstant, ...] = ()
    """``Skeleton.constants``: what the file is given besides."""
    caches: tuple[EmptyCache, ...] = ()
    """``Skeleton.caches``: the file's inputs that are always empty."""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """Inputs of every run, added to the given ones."""
    answers: PyTorchAnswers | None = None
    """PyTorch's answers, which are taken instead of this file's where it has them (``trb convert``)."""
    tape: list[tuple[dict[str, Any], list[Any]]] | None = None
    """Where each run's inputs and outputs are noted, if they are asked for."""

    @property
    def unsure(self) -> float:
        """Noise that a decision must survive: float noise, and the steps of 8 bits."""
        return max(self.noise, self.rounding)

    def tolerance(self, recorded: Sequence[Case]) -> Tolerance:
        """How far a served answer may be from these."""
        return tolerance(recorded, self.noise, self.rounding)

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model. Raises ``isolated.Failed``; ``TrbError`` at a limit."""
        named = {**feeds, **self.beside}
        if self.answers and (stored := self.answers.of(named, outputs)) is not None:
            return stored
        values = self.session.run(outputs, self._own(feeds))
        if self.tape is not None:
            self.tape.append((named, values))
        return values

    def recorded_with(self, source: Source, *others: str) -> str:
        """Origin of the answers: the tools with their versions, and the file."""
        if self.answers and not self.answers.missed:
            return " + ".join([*others, self.answers.about])
        tools = [*others, f"ONNX Runtime {isolated.ask('version')} (CPU)"]
        return f"{' + '.join(tools)} on the original {source.path.name}"

    def seconds(self, feeds: Mapping[str, Any]) -> float:
        """How long a run takes."""
        return self.session.seconds(self._own(feeds))

    def _own(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of a run, under the file's own names."""
        feeds = {**feeds, **self.beside}
        if self.flat:
            feeds = _end_to_end(feeds, *self.flat)
        names = {usual: name for name, usual in self.renamed.items()}
        renamed = {names.get(name, name): feeds[name] for name in feeds}
        renamed |= {constant.name: _filled(constant, renamed) for constant in self.constants}
        return renamed | {cache.name: _no_tokens(cache, feeds) for cache in self.caches}


def _end_to_end(feeds: Mapping[str, Any], ids: str, offsets: str) -> dict[str, Any]:
    """The tokens of all rows, and how many come before each row."""
    rows = [row[mask != 0] for row, mask in zip(feeds["input_ids"], feeds["attention_mask"], strict=True)]
    before = np.cumsum([0, *map(len, rows[:-1])])
    return {ids: np.concatenate(rows), offsets: before.astype(feeds["input_ids"].dtype)}


def _filled(constant: InputConstant, feeds: Mapping[str, Any]) -> npt.NDArray[Any]:
    shape = () if constant.scalar else (len(feeds[constant.rows_of]) if constant.rows_of else 1,)
    return np.full(shape, constant.value, constant.dtype.numpy)


def _no_tokens(cache: EmptyCache, feeds: Mapping[str, Any]) -> npt.NDArray[Any]:
    return np.zeros((len(feeds[IDS]), *cache.shape[1:]), cache.dtype.numpy)


def load(source: Source, *, gpu: bool = False, threads: int = 0, lean: bool = True) -> OriginalModel:
    """ONNX Runtime on the user's own file, on the CPU; ``gpu``: the server will run on one.

    ``threads``, ``lean``: see ``graph.session.load``. Raises ``TrbError``.
    """
    try:
        opened = load_session(source.skeleton, source.signature, threads=threads, lean=lean)
    except isolated.Failed as error:
        if locale := _LOCALE.search(str(error)):
            raise _locale_missing(source, locale[1]) from None
        raise TrbError(
            Code.GOLDEN_FAILED,
            f"ONNX Runtime cannot load the model: {first_line(error)}",
            where=str(source.path),
            remedy="repair or re-export the model; --no-golden builds without proving its answers",
        ) from None
    on_cpu = HALF if source.signature.half_precision else ABSOLUTE
    renamed = {name: usual for name, usual in source.skeleton.renamed.items() if name in opened.inputs}
    rounding = source.signature.rounding
    noise = HALF if gpu else on_cpu
    graph = source.skeleton
    return OriginalModel(
        opened,
        noise,
        on_cpu,
        rounding,
        renamed,
        flat=graph.flat,
        constants=graph.constants,
        caches=graph.caches,
    )


def _locale_missing(source: Source, name: str) -> TrbError:
    """A StringNormalizer, of scikit-learn's text pipelines, lower-cases by the rules of a locale."""
    language, _, charset = name.partition(".")
    charset = charset or "UTF-8"
    return TrbError(
        Code.GOLDEN_FAILED,
        f"its StringNormalizer needs the locale {name}, which is not installed here",
        where=str(source.path),
        remedy="install it here and where it is served (in the server's image): apt-get update && apt-get "
        f"install -y locales && localedef -i {language} -f {charset} {name}; or set that operator's "
        "attribute locale to C.UTF-8, which every image has",
    )


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The original model's answers, and facts about the model that follow from them."""

    cases: CaseFile | None
    batchable: bool
    """Whether an answer is the same in a batch."""
    obstacle: str = ""
    """Why the model cannot batch although its graph has a batch axis."""
    interaction: str = ""
    """How other rows of a batch change an answer, so that each must run alone; empty if they do not."""
    compared: bool = True
    """Whether answers in a batch were compared with answers alone, if there is a batch axis."""
    notes: tuple[str, ...] = ()
    reference: Reference | None = None
    """Distributions of texts and answers, which a server's are compared with."""

    def noted(self, *notes: str) -> Recording:
        """The recording with these notes added; empty ones are left out."""
        return replace(self, notes=(*self.notes, *filter(None, notes)))


def first_line(error: BaseException) -> str:
    """ONNX Runtime's message, without the place in its own code."""
    return text.first_line(_ONNXRUNTIME.sub("", str(error).strip())) or type(error).__name__

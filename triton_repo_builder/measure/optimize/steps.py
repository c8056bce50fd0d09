"""Each step: a file in, a file out. ONNX Runtime's optimiser and quantisers, and int8 by row of our own."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from triton_repo_builder.base import text
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.optimize.recipe import FP16, FUSE, PRUNE, STATIC, RecipeStep
from triton_repo_builder.measure.optimize.samples import SampleSet
from triton_repo_builder.model.graph import per_row, prune, reader, weights
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.signature import PER_ROW

CALIBRATED = 32
"""Samples whose activations set the scales of static quantisation."""
OPSET_OF_AXES = 13
"""Opset from which on DequantizeLinear takes a scale for each channel."""


def apply(step: RecipeStep, before: Path, after: Path, samples: SampleSet) -> None:
    """Write ``after``. Raises ``TrbError`` UNSUPPORTED_MODEL if the step has nothing to do or fails."""
    if step.how == PER_ROW:
        products = per_row.quantise(skeleton.read(before), after, excluded=step.excluded)
        if not products:
            raise nothing(step, before, "no constant matrix of its products is large enough")
        return
    if step.name == PRUNE:
        if not prune.cut(skeleton.read(before), after).any:
            raise nothing(step, before, "no head of attention and no neuron is zero")
        return
    run: Callable[[RecipeStep, Path, Path, SampleSet], None]
    run = {FUSE: _fuse, FP16: _half, STATIC: _static}.get(step.how or step.name, _dynamic)
    try:
        with _quiet():
            run(step, before, after, samples)
    except (TrbError, OSError):
        raise
    except Exception as error:
        raise nothing(step, before, f"ONNX Runtime's tool fails: {text.first_line(str(error))}") from None


def nothing(step: RecipeStep, path: Path, why: str) -> TrbError:
    """The step cannot be done with this model."""
    return TrbError(
        Code.UNSUPPORTED_MODEL, f"{step}: {why}", where=str(path), remedy="leave that step out of --steps"
    )


def _fuse(step: RecipeStep, before: Path, after: Path, samples: SampleSet) -> None:
    from onnxruntime.transformers import optimizer

    model = optimizer.optimize_model(str(before), model_type="bert", opt_level=0, use_gpu=False)
    if not any(model.get_fused_operator_statistics().values()):
        raise nothing(step, before, "no part of the graph is one that the transformer optimiser fuses")
    model.save_model_to_file(str(after))


def _half(step: RecipeStep, before: Path, after: Path, samples: SampleSet) -> None:
    weights.halve(before, after)


def _dynamic(step: RecipeStep, before: Path, after: Path, samples: SampleSet) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(before, after, per_channel=step.how != "dynamic", weight_type=QuantType.QInt8)


def quantisable(before: Path) -> tuple[str, ...]:
    """Names of the nodes that static quantisation may leave in float, in the order of the graph."""
    with tempfile.TemporaryDirectory() as folder, _quiet():
        prepared = _prepared(before, Path(folder) / "prepared.onnx")
        model = reader.load(skeleton.read(prepared))
    return tuple(node.name for node in model.graph.node if node.name)


def _prepared(before: Path, prepared: Path) -> Path:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(str(before), str(prepared), skip_symbolic_shape=True)
    return prepared


def _static(step: RecipeStep, before: Path, after: Path, samples: SampleSet) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    prepared = after.with_name(f"prepared-{after.name}")
    try:
        quantize_static(
            _prepared(before, prepared),
            after,
            _Reader(samples),
            quant_format=QuantFormat.QDQ,
            per_channel=reader.read_signature(before).opset >= OPSET_OF_AXES,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(step.excluded),
            calibrate_method=CalibrationMethod.MinMax,
        )
    finally:
        prepared.unlink(missing_ok=True)


class _Reader:
    """onnxruntime.quantization.CalibrationDataReader, which is asked until it gives None."""

    def __init__(self, samples: SampleSet) -> None:
        self._feeds: Iterator[Mapping[str, Any]] = iter(samples.singles(CALIBRATED))

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self._feeds, None)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The tools print and warn on their own; their errors are raised."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)

"""``MLmodel``, the description of a model that MLflow logged: the ONNX file, its signature, an example.

https://mlflow.org/docs/latest/ml/model/#storage-format. No code of a model is run, and nothing that it
requires is installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec

FILE = "MLmodel"
FLAVOUR = "onnx"
EXAMPLES = ("serving_input_example.json", "input_example.json")
LARGEST_EXAMPLE = 1 << 20
"""Elements: an example that is larger proves no more."""


@dataclass(frozen=True, kw_only=True)
class MlModel:
    """The content of ``MLmodel``."""

    file: str = ""
    """The ONNX file, by its name in the folder."""
    flavours: tuple[str, ...] = ()
    inputs: Mapping[str, np.dtype[Any] | None] = field(default_factory=dict)
    """Types of the signature by the name of their tensor; None for one that is not of numbers."""
    shown: str = ""
    """The signature in a line."""


def read(folder: Path) -> MlModel:
    """The description in a folder; an empty one without. Raises ``TrbError``."""
    file = containment.within(folder, FILE)
    if file is None:
        return MlModel()
    import yaml

    try:
        document = yaml.safe_load(files.read_text(file, limit=files.LARGEST_DOCUMENT))
        flavours = dict(document["flavors"])
        signature = document.get("signature") or {}
        inputs = json.loads(signature.get("inputs") or "[]")
        outputs = json.loads(signature.get("outputs") or "[]")
        onnx = flavours.get(FLAVOUR, {})
        return MlModel(
            file=str(onnx.get("data", "")),
            flavours=tuple(sorted(flavours)),
            inputs={str(each["name"]): _dtype(each) for each in inputs if each.get("name")},
            shown=f"{_shown(inputs)} -> {_shown(outputs)}" if inputs else "",
        )
    except (
        OSError,
        yaml.YAMLError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise TrbError(
            Code.NOT_FOUND,
            f"is no description of MLflow: {error}",
            where=str(file),
            remedy="log the model again",
        ) from None


def _dtype(entry: Mapping[str, Any]) -> np.dtype[Any] | None:
    """The type of a tensor of numbers. Raises ``TypeError`` for one that numpy does not have."""
    stated = (entry.get("tensor-spec") or {}).get("dtype")
    dtype = np.dtype(str(stated)) if stated else None
    return None if dtype is None or dtype.kind in "OSU" else dtype


def _shown(tensors: Any) -> str:
    return ", ".join(map(_one, tensors))


def _one(entry: Mapping[str, Any]) -> str:
    spec = entry.get("tensor-spec") or {}
    name = f"{entry['name']}:" if entry.get("name") else ""
    return f"{name}{spec.get('dtype', entry.get('type'))}{spec.get('shape', '')}"


def refuse_without_onnx(folder: Path, where: str) -> None:
    """Raise ``TrbError`` for a model that was logged in other flavours only."""
    description = read(folder)
    if description.file:
        return
    remedy = "log it with mlflow.onnx.log_model, and build that version"
    if "transformers" in description.flavours:
        remedy = f"{remedy}; or download it, and trb convert its folder model/"
    listed = ", ".join(description.flavours)
    raise TrbError(
        Code.NOT_FOUND,
        f"it has no ONNX flavour, only {listed}, whose code trb never runs",
        where=where,
        remedy=remedy,
    )


def refuse_mismatch(folder: Path, signature: ModelSignature) -> None:
    """Raise ``TrbError`` if the signature names inputs or types that the graph does not have."""
    stated = read(folder).inputs
    for name, dtype in stated.items():
        spec = signature.input(name)
        if spec is None:
            theirs = ", ".join(each.name for each in signature.inputs)
            raise _mismatch(
                folder, f"input '{name}' of its signature is not in the graph, which has {theirs}"
            )
        if dtype is not None and dtype != spec.dtype.numpy:
            raise _mismatch(
                folder, f"input '{name}' is {dtype} in its signature, and {spec.dtype.wire} in the graph"
            )


def _mismatch(folder: Path, message: str) -> TrbError:
    remedy = "log the model with its own signature; without MLmodel the graph alone counts"
    return TrbError(Code.UNSUPPORTED_MODEL, message, where=str(folder / FILE), remedy=remedy)


def example(folder: Path, inputs: tuple[TensorSpec, ...]) -> dict[str, npt.NDArray[Any]]:
    """The input example, one array an input, in the graph's types; empty if there is none that fits."""
    for name in EXAMPLES if containment.within(folder, FILE) else ():
        file = containment.within(folder, name)
        if file is None:
            continue
        try:
            document = files.load_json(files.read(file, files.LARGEST_DOCUMENT))
        except (OSError, *files.DAMAGED):
            continue
        if arrays := _arrays(document, inputs):
            return arrays
    return {}


def _arrays(document: Any, inputs: tuple[TensorSpec, ...]) -> dict[str, npt.NDArray[Any]]:
    values = document
    if isinstance(document, dict):
        values = document.get("inputs", document.get("instances", document))
    if not isinstance(values, dict):
        values = {inputs[0].name: values} if len(inputs) == 1 else {}
    arrays = {}
    for spec in inputs:
        if spec.name not in values:
            return {}
        try:
            array = np.asarray(values[spec.name], dtype=spec.dtype.numpy)
        except (ValueError, TypeError, OverflowError):
            return {}
        if not _fits(array, spec):
            return {}
        arrays[spec.name] = array
    return arrays


def _fits(array: npt.NDArray[Any], spec: TensorSpec) -> bool:
    shape = spec.shape
    if array.size > LARGEST_EXAMPLE or shape is None or array.ndim != len(shape):
        return False
    return all(not isinstance(dim, int) or dim == size for dim, size in zip(shape, array.shape, strict=True))

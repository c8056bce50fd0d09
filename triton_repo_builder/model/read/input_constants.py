"""Inputs that have the same number in every request: ``--constant task_id=1`` puts it into the graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from triton_repo_builder.base.declaration import flag
from triton_repo_builder.base.dtypes import DType
from triton_repo_builder.model.read.options import usage
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec

OPTION = "constant"
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = {"float16": 65504.0, "float": 3.4028234e38, "double": math.inf}
"""Largest number by type."""
WORDS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class InputConstant:
    """One input of the file that the served graph has no more."""

    name: str
    dtype: DType
    value: bool | int | float
    scalar: bool
    """No axis at all; else one."""
    rows_of: str = ""
    """The input with as many rows as this one has values; empty: it has one value."""


def read(signature: ModelSignature, values: Sequence[tuple[str, str]]) -> tuple[InputConstant, ...]:
    """The inputs named in ``values``: (name, value) pairs. Raises ``TrbError`` USAGE."""
    names = {name for name, _ in values}
    others = [spec for spec in signature.inputs if spec.name not in names]
    if values and not others:
        raise usage(OPTION, "no input is left for requests", "leave out the one that requests give")
    return tuple(_read(signature, name, text, others) for name, text in values)


def fits(spec: TensorSpec) -> bool:
    """Whether one number can stand for an input: a scalar, or one value for a request or for each row."""
    typed = spec.dtype.name in (*INTEGERS, *FLOATS, "bool")
    return typed and spec.shape is not None and (not spec.shape or (len(spec.dims) == 1 and spec.dims[0] < 2))


def hint(signature: ModelSignature) -> str:
    """The option for inputs that could be given once; empty if there is none."""
    fitting = [spec.name for spec in signature.inputs if fits(spec)]
    return " ".join(f"{flag(OPTION)} {name}=VALUE" for name in fitting)


def without(signature: ModelSignature) -> ModelSignature:
    """The signature without the inputs that could be given once."""
    return replace(signature, inputs=tuple(spec for spec in signature.inputs if not fits(spec)))


def _read(signature: ModelSignature, name: str, text: str, others: Sequence[TensorSpec]) -> InputConstant:
    spec = signature.input(name)
    if spec is None:
        names = ", ".join(item.name for item in signature.inputs)
        raise usage(OPTION, f"the model has no input '{name}'", f"its inputs are {names}")
    if not fits(spec):
        raise usage(
            OPTION,
            f"input {spec} is not a single number: a scalar, or one for each row",
            "export the model with it as a constant, or use --task tensor",
        )
    scalar = not spec.shape
    single = scalar or spec.dims[0] == 1
    return InputConstant(
        name=name,
        dtype=spec.dtype,
        value=_value(spec, text),
        scalar=scalar,
        rows_of="" if single else _rows_of(spec, others),
    )


def _value(spec: TensorSpec, text: str) -> bool | int | float:
    """The number in the input's type. Raises ``TrbError`` USAGE."""
    kind, plain = spec.dtype.name, text.strip().lower()
    if kind == "bool" and plain in WORDS:
        return WORDS[plain]
    try:
        if kind in FLOATS and math.isfinite(number := float(plain)) and abs(number) <= FLOATS[kind]:
            return number
        if kind in INTEGERS and _low(spec.dtype) <= (whole := int(plain)) <= _high(spec.dtype):
            return whole
    except ValueError:
        pass
    expected = "true or false" if kind == "bool" else f"a number of type {kind}"
    raise usage(OPTION, f"'{text:.40}' is not a value of input {spec}", f"give {expected}")


def _low(dtype: DType) -> int:
    return 0 if dtype.name.startswith("u") else -(1 << (8 * dtype.size - 1))


def _high(dtype: DType) -> int:
    return int((1 << (8 * dtype.size - (0 if dtype.name.startswith("u") else 1))) - 1)


def _rows_of(spec: TensorSpec, others: Sequence[TensorSpec]) -> str:
    """An input whose first axis is this one's: by its name, else the first that is open there."""
    axis = spec.shape[0] if spec.shape else None
    first = [other for other in others if other.shape and not isinstance(other.shape[0], int)]
    named = [other for other in first if axis is not None and other.shape and other.shape[0] == axis]
    elsewhere = any(axis is not None and axis in (other.shape or ())[1:] for other in others)
    if named or (first and not elsewhere):
        return (named or first)[0].name
    raise usage(
        OPTION,
        f"the axis of input {spec} is not the batch of another input",
        "export the model with it as a constant, or use --task tensor",
    )

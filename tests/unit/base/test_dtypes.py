"""The table of element types, against other people's tables."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tritonclient.utils import np_to_triton_dtype

from triton_repo_builder.base import dtypes
from triton_repo_builder.base.dtypes import DType

SERVABLE = [dtype for dtype in dtypes.ALL if dtype.servable]


@pytest.mark.parametrize("dtype", SERVABLE, ids=lambda dtype: dtype.name)
def test_names_are_those_of_tritons_client(dtype: DType) -> None:
    assert np_to_triton_dtype(np.dtype(dtype.numpy)) == dtype.wire
    assert dtype.config == ("TYPE_STRING" if dtype.wire == "BYTES" else f"TYPE_{dtype.wire}")


@pytest.mark.parametrize("dtype", SERVABLE, ids=lambda dtype: dtype.name)
def test_numbers_are_those_of_onnx(dtype: DType) -> None:
    assert onnx.TensorProto.DataType.Name(dtype.onnx).lower() == dtype.name
    assert onnx.helper.tensor_dtype_to_np_dtype(dtype.onnx) == np.dtype(dtype.numpy)

"""The outputs of a model as older ONNX Runtimes infer them: a configuration is written for one release.

The release that it is for has another ONNX Runtime than the embedded server, and the C++ backend compares the
outputs exactly. ``older_inference.json``, which the embedded engine writes beside this module, has what older
ones do not infer. A server whose ONNX Runtime is the release's own has no such file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import Refused
    from triton_repo_builder.runtime.onnxruntime_backend.ort_session import model_file, open_graph
else:
    from ort_errors import Refused
    from ort_session import model_file, open_graph

TABLE = Path(__file__).with_name("older_inference.json")


def sessions(config: dict[str, Any], version: Path) -> Iterator[ort.InferenceSession]:
    """The model as older ONNX Runtimes infer it, the newest first; none if they infer the same.

    Each is opened when it is asked for: few configurations need one.
    """
    if not TABLE.is_file():
        return
    path, last = model_file(config, version), b""
    for table in json.loads(TABLE.read_text(encoding="utf-8")):
        graph = _graph(path, table)
        if graph not in (b"", last):
            last = graph
            with contextlib.suppress(Refused):
                yield open_graph(config, graph, path.parent)


def _graph(path: Path, table: Mapping[str, Sequence[Any]]) -> bytes:
    """The graph without the sizes that the table's operators imply; empty if it has none of them."""
    try:
        # onnx is large, and few configurations come here.
        onnx, ort_hidden = importlib.import_module("onnx"), importlib.import_module("ort_hidden")
        model = onnx.load(path, load_external_data=False)
        hidden = ort_hidden.hide(model, lambda operator, opset: _infers(table, operator, opset))
        return bytes(model.SerializeToString()) if hidden else b""
    except Exception:  # ONNX Runtime's own format, or no onnx here: the comparison stays exact
        return b""


def _infers(table: Mapping[str, Sequence[Any]], operator: str, opset: int) -> str:
    since, kept = table.get(operator, (0, "sizes"))
    return str(kept) if opset >= int(since) else "sizes"

"""The examples of the rules, laid out on a disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def lay_out(files: Mapping[str, str], root: Path) -> Path:
    """Write a repository of texts as ``check/explain.py`` has them."""
    import onnx
    import onnx.parser

    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        elif text.startswith("-> "):
            path.symlink_to(text[3:])
        elif name.endswith(".onnx.external.txt"):
            model = onnx.parser.parse_model(text)
            for tensor in model.graph.initializer:
                tensor.ClearField("float_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value="weights.bin")
            path.with_suffix("").with_suffix("").write_bytes(model.SerializeToString())
        elif name.endswith(".onnx.txt"):
            path.with_suffix("").write_bytes(onnx.parser.parse_model(text).SerializeToString())
        else:
            path.write_bytes(text.encode())
    return root

"""What a model needs of ONNX Runtime: its configuration completed, or a runner that answers requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend import ort_complete, ort_older
    from triton_repo_builder.runtime.onnxruntime_backend.ort_checks import check
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import Refused, surfaced
    from triton_repo_builder.runtime.onnxruntime_backend.ort_meter import Meter
    from triton_repo_builder.runtime.onnxruntime_backend.ort_runner import Runner
    from triton_repo_builder.runtime.onnxruntime_backend.ort_session import open_for_reading, open_session
else:
    import ort_complete
    import ort_older
    from ort_checks import check
    from ort_errors import Refused, surfaced
    from ort_meter import Meter
    from ort_runner import Runner
    from ort_session import open_for_reading, open_session


def complete(config: dict[str, Any], version: Path) -> str:
    """Fill in what the configuration leaves out, from the graph; a line for the log, or an empty text."""
    try:
        return ort_complete.complete(config, open_for_reading(config, version))
    except Refused as refused:
        raise surfaced(refused) from None


def runner(config: dict[str, Any], version: Path, kind: str, device: str) -> Runner:
    """Open the session of one instance and compare the configuration with the graph."""
    try:
        session = open_session(config, version, kind, device)
        check(config, session, ort_older.sessions(config, version))
    except Refused as refused:
        raise surfaced(refused) from None
    return Runner(config, session)


def meter(args: dict[str, str], config: dict[str, Any]) -> Meter:
    """The metrics of one instance, by the arguments of its ``initialize``."""
    return Meter(args, config)

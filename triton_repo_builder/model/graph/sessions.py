"""Users' graphs in ONNX Runtime and in ONNX's inference, in a process that can be ended (``isolated.py``).

A graph is a program: it may run for ever, fill the memory or crash. This module is all that runs beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from triton_repo_builder.model.graph import memory

_SESSIONS: dict[int, Any] = {}
PDEATHSIG = 1
"""prctl(2): end with the process that started this one."""
SHARE = 4
"""An answer may take this part of the memory: the command holds it several times."""


def version() -> str:
    """Version of ONNX Runtime."""
    import onnxruntime

    return str(onnxruntime.__version__)


def open_session(
    number: int, model: str | bytes, threads: int, entries: Mapping[str, str]
) -> tuple[list[str], dict[str, tuple[Any, ...]]]:
    """Load a model on the CPU: its inputs, and its outputs with their shapes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # failures are raised, too
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    opened = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    _SESSIONS[number] = opened
    inputs = [value.name for value in opened.get_inputs()]
    return inputs, {value.name: tuple(value.shape) for value in opened.get_outputs()}


def run(number: int, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a model, like ``InferenceSession.run``."""
    values: list[Any] = _SESSIONS[number].run(outputs, dict(feeds))
    size, most = sum(getattr(value, "nbytes", 0) for value in values), _limit() // SHARE
    if size > most:
        raise MemoryError(f"its answer has {size:,} bytes, and at most {most:,} can be held")
    return values


def seconds(number: int, feeds: Mapping[str, Any]) -> float:
    """How long a run takes."""
    start = time.perf_counter()
    _SESSIONS[number].run(None, dict(feeds))
    return time.perf_counter() - start


def infer(model: bytes, options: Mapping[str, bool], room: int) -> tuple[bytes, None] | tuple[None, str]:
    """ONNX's inference of shapes with at most ``room`` more bytes: the model with them, or the error."""
    library = _onnx_library()
    try:
        with _limited(room):
            return library.shape_inference.infer_shapes(model, **options), None
    except Exception as error:  # a class of the library, also for memory; its text says what is wrong
        return None, str(error)


@functools.cache
def _onnx_library() -> Any:
    """ONNX's C++ library without the package around it, which takes 0.2 s to import and 30 MB."""
    if loaded := sys.modules.get("onnx.onnx_cpp2py_export"):  # a process holds it once
        return loaded
    package = importlib.util.find_spec("onnx")
    assert package is not None
    spec = PathFinder.find_spec("onnx_cpp2py_export", package.submodule_search_locations)
    assert spec is not None and spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    return library


def close(numbers: Sequence[int]) -> None:
    """Forget these models."""
    for number in numbers:
        _SESSIONS.pop(number, None)


def drop(files: Sequence[Path]) -> None:
    """Give back the pages of weights that are mapped."""
    memory.drop(files)


CALLS: dict[str, Callable[..., Any]] = {
    "version": version,
    "open": open_session,
    "run": run,
    "seconds": seconds,
    "infer": infer,
    "drop": drop,
}


@contextlib.contextmanager
def _limited(room: int) -> Iterator[None]:
    """Limit the memory of this process to ``room`` bytes more; beyond it allocations fail."""
    if sys.platform != "linux":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # data and stack, proc(5)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    finite = [number for number in (soft, hard) if number != resource.RLIM_INFINITY]
    limit = min([pages * resource.getpagesize() + room, *finite])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _limit() -> int:
    """Bytes that this process may use."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def serve(connection: Connection, most: int) -> None:
    """Answer the command until it ends. ``most``: bytes of memory, beside weights that are mapped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # a machine that runs out of memory ends this process first
        Path("/proc/self/oom_score_adj").write_text("500")
    with contextlib.suppress(EOFError, OSError):
        while True:
            name, arguments, done = connection.recv()
            close(done)
            try:
                answer: tuple[str | None, Any] = (None, CALLS[name](*arguments))
            except Exception as error:
                answer = (type(error).__name__, str(error))
            connection.send(answer)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
    os._exit(0)  # sessions are large, and nothing else is left to do

"""Defer imports of Triton's stub that a model written by trb never uses.

Copied into the environment of the server's Python processes, whose ``.pth`` file calls ``install``. The stub
imports numpy before it runs ``model.py``, and numpy 1 imports all its parts at once (numpy 2 does not). With
the first request it imports asyncio, to ask whether ``execute`` returned a coroutine. Each instance is a
process that would hold all of it (``benchmarks/serve_ready.py``). Processes of other models are left alone.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
from types import CoroutineType, ModuleType

BACKEND = 9
"""Place of the backend's folder in the stub's command line (python_backend, ``StubLauncher::Launch``)."""
UNUSED = frozenset({"numpy.fft", "numpy.ma", "numpy.polynomial", "numpy.random"})


def install(models: list[str]) -> None:
    """Make the imports lazy if this process runs a copy of one of the files ``models``."""
    try:
        if _content(_model()) in [_content(path.encode()) for path in models]:
            sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]  # a class with the one method serves
            sys.modules["asyncio"] = _Asyncio("asyncio")
    except (OSError, IndexError):
        pass


def _model() -> bytes:
    """The file that the stub runs: its first argument, or ``model.py`` of a Python-based backend's folder."""
    arguments = _content(b"/proc/self/cmdline").split(b"\0")
    backend = arguments[BACKEND] if len(arguments) > BACKEND else b""
    return backend + b"/model.py" if backend.startswith(b"/") else arguments[1]


def _content(path: bytes) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123  # pathlib is not imported yet
        return file.read()


class _Finder:
    """Finder that locates these parts as usual and defers their execution."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name not in UNUSED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


class _Asyncio(ModuleType):
    """Replacement for asyncio with the stub's one function; any other use loads the module."""

    @staticmethod
    def iscoroutine(value: object) -> bool:
        return isinstance(value, CoroutineType)

    def __getattr__(self, name: str) -> object:
        if sys.modules.get("asyncio") is self:
            del sys.modules["asyncio"]
        return getattr(importlib.import_module("asyncio"), name)

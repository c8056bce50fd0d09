"""The Python environment that has torch and optimum: made once, kept in the user's cache.

``trb`` itself needs neither. The packages are pinned in requirements.txt, whose digest names the folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from triton_repo_builder.base import files, process, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import first_line
from triton_repo_builder.repository.journal import turn

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
VARIABLE = "TRB_CONVERT_PYTHON"
READY = ".ready"
NEEDED = 4 << 30
"""Bytes that the packages take with CPU torch, downloads included."""
PROBE = "import importlib.metadata as m; [m.version(n) for n in ('torch', 'transformers', 'optimum-onnx')]"
Progress = Callable[[str], None]


def python(stated: Path | None, progress: Progress, tell: Progress) -> Path:
    """The interpreter to convert with: a stated one, else the kept environment's. Raises ``TrbError``.

    ``tell`` prints a line, for what takes minutes.
    """
    stated = stated or (Path(value) if (value := os.environ.get(VARIABLE)) else None)
    if stated is not None:
        return _checked(stated.absolute())  # not resolved: a link of an environment names it
    home = transfer.cache_folder() / "convert"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = home / digest
    interpreter = folder / "bin" / "python"
    if (folder / READY).exists() and interpreter.exists():
        return interpreter
    try:
        home.mkdir(parents=True, exist_ok=True)
        with turn.taken(home, tell):
            if not (folder / READY).exists():
                _make(folder, progress, tell)
    except OSError as error:
        raise files.explain(error, home, how="with XDG_CACHE_HOME", kept="nothing was converted") from None
    return interpreter


def _checked(interpreter: Path) -> Path:
    """``TrbError`` NOT_FOUND if this Python lacks a package."""
    try:
        process.run([str(interpreter), "-I", "-c", PROBE], timeout=60)
    except (process.ProcessFailed, OSError) as error:
        stderr = error.stderr if isinstance(error, process.ProcessFailed) else str(error)
        reason = (stderr.strip().splitlines() or ["it does not run"])[-1]
        raise TrbError(
            Code.NOT_FOUND,
            f"this Python cannot convert: {reason}",
            where=str(interpreter),
            remedy="install torch, transformers and optimum-onnx there; or leave out --python and "
            f"{VARIABLE}: trb makes an environment of its own",
        ) from None
    return interpreter


def _make(folder: Path, progress: Progress, tell: Progress) -> None:
    """The environment, put together beside its place and renamed as a whole."""
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED:
        raise TrbError(
            Code.DISK_FULL,
            f"the conversion environment needs {NEEDED >> 30} GB, and {free / (1 << 30):.1f} GB are free",
            where=str(folder.parent),
            remedy="free some space, choose another disk with XDG_CACHE_HOME, or name a Python that has "
            "torch and optimum-onnx with --python",
        )
    tell(
        "making an environment with torch and optimum, once (some minutes); it is kept for later conversions"
    )
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        for argv in commands(fresh, shutil.which("uv")):
            _run(argv, progress)
        files.create(fresh / READY, b"")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def commands(folder: Path, uv: str | None) -> list[list[str]]:
    """The commands that make it: by uv, which has an option for CPU torch, else by venv and pip."""
    interpreter = str(folder / "bin" / "python")
    if uv:
        install = [uv, "pip", "install", "--python", interpreter, "--torch-backend", "cpu"]
        return [
            [uv, "venv", "--clear", "--python", sys.executable, str(folder)],
            [*install, "-r", str(REQUIREMENTS)],
        ]
    pip = [interpreter, "-I", "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    return [[sys.executable, "-I", "-m", "venv", str(folder)], [*pip, "-r", str(REQUIREMENTS)]]


def _run(argv: Sequence[str], progress: Progress) -> None:
    """Run to the end and show what is being fetched. Raises ``TrbError``."""
    child = process.spawn_with_pipes(argv, env=os.environ)
    lines: list[str] = []
    try:
        rest = b""
        for chunk in process.chunks(child):
            *whole, rest = (rest + chunk).split(b"\n")
            lines += [line.decode("utf-8", "replace").strip() for line in whole]
            if lines and lines[-1]:
                progress(lines[-1][:100])
        lines.append(rest.decode("utf-8", "replace").strip())
        code = child.wait()
    finally:
        if child.poll() is None:
            process.end(child, process.GRACE)
        process.release(child)
    if code:
        raise _failed(lines)


def _failed(lines: Sequence[str]) -> TrbError:
    said = [line for line in lines if line]
    if any("No space left" in line or "os error 28" in line for line in said):
        return TrbError(
            Code.DISK_FULL,
            "the disk is full; no environment was made",
            where=str(transfer.cache_folder()),
            remedy="free some space, or choose another disk with XDG_CACHE_HOME (and TMPDIR)",
        )
    errors = [line for line in said if line.lower().startswith("error")] or said[-1:]
    return TrbError(
        Code.DOWNLOAD_FAILED,
        f"the conversion environment cannot be made: {first_line(errors[0] if errors else 'no reason')}",
        where=str(transfer.cache_folder() / "convert"),
        remedy="check the network and pip's settings (PIP_INDEX_URL), and run it again; or name a Python "
        f"that has torch and optimum-onnx with --python or {VARIABLE}",
    )

"""Find the tritonserver of the nvidia-pytriton wheel and assemble what it needs to run.

The wheel's own Python package is never imported. Reasons for each step: docs/engines.md.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import releases, resources
from triton_repo_builder.base.errors import Code, TrbError

INSTALL = "pip install 'triton_repo_builder[embedded]' (Linux x86-64, glibc 2.35 or newer)"
PACKAGE = Path(__file__).resolve().parents[3]
OWN_MODELS = ("onnxruntime_backend/model.py", "tokenizer.py", "postprocess.py", "image.py", "audio.py")
"""Each ``model.py`` that trb writes, in ``runtime/``: the imports of its process are fixed."""
FILE_VARIABLES = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "TRITON_CLOUD_CREDENTIAL_PATH",
)
"""Environment variables with the path of a file that tritonserver reads."""


@dataclass(frozen=True, kw_only=True)
class Install:
    """Paths of the server's parts."""

    tritonserver: Path
    libraries: Path
    stub: Path
    libpython: Path
    """Folder of the shared libpython of this interpreter."""

    @property
    def binary(self) -> Path:
        """The server."""
        return self.tritonserver / "bin" / "tritonserver"


def find() -> Install:
    """The installed server, if it can run with this Python; raises with the remedy otherwise."""
    spec = importlib.util.find_spec("pytriton")
    folders = (spec.submodule_search_locations if spec else None) or ()
    root = next(
        (Path(folder) for folder in folders if (Path(folder) / "tritonserver" / "bin").is_dir()), None
    )
    if root is None:
        raise TrbError(Code.ENGINE_MISSING, "the embedded tritonserver is not installed", remedy=INSTALL)
    _check_glibc()
    _check_numpy()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = root / "tritonserver" / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.is_file():
        supported = sorted(entry.name for entry in stub.parents[1].glob("3.*"))
        raise TrbError(
            Code.ENGINE_MISSING,
            f"the embedded tritonserver cannot run Python models with Python {version}",
            remedy=f"install trb in an environment with one of these: {', '.join(supported)}",
        )
    return Install(
        tritonserver=root / "tritonserver",
        libraries=root.parent / "nvidia_pytriton.libs",
        stub=stub,
        libpython=_libpython(f"libpython{version}.so.1.0"),
    )


def description() -> str:
    """Text about the server and its ONNX Runtime, which is not the one of the release's image."""
    onnxruntime = _version("onnxruntime-gpu") or _version("onnxruntime") or "unknown"
    release = releases.default()
    return (
        f"embedded: tritonserver {release.server} (release {release.name}); ONNX models run in trb's Python "
        f"backend on ONNX Runtime {onnxruntime}, the release's own C++ backend has {release.onnxruntime}"
    )


def _version(package: str) -> str:
    """The installed version; empty if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _check_glibc() -> None:
    name, number = platform.libc_ver()
    parts = tuple(int(part) for part in number.split(".")[:2] if part.isdigit())
    if name == "glibc" and parts < (2, 35):
        raise TrbError(
            Code.ENGINE_MISSING,
            f"the embedded tritonserver needs glibc 2.35 or newer, this system has {number}",
            remedy="use a newer system (Debian 12, Ubuntu 22.04), or a container of one",
        )


def _check_numpy() -> None:
    number = _version("numpy") or "0"
    if int(number.split(".")[0]) >= 2:
        raise TrbError(
            Code.ENGINE_MISSING,
            f"the embedded tritonserver crashes on string tensors with numpy {number}",
            remedy="pip install 'numpy<2' in this environment",
        )


def _libpython(name: str) -> Path:
    """Folder of the shared library that the stub is linked to; another would not fit the standard library."""
    folder = sysconfig.get_config_var("LIBDIR") or ""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    places = [Path(folder), Path(folder) / multiarch, Path(sys.base_prefix) / "lib"]
    for place in places:
        if (place / name).exists():
            return place
    raise TrbError(
        Code.ENGINE_MISSING,
        f"this Python has no shared library {name}, which the embedded tritonserver needs",
        where=sys.executable,
        remedy="install it (Debian, Ubuntu: apt install libpython3-dev), or use a Python built with "
        "--enable-shared (python.org images, conda, uv; pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared)",
    )


def assemble(install: Install, folder: Path) -> None:
    """Make ``backends/`` and ``python/`` in an empty folder."""
    python = folder / "backends" / "python"
    # copytree keeps the times, so that bytecode beside the files stays valid.
    shutil.copytree(install.tritonserver / "backends" / "python", python)
    shutil.copyfile(install.stub, python / install.stub.name)
    # Wheels may lose the executable bit, and the server itself would set 0100.
    (python / install.stub.name).chmod(0o755)
    backend = folder / "backends" / "onnxruntime"
    backend.mkdir()
    for name, path in resources.onnxruntime_backend().items():
        shutil.copyfile(path, backend / name)
    (backend / "older_inference.json").write_text(json.dumps(releases.older_inference()), encoding="utf-8")
    _environment(folder / "python")


def _environment(folder: Path) -> None:
    """A virtual environment with the packages of this interpreter that writes no bytecode.

    Stubs for Python 3.11 and newer ignore PYTHONDONTWRITEBYTECODE and would write ``__pycache__`` into the
    user's repository. They do follow the first ``python3`` on PATH, and with it run the ``.pth`` files of its
    site-packages, so the setting goes there. A hook there saves memory for our own models.
    """
    (folder / "bin").mkdir(parents=True)
    for name in ("python3", "python"):
        (folder / "bin" / name).symlink_to(Path(sys.executable).resolve())
    home = Path(getattr(sys, "_base_executable", sys.executable)).resolve().parent
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    places = [
        place for place in dict.fromkeys([*site.getsitepackages(), *_dist_packages()]) if Path(place).is_dir()
    ]
    for name in ("lazy_imports", "source_only"):
        shutil.copyfile(Path(__file__).with_name(f"{name}.py"), packages / f"trb_{name}.py")
    runtimes = [str(PACKAGE / "runtime" / name) for name in OWN_MODELS]
    lines = ["import sys; sys.dont_write_bytecode = True"]
    trusted = [*dict.fromkeys([sys.base_prefix, sys.prefix, *places, str(folder.parent)])]
    lines += [f"import trb_source_only; trb_source_only.install({trusted!r})"]
    lines += [f"import trb_lazy_imports; trb_lazy_imports.install({runtimes!r})"]
    lines += [f"import site; site.addsitedir({place!r})" for place in places]
    (packages / "trb.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _dist_packages() -> list[str]:
    """Other folders of packages on this interpreter's path, such as the user's own site-packages."""
    return [place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")]


def environment(install: Install, folder: Path) -> dict[str, str]:
    """The server's environment variables.

    Paths of files remain valid although the server has its own current folder. Without PYTHONPATH:
    stubs for Python 3.11 and newer ignore it, and in 3.10 an empty entry would name that folder.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    named = {name: str(Path(kept[name]).absolute()) for name in FILE_VARIABLES if kept.get(name)}
    before = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    python_folder = str(Path(sys.executable).parent)
    return {
        **kept,
        **named,
        "LD_LIBRARY_PATH": os.pathsep.join([str(install.libpython), str(install.libraries), *before]),
        "PATH": os.pathsep.join(
            [str(folder / "python" / "bin"), python_folder, os.environ.get("PATH", os.defpath)]
        ),
    }

"""What a machine without a package index needs, as files of at most 36 MiB; and its environment made of them.

Standard library only: ``--unpack`` runs on a bare Python 3.12. The environment sees the packages of the
system, for CUDA and cuDNN come from the torch that is installed there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpu_steps.environment import cuda_libraries
from gpu_steps.step import ROOT

PART = 36 << 20
"""Bytes of one file and of one folder: a lent machine may take 64 MiB at once, the checkout included."""
MANIFEST = "pack.json"
PYTHON = "3.12"
PLATFORMS = tuple(f"manylinux{tag}_x86_64" for tag in ("_2_35", "_2_28", "_2_27", "2014"))
VENV = ROOT / ".venv-gpu"
MODEL = ROOT / ".cache" / "exports" / "minilm_pooled"
FILES = (
    "model.onnx",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)
CUDA_12 = "onnxruntime-gpu==1.23.2"
"""The pinned one is built for CUDA 13; a torch may bring 12."""
NEEDS = ("coloredlogs", "humanfriendly", "mpmath", "sympy")
"""Of that older one."""
WANTED = """
    click docker jinja2 matplotlib numpy nvidia-pytriton onnx onnxruntime-gpu pillow protobuf
    requests rich soundfile tokenizers transformers tritonclient
"""


def main(argv: list[str]) -> int:
    """``prepare --pack DIR`` and ``prepare --unpack DIR``."""
    parser = argparse.ArgumentParser(prog="gpu.py prepare", description=__doc__, allow_abbrev=False)
    verb = parser.add_mutually_exclusive_group(required=True)
    verb.add_argument("--pack", type=Path, metavar="DIR", help="download the wheels and cut them into parts")
    verb.add_argument(
        "--unpack", type=Path, metavar="DIR", help=f"join the parts and make {VENV.name} of them"
    )
    arguments = parser.parse_args(argv)
    if arguments.pack:
        return pack(arguments.pack)
    return unpack(arguments.unpack)


def pack(target: Path) -> int:
    """Wheels by ``pip download`` in the pinned versions, and all-MiniLM-L6-v2 if it was exported here."""
    with tempfile.TemporaryDirectory(dir=_made(ROOT / ".cache")) as folder:
        wheels = Path(folder) / "wheels"
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        pip += ["--python-version", PYTHON, *platforms, "--dest", str(wheels)]
        pins = _pins()
        wanted = [pins[name] for name in WANTED.split()]
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(pins.values()) + "\n", encoding="utf-8")
        print(f"downloading {len(wanted)} packages and what they need, for Python {PYTHON}", flush=True)
        subprocess.run([*pip, "--constraint", str(constraints), *wanted], check=True)
        needs = [pins.get(name, name) for name in NEEDS]
        subprocess.run([*pip, "--no-deps", CUDA_12, *needs], check=True)
        files = {f"wheels/{wheel.name}": wheel for wheel in sorted(wheels.glob("*.whl"))}
        files |= {f"server/{wheel.name}": wheel for wheel in _of_the_server()}
        if (MODEL / "model.onnx").is_file():
            files |= {f"model/{name}": MODEL / name for name in FILES}
        else:
            print(
                f"{MODEL.relative_to(ROOT)} is not there: the pass will use random weights of its shape; "
                "'make .venv-export/.ready' and benchmarks/limit.py make it"
            )
        split(files, target)
    return 0


def split(files: dict[str, Path], target: Path) -> None:
    """Write each as NAME.part00, NAME.part01 … into folders that can be sent, and a list with checksums.

    An earlier pack is replaced.
    """
    if target.exists() and not (target / MANIFEST).is_file() and any(target.iterdir()):
        raise SystemExit(f"{target} holds other files than a pack: name a folder that is not there yet")
    shutil.rmtree(target, ignore_errors=True)
    listed = {}
    load, filled = 0, 0
    for name, source in files.items():
        content = hashlib.sha256()
        parts: list[str] = []
        with source.open("rb") as stream:
            while (block := stream.read(PART)) or not parts:
                content.update(block)
                if filled + len(block) > PART:
                    load, filled = load + 1, 0
                filled += len(block)
                parts.append(f"load-{load:02}/{Path(name).name}.part{len(parts):02}")
                (_made(target / f"load-{load:02}") / Path(parts[-1]).name).write_bytes(block)
        listed[name] = {"sha256": content.hexdigest(), "parts": parts}
    (target / MANIFEST).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    total = sum(path.stat().st_size for path in target.rglob("*.part*"))
    print(
        f"{target}: {len(listed)} files, {total / 1e6:,.0f} MB, in {load + 1} folders load-NN of at most "
        f"{PART >> 20} MiB; send them one by one, and {MANIFEST}"
    )


def join(source: Path, target: Path) -> list[Path]:
    """Put the parts together again; exits with the names of all that are missing or damaged."""
    if not (source / MANIFEST).is_file():
        raise SystemExit(f"{source / MANIFEST} is missing: send it along with the parts")
    listed = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
    missing = [part for entry in listed.values() for part in entry["parts"] if not (source / part).is_file()]
    if missing:
        raise SystemExit(f"{len(missing)} parts are missing in {source}: {', '.join(missing)}")
    damaged, made = [], []
    for name, entry in listed.items():
        content = hashlib.sha256()
        made.append(target / name)
        _made(made[-1].parent)
        with made[-1].open("wb") as stream:
            for block in ((source / part).read_bytes() for part in entry["parts"]):
                content.update(block)
                stream.write(block)
        if content.hexdigest() != entry["sha256"]:
            damaged.append(name)
    if damaged:
        raise SystemExit(f"damaged on the way, send their parts again: {', '.join(damaged)}")
    return made


def unpack(source: Path) -> int:
    """Join, make the environment, install into it without an index; the model goes where the pass looks."""
    sys.path.append(str(ROOT))
    from triton_repo_builder.base import transfer

    with tempfile.TemporaryDirectory(dir=_made(ROOT / ".cache")) as folder:
        files = join(source, Path(folder))
        wheels = [file for file in files if file.parent.name == "wheels"]
        chosen = choose(wheels, cuda_libraries())
        print(f"making {VENV.name} with {len(chosen)} wheels", flush=True)
        # Debian's Python has no ensurepip without its package python3-venv: this one's pip does it.
        venv = [sys.executable, "-m", "venv", "--clear", "--without-pip", "--system-site-packages", str(VENV)]
        subprocess.run(venv, check=True)
        python = VENV / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index"]
        # The system's own numpy may be newer than the tritonserver takes.
        subprocess.run([*pip, "--no-deps", "--ignore-installed", *map(str, chosen)], check=True)
        if sys.prefix != sys.base_prefix:
            # Started from an environment: what is installed there is not the system's.
            here = [place for place in sys.path if Path(place).name.endswith("-packages")]
            packages = next((VENV / "lib").glob("python*/site-packages"))
            (packages / "installed-here.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
        for file in files:
            if file.parent.name == "server":
                # Where a build looks for it before it asks an index.
                shutil.move(file, _made(transfer.cache_folder() / "wheels") / file.name)
            elif file.parent.name == "model":
                shutil.move(file, _made(MODEL) / file.name)
    print(f"now: {VENV.name}/bin/python benchmarks/gpu.py")
    return 0


def _of_the_server() -> list[Path]:
    """Pillow for the server's Python, which a build of an image endpoint fetches where it is not cached."""
    from triton_repo_builder.base import releases
    from triton_repo_builder.endpoint.render import vendor_pillow

    return [vendor_pillow.fetched(releases.default().python)]


def choose(wheels: Iterable[Path], libraries: Iterable[str]) -> list[Path]:
    """All but the ONNX Runtime for another CUDA than is installed; for CUDA 13 where none is."""
    twelve = "libcublasLt.so.12" in libraries and "libcublasLt.so.13" not in libraries
    older = CUDA_12.replace("==", "-").replace("-", "_", 1) + "-"

    def fits(wheel: Path) -> bool:
        return not wheel.name.startswith("onnxruntime_gpu-") or wheel.name.startswith(older) == twelve

    return [wheel for wheel in wheels if fits(wheel)]


def _pins() -> dict[str, str]:
    """``name==version`` by name, as constraints.txt has them."""
    return dict(_named((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()))


def _named(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if match := re.match(r"([\w.-]+)==([^;\s]+)", line):
            yield match[1].lower(), f"{match[1]}=={match[2]}"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder

"""Names of models on a Hub of Hugging Face.

``ORG/NAME``, ``ORG/NAME/onnx/model.onnx``, ``hf://ORG/NAME@REVISION/…``:
https://huggingface.co/docs/huggingface_hub/package_reference/hf_uris
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from urllib.parse import unquote

from triton_repo_builder.base.option_values import FilePath

SCHEME = "hf:"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REVISION = r"refs/(?:pr|convert)/[^/@]+|[^/@]+"
_NAME = re.compile(rf"(?P<model>{_PART}/{_PART})(?:@(?P<revision>{_REVISION}))?(?:/(?P<file>.+))?")
ONNX = ".onnx"
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
"""Ends of files that may be pickles, which are not fetched; ``.bin`` may be external data of a graph, too."""
FILES = (ONNX, *PICKLES, ".bin", ".safetensors", ".gguf", ".json", ".toml", ".zip", ".gz")
"""Ends of a mistyped path, which does not name a model."""


@dataclass(frozen=True, kw_only=True)
class HubName:
    """A model on a Hub."""

    model: str
    """``ORG/NAME``."""
    revision: str = ""
    """Branch, tag or commit; empty: the main branch."""
    file: str = ""
    """One of its ONNX files; empty: the build chooses."""

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf://{self.model}{revision}" + (f"/{self.file}" if self.file else "")


class ModelPath(FilePath):
    """A path, or the name of a model on a Hub; in trb.toml a path is relative to that file."""

    expected: ClassVar[str] = "path or name"

    def from_toml(self, value: Any, folder: Path) -> Path:
        """The path; a name, which no file has, is kept as it is."""
        path: Path = super().from_toml(value, folder)
        return Path(value) if not os.path.lexists(path) and of(Path(value)) else path


def is_scheme(path: Path) -> bool:
    """Whether a path was written as ``hf://…``: a path has one slash where the name had two."""
    return path.parts[:1] == (SCHEME,)


def parse(text: str) -> HubName | None:
    """The name in ``ORG/NAME[@REVISION][/FILE]``; None if it is not of that form."""
    match = _NAME.fullmatch(text)
    if not match or any(part in match["model"] for part in ("..", "--")):
        return None
    file = match["file"] or ""
    if file and not is_plain(file):
        return None
    return HubName(model=match["model"], revision=unquote(match["revision"] or ""), file=file)


def of(path: Path) -> HubName | None:
    """The name that a path stands for, if nothing on this disk can be meant; None for a path.

    ``hf://`` states a name. Without it, a relative path of two parts is one, or of more that ends with
    ``.onnx``, whose first folder does not exist here: else it is a mistyped path, about which no server is
    asked.
    """
    if is_scheme(path):
        return parse(Path(*path.parts[1:]).as_posix().removeprefix("models/"))
    return _relative(path) if not os.path.lexists(path.parts[0] if path.parts else ".") else None


def _relative(path: Path) -> HubName | None:
    """The name that a relative path has the form of."""
    name = None if path.is_absolute() else parse(path.as_posix())
    if name is None or name.model.lower().endswith(FILES):
        return None
    return name if not name.file or name.file.endswith(ONNX) else None


def hint(path: Path) -> str:
    """Remedy for a path that does not exist, if a name can be meant; empty else."""
    return f"; a model on the Hub is hf://{path}" if _relative(path) else ""


def is_plain(file: str) -> bool:
    """Whether a path of a repository stays in it. The Hub's server chose it."""
    parts = PurePosixPath(file).parts
    return (
        bool(parts)
        and not file.startswith("/")
        and ".." not in parts
        and file.isprintable()
        and "\\" not in file
    )


def note(path: Path) -> str:
    """A note on a folder here that has the name of a model on the Hub; empty without a sign of that model.

    Signs: what a download of the Hub leaves in a folder, or the model in the library's cache.
    """
    if len(path.parts) != 2 or not path.is_dir() or _relative(path) is None:
        return ""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(
        os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or home, "hub")
    ).expanduser()
    signs = (path / ".cache/huggingface", cache / f"models--{'--'.join(path.parts)}")
    if not any(map(os.path.lexists, signs)):
        return ""
    return f"{path} is a folder here, and is taken: the model of that name on the Hub is hf://{path}"

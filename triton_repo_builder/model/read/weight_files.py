"""Files of PyTorch weights beside a config.json: safetensors only, since a pickle can run code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.model.read.hub_name import PICKLES

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = (*PICKLES, ".bin")
LISTED = 5


def names(listed: Collection[str], index: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The files of weights among all of a folder, or of a repository on the Hub. Raises ``TrbError``."""
    if WHOLE in listed:
        return (WHOLE,)
    if INDEX in listed:
        stated = index.get("weight_map")
        shards = sorted({str(name) for name in stated.values()}) if isinstance(stated, dict) else []
        missing = [name for name in shards if name not in listed]
        if shards and not missing:
            return (INDEX, *shards)
        message = f"{INDEX} names no files" if not shards else f"weights are missing: {some(missing, LISTED)}"
        raise TrbError(Code.NOT_FOUND, message, where=where, remedy="get the whole folder again")
    pickled = sorted(name for name in listed if name.endswith(PICKLED) and "/" not in name)
    if pickled:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"the weights are pickled ({some(pickled, LISTED)}), and a pickle can run code when it is read",
            where=where,
            remedy="save them as safetensors, where you trust them: model.save_pretrained(FOLDER, "
            "safe_serialization=True)",
        )
    raise TrbError(
        Code.NOT_FOUND,
        f"no {WHOLE} in it: trb converts weights of PyTorch in safetensors",
        where=where,
        remedy="name a folder that save_pretrained wrote, or a model on the Hub that has such a file",
    )


def config(folder: Path) -> Mapping[str, Any]:
    """config.json. Raises ``TrbError``."""
    return _document(folder, "config.json", "name a folder that save_pretrained wrote")


def index(folder: Path) -> Mapping[str, Any]:
    """The index of the shards; empty without one. Raises ``TrbError``."""
    return _document(folder, INDEX, "get the file again") if files.is_file(folder / INDEX) else {}


def _document(folder: Path, name: str, remedy: str) -> Mapping[str, Any]:
    """A JSON object in the folder. Raises ``TrbError``."""
    file = containment.within(folder, name)
    if file is None or not files.is_file(file):
        raise TrbError(Code.NOT_FOUND, f"no {name} in this folder", where=str(folder), remedy=remedy)
    try:
        document = files.load_json(files.read(file, files.LARGEST_DOCUMENT))
    except OSError as error:
        raise files.unreadable(file, error) from None
    except files.DAMAGED as error:
        raise TrbError(
            Code.UNSUPPORTED_MODEL, f"is not readable JSON: {error}", where=str(file), remedy=remedy
        ) from None
    if not isinstance(document, dict):
        raise TrbError(Code.UNSUPPORTED_MODEL, "is not a JSON object", where=str(file), remedy=remedy)
    return document

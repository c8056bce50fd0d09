"""Which files of a repository on a Hub a build needs: of a list of their paths.

No code and no pickle is among them, whatever a repository has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from triton_repo_builder.base import containment
from triton_repo_builder.base import files as reading
from triton_repo_builder.model.read import image_processor, slow_tokenizer, tokenizer
from triton_repo_builder.model.read.hub_name import ONNX, PICKLES, is_plain
from triton_repo_builder.model.read.model_card import CARD

MODULES, CONFIG = "modules.json", "config.json"
NAMES = frozenset(
    {
        *(MODULES, CONFIG, "config_sentence_transformers.json", "router_config.json", "artifact.metadata"),
        *(tokenizer.FILE, *tokenizer.SENTENCE_FILES, *tokenizer.SLOW_ONLY, *slow_tokenizer.COMPANIONS),
        *(*image_processor.FILES, "chat_template.jinja", "chat_template.json"),
    }
)
"""Files that ``model/read`` and ``endpoint/tasks`` read beside a model."""
WEIGHTS = "model.safetensors"
WEIGHTED = ("Dense", "LayerNorm")
"""Modules of sentence-transformers whose weights a build reads; the graph has those of all others."""


def candidates(files: Iterable[str]) -> list[str]:
    """The ONNX files among which a build chooses: those at the top, else in ``onnx/``, else all others."""
    named = sorted(file for file in files if file.endswith(ONNX))
    top = [file for file in named if "/" not in file]
    return top or [file for file in named if PurePosixPath(file).parent.name == "onnx"] or named


def first(files: Collection[str]) -> list[str]:
    """The files that say which others there have to be, and what the ONNX files are."""
    folders = {PurePosixPath(file).parent for file in files if file.endswith(ONNX)}
    named = [MODULES, *(str(folder / CONFIG) for folder in sorted({PurePosixPath(), *folders}))]
    return [file for file in named if file in files]


def companions(files: Collection[str], chosen: str, modules: Mapping[str, str]) -> list[str]:
    """The files to read beside the ONNX file ``chosen``, and the model card.

    ``modules``: the kind of each module of sentence-transformers by its folder, as modules.json has them.
    """
    described = {str(folder / name) for folder in PurePosixPath(chosen).parents for name in NAMES}
    for folder, kind in modules.items():
        if is_plain(folder):
            names = (*NAMES, WEIGHTS) if kind in WEIGHTED else NAMES
            described |= {str(PurePosixPath(folder, name)) for name in names}
    present = {file for file in (*described, CARD) if file in files}
    return sorted(file for file in present if not _superseded(file, present))


def _superseded(file: str, present: Collection[str]) -> bool:
    """Whether it is a SentencePiece model from which tokenizer.json beside it was converted."""
    path = PurePosixPath(file)
    return path.suffix == ".model" and str(path.with_name(tokenizer.FILE)) in present


def external(files: Collection[str], chosen: str, locations: Iterable[str]) -> list[str]:
    """The files of the external data of ``chosen``: of the ``locations`` that it states, those that exist."""
    folder = PurePosixPath(chosen).parent
    named = (str(folder / place) for place in locations if is_plain(place) and not place.endswith(PICKLES))
    return sorted({file for file in named if file in files})


def modules(folder: Path) -> dict[str, str]:
    """Kinds of sentence-transformers' modules by their folders; empty without a readable modules.json."""
    file = containment.within(folder, MODULES)
    try:
        listed = reading.load_json(reading.read(file, reading.LARGEST_DOCUMENT)) if file else []
        return {str(entry["path"]): str(entry["type"]).rpartition(".")[2] for entry in listed}
    except (OSError, LookupError, TypeError, *reading.DAMAGED):  # the build says what is wrong
        return {}

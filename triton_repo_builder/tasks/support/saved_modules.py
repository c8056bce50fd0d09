"""The files of a sentence-transformers model: modules.json and the folders that it names.

https://sbert.net/docs/sentence_transformer/usage/custom_models.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triton_repo_builder import containment, files
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.graph.heads import pooling as heads_pooling
from triton_repo_builder.read import tokenizer
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.support import dense, prompts
from triton_repo_builder.tasks.support.dense import Dense

MODULES, POOLING = "modules.json", "1_Pooling/"
MOST = 1000
"""Entries of modules.json."""
ORDER = ("Pooling", "Dense", "Normalize")
"""How the head applies sentence-transformers' modules."""

# Flags of sentence-transformers' 1_Pooling/config.json.
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def modules(source: Source) -> list[dict[str, Any]]:
    """The entries of sentence-transformers' modules.json, or empty."""
    for place in dict.fromkeys((source.folder, *tokenizer.places(source.path.parent))):
        if file := containment.within(place, MODULES):
            try:
                entries = files.load_json(files.read(file, files.LARGEST_DOCUMENT))
                if len(entries) > MOST:
                    raise ValueError(f"it has {len(entries):,} entries, and may have {MOST:,}")
                listed = [{**entry, "folder": place} for entry in entries]
                for entry in listed:
                    if "\0" in (path := str(entry.get("path", ""))):
                        raise ValueError("a path holds a null byte")
                    (place / path).is_dir()  # OSError if it is too long
                    containment.check_within(place, place / path)
                return listed
            except (OSError, ValueError, TypeError) as error:
                raise TrbError(
                    Code.TASK_UNCLEAR,
                    f"is not a list of modules: {error}",
                    where=str(file),
                    remedy="get the original file again from the model's source",
                ) from None
    return []


def _pooling_modules(source: Source) -> list[dict[str, Any]]:
    """As ``modules``; without a list the Pooling module, whose folder may have come along without it."""
    if listed := modules(source):
        return listed
    for place in dict.fromkeys((source.folder, *tokenizer.places(source.path.parent))):
        if containment.within(place, f"{POOLING}/config.json"):
            return [{"type": "Pooling", "path": POOLING, "folder": place, "alone": True}]
    return []


def kind(module: Mapping[str, Any]) -> str:
    """``Pooling`` of sentence_transformers.models.Pooling, or of its module in later releases."""
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def described(source: Source, *, in_graph: bool) -> tuple[str | None, bool, tuple[Dense, ...]]:
    """(pooling, normalise, dense layers) from the sentence-transformers files; pooling is None without them.

    If pooling is in the graph, so are the other modules, and only normalising again is safe.
    """
    pooling, normalise = None, False
    layers: list[Dense] = []
    listed = _pooling_modules(source)
    kinds = [kind(module) for module in listed]
    if in_graph:
        return None, kinds[-1:] == ["Normalize"], ()
    _check_order(kinds, listed)
    for module in listed:
        name = kind(module)
        folder = module["folder"] / str(module.get("path", ""))
        if name == "Pooling":
            file = folder / "config.json"  # not that of the folder above
            stated = tokenizer.settings(folder, file.name) if containment.within(folder, file.name) else {}
            pooling = _pooling(stated, str(file))
        elif name == "Normalize":
            normalise = True
        elif name == "Dense":
            layers.append(dense.read(folder))
        elif name != "Transformer":
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"the sentence-transformers module '{name}' is not supported yet",
                where=str(module["folder"] / "modules.json"),
                remedy="export with that module inside the graph (optimum's sentence-transformers export)",
            )
    return pooling, normalise, tuple(layers)


def pools_prompt(source: Source) -> bool:
    """``include_prompt`` of the Pooling module."""
    folders = [
        module["folder"] / str(module.get("path", ""))
        for module in _pooling_modules(source)
        if kind(module) == "Pooling"
    ]
    return all(tokenizer.settings(folder, "config.json").get("include_prompt", True) for folder in folders)


def other_width(source: Source, width: int) -> tuple[str, ...]:
    """A note if the Pooling module was saved for vectors of another width: it may be another model's."""
    for module in _pooling_modules(source):
        folder = module["folder"] / str(module.get("path", ""))
        if kind(module) == "Pooling" and containment.within(folder, "config.json"):
            stated = tokenizer.settings(folder, "config.json").get("word_embedding_dimension")
            if isinstance(stated, int) and width > 0 and stated != width:
                return (
                    f"{folder.name}/config.json pools vectors of {stated} values, and the model's have "
                    f"{width}: it may be another model's file",
                )
    return ()


def left_behind(source: Source, options: BuildOptions) -> tuple[str, ...]:
    """A note on the files of sentence-transformers that are not there; exporters do not write them."""
    listed = _pooling_modules(source)
    alone = any("alone" in module for module in listed)
    missing = [MODULES] if alone else [] if listed else [f"{MODULES} with {POOLING}"]
    if not source.settings(prompts.FILE) and options.prompt is None:
        missing.append(prompts.FILE)
    if not missing:
        return ()
    said = ["pooling"] if not listed else ["Dense layers"] if alone else []
    said += ["normalising"] if said else []
    said += ["prompts"] if missing[-1] == prompts.FILE else []
    unknown = " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
    named = " and ".join(missing)
    if alone and options.pooling is None:
        named += f" (sentence-transformers would not read {POOLING} without it; it is read here)"
    if source.original:
        return (f"not found in {source.original}, either: {named}, which say {unknown}",)
    return (
        f"not found beside the model: {named}, which say {unknown} (exporters leave them behind; "
        "--from-model FOLDER takes them from the original)",
    )


def _check_order(kinds: Sequence[str], listed: Sequence[Mapping[str, Any]]) -> None:
    """``TrbError`` if the modules run in another order than that of the head."""
    order = [kind for kind in kinds if kind in ORDER]
    if order == sorted(order, key=ORDER.index) and order.count("Pooling") <= 1:
        return
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        f"the modules run as {', '.join(order)}; only {', '.join(ORDER)} is supported, in this order",
        where=str(listed[0]["folder"] / "modules.json"),
        remedy="export with these modules inside the graph (optimum's sentence-transformers export)",
    )


def _pooling(config: Any, where: str) -> str:
    if not config:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{MODULES} names it, and it is not there: no file says how to pool",
            where=where,
            remedy=f"take it from the original with --from-model FOLDER, or give --pooling "
            f"{'|'.join(heads_pooling.POOLINGS)}",
        )
    modes = [pooling for flag, pooling in FLAGS.items() if config.get(flag)]
    if not modes and isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in heads_pooling.POOLINGS:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"pooling by {' and '.join(modes) or 'no mode'} is not supported",
            where=where,
            remedy=f"give --pooling {'|'.join(heads_pooling.POOLINGS)}",
        )
    return str(modes[0])

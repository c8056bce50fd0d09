"""The files of a sentence-transformers model: modules.json and the folders that it names.

https://sbert.net/docs/sentence_transformer/usage/custom_models.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks.support import layers as module_layers
from triton_repo_builder.endpoint.tasks.support import prompts
from triton_repo_builder.endpoint.tasks.support.layers import Dense, Layer, UnitLength
from triton_repo_builder.model.graph.heads import pooling as heads_pooling
from triton_repo_builder.model.read import tokenizer
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source

MODULES, POOLING = "modules.json", "1_Pooling/"
MOST = 1000
"""Entries of modules.json."""
NOTHING = ("Dropout", "Identity")
"""Modules that do nothing when a model answers."""
CROSS_ENCODER, EMBEDDER = "CrossEncoder", "SentenceTransformer"
MODELS = (EMBEDDER, CROSS_ENCODER, "SparseEncoder")
SCORES = "scores"
"""The feature that the last module of a cross-encoder writes."""

# Flags of sentence-transformers' 1_Pooling/config.json before 5.4, in the order in which vectors are joined.
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# The same as one name or a list of names, since 5.4.
MODES = {mode: mode for mode in FLAGS.values()} | {"mean_sqrt_len_tokens": "mean_sqrt_len"}


@dataclass(frozen=True, kw_only=True)
class Described:
    """The modules after the transformer."""

    pooling: str | None = None
    """None: no module pools, or the graph does."""
    layers: tuple[Layer, ...] = ()
    normalise: bool = False
    """Whether Normalize comes last."""


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
    """The modules; without a modules.json the Pooling module, whose folder may have been copied alone."""
    if listed := modules(source):
        return listed
    for place in dict.fromkeys((source.folder, *tokenizer.places(source.path.parent))):
        if containment.within(place, f"{POOLING}/config.json"):
            return [{"type": "Pooling", "path": POOLING, "folder": place, "alone": True}]
    return []


def kind(module: Mapping[str, Any]) -> str:
    """``Pooling`` of sentence_transformers.models.Pooling, or of its module in later releases."""
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def model_type(source: Source) -> str:
    """The class that saved the modules: SentenceTransformer, CrossEncoder or SparseEncoder."""
    stated = source.settings(prompts.FILE).get("model_type")
    return str(stated) if stated in MODELS else EMBEDDER


def folder(module: Mapping[str, Any]) -> Path:
    """The folder of the module's files."""
    place: Path = module["folder"] / str(module.get("path", ""))
    return place


def described(source: Source, *, pooled: str | None = None, feature: str = module_layers.POOLED) -> Described:
    """Pooling and the layers after it, from the sentence-transformers files; empty without them.

    ``pooled``: the graph's output of pooled vectors. If a module should pool them, the graph has the other
    modules, too, and only normalising again is safe. ``feature``: the output of the last layer. Raises
    ``TrbError``.
    """
    listed = [module for module in _pooling_modules(source) if kind(module) not in NOTHING]
    kinds = [kind(module) for module in listed]
    others = set(kinds) - {"Transformer", tokenizer.STATIC, "Normalize"}
    if pooled and (pooled == module_layers.POOLED or "Pooling" in kinds or not others):
        return Described(normalise=kinds[-1:] == ["Normalize"])
    pooling: str | None = None if pooled or tokenizer.STATIC not in kinds else "mean"
    layers: list[Layer] = []
    for module in listed:
        name = kind(module)
        if not _is_supported(module):
            raise _unsupported(source, module)
        if name == "Pooling":
            if layers or pooling:
                raise _disordered(source, kinds, module)
            pooling = _pooling(module)
        elif name == "Normalize":
            layers.append(UnitLength())
        elif name == "LayerNorm":
            layers.append(module_layers.read_norm(folder(module)))
        elif name == "Dense":
            if module_layers.reads(folder(module)) != module_layers.POOLED:
                raise _unpooled(source, module)
            layers.append(module_layers.read(folder(module)))
    _check_features(layers, feature)
    normalise = bool(layers) and isinstance(layers[-1], UnitLength)
    return Described(pooling=pooling, layers=tuple(layers[:-1] if normalise else layers), normalise=normalise)


def _own_class(module: Mapping[str, Any]) -> str:
    """The module's class if it is Python code of the model's own; empty else."""
    whole = str(module.get("type", ""))
    return whole if "." in whole and not whole.startswith(("sentence_transformers.", "pylate.")) else ""


def _is_supported(module: Mapping[str, Any]) -> bool:
    """Whether a module is one that ``described`` reads; a class of the model's own may do anything."""
    read = ("Pooling", "Dense", "LayerNorm", "Normalize")
    return kind(module) in ("Transformer", tokenizer.STATIC) or (
        kind(module) in read and not _own_class(module)
    )


def _inside(source: Source) -> str:
    """The remedy for a module that is not read: optimum exports an embedder with all of its modules.

    What another class saved it would load as an embedder, without its modules.
    """
    raw = "use --raw-output, and apply the modules in the client"
    return module_layers.INSIDE if model_type(source) == EMBEDDER else raw


def _unsupported(source: Source, module: Mapping[str, Any]) -> TrbError:
    remedy = _inside(source)
    if kind(module) in ("Router", "Asym"):
        remedy = (
            "save one route as a model of its own, and export that: python -c 'from sentence_transformers "
            f'import {model_type(source)} as M; m = M("FOLDER"); '
            'M(modules=[*m[0].sub_modules["document"], *list(m)[1:]]).save_pretrained("ROUTE")\''
        )
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        f"the sentence-transformers module '{_own_class(module) or kind(module):.80}' is not supported",
        where=str(module["folder"] / MODULES),
        remedy=remedy,
    )


def _unpooled(source: Source, module: Mapping[str, Any]) -> TrbError:
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        f"a Dense module reads '{module_layers.reads(folder(module)):.40}'; only '{module_layers.POOLED}', "
        "the pooled vector, is supported",
        where=str(folder(module) / "config.json"),
        remedy=_inside(source),
    )


def own_code(source: Source) -> tuple[str, ...]:
    """A note on a transformer that is a class of the model's own: it may make other tokens."""
    names = [code for module in modules(source) if (code := _own_class(module))]
    return tuple(
        f"{MODULES} names {name:.80}, Python code of the model's own, which is not run: what it does to "
        "texts is not known"
        for name in names
    )


def _check_features(layers: Sequence[Layer], feature: str) -> None:
    """``TrbError`` if a Dense module writes a feature that no module after it reads."""
    for number, layer in enumerate(layers, 1):
        expected = feature if number == len(layers) else module_layers.POOLED
        if isinstance(layer, Dense) and layer.output != expected:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"a Dense module writes '{layer.output:.40}', not '{expected}'",
                where=str(layer.folder / "config.json"),
                remedy="use --task rerank" if layer.output == SCORES else "correct module_output_name there",
            )


def pools_prompt(source: Source) -> bool:
    """``include_prompt`` of the Pooling module."""
    places = [folder(module) for module in _pooling_modules(source) if kind(module) == "Pooling"]
    return all(tokenizer.settings(place, "config.json").get("include_prompt", True) for place in places)


def other_width(source: Source, width: int) -> tuple[str, ...]:
    """A note if the Pooling module was saved for vectors of another width: it may be another model's."""
    for module in _pooling_modules(source):
        place = folder(module)
        if kind(module) == "Pooling" and containment.within(place, "config.json"):
            config = tokenizer.settings(place, "config.json")
            # The first is the name since 5.4.
            stated = config.get("embedding_dimension", config.get("word_embedding_dimension"))
            if isinstance(stated, int) and width > 0 and stated != width:
                return (
                    f"{place.name}/config.json pools vectors of {stated} values, and the model's have "
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


def _disordered(source: Source, kinds: Sequence[str], module: Mapping[str, Any]) -> TrbError:
    order = ", ".join(kind for kind in kinds if kind != "Transformer")
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        f"the modules run as {order}; only one Pooling, before all others, is supported",
        where=str(module["folder"] / MODULES),
        remedy=_inside(source),
    )


def _pooling(module: Mapping[str, Any]) -> str:
    """One of the poolings, or several joined by "+": their vectors side by side."""
    place = folder(module)
    file = place / "config.json"  # not the parent folder's
    config = tokenizer.settings(place, file.name) if containment.within(place, file.name) else {}
    if not config:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{MODULES} names it, and it is not there: no file says how to pool",
            where=str(file),
            remedy=f"take it from the original with --from-model FOLDER, or give --pooling "
            f"{'|'.join(heads_pooling.POOLINGS)}",
        )
    stated = config.get("pooling_mode")
    if stated is None:
        # Without any, sentence-transformers takes the mean.
        modes = [mode for flag, mode in FLAGS.items() if config.get(flag)] or ["mean"]
    else:
        modes = [str(mode) for mode in (stated if isinstance(stated, list) else [stated])]
    unknown = [mode for mode in modes if mode not in MODES]
    if len(modes) > len(FLAGS):
        unknown = [f"{len(modes):,} modes"]
    if unknown or not modes:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"pooling by {' and '.join(unknown)[:80] or 'no mode'} is not supported",
            where=str(file),
            remedy=f"give --pooling {'|'.join(heads_pooling.POOLINGS)}",
        )
    return "+".join(MODES[mode] for mode in modes)

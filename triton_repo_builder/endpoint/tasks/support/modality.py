"""Preparation of texts by sentence-transformers before the model: sentence_bert_config.json since 5.4.

``modality_config`` lists the forms that an input may take. With ``message`` among them, a text or a pair goes
through the chat template of the tokenizer (https://sbert.net/docs/package_reference/base/modules.html).
Templates of a model's folder are not rendered here: it is refused, since plain texts give other answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.endpoint.tasks.support import layers, saved_modules
from triton_repo_builder.model.read import tokenizer
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

MESSAGE = "message"
TEMPLATES = ("chat_template.jinja", "chat_template.json")
WITHOUT_EFFECT = (
    *("padding", "padding_side", "pad_to_multiple_of", "return_tensors", "return_attention_mask"),
    "max_length",
)
"""Arguments of a tokenizer's call that leave a text's tokens as they are, or are followed."""
CUTS = ("truncation", (True, "longest_first"))
LOADED = (
    *("model_max_length", "padding_side", "use_fast", "trust_remote_code", "revision", "token", "cache_dir"),
    *("subfolder", "local_files_only"),
)
"""Arguments with which the tokenizer is loaded that are followed, or leave tokens as they are."""
TENSORS = (
    "or serve it with --task tensor, to clients that make the tokens themselves (apply_chat_template of "
    "transformers)"
)


def check(source: Source, tokens: TensorSpec | None = None) -> None:
    """``TrbError`` if the files ask for other tokens, or other vectors than those of output ``tokens``."""
    file, stated = source.sentence
    if MESSAGE in _modalities(stated):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"modality_config has '{MESSAGE}': sentence-transformers renders each text by the chat template, "
            "which is not supported",
            where=str(file),
            remedy=f"if it was trained on plain texts, remove '{MESSAGE}' from modality_config there; "
            f"{TENSORS}",
        )
    _check_call(file, stated)
    text = _modalities(stated).get("text")
    output = text.get("method_output_name") if isinstance(text, dict) else None
    usual = ("last_hidden_state", "logits")
    if tokens is not None and output not in (None, *usual, tokens.name):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"modality_config takes '{output!s:.40}' of the model, and the graph gives '{tokens.name}'",
            where=str(file),
            remedy=layers.INSIDE,
        )


def check_pairs(source: Source) -> None:
    """``check`` for a cross-encoder: unless the files say otherwise, the tokenizer's template counts."""
    check(source)
    if not (file := _unstated(source)):
        return
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        "its tokenizer has a chat template, by which sentence-transformers renders each pair: it is not "
        "supported",
        where=file,
        remedy="if it was trained on plain pairs, take modules.json and sentence_bert_config.json, which say "
        "so, from the original with --from-model FOLDER, or remove the chat template (sentence-transformers "
        f"then leaves it out, too); {TENSORS}",
    )


def note(source: Source) -> tuple[str, ...]:
    """Notes on a chat template that counts or not by files which exporters leave behind, and on arguments."""
    file, stated = source.sentence
    loaded = tokenizer.sentence_part(stated, "tokenizer_args", "processor_kwargs")
    others = [f"{name:.40}" for name in loaded if name not in LOADED]
    arguments = f"{file.name} loads the tokenizer with {some(others)}, which is not followed"
    notes = (arguments,) if others else ()
    if not _unstated(source):
        return notes
    return (
        *notes,
        "its tokenizer has a chat template, which is not used; sentence-transformers renders each text by it "
        f"if the model has no {saved_modules.MODULES}, or sentence_bert_config.json names '{MESSAGE}'",
    )


def _unstated(source: Source) -> str:
    """The file of a chat template, if no file says whether it counts; empty else."""
    stated = _modalities(source.sentence[1]) or saved_modules.modules(source)
    return "" if stated else template(source)


def template(source: Source) -> str:
    """The file that has the tokenizer's chat template; empty without."""
    beside = source.tokenizer.parent if source.tokenizer else source.path.parent
    for folder in dict.fromkeys((beside, source.folder)):
        for place in tokenizer.places(folder):
            if file := next((file for name in TEMPLATES if (file := containment.within(place, name))), None):
                return str(file)
        if tokenizer.settings(folder, "tokenizer_config.json").get("chat_template"):
            return str(folder / "tokenizer_config.json")
    return ""


def _modalities(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    return tokenizer.sentence_part(stated, "modality_config")


def _check_call(file: Path, stated: Mapping[str, Any]) -> None:
    """``TrbError`` for arguments of the tokenizer's call that change tokens."""
    called = tokenizer.sentence_part(stated, "processing_kwargs")
    arguments = {**tokenizer.sentence_part(called, "text"), **tokenizer.sentence_part(called, "common")}
    key, usual = CUTS
    changing = [
        argument
        for argument, value in arguments.items()
        if argument not in WITHOUT_EFFECT and not (argument == key and value in usual)
    ]
    if changing:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"processing_kwargs calls the tokenizer with {some([f'{name:.40}' for name in changing])}, which "
            "is not supported",
            where=str(file),
            remedy="save the setting in the tokenizer instead (tokenizer_config.json), and remove it there",
        )

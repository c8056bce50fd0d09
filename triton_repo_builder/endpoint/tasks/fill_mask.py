"""Fill-mask: TEXT with masks → the likeliest tokens of each, in the order of transformers' pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import task
from triton_repo_builder.endpoint.tasks.support import head_output, reference
from triton_repo_builder.endpoint.tasks.task import (
    Encoding,
    Example,
    Kind,
    OriginalRun,
    Postprocess,
    TaskPlan,
)
from triton_repo_builder.model.graph.heads import tokens
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import tokenizer as files
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names

NAME = "fill-mask"
KIND = Kind.TEXT
OPTIONS = ("top_k",)
ARCHITECTURES = ("ForMaskedLM",)
TOP_K = 5


def fits(source: Source) -> bool:
    """There is a logit for each token of the vocabulary, and config.json names no other architecture."""
    if task.architecture(source, *ARCHITECTURES):
        return head_output.find_tokens(source) is not None
    width = task.unnamed_logits(source)
    return width > 0 and width == source.signature.vocabulary


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Softmax and top-k of the masked places in the graph; the tokens' names after it."""
    top_k = options.top_k or TOP_K
    logits = head_output.need_tokens(source, NAME)
    mask, mask_id = task.token(source, "mask_token")
    if mask_id < 0:
        raise TrbError(
            Code.TASK_UNCLEAR,
            "the tokenizer's files name no mask_token",
            where=str(source.tokenizer),
            remedy="put tokenizer_config.json with its mask_token beside tokenizer.json",
        )
    task.need_logits(source, logits.name, NAME)
    width = logits.dims[-1]
    # A vocabulary smaller than the answer has no more tokens to give.
    top_k = min(top_k, width) if width > 0 else top_k
    vocabulary: int | str = width if width > 0 else "V"
    return TaskPlan(
        name=NAME,
        head=Head(
            text=tokens.fill_mask(mask_id=mask_id, top_k=top_k, vocabulary=vocabulary),
            bind={"logits": logits.name, "ids": "input_ids"},
        ),
        outputs=(
            TensorPlan(name=tensor_names.IDS, data_type="TYPE_INT32", dims=(-1, top_k)),
            TensorPlan(name=tensor_names.SCORES, data_type="TYPE_FP32", dims=(-1, top_k)),
        ),
        reference=task.by_answer,
        encoding=Encoding(probe=mask, parameters=(("required_id", str(mask_id)), ("required_token", mask))),
        post=Postprocess(
            module="fill_mask.py",
            inputs=(tensor_names.TOKENS, tensor_names.IDS, tensor_names.SCORES),
            outputs=(
                TensorPlan(name="tokens", data_type="TYPE_STRING", dims=(-1, top_k)),
                TensorPlan(name="scores", data_type="TYPE_FP32", dims=(-1, top_k)),
                TensorPlan(name="ids", data_type="TYPE_INT32", dims=(-1, top_k)),
            ),
            parameters=(("mask_id", str(mask_id)),),
            files=_names(source),
        ),
        examples=_examples(mask),
        answer=_reference(logits.name, mask_id, top_k),
        softmaxed=(logits.name,),
        facts=(("mask", mask), ("top_k", top_k)),
    )


def _examples(mask: str) -> tuple[tuple[str, Example], ...]:
    texts = (
        ("short", f"Paris is the {mask} of France."),
        ("several", f"{mask} is the {mask} of {mask}."),
        ("only", mask),
        ("scripts", f"今日は{mask}です 😀 Où est {mask}?"),
        ("long", f"{mask} comes first. " + "And then a long text follows that is nearly cut off. " * 8),
    )
    return tuple((name, {"TEXT": (text,)}) for name, text in texts)


# The replacements of transformers' clean_up_tokenization, in its order.
CLEAN_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


def _names(source: Source) -> Callable[[], Mapping[str, bytes]]:
    """``tokens.json``: the text of every token, made only when it is written."""

    def tokens_json() -> dict[str, bytes]:
        assert source.tokenizer is not None
        library = source.tokenizer_spec.library
        settings = files.settings(source.tokenizer.parent, "tokenizer_config.json")
        # Byte-pair tokens carry their spaces: cleaning would change them (as transformers 5 knows).
        clean = bool(settings.get("clean_up_tokenization_spaces")) and type(library.model).__name__ != "BPE"
        largest = max(library.get_vocab(with_added_tokens=True).values(), default=-1)
        added = library.get_added_tokens_decoder()
        names = [
            _spelled(library, added, number, library.decode([number], skip_special_tokens=False))
            for number in range(largest + 1)
        ]
        if clean:
            names = [_cleaned(name) for name in names]
        return {"tokens.json": (json.dumps(names, ensure_ascii=False, indent=0) + "\n").encode()}

    return tokens_json


def _spelled(library: Any, added: Mapping[int, Any], number: int, text: str) -> str:
    """A decoded token as its vocabulary spells it.

    tokenizers 0.23 keeps the normalised form of an added token: a lower-casing tokenizer decodes ``[UNK]`` to
    ``[unk]``, with 0.22 it did not.
    """
    return text.replace(library.id_to_token(number), added[number].content) if number in added else text


def _cleaned(text: str) -> str:
    for pattern in CLEAN_UP:
        text = text.replace(pattern, pattern.strip())
    return text


def _reference(logits: str, mask_id: int, top_k: int) -> Any:
    def answer(run: OriginalRun) -> dict[str, npt.NDArray[Any]]:
        ids = np.array(run.rows[0]["input_ids"])
        values = run.outputs[logits][0][: len(ids)][ids == mask_id].astype(np.float64)
        shares = reference.softmax(values)
        best = np.argsort(-shares, axis=1, kind="stable")[:, :top_k]
        library = run.tokenizer.backend_tokenizer
        added = library.get_added_tokens_decoder()
        names = [
            [_spelled(library, added, number, run.tokenizer.decode([number])).encode() for number in row]
            for row in best.tolist()
        ]
        return {
            "tokens": np.array([names], dtype=object),
            "scores": np.take_along_axis(shares, best, axis=1)[None].astype(np.float32),
            "ids": best[None].astype(np.int32),
        }

    return answer

"""How many tokens a text may have, and whether tokenizer and model belong together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.endpoint.plan.text_padding import FixedBy, FixedLength
from triton_repo_builder.endpoint.tasks import question_answering
from triton_repo_builder.endpoint.tasks.support import pair_types
from triton_repo_builder.endpoint.tasks.task import TaskPlan
from triton_repo_builder.model.read import tokenizer
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.model.read.tokenizer import TokenizerSpec


def check_vocabulary(src: Source, spec: TokenizerSpec) -> None:
    """``TrbError`` TOKENIZER_MISMATCH if texts reach ids without a row in the model's embedding.

    Not for added tokens: a text has to spell one, and the server refuses it (``unknown_tokens``).
    """
    rows, shown = _rows(src)
    if rows is not None and spec.largest_own_id >= rows:
        raise TrbError(
            Code.TOKENIZER_MISMATCH,
            f"the tokenizer's ids go up to {spec.largest_id}, but {shown} has {rows} rows (0 to {rows - 1})",
            where=str(spec.file),
            remedy=f"use the tokenizer that {src.path.name} was trained with (--tokenizer)",
        )


def unknown_tokens(src: Source, spec: TokenizerSpec) -> tuple[int, str]:
    """The rows of the embedding if added tokens go beyond them, and a note on these; else 0."""
    rows, shown = _rows(src)
    if rows is None or spec.largest_id < rows:
        return 0, ""
    tokens = spec.beyond(rows)
    listed = some([*map(repr, tokens)], 3)
    return rows, f"a text that spells {listed} is refused: {shown} has {rows} rows, and none for that token"


def _rows(src: Source) -> tuple[int | None, str]:
    """The rows of the model's embedding, if they are known, and where that is said."""
    rows, shown = src.signature.vocabulary, "its embedding table"
    if rows is None:
        rows, shown = src.config.get("vocab_size"), "its config.json"
    return rows if isinstance(rows, int) else None, shown


def check_positions(src: Source, spec: TokenizerSpec) -> None:
    """``TrbError`` if the model is given positions, and the tokenizer pads with another id than they skip."""
    skipped = tokenizer.position_pad_id(src.config)
    if not spec.positions_from_pad or src.signature.input("position_ids") is None or spec.pad_id == skipped:
        return
    raise TrbError(
        Code.TOKENIZER_MISMATCH,
        f"its positions are counted from the padding id, which is {skipped} for the model and {spec.pad_id} "
        "for the tokenizer",
        where=str(spec.file),
        remedy="export without the input position_ids (optimum's default), or correct pad_token in "
        "tokenizer_config.json",
    )


def check_types(src: Source, task: TaskPlan) -> None:
    """``TrbError`` if the task is about pairs, and the model has no token type for the second text."""
    paired = len(task.texts) > 1 and not task.texts[1].optional
    if paired and (problem := pair_types.beyond(src)):
        raise TrbError(
            Code.TOKENIZER_MISMATCH,
            problem,
            where=str(src.tokenizer_spec.file),
            remedy=pair_types.remedy(src),
        )


def max_length(
    spec: TokenizerSpec,
    options: BuildOptions,
    fixed: FixedLength,
    task: TaskPlan,
    positions: int | None,
) -> tuple[int | None, tuple[str, ...]]:
    """The length at which texts are truncated, and notes for the user."""
    stated = (
        (spec.max_length, spec.max_length_from),
        (positions, "config.json"),
        (fixed.tokens, fixed.by.value),
    )
    limits = [(limit, why) for limit, why in stated if limit]
    _check_fixed(spec, limits, fixed)
    if options.max_length is not None:
        # sentence-transformers' limit is what the model was trained on; it may well take more, as far as its
        # positions go.
        hard = [entry for entry in limits if entry[1] not in tokenizer.SENTENCE_FILES]
        limit, why = min(hard) if hard else (options.max_length, "")
        if options.max_length > limit:
            raise usage(
                "max_length",
                f"{options.max_length} is more than the model's maximum of {limit} ({why})",
                "lower it, or leave it out",
            )
        limits = [(options.max_length, "--max-length")]
    elif task.encoding.longest:
        limits.append((task.encoding.longest, "the task"))
    if not limits:
        return None, (
            "no file says how many tokens the model can take: texts are not truncated (set --max-length)",
        )
    limit, why = min(limits)
    special, least = _least(spec, task)
    if limit < least:
        shared = ", and pieces of a long text share some" if task.encoding.strided else ""
        whole = " or of what is never cut" if task.encoding.whole else ""
        option = why if why.startswith("--") else "--max-length"
        raise TrbError(
            Code.USAGE if why.startswith("--") else Code.TOKENIZER_INVALID,
            f"{why} allows {limit} tokens, and {special} of each text are special ones{whole}{shared}",
            where=str(spec.file.parent),
            remedy=f"set {option} to {'fixed:' if option == '--padding' else ''}{least} or more",
        )
    wider = min((other for other, _ in limits if other > limit), default=0)
    if why == FixedBy.PADDING.value and wider:
        return limit, (f"texts are cut at {limit} tokens (--padding fixed:{limit}); the model takes {wider}",)
    return limit, ()


def _check_fixed(spec: TokenizerSpec, limits: Sequence[tuple[int, str]], fixed: FixedLength) -> None:
    """``TrbError`` if every text should have more tokens than the model can take."""
    hard = [entry for entry in limits if entry[1] not in (*tokenizer.SENTENCE_FILES, fixed.by.value)]
    if fixed.by is not FixedBy.GRAPH and hard and fixed.tokens > min(hard)[0]:
        limit, why = min(hard)
        if fixed.by is FixedBy.MODEL:
            raise TrbError(
                Code.TOKENIZER_MISMATCH,
                f"the model's texts have {fixed.tokens} tokens, more than the maximum of {limit} ({why})",
                where=str(spec.file.parent),
                remedy="put the files of the model's own tokenizer beside it",
            )
        raise usage(
            fixed.by.value.removeprefix("--"),
            f"{fixed.tokens} is more than the model's maximum of {limit} ({why})",
            "lower it",
        )


def _least(spec: TokenizerSpec, task: TaskPlan) -> tuple[int, int]:
    """Special tokens of a row, and the fewest tokens with which each piece of a text brings something new."""
    library = spec.library
    pairs = len(task.texts) > 1 and not task.texts[1].optional
    special = library.num_special_tokens_to_add(pairs)
    if task.encoding.whole:
        special = len(library.encode("", task.encoding.whole).ids)
    shared = question_answering.stride if task.encoding.strided else (lambda limit: 0)
    return special, next(limit for limit in count(special + 1) if limit - special > shared(limit))

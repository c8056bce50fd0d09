"""Extractive question answering, by the rules of the question-answering pipeline of transformers 4.

A long context becomes several rows of the model, 128 tokens shared between neighbours; the best span of all
is the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import task
from triton_repo_builder.endpoint.tasks.support import head_output, reference
from triton_repo_builder.endpoint.tasks.support.examples import LONG
from triton_repo_builder.endpoint.tasks.task import (
    Encoded,
    Encoding,
    Example,
    Kind,
    OriginalRun,
    Postprocess,
    TaskPlan,
    TextInput,
)
from triton_repo_builder.model.graph.heads import tokens
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names

NAME = "question-answering"
KIND = Kind.TEXT
OPTIONS = ("handle_impossible_answer", "most_rows")
ARCHITECTURES = ("ForQuestionAnswering",)
LONGEST = 384
"""``max_seq_len`` of the pipeline."""
LONGEST_ANSWER = 15
STRIDE = 128
OUTPUTS = (
    TensorPlan(name="answer", data_type="TYPE_STRING", dims=(1,)),
    TensorPlan(name="start", data_type="TYPE_INT32", dims=(1,)),
    TensorPlan(name="end", data_type="TYPE_INT32", dims=(1,)),
    TensorPlan(name="score", data_type="TYPE_FP32", dims=(1,)),
)
EXAMPLES: tuple[tuple[str, Example], ...] = tuple(
    (name, {"QUESTION": (question,), "CONTEXT": (context,)})
    for name, question, context in (
        ("short", "Where do I live?", "My name is Wolfgang and I live in Berlin."),
        (
            "accents",
            "Où est la bibliothèque ?",
            "La bibliothèque d'Orléans est à côté de l'église Saint-Étienne.",
        ),
        ("scripts", "今日はどこ？", "今日は東京にいます 🗼。Завтра я буду в Москве. مرحبا 😀👍🏽"),
        ("spaces", "  Who  is it? ", "  It is\tMarie Curie,\n\n born in  Warsaw. "),
        ("one_word", "What?", "Nothing"),
        (
            "several_pieces",
            "Where does the answer stand?",
            LONG * 60 + "The answer stands in Lisbon. " + LONG * 9,
        ),
    )
)


def fits(source: Source) -> bool:
    """The graph has the logits of both ends of a span, and config.json names no other architecture."""
    if task.architecture(source, *ARCHITECTURES):
        return _spans(source) is not None
    named = {spec.name for spec in source.signature.outputs}
    return not source.config.get("architectures") and {"start_logits", "end_logits"} <= named


def stride(limit: int) -> int:
    """Tokens that neighbouring pieces share (``doc_stride`` of the pipeline)."""
    return min(limit // 2, STRIDE)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Start and end logits of all pieces from the graph; the best span after it."""
    names = _outputs(source)
    notes = (
        ()
        if "start" in names[0]
        else (f"output '{names[0]}' is taken for the start, '{names[1]}' for the end",)
    )
    _refuse_context_first(source)
    for name in names:
        task.need_logits(source, name, NAME)
    impossible = bool(options.handle_impossible_answer)
    first = task.token_id(source, "cls_token")
    return TaskPlan(
        name=NAME,
        head=Head(
            text=tokens.question_answering(),
            bind={"start_logits": names[0], "end_logits": names[1], "places": tensor_names.CHUNK_INDEX},
        ),
        outputs=(
            TensorPlan(name=tensor_names.STARTS, data_type="TYPE_FP32", dims=(-1,)),
            TensorPlan(name=tensor_names.ENDS, data_type="TYPE_FP32", dims=(-1,)),
        ),
        reference=task.by_answer,
        texts=(TextInput(name="QUESTION"), TextInput(name="CONTEXT")),
        encoding=Encoding(
            truncation="only_second",
            strided=True,
            longest=LONGEST,
            offsets="words",
            chunks="tokens",
            parameters=(("cls_id", str(first)), ("no_empty", "true"), task.most_rows(options)),
        ),
        post=Postprocess(
            module="question_answering.py",
            inputs=("CONTEXT", tensor_names.OFFSETS, tensor_names.STARTS, tensor_names.ENDS),
            outputs=OUTPUTS,
            parameters=(
                ("impossible", "true" if impossible else "false"),
                ("longest_answer", str(LONGEST_ANSWER)),
            ),
        ),
        examples=EXAMPLES,
        encode=_encode,
        notes=notes,
        answer=_reference(names, impossible),
        softmaxed=names,
        facts=(("handle_impossible_answer", impossible), ("longest_answer", LONGEST_ANSWER)),
    )


def _spans(source: Source) -> tuple[str, str] | None:
    """The outputs of the logits of a span's start and end, [batch, tokens] each."""
    ids = source.signature.input("input_ids")
    flat = [
        spec.name
        for spec in source.signature.outputs
        if len(spec.dims) == 2
        and not head_output.FEATURES.fullmatch(spec.name)
        and (ids is None or spec.dims[1] in (-1, ids.dims[-1]))
    ]
    for names in (("start_logits", "end_logits"), ("start_scores", "end_scores")):
        if set(names) <= set(flat):
            return names
    if len(flat) != 2:
        return None
    first, second = flat
    return (second, first) if "start" in second and "end" in first else (first, second)


def _outputs(source: Source) -> tuple[str, str]:
    spans = _spans(source)
    if spans is None:
        raise TrbError(
            Code.TASK_UNCLEAR,
            "the model has no start_logits and end_logits [batch, tokens]; it has "
            f"{head_output.shown(source)}",
            where=str(source.path),
            remedy=f"export it for {NAME} (optimum-cli export onnx --task {NAME}), or use --task embedding "
            "or --task tensor",
        )
    return spans


def _refuse_context_first(source: Source) -> None:
    """``TrbError`` UNSUPPORTED_MODEL for a tokenizer that pads on the left.

    The pipeline gives such a model (XLNet) the context first, which it was trained on.
    """
    if source.tokenizer_spec.padding_side != "left":
        return
    settings = source.settings("tokenizer_config.json")
    reason = "padding_side is left"
    if "padding_side" not in settings:
        reason += ", as tokenizer.json's padding or the tokenizer's class has it"
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        f"{reason}: it reads the context before the question, which is not supported",
        where=str(source.folder / "tokenizer_config.json"),
        remedy="serve it with --task tensor, and tokenize in the client; if it was trained on the question "
        "first, set padding_side to right there",
    )


def _encode(tokenizer: Any, example: Example, limit: int | None) -> list[Encoded]:
    size = limit or LONGEST
    question = len(tokenizer(example["QUESTION"][0], add_special_tokens=False)["input_ids"])
    if size - question - tokenizer.num_special_tokens_to_add(True) <= stride(size):
        raise ValueError("the question leaves no room for the context")  # the library would panic
    encoded = tokenizer(
        text=example["QUESTION"][0],
        text_pair=example["CONTEXT"][0],
        truncation="only_second",
        max_length=limit or LONGEST,
        stride=stride(limit or LONGEST),
        return_token_type_ids=True,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    return [
        {
            "input_ids": encoded["input_ids"][piece],
            "token_type_ids": encoded["token_type_ids"][piece],
            "encoding": encoded.encodings[piece],
        }
        for piece in range(len(encoded["input_ids"]))
    ]


def _reference(names: tuple[str, str], impossible: bool) -> Any:
    """The pipeline's rules written apart from the served ones: all spans as one matrix for each piece."""

    def answer(run: OriginalRun) -> dict[str, npt.NDArray[Any]]:
        context = run.example["CONTEXT"][0]
        scores: dict[str, float] = {}
        places: dict[str, tuple[int, int]] = {}
        null = 1e6
        for number, row in enumerate(run.rows):
            encoding, count = row["encoding"], len(row["input_ids"])
            allowed = np.array(
                [
                    sequence == 1 or token == run.tokenizer.cls_token_id
                    for sequence, token in zip(encoding.sequence_ids, row["input_ids"], strict=True)
                ]
            )
            start, end = (_shares(run.outputs[name][number][:count], allowed) for name in names)
            null = min(null, float(start[0] * end[0]))
            start[0] = end[0] = 0
            spans = np.tril(np.triu(np.outer(start, end)), LONGEST_ANSWER - 1)
            for flat in np.argsort(-spans, axis=None, kind="stable")[:12]:
                first, last = np.unravel_index(flat, spans.shape)
                if not (allowed[first] and allowed[last]):
                    continue
                begin, stop = _characters(encoding, int(first), int(last))
                text = context[begin:stop].lower()
                scores[text] = scores.get(text, 0.0) + float(spans[first, last])
                places.setdefault(text, (begin, stop))
        if impossible:
            scores["\0none"], places["\0none"] = null, (0, 0)
        best = max(scores, key=lambda text: scores[text]) if scores else ""
        begin, stop = places.get(best, (0, 0))
        return {
            "answer": np.array([[context[begin:stop].encode()]], dtype=object),
            "start": np.array([[begin]], np.int32),
            "end": np.array([[stop]], np.int32),
            "score": np.array([[scores.get(best, 0.0)]], np.float32),
        }

    return answer


def _shares(logits: npt.NDArray[Any], allowed: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = np.where(allowed, logits.astype(np.float64), -10000.0)
    return reference.softmax(values)


def _characters(encoding: Any, first: int, last: int) -> tuple[int, int]:
    """Characters from the start of the first token's word to the end of the last one's."""
    try:
        words = encoding.token_to_word(first), encoding.token_to_word(last)
        return encoding.word_to_chars(words[0], 1)[0], encoding.word_to_chars(words[1], 1)[1]
    except Exception:  # a token without a word
        return encoding.offsets[first][0], encoding.offsets[last][1]

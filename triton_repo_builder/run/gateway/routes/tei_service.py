"""TEI's routes about the service itself: tokens, the model, and whether it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import triton_repo_builder
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.call import QUICK, Call, Reply, check_count, encoded, flag, reply, texts
from triton_repo_builder.run.gateway.catalogue import SHOWN, Served
from triton_repo_builder.run.gateway.discovery import RESTRICTED
from triton_repo_builder.run.gateway.labels import labels
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.routes.tei_fields import Document, answered, empty, endpoint, statuses
from triton_repo_builder.run.gateway.text_rules import LONGEST
from triton_repo_builder.run.gateway.triton import Triton

TEXT_TASKS = tuple(
    signature.task for signature in recognition.SIGNATURES if not {"IMAGE", "AUDIO"} & set(signature.inputs)
)
MODELS = (
    recognition.EMBEDDING,
    recognition.SPARSE,
    recognition.LATE_INTERACTION,
    recognition.CLASSIFICATION,
    recognition.RERANK,
)
"""Tasks of models that TEI serves, too."""
DTYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
TIMEOUT = 5.0
"""Seconds that the server may take to say how it is."""
UNLOADED = ("", "unloaded")
"""Reasons of a model that is not meant to be loaded."""


@answered
async def tokenize(call: Call, document: Document) -> Reply:
    """``POST /tokenize``."""
    served = endpoint(call, document, *TEXT_TASKS)
    if document.get("inputs") == []:
        raise empty("inputs")
    listed: Sequence[str] = texts(document.get("inputs"), "inputs", call.gateway.options.most_items)
    encoded(listed, "inputs")
    special = flag(document, "add_special_tokens", True)
    name = document.get("prompt_name")
    if name is not None and not isinstance(name, str):
        raise invalid("`prompt_name` must be a string", "prompt_name")
    if name is not None:
        listed = served.rules.prompted(listed, name, "prompt_name")
    listed = [served.rules.prompt + text for text in listed]
    if sum(map(len, listed)) > LONGEST:
        raise Refusal(413, f"`inputs` has over {LONGEST} characters together", field="inputs")
    tokenizer = _tokenizer(served)

    def tokens() -> list[list[dict[str, Any]]]:
        rows = tokenizer.encode_batch(listed, add_special_tokens=special)
        return [_tokens(row, text) for row, text in zip(rows, listed, strict=True)]

    return reply(await _in_thread(sum(map(len, listed)), tokens))


def _tokens(row: Any, text: str) -> list[dict[str, Any]]:
    """The tokens of one text; their places count bytes, as TEI's do."""
    places = None if text.isascii() else [0, *accumulate(len(character.encode()) for character in text)]
    return [
        {"id": id, "text": token, "special": True, "start": None, "stop": None}
        if special
        else {
            "id": id,
            "text": text[start:stop],
            "special": False,
            "start": places[start] if places else start,
            "stop": places[stop] if places else stop,
        }
        for id, token, special, (start, stop) in zip(
            row.ids, row.tokens, row.special_tokens_mask, row.offsets, strict=True
        )
    ]


@answered
async def decode(call: Call, document: Document) -> Reply:
    """``POST /decode``."""
    served = endpoint(call, document, *TEXT_TASKS)
    value = document.get("ids")
    if value == []:
        raise empty("ids")
    listed: Any = [value] if isinstance(value, list) and not isinstance(value[0], list) else value
    if not isinstance(listed, list) or not all(isinstance(row, list) for row in listed):
        raise invalid("`ids` must be a list of token ids, or a list of such lists", "ids")
    check_count(len(listed), "ids", call.gateway.options.most_items)
    skip = flag(document, "skip_special_tokens", True)
    decoded = served.rules.texts_of_ids(listed, "ids")
    return reply(decoded if skip else _tokenizer(served).decode_batch(listed, skip_special_tokens=False))


def _tokenizer(served: Served) -> Any:
    tokenizer = served.rules.tokenizer
    if tokenizer is None:
        raise Refusal(
            424,
            f"the gateway has no tokenizer of '{served.name}': start it with --repo, or name the file in "
            "gateway.toml",
            code="backend",
        )
    return tokenizer


async def _in_thread(size: int, function: Callable[[], Any]) -> Any:
    """The function's result; in a thread if it works on much text."""
    return function() if size < QUICK else await asyncio.to_thread(function)


async def info(call: Call, name: str = "") -> Reply:
    """``GET /info``, of the named endpoint or of the only one."""
    with statuses():
        served = endpoint(call, {"model": name}, *(recognition.BY_TASK if name else MODELS))
    options, rules = call.gateway.options, served.rules
    kind = next((tensor.datatype for tensor in served.endpoint.outputs if tensor.datatype in DTYPES), "")
    return reply(
        {
            "model_id": served.name,
            "model_sha": None,
            "model_dtype": DTYPES.get(kind, ""),
            "served_model_name": served.name,
            "model_type": _model_type(call, served),
            "max_concurrent_requests": options.most_requests,
            "max_input_length": rules.max_length,
            "max_batch_tokens": rules.max_length * served.rows,
            "max_batch_requests": served.rows,
            "max_client_batch_size": options.most_items,
            "auto_truncate": True,
            "tokenization_workers": 1,
            "version": triton_repo_builder.__version__,
            "sha": None,
            "docker_label": None,
        }
    )


def _model_type(call: Call, served: Served) -> dict[str, Any]:
    """The kind of model, with its pooling or its labels; of a task that TEI has not, the task and no more."""
    if served.task not in MODELS:
        return {served.task: {}}
    if served.task in (recognition.CLASSIFICATION, recognition.RERANK):
        names = labels(call.gateway, served)
        numbered = {str(number): name for number, name in enumerate(names)}
        stated = {"id2label": numbered, "label2id": {name: number for number, name in enumerate(names)}}
        return {"reranker" if served.task == recognition.RERANK else "classifier": stated}
    usual = {recognition.SPARSE: "splade", recognition.LATE_INTERACTION: "none"}.get(served.task)
    return {"embedding": {"pooling": usual or str(served.facts.get("pooling", "unknown"))}}


async def health(call: Call, name: str = "") -> Reply:
    """``GET /health``: 503 unless the server answers and its endpoints, or the named one, are ready."""
    if name and not call.gateway.catalogue.has(name) and await _unloaded(call.gateway.triton, name):
        raise Refusal(503, f"unhealthy: {name} is not loaded", code="unhealthy", retry_after=1)
    served = [call.find(name, *recognition.BY_TASK)] if name else call.gateway.catalogue
    endpoints = {each.model for each in served}
    try:
        ready, failed = await _states(call.gateway.triton, sorted(endpoints))
    except Refusal as error:
        raise Refusal(503, error.message, code="unhealthy", retry_after=1) from None
    sick = (endpoints - ready) if name else (endpoints | failed) - ready
    if sick or not endpoints:
        names = ", ".join(sorted(sick)[:SHOWN]) or "no endpoint is loaded"
        raise Refusal(503, f"unhealthy: {names}", code="unhealthy", retry_after=1)
    return Reply(b"")


async def _unloaded(triton: Triton, name: str) -> bool:
    """Whether the server's repository has a model of that name that is not loaded."""
    try:
        index = await triton.call("RepositoryIndex", TIMEOUT)
    except Refusal:
        return False  # it does not answer, or its list needs the admin key
    return any(model.name == name and model.state != "READY" for model in index.models)


async def _states(triton: Triton, endpoints: Sequence[str]) -> tuple[set[str], set[str]]:
    """Models that are ready, and those that failed to load. Raises ``Refusal``.

    A server whose list of models needs its admin key is asked for each endpoint.
    """
    try:
        index = await triton.call("RepositoryIndex", TIMEOUT)
    except Refusal as refusal:
        if RESTRICTED not in refusal.message:
            raise
        answers = await asyncio.gather(
            *(triton.call("ModelReady", TIMEOUT, name=endpoint) for endpoint in endpoints)
        )
        return {name for name, answer in zip(endpoints, answers, strict=True) if answer.ready}, set()
    ready = {model.name for model in index.models if model.state == "READY"}
    return ready, {model.name for model in index.models if model.reason not in UNLOADED} - ready

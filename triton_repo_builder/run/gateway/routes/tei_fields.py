"""Fields of TEI's requests, and its statuses and headers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

from triton_repo_builder.run.gateway.call import Call, Reply, check_count, flag, texts
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Refusal, invalid

Document = dict[str, Any]
Task = Callable[[Call, Document], Awaitable[Reply]]

SIDES = ("left", "right")


@contextmanager
def statuses() -> Iterator[None]:
    """TEI's statuses: 422 for a field or a text, 424 for what the server failed at, 400 for an empty list."""
    try:
        yield
    except Refusal as error:
        if (
            error.status == 400
            and error.code != "empty"
            and (error.field or error.code == "invalid_argument")
        ):
            error.status = 422
        elif error.status == 502:
            error.status = 424
        raise


def answered(task: Task) -> Task:
    """The task with TEI's statuses and headers."""

    @wraps(task)
    async def run(call: Call, document: Document) -> Reply:
        start = time.perf_counter()
        with statuses():
            answer = await task(call, document)
        spent, inferred = _milliseconds(time.perf_counter() - start), _milliseconds(call.inferred)
        headers = [(b"x-compute-time", spent), (b"x-total-time", spent), (b"x-inference-time", inferred)]
        if call.tokens:
            headers.append((b"x-compute-tokens", str(call.tokens).encode()))
        return replace(answer, headers=[*answer.headers, *headers])

    return run


def _milliseconds(seconds: float) -> bytes:
    return str(round(seconds * 1000)).encode()


def endpoint(call: Call, document: Document, *tasks: str) -> Served:
    """The endpoint that the request means. Raises ``Refusal``: 424 if it does another task, as TEI."""
    name = document.get("model")
    try:
        return call.find(name, *tasks)
    except Refusal as error:
        if error.status == 400 and error.field == "model":
            if (name and isinstance(name, str)) or not call.gateway.catalogue.doing(tasks):
                error.status = 424
            elif not name:
                error.message += " (in the body, or in the path: /models/NAME)"
        raise


def inputs(document: Document, served: Served, most: int, field: str = "inputs") -> list[str]:
    """The texts: a text, token ids, or a list of texts and lists of token ids. Raises ``Refusal``."""
    value = document.get(field)
    if value == []:
        raise empty(field)
    if isinstance(value, list):
        if isinstance(value[0], int):
            value = [value]
        check_count(len(value), field, most)
        if rows := [row for row in value if isinstance(row, list)]:
            decoded = iter(served.rules.texts_of_ids(rows, field))
            value = [next(decoded) if isinstance(row, list) else row for row in value]
    return texts(value, field, most)


def empty(field: str) -> Refusal:
    """TEI's refusal of an empty list."""
    return Refusal(400, f"`{field}` cannot be empty", field=field, code="empty")


async def prepared(call: Call, document: Document, served: Served, listed: list[str]) -> Sequence[str]:
    """The texts with the prompt that the request names, as long as it lets them be. Raises ``Refusal``."""
    name = document.get("prompt_name")
    if name is not None and not isinstance(name, str):
        raise invalid("`prompt_name` must be a string", "prompt_name")
    prompted = listed if name is None else served.rules.prompted(listed, name, "prompt_name")
    await check_truncation(call, document, served, prompted)
    return prompted


async def check_truncation(call: Call, document: Document, served: Served, listed: Sequence[Any]) -> None:
    """Raises ``Refusal``: 413 for a text that is too long if ``truncate`` is false.

    TEI truncates unless told otherwise (``--auto-truncate``), and so does the served tokenizer.
    """
    side = document.get("truncation_direction")
    if side is not None:
        if not isinstance(side, str) or side.lower() not in SIDES:
            raise invalid("`truncation_direction` must be left or right", "truncation_direction")
        if side.lower() != served.rules.side:
            raise invalid(
                f"the model '{served.name}' truncates on the {served.rules.side}: leave the field out",
                "truncation_direction",
            )
    if flag(document, "truncate", True):
        return
    if served.rules.tokenizer is None:
        raise invalid(
            f"tokens of '{served.name}' cannot be counted, as the gateway has no tokenizer (--repo): "
            "leave `truncate` out",
            "truncate",
        )
    served.rules.check_lengths(await call.lengths(served, listed), "inputs")


def check_raw(document: Document, served: Served) -> None:
    """Raises ``Refusal`` if ``raw_scores`` asks for scores without the endpoint's activation."""
    activation = served.facts.get("activation", "an unknown function")
    if flag(document, "raw_scores", False) and activation != "none":
        raise invalid(
            f"the scores of '{served.name}' come from {activation}: leave `raw_scores` out", "raw_scores"
        )

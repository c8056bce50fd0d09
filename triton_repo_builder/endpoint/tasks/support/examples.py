"""Inputs of a text task: the texts of golden cases, and lines of a user's file.

Golden cases have short and long texts, scripts, accents, emoji, what a tokenizer may trip over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import shorten

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks.task import Example, TaskPlan

LONG = "Batching must not change an answer, however long its neighbour in the batch may be. "
TEXTS = (
    ("short", "Hello"),
    ("sentence", "The quick brown fox jumps over the lazy dog."),
    ("question", "How do I reset my password if I no longer have access to my e-mail?"),
    ("accents", "Où est la bibliothèque? Straße, naïve, São Paulo, Ångström"),
    ("scripts", "今日は天気がいい。Привет, мир! مرحبا 😀👍🏽"),
    ("spaces", "  tabs\tand\nnew lines  and   many   spaces "),
    ("empty", ""),
    ("beyond_the_limit", LONG * 80),
)
SINGLE: tuple[tuple[str, Example], ...] = tuple((name, {"TEXT": (text,)}) for name, text in TEXTS)
PAIRS: tuple[tuple[str, Example], ...] = tuple(
    (f"pair_{name}", {"TEXT": (first,), "TEXT_PAIR": (second,)})
    for name, first, second in (
        ("sentences", "A man is playing a guitar.", "Someone makes music."),
        ("scripts", "今日は天気がいい。", "Il fait beau aujourd'hui 😀"),
        ("empty", "", "The second text only."),
        ("beyond_the_limit", LONG * 40, "The answer stands at the end. " * 80),
    )
)


def renamed(examples: tuple[tuple[str, Example], ...], *names: str) -> tuple[tuple[str, Example], ...]:
    """The examples under other input names, in order."""
    return tuple((case, dict(zip(names, example.values(), strict=True))) for case, example in examples)


def of_lines(task: TaskPlan, lines: Sequence[str], where: str) -> list[Example]:
    """Lines of a file as the inputs of a task. Raises ``TrbError`` with the place ``where``.

    A line is a text, or a JSON object of the inputs. A task of two texts gets two neighbouring lines, a task
    of labels the labels of its own examples, fill-mask a mask in place of the middle word.
    """
    return [_of_line(task, lines, number, where) for number in range(len(lines))]


def _of_line(task: TaskPlan, lines: Sequence[str], number: int, where: str) -> Example:
    if stated := _stated(task, lines[number], where):
        return stated
    example = dict(task.examples[0][1]) if task.examples else {}
    values: dict[str, tuple[str, ...]] = {}
    for place, field in enumerate(task.texts):
        if field.several and field.name in example:
            values[field.name] = tuple(example[field.name])
        elif not field.optional:
            values[field.name] = (_with_probe(lines[(number + place) % len(lines)], task.encoding.probe),)
    return values


def _stated(task: TaskPlan, line: str, where: str) -> Example | None:
    """The inputs that a line states as JSON; None if it is a text. Raises ``TrbError`` for other inputs."""
    if not line.startswith("{"):
        return None
    try:
        stated = json.loads(line)
    except ValueError:
        return None
    lists = {name: value if isinstance(value, list) else [value] for name, value in stated.items()}
    needed = {field.name for field in task.texts if not field.optional}
    texts = all(isinstance(text, str) for values in lists.values() for text in values)
    if texts and all(lists.values()) and needed <= set(lists) <= {field.name for field in task.texts}:
        return {name: tuple(values) for name, values in lists.items()}
    raise TrbError(
        Code.USAGE,
        f"{shorten(line, 60)} does not state the inputs of this model",
        where=where,
        remedy=f"a JSON object of texts for {', '.join(sorted(needed))}, or a plain text on each line",
    )


def _with_probe(line: str, probe: str) -> str:
    """The text with the mask token in place of the middle word, for a task that needs one."""
    if not probe or probe in line:
        return line
    words = line.split()
    words[len(words) // 2] = probe
    return " ".join(words)

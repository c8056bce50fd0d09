"""Texts of golden cases: short and long ones, scripts, accents, emoji, what a tokenizer may trip over."""

from __future__ import annotations

from triton_repo_builder.endpoint.tasks.task import Example

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

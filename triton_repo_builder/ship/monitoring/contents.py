"""The dashboard of texts and answers."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.run.observe import drift_rules
from triton_repo_builder.ship.monitoring.panels import (
    CHOSEN,
    EVERY,
    PHASE,
    TIMES,
    Panel,
    Query,
    classes,
    heat,
    rate,
)
from triton_repo_builder.ship.monitoring.source import Source

LABELS = (
    "text-classification",
    "zero-shot-classification",
    "image-classification",
    "zero-shot-image-classification",
    "audio-classification",
)
EMBEDDINGS = ("embedding", "image-embedding")


def contents(source: Source) -> Iterator[Panel]:
    """The panels of ClearML's article, in its order, then tokens."""
    if not source.counting:
        return
    if source.tokenizers:
        yield Panel(
            title="Unknown tokens",
            queries=(
                Query(
                    expression=f"sum by (model) (increase(trb_unknown_tokens_total{{{CHOSEN}}}[{EVERY}]))",
                    legend="{{model}}",
                ),
            ),
            about="Tokens that the vocabulary does not have.",
        )
    yield heat("Latency buckets", "trb_phase_seconds", "s", PHASE, about=TIMES)
    yield from _outputs(source)
    if source.tokenizers:
        yield from _tokens()


def _outputs(source: Source) -> Iterator[Panel]:
    """A heat map of each output."""
    tasks = source.tasks
    if tasks & {*LABELS}:
        yield classes("Answers by label", "trb_answers_total", "label", "The best label of each answer.")
        yield heat("Confidence", "trb_answer_confidence", "percentunit", about="Score of the best label.")
    if "token-classification" in tasks:
        yield classes("Entities by type", "trb_entities_total", "type", "Entities in the answers.")
    if "question-answering" in tasks:
        yield classes("Questions", "trb_question_answers_total", "outcome", "With an answer, or none.")
    if tasks & {*EMBEDDINGS}:
        yield heat("Norm of embeddings", "trb_embedding_norm", about="Length of the vectors.")
    if "object-detection" in tasks:
        yield classes("Boxes by label", "trb_boxes_total", "label", "Boxes in the answers.")
    if "automatic-speech-recognition" in tasks:
        yield heat("Length of transcripts", "trb_transcript_characters", about="Characters of an answer.")


def _tokens() -> Iterator[Panel]:
    tokens, texts = rate("trb_tokens_total", "model"), rate("trb_texts_total", "model")
    for title, unit, expression, about in (
        ("Tokens", "short", tokens, "Tokens a second."),
        (
            "Share of unknown tokens",
            "percentunit",
            f"{rate('trb_unknown_tokens_total', 'model')} / ({tokens} > 0)",
            "Of all tokens.",
        ),
        (
            "Share of truncated texts",
            "percentunit",
            f"{rate('trb_truncated_texts_total', 'model')} / ({texts} > 0)",
            "Of all texts.",
        ),
    ):
        yield Panel(
            title=title, queries=(Query(expression=expression, legend="{{model}}"),), unit=unit, about=about
        )
    yield heat("Tokens of a text", "trb_text_tokens", about="Tokens of each text.")
    psi = f'max by (model, version, metric) (trb:drift:psi{{{CHOSEN}, window!="{drift_rules.SOON}"}})'
    yield Panel(
        title="Drift",
        queries=(Query(expression=psi, legend="{{model}} v{{version}} {{metric}}"),),
        about="Population stability index against the reference of the build, over the long window of "
        "drift.yml: above 0.1 moderate, above 0.25 drifted. Needs enough texts: trb drift says how many.",
    )
    yield Panel(
        title="Refused texts by reason",
        queries=(
            Query(
                expression=rate("trb_refused_texts_total", "model, reason"),
                legend="{{model}} {{reason}}",
            ),
        ),
        stacked=True,
        about="Texts without an answer, a second.",
    )

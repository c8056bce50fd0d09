"""Tasks of texts as Hugging Face's pipelines answer them.

https://huggingface.co/docs/inference-providers/tasks
"""

from __future__ import annotations

from typing import Any

from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.call import Call, Reply, check_count, encoded, reply
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.labels import labels, predictions
from triton_repo_builder.run.gateway.refusal import invalid
from triton_repo_builder.run.gateway.routes import tei
from triton_repo_builder.run.gateway.routes.huggingface_fields import (
    candidate_labels,
    check_built,
    listed_texts,
    parameters,
    top_k,
)
from triton_repo_builder.run.gateway.routes.tei_fields import Document, answered, empty, endpoint
from triton_repo_builder.run.gateway.triton import Answer, Columns, rows

OUTSIDE = "O"
EMBEDDING_PARAMETERS = ("normalize", "prompt_name", "truncate", "truncation_direction", "dimensions")
ENTITY_OUTPUTS = ("start", "end", "label", "score", "text")
ANSWER_OUTPUTS = ("answer", "start", "end", "score")


async def feature_extraction(call: Call, document: Document) -> Reply:
    """Embeddings of texts; what TEI has beside ``inputs`` may be in ``parameters``, too."""
    return await tei.embed(call, {**parameters(document, *EMBEDDING_PARAMETERS), **document})


@answered
async def text_classification(call: Call, document: Document) -> Reply:
    """Labels of each text, best first: a list of lists, for one text as well."""
    served = endpoint(call, document, recognition.CLASSIFICATION)
    stated = parameters(document, "function_to_apply", "top_k")
    check_built(stated, "function_to_apply", served, served.facts.get("activation"))
    count = top_k(stated, served)
    listed, _ = listed_texts(document, call.gateway.options.most_items)
    answers = await tei.scores(call, served, [(text,) for text in listed])
    names = labels(call.gateway, served)
    return reply([predictions(row, names)[:count] for row in answers])


@answered
async def token_classification(call: Call, document: Document) -> Reply:
    """Entities of each text."""
    served = endpoint(call, document, recognition.ENTITIES)
    stated = parameters(document, "aggregation_strategy", "ignore_labels")
    aggregation = served.facts.get("aggregation")
    check_built(stated, "aggregation_strategy", served, aggregation)
    ignored = stated.get("ignore_labels", [OUTSIDE])
    if not isinstance(ignored, list) or OUTSIDE not in ignored:
        raise invalid(
            f"`parameters.ignore_labels` must list '{OUTSIDE}', which no endpoint answers", "ignore_labels"
        )
    listed, several = listed_texts(document, call.gateway.options.most_items)
    answers, _ = await call.counted(served, {"TEXT": encoded(listed, "inputs")}, ENTITY_OUTPUTS, listed)
    key = "entity" if aggregation == "none" else "entity_group"
    entities = [_entities(row, key, ignored) for row in rows(answers)]
    return reply(entities if several else entities[0])


def _entities(row: Answer, key: str, ignored: list[Any]) -> list[dict[str, Any]]:
    """The entities of one text; its rest is filled up with empty labels."""
    return [
        {
            key: label.decode(),
            "score": row["score"][place],
            "word": row["text"][place].decode(),
            "start": int(row["start"][place]),
            "end": int(row["end"][place]),
        }
        for place, label in enumerate(row["label"])
        if label and label.decode() not in ignored
    ]


@answered
async def question_answering(call: Call, document: Document) -> Reply:
    """The best span of each context."""
    served = endpoint(call, document, recognition.QUESTION_ANSWERING)
    stated = parameters(document, "align_to_words", "handle_impossible_answer", "max_answer_len", "top_k")
    check_built(stated, "align_to_words", served, True)
    check_built(stated, "handle_impossible_answer", served, served.facts.get("handle_impossible_answer"))
    check_built(stated, "max_answer_len", served, served.facts.get("longest_answer"))
    top_k(stated, served, 1)
    value = document.get("inputs")
    if value == []:
        raise empty("inputs")
    listed: Any = value if isinstance(value, list) else [value]
    check_count(len(listed), "inputs", call.gateway.options.most_items)
    for item in listed:
        if not isinstance(item, dict) or not all(
            isinstance(item.get(name), str) for name in ("question", "context")
        ):
            raise invalid("`inputs` must have `question` and `context`, both strings", "inputs")
    columns = {
        "QUESTION": encoded([item["question"] for item in listed], "inputs"),
        "CONTEXT": encoded([item["context"] for item in listed], "inputs"),
    }
    call.texts += len(listed)
    answers = [_span(row) for row in rows(await call.infer(served, columns, ANSWER_OUTPUTS))]
    return reply(answers if isinstance(value, list) else answers[0])


def _span(row: Answer) -> dict[str, Any]:
    return {
        "score": row["score"][0],
        "start": int(row["start"][0]),
        "end": int(row["end"][0]),
        "answer": row["answer"][0].decode(),
    }


@answered
async def zero_shot_classification(call: Call, document: Document) -> Reply:
    """Labels that come with the request, best first."""
    served = endpoint(call, document, recognition.ZERO_SHOT)
    stated = parameters(document, "candidate_labels", "hypothesis_template", "multi_label")
    check_built(stated, "hypothesis_template", served, served.facts.get("hypothesis_template"))
    check_built(stated, "multi_label", served, served.facts.get("multi_label"))
    candidates = candidate_labels(stated)
    listed, several = listed_texts(document, call.gateway.options.most_items)
    columns: Columns = {"TEXT": encoded(listed, "inputs"), "LABELS": [candidates] * len(listed)}
    call.texts += len(listed)
    answers = [scored(row) for row in rows(await call.infer(served, columns, ("labels", "scores")))]
    return reply(answers if several else answers[0])


def scored(row: Answer, names: str = "labels", numbers: str = "scores") -> list[dict[str, Any]]:
    """Labels and their scores, in the endpoint's order."""
    return [
        {"score": score, "label": label.decode()}
        for label, score in zip(row[names], row[numbers], strict=True)
    ]


@answered
async def fill_mask(call: Call, document: Document) -> Reply:
    """The likeliest tokens of a mask; a list for each of several masks."""
    served = endpoint(call, document, recognition.FILL_MASK)
    stated = parameters(document, "top_k")
    count = top_k(stated, served, served.facts.get("top_k"))
    listed, several = listed_texts(document, call.gateway.options.most_items)
    columns = {"TEXT": encoded(listed, "inputs")}
    answers, _ = await call.counted(served, columns, ("tokens", "scores", "ids"), listed)
    filled = [_filled(row, text, served, count) for row, text in zip(rows(answers), listed, strict=True)]
    return reply(filled if several else filled[0])


def _filled(row: Answer, text: str, served: Served, count: int | None) -> list[Any]:
    # The rest of a row, of fewer masks than another's, has no scores; the best token of a mask has one.
    masks = int((row["scores"][:, 0] > 0).sum())
    sequence = Sequences(served, text, single=masks == 1)
    answers = [
        [
            {
                "score": score,
                "token": id,
                "token_str": token.decode(),
                "sequence": sequence.filled(mask, id, token.decode()),
            }
            for score, id, token in zip(
                row["scores"][mask][:count],
                row["ids"][mask][:count].tolist(),
                row["tokens"][mask][:count],
                strict=True,
            )
        ]
        for mask in range(masks)
    ]
    return answers[0] if masks == 1 else answers


class Sequences:
    """A text with its masks filled, as the tokenizer writes it; by plain replacement without a tokenizer."""

    def __init__(self, served: Served, text: str, single: bool) -> None:
        self.tokenizer = served.rules.tokenizer
        self.text, self.single = text, single
        self.mask = str(served.facts.get("mask", "[MASK]"))
        self.ids: list[int] = []
        self.places: list[int] = []
        if self.tokenizer is not None:
            number = self.tokenizer.token_to_id(self.mask)
            self.ids = self.tokenizer.encode(text).ids
            self.places = [place for place, id in enumerate(self.ids) if id == number]

    def filled(self, mask: int, id: int, token: str) -> str:
        """The text with one of its masks filled."""
        if self.tokenizer is None or mask >= len(self.places):
            parts = self.text.split(self.mask)
            before = self.mask.join(parts[: mask + 1])
            return before + token + self.mask.join(parts[mask + 1 :])
        ids = [*self.ids]
        ids[self.places[mask]] = id
        text: str = self.tokenizer.decode(ids, skip_special_tokens=self.single)
        return text

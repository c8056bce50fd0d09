"""OpenAI's moderations, by a classifier whose own labels name what moderation flags.

https://platform.openai.com/docs/api-reference/moderations
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.call import Call, Reply, Route, encoded, reply, texts
from triton_repo_builder.run.gateway.catalogue import Served, shown
from triton_repo_builder.run.gateway.labels import check
from triton_repo_builder.run.gateway.refusal import invalid
from triton_repo_builder.run.gateway.routes.openai import check_fields
from triton_repo_builder.run.gateway.triton import joined

FIELDS = frozenset({"model", "input"})
HARM = re.compile(
    r"(?<![a-z])(toxic|hate|hatred|harass|insult|threat|obscen|profan|vulgar|sexual|porn|nsfw|violen|"
    r"self.?harm|suicid|offens|abus|unsafe|harmful|racis|sexis|(cyber)?bully|illicit|extremis|terror|"
    r"identity.?attack)"
)
NEGATED = re.compile(r"no[nt]?(?![a-z])|no[nt](?=toxic|hate|offens|abus|harm|violen)")
"""Begin of a label that says the opposite: ``non-toxic``, ``not_offensive``, ``nothate``."""
EXAMPLES = "toxic, hate, insult, threat, violence, sexual, nsfw"
LIKELY = 0.5


async def moderations(call: Call) -> Reply:
    """``POST /v1/moderations``."""
    document = call.document()
    check_fields(document, FIELDS)
    served = _served(call, document.get("model"))
    listed = _inputs(document.get("input"), call.gateway.options.most_items)
    columns = {"TEXT": encoded(listed, "input")}
    answers, _ = await call.counted(served, columns, ("scores",), listed)
    scores = joined(answers, "scores").reshape(len(listed), -1)
    places = [place for place, label in enumerate(_labels(served)) if is_harm(label)]
    return reply(
        {
            "id": f"modr-{call.id}",
            "model": served.name,
            "results": [_result(served, places, row) for row in scores],
        }
    )


def is_harm(label: str) -> bool:
    """Whether a label names what moderation flags."""
    lowered = label.lower()
    return bool(HARM.search(lowered)) and not NEGATED.match(lowered)


def _labels(served: Served) -> list[str]:
    return list(map(str, served.facts.get("labels", ())))


def fits(served: Served) -> bool:
    """Whether a classifier gives probabilities of what moderation flags."""
    return served.facts.get("activation") != "none" and any(map(is_harm, _labels(served)))


def _served(call: Call, name: object) -> Served:
    """The endpoint that a request means; without a name, the only one that fits. Raises ``Refusal``."""
    catalogue = call.gateway.catalogue
    fitting = [served for served in catalogue.doing((recognition.CLASSIFICATION,)) if fits(served)]
    if not name and len(fitting) == 1 and call.path not in catalogue.routing.routes:
        name = fitting[0].name
    if not name and not fitting:
        raise invalid(f"no classifier here has labels to moderate by, such as {EXAMPLES}", "model")
    served = call.find(name, recognition.CLASSIFICATION)
    if not fits(served):
        labels = ", ".join(_labels(served)[:8]) or "not known"
        raise invalid(
            f"the labels of '{served.name}' ({labels}) name nothing that moderation flags, such as "
            f"{EXAMPLES}; models that fit: {shown(fitting)}",
            "model",
        )
    check(served)
    return served


def _inputs(value: object, most: int) -> list[str]:
    """A text, texts, or OpenAI's list of typed parts, of which one text can be judged. Raises ``Refusal``."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        part = value[0]
        if len(value) > 1 or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise invalid("`input`: one part of type text can be judged, no image", "input")
        return [part["text"]]
    return texts(value, "input", most)


def _result(served: Served, places: Sequence[int], scores: Array) -> dict[str, Any]:
    """A category is true if its label is the likeliest or, if several can be true, likelier than not."""
    labels = _labels(served)
    best = int(scores.argmax())
    exclusive = served.facts.get("activation") == "softmax"
    categories = {
        labels[place]: place == best if exclusive else bool(scores[place] >= LIKELY) for place in places
    }
    return {
        "flagged": any(categories.values()),
        "categories": categories,
        "category_scores": {labels[place]: scores[place] for place in places},
        "category_applied_input_types": {labels[place]: ["text"] for place in places},
    }


ROUTES = (
    Route(
        path="/v1/moderations",
        handler=moderations,
        api="openai",
        tasks=(recognition.CLASSIFICATION,),
        summary="Whether texts are harmful, by a classifier whose labels say so",
        request={"model": "MODEL", "input": ["first text", "second text"]},
    ),
)

"""Moderations: which classifiers fit, and what is flagged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.fake_triton import FakeGateway, numbers, served
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.catalogue import Routing
from triton_repo_builder.run.gateway.routes.openai_moderations import is_harm

TASK = recognition.CLASSIFICATION
TOXIC = ("toxic", "insult", "neutral")


def moderator(name: str, *labels: str, activation: str | None = "sigmoid") -> Any:
    return served(name, TASK, facts={"labels": list(labels), "activation": activation})


def refusal(answer: Any) -> str:
    assert answer.status_code == 400, answer.text
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize(
    "label",
    [
        *(
            "toxic",
            "severe_toxic",
            "Identity_Hate",
            "HATE",
            "hateful",
            "self-harm",
            "NSFW",
            "violence/graphic",
        ),
        *("offensive", "sexual_explicit", "cyberbullying", "Harassment", "threat", "unsafe", "toxicity"),
    ],
)
def test_labels_that_are_flagged(label: str) -> None:
    assert is_harm(label)


@pytest.mark.parametrize(
    "label",
    [
        *("neutral", "non-toxic", "not_toxic", "NOT-HATE", "nothate", "nontoxic", "no_hate", "non-offensive"),
        *("safe", "OK", "SFW", "normal", "positive", "LABEL_0", "homosexual_gay_or_lesbian", "male", ""),
    ],
)
def test_labels_that_are_not(label: str) -> None:
    assert not is_harm(label)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax", None])
def test_categories_are_the_labels_of_the_model(activation: str | None) -> None:
    gateway = FakeGateway(moderator("guard", *TOXIC, activation=activation))
    texts = [f"text {number}" for number in range(20)]
    body = gateway.post("/v1/moderations", input=texts).json()
    assert body["id"].startswith("modr-")
    assert body["model"] == "guard"
    flagged = set()
    for result, text in zip(body["results"], texts, strict=True):
        scores = numbers(text.encode())[:3]
        likely = [bool(score >= 0.5) for score in scores]
        if activation == "softmax":
            likely = [place == int(scores.argmax()) for place in range(3)]
        assert result["categories"] == {"toxic": likely[0], "insult": likely[1]}
        assert result["flagged"] is (likely[0] or likely[1])
        assert result["category_applied_input_types"] == {"toxic": ["text"], "insult": ["text"]}
        sent = [result["category_scores"][label] for label in TOXIC[:2]]
        np.testing.assert_array_equal(np.array(sent, np.float32), scores[:2])
        flagged.add(result["flagged"])
    assert flagged == {True, False}


def test_the_classifier_that_fits_is_taken() -> None:
    mood = moderator("mood", "good", "bad")
    gateway = FakeGateway(mood, moderator("guard", *TOXIC))
    assert gateway.post("/v1/moderations", input="a").json()["model"] == "guard"
    routed = FakeGateway(
        mood,
        moderator("guard", *TOXIC),
        moderator("other", *TOXIC),
        routing=Routing(routes={"/v1/moderations": "other"}, aliases={"omni-moderation-latest": "guard"}),
    )
    assert routed.post("/v1/moderations", input="a").json()["model"] == "other"
    answer = routed.post("/v1/moderations", input="a", model="omni-moderation-latest")
    assert answer.json()["model"] == "guard"


def test_classifiers_that_do_not_fit() -> None:
    mood, rating = moderator("mood", "good", "bad"), moderator("rating", "toxic", activation="none")
    gateway = FakeGateway(mood, rating, moderator("guard", *TOXIC))
    message = refusal(gateway.post("/v1/moderations", input="a", model="mood"))
    assert "(good, bad)" in message and message.endswith("models that fit: guard")
    assert "models that fit: guard" in refusal(gateway.post("/v1/moderations", input="a", model="rating"))
    assert "no classifier" in refusal(FakeGateway(mood, rating).post("/v1/moderations", input="a"))
    unlabelled = FakeGateway(served("raw", TASK))
    assert "no classifier" in refusal(unlabelled.post("/v1/moderations", input="a"))
    assert "not known" in refusal(unlabelled.post("/v1/moderations", input="a", model="raw"))


def test_labels_of_another_number_are_refused() -> None:
    fault = "[endpoints.guard] has 3 labels, and the model has 2 classes"
    gateway = FakeGateway(replace(moderator("guard", *TOXIC), fault=fault))
    for body in ({"input": "a"}, {"input": "a", "model": "guard"}):
        assert fault in refusal(gateway.post("/v1/moderations", **body))
    assert fault in gateway.post("/predict", inputs="a").json()["error"]
    assert gateway.post("/v1/classify", input="a").status_code == 200


def test_parts_of_a_message() -> None:
    gateway = FakeGateway(moderator("guard", *TOXIC))
    part = {"type": "text", "text": "hello"}
    assert len(gateway.post("/v1/moderations", input=[part]).json()["results"]) == 1
    assert gateway.triton.requests == [{"TEXT": [b"hello"]}]
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    for parts in ([image], [part, image], [part, part], [{"type": "text"}]):
        assert "no image" in refusal(gateway.post("/v1/moderations", input=parts))
    assert "must be a string" in refusal(gateway.post("/v1/moderations", input=["a", part]))
    assert "Unknown parameter" in refusal(gateway.post("/v1/moderations", input="a", threshold=0.9))

"""Bodies of any kind get an answer or a refusal in the route's own schema, and never an exception."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_endpoints import Fake, served
from tests.unit.run.gateway.routes.test_huggingface import ANSWERS, BEST
from tests.unit.run.gateway.routes.test_tei import embedding, relevance, sparse, tokens
from triton_repo_builder.run.gateway import recognition as tasks
from triton_repo_builder.run.gateway.routes import huggingface, tei

MORE = {
    "ranks": (tasks.RERANK, relevance, {}),
    "sparse": (tasks.SPARSE, sparse, {}),
    "tokens": (tasks.LATE_INTERACTION, tokens, {}),
    "vectors": (tasks.EMBEDDING, embedding, {}),
}
ALL = {**ANSWERS, **MORE}
ENDPOINTS = [
    served(name, task, facts, BEST if name in ("images", "sounds") else ())
    for name, (task, _, facts) in ALL.items()
]
FAKE = Fake(ENDPOINTS, {name: answer for name, (_, answer, _) in ALL.items()})
PATHS = [
    "/",
    *(route.path for route in tei.ROUTES if route.method == "POST"),
    *(f"/models/{name}" for name in ALL),
    *(f"/models/{name}/{last}" for name in ("vectors", "ranks", "classes") for last in tei.POSTED),
    *(f"/pipeline/{task}" for task in huggingface.PIPELINES),
]
FIELDS = [
    "inputs",
    "model",
    "parameters",
    "query",
    "texts",
    "ids",
    "truncate",
    "truncation_direction",
    "normalize",
    "dimensions",
    "prompt_name",
    "raw_scores",
    "return_text",
    "skip_special_tokens",
    "question",
    "context",
    "source_sentence",
    "sentences",
    "candidate_labels",
    "top_k",
    "threshold",
    "ignore_labels",
    "multi_label",
]
WORDS = ("", "QQ==", "a b", "left", *ALL)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 2**40), st.floats(), st.sampled_from(WORDS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5)


@given(st.sampled_from(PATHS), BODIES)
@settings(max_examples=500)
def test_any_object(path: str, body: Any) -> None:
    answer = FAKE.ask(path, body)
    if answer.status != 200:
        assert 400 <= answer.status < 500, answer.body
        assert set(answer.json) == {"error", "error_type"}


@given(st.sampled_from(PATHS), st.binary(max_size=20), st.sampled_from(["", "application/json", "image/png"]))
@settings(max_examples=200)
def test_any_bytes(path: str, body: bytes, kind: str) -> None:
    assert FAKE.ask(path, body, kind).status in (200, 400, 413, 422, 424)

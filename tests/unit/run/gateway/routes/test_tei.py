"""TEI's routes: its shapes, statuses and error objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from tests.support.fake_endpoints import WIDTH, Fake, floats, numbers, served
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.text_rules import TextRules

LABELS = ["bad", "fair", "good", "great"]


def embedding(columns: Any) -> dict[str, Any]:
    return {"embedding": np.stack([numbers(text) for text in columns["TEXT"]])}


def classes(columns: Any) -> dict[str, Any]:
    pairs = columns.get("TEXT_PAIR", [None] * len(columns["TEXT"]))
    scores = np.stack([numbers(*row) for row in zip(columns["TEXT"], pairs, strict=True)])
    best = np.array([[LABELS[number].encode()] for number in scores.argmax(axis=1)], dtype=object)
    return {"scores": scores, "score": scores.max(axis=1, keepdims=True), "label": best}


def relevance(columns: Any) -> dict[str, Any]:
    rows = zip(columns["QUERY"], columns["DOCUMENT"], strict=True)
    return {"score": np.stack([numbers(*row, count=1) for row in rows])}


def sparse(columns: Any) -> dict[str, Any]:
    count = len(columns["TEXT"])
    indices = np.full((count, 3), -1, np.int32)
    values = np.zeros((count, 3), np.float32)
    for row, text in enumerate(columns["TEXT"]):
        size = min(len(text), 3)
        indices[row, :size] = range(5, 5 + size)
        values[row, :size] = numbers(text, count=size)
    return {"indices": indices, "values": values}


def tokens(columns: Any) -> dict[str, Any]:
    vectors = np.stack([numbers(text, count=3 * WIDTH).reshape(3, WIDTH) for text in columns["TEXT"]])
    return {"token_embeddings": vectors, "mask": np.array([[1, 0, 1]] * len(vectors), np.int32)}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> TextRules:
    folder = tmp_path_factory.mktemp("rules")
    return TextRules(file=tiny.tokenizer(folder / "tokenizer.json"), max_length=6, prompts={"query": "the "})


@pytest.fixture
def fake(rules: TextRules) -> Fake:
    normalizes = TextRules(
        file=rules.file, max_length=6, prompts=rules.prompts, normalized=True, side="right"
    )
    return Fake(
        [
            served("vectors", recognition.EMBEDDING, {"pooling": "mean"}, rules=normalizes),
            served(
                "classes",
                recognition.CLASSIFICATION,
                {"labels": LABELS, "activation": "softmax"},
                rules=rules,
            ),
            served("ranks", recognition.RERANK, {"activation": "sigmoid"}, rules=rules),
            served("sparse", recognition.SPARSE, rules=rules),
            served("tokens", recognition.LATE_INTERACTION, rules=rules),
        ],
        {"vectors": embedding, "classes": classes, "ranks": relevance, "sparse": sparse, "tokens": tokens},
    )


def test_embeds_a_text_and_a_list_of_any_length(fake: Fake) -> None:
    assert (floats(fake.json("/embed", {"inputs": "hello"})) == [numbers(b"hello")]).all()
    many = [f"text {number}" for number in range(100)]
    expected = np.stack([numbers(text.encode()) for text in many])
    assert (floats(fake.json("/embed", {"inputs": many})) == expected).all()


def test_embeds_token_ids_as_their_texts(fake: Fake, rules: TextRules) -> None:
    ids = rules.tokenizer.encode("hello the fox", add_special_tokens=False).ids
    expected = numbers(b"hello the fox")
    assert (floats(fake.json("/embed", {"inputs": ids})) == [expected]).all()
    mixed = fake.json("/embed", {"inputs": ["a", ids]})
    assert (floats(mixed) == [numbers(b"a"), expected]).all()


def test_an_answer_says_how_long_it_took_and_how_many_tokens_it_had(fake: Fake) -> None:
    headers = fake.ask("/embed", {"inputs": "hello the fox"}).headers
    assert headers[b"x-compute-tokens"] == b"5"
    assert all(headers[f"x-{kind}-time".encode()].isdigit() for kind in ("total", "compute", "inference"))


def test_a_prompt_by_name_is_put_before_the_texts(fake: Fake) -> None:
    answer = fake.json("/embed", {"inputs": ["fox"], "prompt_name": "query"})
    assert (floats(answer) == [numbers(b"the fox")]).all()


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "words"),
    [
        ("/embed", {"inputs": []}, 400, "Empty", "inputs"),
        ("/embed", {}, 422, "Validation", "inputs"),
        ("/embed", {"inputs": ["a", 5]}, 422, "Validation", "inputs[1]"),
        ("/embed", {"inputs": [1.5]}, 422, "Validation", "inputs[0]"),
        ("/embed", {"inputs": [[10**9]]}, 422, "Validation", "token ids"),
        ("/embed", {"inputs": "\ud800"}, 400, "Validation", "JSON"),
        ("/embed", {"inputs": "a", "normalize": False}, 422, "Validation", "normalizes"),
        ("/embed", {"inputs": "a", "normalize": "no"}, 422, "Validation", "normalize"),
        ("/embed", {"inputs": "a", "dimensions": 2}, 422, "Validation", "4 dimensions"),
        ("/embed", {"inputs": "a", "prompt_name": "passage"}, 422, "Validation", "it has: query"),
        ("/embed", {"inputs": "a", "prompt_name": 1}, 422, "Validation", "prompt_name"),
        (
            "/embed",
            {"inputs": "a", "truncation_direction": "Left"},
            422,
            "Validation",
            "truncates on the right",
        ),
        ("/embed", {"inputs": "a", "truncation_direction": "up"}, 422, "Validation", "left or right"),
        ("/embed", {"inputs": "a", "truncate": "yes"}, 422, "Validation", "truncate"),
        ("/embed", {"inputs": ["a", "a b c d e f"], "truncate": False}, 413, "Validation", "text 1 has 8"),
        ("/embed", {"inputs": "a", "model": "ranks"}, 424, "Backend", "models that can: vectors"),
        ("/embed", {"inputs": "a", "model": "none"}, 404, "Validation", "vectors"),
        ("/embed", {"inputs": ["a"] * 21}, 413, "Validation", "at most 20"),
        ("/embed", b"{", 400, "Validation", "JSON"),
        ("/embed", [], 400, "Validation", "object"),
        ("/embed_all", {"inputs": "a", "model": "vectors"}, 424, "Backend", "models that can: tokens"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "Validation", "a pair"),
        ("/predict", {"inputs": [["a"], "b"]}, 422, "Validation", "a pair"),
        ("/predict", {"inputs": []}, 400, "Empty", "inputs"),
        ("/predict", {"inputs": "a", "raw_scores": True}, 422, "Validation", "softmax"),
        ("/predict", {"inputs": ["a b c", "d e f"], "truncate": False}, 413, "Validation", "at most 6"),
        ("/similarity", {"inputs": "a"}, 422, "Validation", "source_sentence"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "Empty", "sentences"),
        ("/tokenize", {"inputs": [], "model": "vectors"}, 400, "Empty", "inputs"),
        ("/decode", {"ids": [-1], "model": "vectors"}, 422, "Validation", "whole numbers"),
        ("/models/ranks/rerank", {"query": "a", "texts": []}, 400, "Empty", "texts"),
        ("/models/ranks/rerank", {"query": 1, "texts": ["a"]}, 422, "Validation", "query"),
        (
            "/models/ranks/rerank",
            {"query": "a", "texts": ["b"], "raw_scores": True},
            422,
            "Validation",
            "sigmoid",
        ),
        ("/models/vectors/rerank", {"query": "a", "texts": ["b"]}, 424, "Backend", "models that can: ranks"),
    ],
)
def test_refusals(fake: Fake, path: str, body: Any, status: int, kind: str, words: str) -> None:
    if isinstance(body, dict) and body.get("inputs") == "\ud800":
        body = b'{"inputs": "\\ud800"}'
    few = Fake(fake.endpoints, fake.answers, options=GatewayOptions(most_items=20))
    answer = few.ask(path, body)
    assert (answer.status, answer.json["error_type"]) == (status, kind)
    assert words in answer.json["error"]
    assert set(answer.json) == {"error", "error_type"}


def test_an_explicit_default_is_accepted(fake: Fake) -> None:
    fields = {"normalize": True, "truncate": True, "truncation_direction": "Right", "dimensions": WIDTH}
    body = {"inputs": "a b c d e f g", "prompt_name": None, **fields}
    assert (floats(fake.json("/embed", body)) == [numbers(b"a b c d e f g")]).all()


def test_what_no_file_says_is_refused(fake: Fake) -> None:
    bare = fake.only("vectors", rules=TextRules())
    assert fake.json("/embed", {"inputs": "a"}) == bare.json("/embed", {"inputs": "a"})
    for field in ({"normalize": True}, {"truncate": False}, {"prompt_name": "query"}):
        answer = bare.ask("/embed", {"inputs": "a", **field})
        assert (answer.status, answer.json["error_type"]) == (422, "Validation")
    assert bare.ask("/tokenize", {"inputs": "a"}).status == 424


def test_vectors_of_the_tokens_that_count(fake: Fake) -> None:
    vectors = numbers(b"a", count=3 * WIDTH).reshape(3, WIDTH)
    assert (floats(fake.json("/embed_all", {"inputs": "a"})) == [vectors[[0, 2]]]).all()


def test_sparse_embeddings_without_their_padding(fake: Fake) -> None:
    answer = fake.json("/embed_sparse", {"inputs": ["a", "abc"]})
    assert [[pair["index"] for pair in row] for row in answer] == [[5], [5, 6, 7]]
    assert (floats([pair["value"] for pair in answer[1]]) == numbers(b"abc", count=3)).all()


def test_predictions_are_sorted_and_shaped_like_the_inputs(fake: Fake) -> None:
    def expected(*row: Any) -> list[tuple[str, np.float32]]:
        return sorted(zip(LABELS, numbers(*row), strict=True), key=lambda pair: -pair[1])

    def plain(answer: Any) -> list[tuple[str, np.float32]]:
        return [(one["label"], np.float32(one["score"])) for one in answer]

    assert plain(fake.json("/predict", {"inputs": "a"})) == expected(b"a", None)
    assert plain(fake.json("/predict", {"inputs": ["a", "b"]})) == expected(b"a", b"b")
    batch = [["a"], ["a", "b"], ["c"], ["d", "e"], ["f", "g"], ["h", "i"], ["j", "k"]]
    answers = fake.json("/predict", {"inputs": batch})
    rows = [(row[0].encode(), row[1].encode() if len(row) > 1 else None) for row in batch]
    assert [plain(answer) for answer in answers] == [expected(*row) for row in rows]


def test_labels_come_from_the_repository_or_only_the_best_is_answered(fake: Fake, tmp_path: Path) -> None:
    bare = fake.only("classes", facts={})
    best = LABELS[numbers(b"a", None).argmax()]
    assert [one["label"] for one in bare.json("/predict", {"inputs": "a"})] == [best]
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / "labels.txt").write_text("\n".join(LABELS))
    bare = Fake(bare.endpoints, fake.answers, repo=tmp_path)
    assert bare.json("/predict", {"inputs": "a"}) == fake.json("/predict", {"inputs": "a"})


def test_pairs_need_an_endpoint_that_takes_them(fake: Fake) -> None:
    single = next(one for one in fake.endpoints if one.name == "classes").endpoint
    without = fake.only(
        "classes", endpoint=type(single)(name="x", inputs=single.inputs[:1], outputs=single.outputs)
    )
    assert without.ask("/predict", {"inputs": [["a", "b"]]}).status == 424


def test_a_score_that_is_no_number_is_an_error(fake: Fake) -> None:
    nan = {"scores": np.array([[np.nan] * 4], np.float32), "score": [[0]], "label": [[b""]]}
    broken = Fake(
        fake.endpoints, {"classes": lambda _: nan, "ranks": lambda _: {"score": nan["scores"][:, :1]}}
    )
    assert broken.ask("/predict", {"inputs": "a"}).status == 424
    assert broken.ask("/models/ranks/rerank", {"query": "a", "texts": ["b"]}).status == 424


def test_ranks_are_sorted_and_have_their_texts_if_wanted(fake: Fake) -> None:
    documents = [f"document {number}" for number in range(10)]
    body = {"query": "q", "texts": documents, "return_text": True}
    answer = fake.json("/models/ranks/rerank", body)
    scores = [np.float32(one["score"]) for one in answer]
    assert scores == sorted(scores, reverse=True)
    for one in answer:
        assert one["text"] == documents[one["index"]]
        assert np.float32(one["score"]) == numbers(b"q", one["text"].encode(), count=1)[0]
    assert "text" not in fake.json("/models/ranks/rerank", {"query": "q", "texts": documents})[0]


def test_similarities_are_cosines(fake: Fake) -> None:
    body = {"inputs": {"source_sentence": "a", "sentences": ["a", "b"]}, "parameters": {"truncate": True}}
    answer = fake.json("/similarity", body)
    first, second = numbers(b"a"), numbers(b"b")
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    np.testing.assert_allclose(answer, [1, cosine], rtol=1e-6)


def test_tokens_have_places_in_bytes(fake: Fake) -> None:
    body = {"inputs": "é fox", "model": "vectors"}
    [tokens] = fake.json("/tokenize", body)
    assert (tokens[0]["text"], tokens[0]["special"], tokens[0]["start"]) == ("[CLS]", True, None)
    assert (tokens[-2]["text"], tokens[-2]["start"], tokens[-2]["stop"]) == ("fox", 3, 6)
    [bare] = fake.json("/tokenize", {**body, "add_special_tokens": False})
    assert bare == tokens[1:-1]
    [prompted] = fake.json("/tokenize", {**body, "inputs": "fox", "prompt_name": "query"})
    assert [token["text"] for token in prompted] == ["[CLS]", "the", "fox", "[SEP]"]


def test_token_ids_are_decoded(fake: Fake, rules: TextRules) -> None:
    ids = rules.tokenizer.encode("hello fox").ids
    assert fake.json("/decode", {"ids": ids, "model": "vectors"}) == ["hello fox"]
    body = {"ids": [ids], "skip_special_tokens": False, "model": "vectors"}
    assert fake.json("/decode", body) == ["[CLS] hello fox [SEP]"]


def test_the_model_of_a_path_is_the_one_that_answers(fake: Fake) -> None:
    assert fake.ask("/info").status == 422
    assert "/models/NAME" in fake.ask("/info").json["error"]
    for name, kind in (("vectors", "embedding"), ("classes", "classifier"), ("ranks", "reranker")):
        answer = fake.ask(f"/models/{name}/info").json
        assert answer["model_id"] == name
        assert list(answer["model_type"]) == [kind]
    assert answer["max_input_length"] == 6 and answer["auto_truncate"] is True
    assert fake.ask("/models/classes/info").json["model_type"]["classifier"]["label2id"]["good"] == 2
    assert fake.only("vectors").ask("/info").json["model_type"] == {"embedding": {"pooling": "mean"}}
    assert fake.ask("/models/vectors/nothing").status == 404
    others = Fake([served("speech", recognition.SPEECH)], {})
    assert others.ask("/info").status == 424
    assert others.ask("/models/speech/info").json["model_type"] == {recognition.SPEECH: {}}


def test_health_is_that_of_the_server_and_its_endpoints(fake: Fake) -> None:
    assert fake.ask("/health").status == 503
    ready = [(one.name, "READY", "") for one in fake.endpoints]
    fake.triton.index = [*ready, ("idle", "UNAVAILABLE", "unloaded"), ("never", "", "")]
    assert (fake.ask("/health").status, fake.ask("/health").body) == (200, b"")
    fake.triton.index = [*ready, ("broken", "UNAVAILABLE", "no such file")]
    answer = fake.ask("/health")
    assert (answer.status, answer.json["error_type"]) == (503, "Unhealthy")
    assert "broken" in answer.json["error"]
    assert fake.ask("/models/vectors/health").status == 200
    fake.triton.index = ready[1:]
    assert "vectors" in fake.ask("/health").json["error"]
    assert fake.ask("/models/vectors/health").status == 503
    assert fake.ask("/models/ranks/health").status == 200
    assert fake.ask("/models/none/health").status == 404


def test_health_of_a_server_whose_list_of_models_needs_its_admin_key(fake: Fake) -> None:
    fake.triton.restricted = True
    assert fake.ask("/health").status == 503
    fake.triton.index = [(one.name, "READY", "") for one in fake.endpoints]
    assert fake.ask("/health").status == 200
    fake.triton.index = fake.triton.index[1:]
    assert "vectors" in fake.ask("/health").json["error"]
    assert fake.ask("/models/ranks/health").status == 200


def test_a_route_of_the_map_chooses_the_endpoint(fake: Fake) -> None:
    second = served("others", recognition.EMBEDDING)
    two = Fake([*fake.endpoints, second], {**fake.answers, "others": embedding})
    assert two.ask("/embed", {"inputs": "a"}).status == 422
    mapped = Fake([*fake.endpoints, second], two.answers, routes={"/embed": "others"})
    assert (floats(mapped.json("/embed", {"inputs": "a"})) == [numbers(b"a")]).all()

"""Every text task on a real tritonserver, against the pipelines of transformers on the PyTorch model.

The references were recorded by tests/models/tasks.py: each cell has more than 50 inputs of mixed languages
and lengths, hostile strings included. Nothing of ours takes part in them.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import salvo

from tests.support.cli import FEW, trb
from triton_repo_builder.model.read import option_checks, options
from triton_repo_builder.produce import build
from triton_repo_builder.produce.write import publish
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.codec import encode_json

pytestmark = pytest.mark.server

AGGREGATIONS = ("none", "simple", "first", "average", "max")
FEWER = ("simple", "average")
"""For the tokenizers that do not know words: one rule for tokens and one for words."""
ENDPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"ner_{a}": ("ner", {"aggregation": a}) for a in AGGREGATIONS},
    **{f"ner_roberta_{a}": ("ner_roberta", {"aggregation": a}) for a in FEWER},
    **{f"ner_unigram_{a}": ("ner_unigram", {"aggregation": a}) for a in FEWER},
    "qa": ("qa", {}),
    "qa_unigram": ("qa_unigram", {}),
    "mlm_unigram": ("mlm_unigram", {}),
    "qa_impossible": ("qa", {"handle_impossible_answer": True}),
    "qa_roberta": ("qa_roberta", {}),
    "qa_roberta_impossible": ("qa_roberta", {"handle_impossible_answer": True}),
    "mlm": ("mlm", {}),
    "mlm_rows": ("mlm", {"padding": "rows"}),
    "mlm_roberta": ("mlm_roberta", {}),
    "nli_batch": ("nli", {"padding": "batch"}),
    "nli": ("nli", {}),
    "shot": ("nli", {"task": "zero-shot-classification"}),
    "shot_multi": ("nli", {"task": "zero-shot-classification", "multi_label": True}),
    "regression": ("regression", {}),
    "rerank": ("rerank", {}),
    "rerank_identity": ("rerank_identity", {}),
}
TASKS = {
    "ner": "token-classification",
    "ner_roberta": "token-classification",
    "ner_unigram": "token-classification",
    "qa_unigram": "question-answering",
    "mlm_unigram": "fill-mask",
    "qa": "question-answering",
    "qa_roberta": "question-answering",
    "mlm": "fill-mask",
    "mlm_roberta": "fill-mask",
    "nli": "text-classification",
    "regression": "text-classification",
    "rerank": "rerank",
    "rerank_identity": "rerank",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, task_exported: Path) -> Path:
    """All endpoints in one repository; every task but zero-shot is found from the files."""
    target = tmp_path_factory.mktemp("tasks") / "model_repository"
    for name, (model, more) in ENDPOINTS.items():
        asked = options.BuildOptions(
            model=task_exported / model, name=name, output=target, instances=1, **more
        )
        made = build.build(option_checks.check(asked))
        assert made.plan.task == more.get("task", TASKS[model])
        assert made.notes == ()
        publish.publish(publish.prepare(made, target))
    return target


@pytest.fixture(scope="module")
def client(server: serve.RunningServer) -> HttpClient:
    return HttpClient(server.urls.http)


def reference(folder: Path, name: str) -> Any:
    return json.loads((folder / name / "reference.json").read_text())


def texts(rows: Sequence[Any]) -> Any:
    return np.array([[row] if isinstance(row, str) else row for row in rows], dtype=object)


def ask(client: HttpClient, name: str, **inputs: Sequence[Any]) -> dict[str, Any]:
    return client.infer(name, encode_json({key: texts(rows) for key, rows in inputs.items()}))


def each(client: HttpClient, name: str, many: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One request each, sixteen at a time."""
    with ThreadPoolExecutor(16) as pool:
        return list(
            pool.map(lambda one: ask(client, name, **{key: [value] for key, value in one.items()}), many)
        )


def chunks(rows: Sequence[Any], size: int = 32) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def ranked(answer: Any) -> Any:
    """All labels of one text, best first: the pipeline wraps the answer to a single string once more."""
    return answer[0] if isinstance(answer[0], list) else answer


def strings(row: Any) -> list[str]:
    return [item.decode() for item in row]


# --- token classification ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "aggregation"),
    [
        *(("ner", aggregation) for aggregation in AGGREGATIONS),
        *((model, aggregation) for model in ("ner_roberta", "ner_unigram") for aggregation in FEWER),
    ],
)
def test_entities_are_those_of_the_pipeline(
    client: HttpClient, task_exported: Path, model: str, aggregation: str
) -> None:
    expected = reference(task_exported, model)
    answers = each(client, f"{model}_{aggregation}", [{"TEXT": text} for text in expected["texts"]])
    found = 0
    for text, wanted, answer in zip(expected["texts"], expected[aggregation], answers, strict=True):
        entities = json.loads(answer["entities"][0, 0])
        label = "entity" if aggregation == "none" else "entity_group"
        places = [(item[label], item["start"], item["end"]) for item in wanted]
        assert [(item["label"], item["start"], item["end"]) for item in entities] == places, text
        scores = [item["score"] for item in wanted]
        np.testing.assert_allclose([item["score"] for item in entities], scores, atol=1e-4)
        assert all(item["text"] == text[item["start"] : item["end"]] for item in entities)
        assert strings(answer["label"][0]) == [item["label"] for item in entities]
        assert strings(answer["text"][0]) == [item["text"] for item in entities]
        assert answer["start"][0].tolist() == [item["start"] for item in entities]
        assert answer["end"][0].tolist() == [item["end"] for item in entities]
        np.testing.assert_allclose(answer["score"][0], scores, atol=1e-4)
        found += len(entities)
    assert found > 500 or aggregation != "none"


def test_many_texts_of_one_request(client: HttpClient, task_exported: Path) -> None:
    expected = reference(task_exported, "ner")
    for start, rows in enumerate(chunks(expected["texts"])):
        answer = ask(client, "ner_simple", TEXT=rows)
        for row in range(len(rows)):
            wanted = expected["simple"][32 * start + row]
            entities = json.loads(answer["entities"][row, 0])
            assert [item["start"] for item in entities] == [item["start"] for item in wanted]
            # The arrays of a row with fewer entities than another end with empty ones.
            names = strings(answer["label"][row])
            assert names[: len(wanted)] == [item["entity_group"] for item in wanted]
            assert set(names[len(wanted) :]) <= {""}


# --- question answering ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "variant"),
    [
        ("qa", "plain"),
        ("qa", "impossible"),
        ("qa_roberta", "plain"),
        ("qa_roberta", "impossible"),
        ("qa_unigram", "plain"),
    ],
)
def test_answers_are_those_of_the_pipeline(
    client: HttpClient, task_exported: Path, model: str, variant: str
) -> None:
    expected = reference(task_exported, model)
    name = model if variant == "plain" else f"{model}_impossible"
    many = [{"QUESTION": question, "CONTEXT": context} for question, context in expected["pairs"]]
    kinds = set()
    for asked, wanted, answer in zip(many, expected[variant], each(client, name, many), strict=True):
        # No candidate at all is an empty list there and an empty answer here.
        wanted = wanted or {"answer": "", "start": 0, "end": 0, "score": 0.0}
        got = {key: answer[key][0, 0] for key in ("answer", "start", "end", "score")}
        assert got["answer"].decode() == wanted["answer"], asked
        assert (got["start"], got["end"]) == (wanted["start"], wanted["end"]), asked
        assert got["score"] == pytest.approx(wanted["score"], abs=1e-4)
        assert got["answer"].decode() == asked["CONTEXT"][got["start"] : got["end"]]
        kinds.add(bool(wanted["answer"]))
    assert True in kinds


def test_questions_of_one_request(client: HttpClient, task_exported: Path) -> None:
    expected = reference(task_exported, "qa")
    last = expected["pairs"][-32:]
    answer = ask(client, "qa", QUESTION=[q for q, _ in last], CONTEXT=[c for _, c in last])
    wanted = [item["answer"] if item else "" for item in expected["plain"][-32:]]
    assert strings(answer["answer"][:, 0]) == wanted


def test_an_empty_context_is_refused(client: HttpClient) -> None:
    with pytest.raises(RequestFailed, match="text 0 of input 'CONTEXT' is empty"):
        ask(client, "qa", QUESTION=["Who?"], CONTEXT=[""])


# --- fill-mask ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlm", "mlm_rows", "mlm_roberta", "mlm_unigram"])
def test_tokens_are_those_of_the_pipeline(client: HttpClient, task_exported: Path, name: str) -> None:
    expected = reference(task_exported, name.removesuffix("_rows"))
    answers = each(client, name, [{"TEXT": text} for text in expected["texts"]])
    for text, wanted, answer in zip(expected["texts"], expected["answers"], answers, strict=True):
        assert answer["ids"][0].tolist() == [[item["token"] for item in mask] for mask in wanted], text
        names = [[item["token_str"] for item in mask] for mask in wanted]
        assert [strings(mask) for mask in answer["tokens"][0]] == names
        scores = [[item["score"] for item in mask] for mask in wanted]
        np.testing.assert_allclose(answer["scores"][0], scores, atol=1e-4)


def test_masks_of_one_request(client: HttpClient, task_exported: Path) -> None:
    expected = reference(task_exported, "mlm")
    rows, wanted = expected["texts"][-32:], expected["answers"][-32:]
    answer = ask(client, "mlm", TEXT=rows)
    assert answer["ids"].shape[1] == max(map(len, wanted))
    for row, masks in enumerate(wanted):
        assert answer["ids"][row, : len(masks)].tolist() == [[item["token"] for item in m] for m in masks]
        assert not answer["scores"][row, len(masks) :].any()


def test_a_text_without_a_mask_fails_alone(client: HttpClient) -> None:
    with pytest.raises(RequestFailed, match=r"text 1 of input 'TEXT' has no \[MASK\]"):
        ask(client, "mlm", TEXT=["a [MASK]", "no mask"])
    good = {"TEXT": "Paris is the [MASK] of France."}
    answers = []
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(each, client, "mlm", [good]) for _ in range(16)]
        bad = [pool.submit(ask, client, "mlm", TEXT=["none"]) for _ in range(4)]
        answers = [job.result()[0]["ids"].tolist() for job in jobs]
        assert all(isinstance(job.exception(), RequestFailed) for job in bad)
    assert all(answer == answers[0] for answer in answers)


# --- classification of texts and pairs, zero-shot, regression, rerank ---------------------------------


@pytest.mark.parametrize("kind", ["single", "paired"])
def test_labels_of_texts_and_pairs(client: HttpClient, task_exported: Path, kind: str) -> None:
    expected = reference(task_exported, "nli")
    many = [{"TEXT": text} for text in expected["texts"]]
    if kind == "paired":
        many = [{"TEXT": first, "TEXT_PAIR": second} for first, second in expected["pairs"]]
    for wanted, answer in zip(map(ranked, expected[kind]), each(client, "nli", many), strict=True):
        assert answer["label"][0, 0].decode() == wanted[0]["label"]
        assert answer["score"][0, 0] == pytest.approx(wanted[0]["score"], abs=1e-4)
        by_name = {item["label"]: item["score"] for item in wanted}
        names = ("contradiction", "neutral", "entailment")
        np.testing.assert_allclose(answer["scores"][0], [by_name[name] for name in names], atol=1e-4)


def test_pairs_of_one_request(client: HttpClient, task_exported: Path) -> None:
    expected = reference(task_exported, "nli")
    pairs = expected["pairs"][:32]
    answer = ask(client, "nli", TEXT=[a for a, _ in pairs], TEXT_PAIR=[b for _, b in pairs])
    assert strings(answer["label"][:, 0]) == [ranked(item)[0]["label"] for item in expected["paired"][:32]]


@pytest.mark.parametrize("name", ["shot", "shot_multi"])
def test_zero_shot_labels_are_those_of_the_pipeline(
    client: HttpClient, task_exported: Path, name: str
) -> None:
    expected = reference(task_exported, "nli")
    many = [
        {"TEXT": text, "LABELS": expected["labels"][number % len(expected["labels"])]}
        for number, text in enumerate(expected["texts"])
    ]
    for wanted, answer in zip(expected[name], each(client, name, many), strict=True):
        np.testing.assert_allclose(answer["scores"][0], wanted["scores"], atol=1e-4)
        assert strings(answer["labels"][0]) == wanted["labels"]


def test_zero_shot_rows_with_fewer_labels(client: HttpClient) -> None:
    rows = [("One two.", ["a", "b", "c"]), ("Three.", ["d", "", ""])]
    together = ask(client, "shot", TEXT=[text for text, _ in rows], LABELS=[labels for _, labels in rows])
    alone = ask(client, "shot", TEXT=["Three."], LABELS=[["d"]])
    assert together["scores"].shape == (2, 3)
    assert strings(together["labels"][1]) == ["d", "", ""]
    np.testing.assert_allclose(together["scores"][1], [alone["scores"][0, 0], 0, 0], atol=1e-5)
    with pytest.raises(RequestFailed, match="row 0 of input 'LABELS' has no label"):
        ask(client, "shot", TEXT=["One."], LABELS=[[""]])


def test_regression_gives_the_number_itself(client: HttpClient, task_exported: Path) -> None:
    expected = reference(task_exported, "regression")
    answers = each(client, "regression", [{"TEXT": text} for text in expected["texts"]])
    scores = [answer["score"][0, 0] for answer in answers]
    np.testing.assert_allclose(scores, [item["score"] for item in expected["answers"]], atol=1e-4)
    assert {answer["label"][0, 0] for answer in answers} == {b"LABEL_0"}
    assert min(scores) < 0 or max(scores) > 1


@pytest.mark.parametrize("name", ["rerank", "rerank_identity"])
def test_scores_are_those_of_the_cross_encoder(client: HttpClient, task_exported: Path, name: str) -> None:
    expected = reference(task_exported, name)
    many = [{"QUERY": query, "DOCUMENT": document} for query, document in expected["pairs"]]
    alone = [answer["score"][0, 0] for answer in each(client, name, many)]
    np.testing.assert_allclose(alone, expected["scores"], atol=1e-4)
    together = [
        ask(client, name, QUERY=[q for q, _ in part], DOCUMENT=[d for _, d in part])["score"][:, 0]
        for part in chunks(expected["pairs"])
    ]
    np.testing.assert_allclose(np.concatenate(together), expected["scores"], atol=1e-4)


# --- batching and smoke ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("ner_simple", ("tokenizer", "model", "postprocess")),
        ("qa", ("tokenizer", "model", "postprocess")),
        ("mlm", ("tokenizer", "model", "postprocess")),
        ("shot", ("tokenizer", "model", "postprocess")),
        ("nli", ("tokenizer", "model")),
        ("nli_batch", ("tokenizer", "model")),
        ("rerank", ("tokenizer", "model")),
    ],
)
def test_requests_of_different_lengths_are_joined(
    client: HttpClient, task_exported: Path, name: str, steps: tuple[str, ...]
) -> None:
    """Sixty-four requests at once, no two neighbours of equal shape."""
    expected = reference(task_exported, "nli")["pairs"]
    pairs = (expected * 2)[:64]
    inputs = {
        "ner_simple": lambda a, b: {"TEXT": a},
        "qa": lambda a, b: {"QUESTION": a, "CONTEXT": b},
        "mlm": lambda a, b: {"TEXT": f"{a} [MASK]"},
        "shot": lambda a, b: {"TEXT": a, "LABELS": ["x", "y", "z"][: 1 + len(b) % 3]},
        "nli": lambda a, b: {"TEXT": a, "TEXT_PAIR": b},
        "nli_batch": lambda a, b: {"TEXT": a, "TEXT_PAIR": b},
        "rerank": lambda a, b: {"QUERY": a, "DOCUMENT": b},
    }[name]
    many = [inputs(first, second) for first, second in pairs]

    def send() -> None:
        with ThreadPoolExecutor(64) as pool:
            list(pool.map(lambda one: ask(client, name, **{key: [one[key]] for key in one}), many))

    salvo.joins(client, [f"{name}_{step}" for step in steps], 64, send, most=48)


SMOKED = (
    "ner_simple",
    "qa",
    "qa_impossible",
    "mlm",
    "mlm_rows",
    "shot",
    "nli",
    "nli_batch",
    "regression",
    "rerank",
)


def test_smoke_passes_on_every_task(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc, "--json")
    chosen = (argument for name in SMOKED for argument in ("--endpoint", name))
    said = trb("smoke", repository, *urls, *chosen, *FEW)
    report = json.loads(said)
    assert report["ok"] is True
    assert report["parity_proven"] is True
    assert set(report["endpoints"]) == set(SMOKED)


def test_check_finds_nothing_wrong(repository: Path) -> None:
    assert json.loads(trb("check", repository, "--json")) == []

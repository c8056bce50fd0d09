"""``trb doctor`` on threads of forums: cause named, copy repaired, the copy run on a real server."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import cli
from tests.support.doctor_threads import HEALTHY, THREADS, Thread
from tests.support.zoo import Zoo
from triton_repo_builder.measure.doctor import variants
from triton_repo_builder.measure.doctor.cause import QUESTIONS
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, RequestFailed, statistics
from triton_repo_builder.run.client.codec import encode_binary

REFUSED = [
    name
    for name, thread in THREADS.items()
    if (thread.question == "ready" or "onnx" in thread.code) and thread.code != "onnx-ir"
]
"""Threads whose broken repository does not load; the embedded engine's own ONNX Runtime reads IR 11."""
MERGING = [name for name, thread in THREADS.items() if thread.seen == "merges"]
CLIENTS, EACH = 8, 6


def doctor(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    done = cli.call("doctor", *arguments, "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def asked(thread: Thread, repository: Path, *more: str | Path) -> tuple[int, dict[str, Any]]:
    arguments: list[str | Path] = [repository, "--question", thread.question, *thread.arguments, *more]
    if thread.log:
        log = repository.with_name(f"{repository.name}.log")
        log.write_text(thread.log)
        arguments += ["--log", log]
    return doctor(*arguments)


def causes(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(cause["code"], cause["model"]) for answer in document["answers"] for cause in answer["causes"]}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("broken")
    folders = {}
    for name, thread in THREADS.items():
        folders[name] = root / name.replace("#", "_")
        folders[name].mkdir()
        thread.lay(folders[name])
    return folders


@pytest.fixture(scope="module")
def copies(broken: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Repaired copies."""
    root = tmp_path_factory.mktemp("repaired")
    for name, thread in THREADS.items():
        asked(thread, broken[name], "-o", root / broken[name].name)
    return {name: root / folder.name for name, folder in broken.items()}


@pytest.fixture(scope="module")
def repository(copies: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All repaired models in one repository."""
    return joined(copies, tmp_path_factory.mktemp("all") / "models")


def joined(folders: dict[str, Path], target: Path) -> Path:
    for folder in folders.values():
        for model in folder.iterdir():
            if model.is_dir():
                shutil.copytree(model, target / model.name)
    return target


@pytest.mark.parametrize("name", THREADS)
def test_cause_is_named_and_repaired(name: str, broken: dict[str, Path], tmp_path: Path) -> None:
    thread = THREADS[name]
    before = {path: path.read_bytes() for path in broken[name].rglob("*") if path.is_file()}
    code, document = asked(thread, broken[name], "-o", tmp_path / "repaired")
    assert code == 1
    assert (thread.code, thread.model) in causes(document)
    assert document["repaired"]["done"]
    left = [cause["code"] for cause in document["repaired"]["left"]]
    assert left == ([thread.left] if thread.left else [])
    assert before == {path: path.read_bytes() for path in broken[name].rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", HEALTHY)
def test_no_cause_is_invented(name: str, tmp_path: Path) -> None:
    HEALTHY[name](tmp_path / "repository")
    code, document = doctor(tmp_path / "repository")
    assert (code, causes(document)) == (0, set())
    named = [part for question in QUESTIONS for part in ("--question", question)]
    code, document = doctor(tmp_path / "repository", *named)
    assert (code, causes(document)) == (0, set())


@pytest.mark.server
def test_broken_ones_are_refused_by_the_server(broken: dict[str, Path], zoo: Zoo) -> None:
    """What the fixtures claim: the server does not load them."""
    http = HttpClient(zoo.server.urls.http, 60)
    for name in REFUSED:
        model = THREADS[name].model
        for folder in broken[name].iterdir():
            shutil.copytree(folder, zoo.root / folder.name)
        try:
            assert http.load(model), name
        finally:
            for folder in broken[name].iterdir():
                http.unload(folder.name)
                shutil.rmtree(zoo.root / folder.name)


@pytest.mark.server
def test_statistics_are_the_evidence(
    broken: dict[str, Path], zoo: Zoo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Broken models that load, under load: the answer has the server's numbers."""
    folders = {name: broken[name] for name in MERGING}
    target = joined(folders, tmp_path_factory.mktemp("merging") / "models")
    with zoo.serving(target) as server:
        for name in MERGING:
            thread = THREADS[name]
            load(server, thread)
            if thread.model == "t3116_preferred":
                continue  # its sizes join some requests
            counted = statistics.read(HttpClient(server.urls.http))[thread.model]
            assert counted.rows / counted.executions < 2, name  # on a busy machine a few requests join
            code, document = doctor(broken[name], server.urls.http, "--question", thread.question)
            (cause,) = [
                cause
                for answer in document["answers"]
                for cause in answer["causes"]
                if (cause["code"], cause["model"]) == (thread.code, thread.model)
            ]
            assert code == 1
            assert any(f"execution_count {counted.executions}" in line for line in cause["evidence"]) or any(
                "ms in its queue" in line for line in cause["evidence"]
            )
        code, document = doctor(server.urls.http, "--question", "batching")
        assert code == 1, "the URL alone is enough"
        assert causes(document) >= {
            (THREADS[name].code, THREADS[name].model)
            for name in MERGING
            if THREADS[name].code == "batching-lengths"
        }


LONG = "the order has not arrived, and nobody answers. " * 30


@pytest.mark.server
def test_vectors_of_a_notebook(zoo: Zoo, exported: Path, tmp_path: Path) -> None:
    """``--expect``: the same vectors, four usual causes with their options, and none."""
    model, repository = exported / "minilm_fp32", tmp_path / "models"
    cli.trb("build", "--model", model, "--name", "minilm", "--output", repository)
    original = variants.load(model)
    texts = ("Hello", "The weather is fine today.", LONG)
    answers = {"same": original.of(original.planned, texts)}
    changed: dict[str, dict[str, Any]] = {
        "--pooling max": {"pooling": "max"},
        "--prompt 'query: '": {"prompt": "query: "},
        "--max-length 32": {"limit": 32},
        "--pooling cls --prompt 'passage: '": {"pooling": "cls", "prompt": "passage: "},
    }
    for options, change in changed.items():
        answers[options] = original.of(replace(original.planned, **change), texts)
    answers["none"] = np.random.default_rng(0).normal(size=(3, answers["same"].shape[1]))
    answers["length"] = 3 * answers["same"]
    with zoo.serving(repository) as server:
        for name, vectors in answers.items():
            file = tmp_path / "vectors.jsonl"
            lines = ({"text": t, "vector": v.tolist()} for t, v in zip(texts, vectors, strict=True))
            file.write_text("\n".join(map(json.dumps, lines)))
            code, document = doctor(server.urls.http, "--expect", file, "--model", model)
            (answer,) = document["answers"]
            assert answer["question"] == "answers"
            if name == "same":
                assert code == 0
                assert answer["causes"] == []
                assert answer["measured"][0].startswith("minilm: 3 texts of ")
                continue
            (cause,) = answer["causes"]
            assert (code, cause["code"], cause["model"]) == (1, "answers-expected", "minilm")
            if name == "none":
                assert cause["message"].startswith("none of the usual causes")
            elif name == "length":
                assert cause["remedy"].endswith("or build with --no-normalize")
            else:
                assert cause["remedy"] == f"build with {name}, or change the notebook"
        cause = doctor(server.urls.http, "--expect", file)[1]["answers"][0]["causes"][0]
        assert cause["message"].startswith("the same direction, another length")


@pytest.mark.server
def test_messages_of_refused_requests(zoo: Zoo, exported: Path, tmp_path: Path) -> None:
    """The server's own words for wrong requests are the known ones."""
    repository, log = tmp_path / "models", tmp_path / "error.txt"
    model = ("--model", exported / "minilm_fp32", "--name", "minilm")
    cli.trb("build", *model, "--max-batch-size", "8", "--output", repository)
    text = np.array([[b"a"]], dtype=object)
    wrong: dict[str, tuple[str, dict[str, Any]]] = {
        "request-rows": ("minilm", {"TEXT": np.repeat(text, 9, axis=0)}),
        "request-shape": ("minilm", {"TEXT": text[0]}),
        "request-type": ("minilm", {"TEXT": np.array([[1]])}),
        "request-input": ("minilm", {"TXT": text}),
        "request-model": ("other", {"TEXT": text}),
    }
    with zoo.serving(repository) as server:
        for expected, (name, inputs) in wrong.items():
            with pytest.raises(RequestFailed) as refused:
                HttpClient(server.urls.http).infer(name, encode_binary(inputs))
            log.write_text(str(refused.value))
            code, document = doctor("--log", log, "--question", "requests")
            assert (code, {code for code, _ in causes(document)}) == (1, {expected}), refused.value


def healthy(root: Path) -> Path:
    """Four healthy repositories in one."""
    folders = {name: root / name / "repository" for name in HEALTHY if name != "image"}
    for name, folder in folders.items():
        HEALTHY[name](folder)
    target = joined(folders, root / "models")
    shutil.copy2(folders["built"] / "manifest.json", target)
    return target


@pytest.mark.server
def test_no_cause_is_invented_for_a_healthy_server(
    zoo: Zoo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With and without the files."""
    target = healthy(tmp_path_factory.mktemp("healthy"))
    with zoo.serving(target) as server:
        for arguments in ([server.urls.http], [target, server.urls.http]):
            code, document = doctor(*arguments)
            assert (code, causes(document)) == (0, set()), arguments


@pytest.mark.slow
@pytest.mark.server
def test_no_cause_is_invented_by_a_load(zoo: Zoo, tmp_path_factory: pytest.TempPathFactory) -> None:
    """``--bench`` on a healthy server. Its first requests may be slow, on a busy machine they are."""
    target = healthy(tmp_path_factory.mktemp("healthy"))
    with zoo.serving(target) as server:
        _, document = doctor(server.urls.http, "--bench")
        assert {code for code, _ in causes(document)} <= {"first-slow"}
        counted = statistics.read(HttpClient(server.urls.http))
        assert counted["healthy_plain"].executions >= 20, "--bench sent a load"
        for arguments in ([server.urls.http, "--bench"], [target, server.urls.http]):
            code, document = doctor(*arguments)
            assert (code, causes(document)) == (0, set()), arguments


@pytest.mark.slow
@pytest.mark.server
def test_a_load_finds_what_the_files_do_not_say(
    broken: dict[str, Path], zoo: Zoo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """``--bench`` at a URL alone: rows per execution, and a late load by its time."""
    names = ("server#5215", "server#7161")
    target = joined({name: broken[name] for name in names}, tmp_path_factory.mktemp("url") / "models")
    with zoo.serving(target) as server:
        code, document = doctor(server.urls.http, "--bench")
        assert code == 1
        assert causes(document) >= {("first-slow", "t7161_late"), ("batching-no-rows", "t5215_idle")}
        evidence = [
            line
            for answer in document["answers"]
            for cause in answer["causes"]
            if cause["code"] == "batching-no-rows"
            for line in cause["evidence"]
        ]
        assert any("= 1.00 rows per execution" in line for line in evidence)


@pytest.mark.server
def test_repaired_copies_work(server: serve.RunningServer) -> None:
    """Each loads, and its symptom is gone."""
    http = HttpClient(server.urls.http, 60)
    failures = {}
    for name, thread in THREADS.items():
        try:
            assert http.ready(thread.model)
            CHECKS[thread.seen](server, thread)
        except (AssertionError, RequestFailed) as error:
            failures[name] = str(error)[:300]
    assert failures == {}


def answers(server: serve.RunningServer, thread: Thread) -> None:
    """One request of one row is answered."""
    model = endpoint(thread)
    assert HttpClient(server.urls.http, 60).infer(
        model, encode_binary(request(server, model, thread.shapes[0], 1))
    )


def rows(server: serve.RunningServer, thread: Thread) -> None:
    """Rows together are answered as alone."""
    http, model = HttpClient(server.urls.http, 60), endpoint(thread)
    inputs = request(server, model, thread.shapes[0], 1)
    whole = http.infer(model, encode_binary(inputs))
    for row in range(thread.shapes[0][0]):
        alone = http.infer(model, encode_binary({key: value[row : row + 1] for key, value in inputs.items()}))
        for output, value in alone.items():
            np.testing.assert_allclose(whole[output][row : row + 1], value, rtol=1e-5)


def merges(server: serve.RunningServer, thread: Thread) -> None:
    """Concurrent requests join."""
    load(server, thread)
    counted = statistics.read(HttpClient(server.urls.http))[thread.model]
    assert counted.rows / counted.executions > 1.5, f"{counted.rows} / {counted.executions}"


def warm(server: serve.RunningServer, thread: Thread) -> None:
    """The first request finds that another one ran before it."""
    model = endpoint(thread)
    answer = HttpClient(server.urls.http, 60).infer(model, encode_binary(request(server, model, (1, 4), 1)))
    assert float(answer["Y"].ravel()[0]) >= 2


CHECKS = {"ready": answers, "rows": rows, "merges": merges, "warm": warm}


def endpoint(thread: Thread) -> str:
    """The model that a client calls."""
    return "t5317_all" if thread.model == "t5317_pre" else thread.model


def request(server: serve.RunningServer, model: str, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
    kinds = {"INT64": np.int64, "INT32": np.int32, "FP32": np.float32}
    drawn = np.random.default_rng(seed).integers(0, 2, shape)
    interface = HttpClient(server.urls.http, 60).endpoint(model)
    return {tensor.name: drawn.astype(kinds[tensor.datatype]) for tensor in interface.inputs}


def load(server: serve.RunningServer, thread: Thread) -> None:
    """Clients at the same time, with the thread's shapes in turn."""
    model, failed = endpoint(thread), []
    bodies = [encode_binary(request(server, model, shape, seed)) for seed, shape in enumerate(thread.shapes)]

    def client(number: int) -> None:
        http = HttpClient(server.urls.http, 60)
        for turn in range(EACH):
            try:
                http.infer(model, bodies[(number + turn) % len(bodies)])
            except RequestFailed as error:
                failed.append(str(error))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []
    statistics.settled(HttpClient(server.urls.http), [thread.model])

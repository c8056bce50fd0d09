"""Sparse embeddings and late interaction on the real server against PyTorch (tests/models/retrieval.py)."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import salvo

from tests.support.cli import FEW, trb
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient

pytestmark = pytest.mark.server
SPARSE = {"splade": ("--task", "sparse-embedding"), "splade_sum": ()}
SIZE = 700
"""More than the tokens of the cut vocabulary."""
LATE = {
    "pylate": ("pylate", "documents", ()),
    "pylate_query": ("pylate", "queries", ("--query",)),
    "colbert": ("colbert", "documents", ()),
    "colbert_query": ("colbert", "queries", ("--query",)),
}
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def repository(retrieval: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six endpoints; tasks are found from the files but where nothing tells."""
    target = tmp_path_factory.mktemp("retrieval") / "model_repository"
    common = ("--output", str(target), "--batching", "on", "--instances", "1")
    for name, more in SPARSE.items():
        trb("build", "--model", str(retrieval / name), *common, *more)
    for name, (model, _, more) in LATE.items():
        trb("build", "--model", str(retrieval / model), "--name", name, *common, *more)
    return target


def ask(server: serve.RunningServer, endpoint: str, texts: list[str]) -> dict[str, Array]:
    data = [{"name": "TEXT", "datatype": "BYTES", "shape": [len(texts), 1], "data": texts}]
    request = urllib.request.Request(
        f"{server.urls.http}/v2/models/{endpoint}/infer",
        json.dumps({"inputs": data}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        outputs = json.load(response)["outputs"]
    return {output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in outputs}


def rows(server: serve.RunningServer, endpoint: str, texts: list[str], way: str) -> list[dict[str, Array]]:
    """One answer per text, asked for alone, many in a request, or many requests at the same time."""
    if way == "together":
        parts = [ask(server, endpoint, texts[start : start + 27]) for start in range(0, len(texts), 27)]
        return [{name: array[row] for name, array in part.items()} for part in parts for row in _rows(part)]
    with ThreadPoolExecutor(16 if way == "at once" else 1) as pool:
        answers = pool.map(lambda text: ask(server, endpoint, [text]), texts)
        return [{name: array[0] for name, array in answer.items()} for answer in answers]


def _rows(part: dict[str, Array]) -> range:
    return range(len(next(iter(part.values()))))


WAYS = ("alone", "together", "at once")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_embeddings_are_those_of_pytorch(
    server: serve.RunningServer, retrieval: Path, name: str, way: str
) -> None:
    reference = json.loads((retrieval / name / "reference.json").read_text())
    answers = rows(server, name, reference["texts"], way)
    assert len(answers) == len(reference["answers"]) >= 50
    for text, answer, expected in zip(reference["texts"], answers, reference["answers"], strict=True):
        end = int((answer["indices"] >= 0).sum())
        # Fillers only at the end, ids ascending, every weight above 0.
        assert set(answer["indices"][end:]) <= {-1}
        assert not answer["values"][end:].any()
        assert (np.diff(answer["indices"][:end]) > 0).all()
        assert (answer["values"][:end] > 0).all()
        got, want = np.zeros(SIZE), np.zeros(SIZE)
        got[answer["indices"][:end]] = answer["values"][:end]
        want[expected["indices"]] = expected["values"]
        np.testing.assert_allclose(got, want, atol=1e-4, err_msg=repr(text[:40]))
        # The same tokens, but for weights that are float noise.
        differing = set(answer["indices"][:end]) ^ set(expected["indices"])
        assert all(max(got[token], want[token]) < 1e-5 for token in differing)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LATE)
def test_token_vectors_are_those_of_pytorch(
    server: serve.RunningServer, retrieval: Path, name: str, way: str
) -> None:
    model, part, _ = LATE[name]
    reference = json.loads((retrieval / model / "reference.json").read_text())
    answers = rows(server, name, reference["texts"], way)
    assert len(answers) == len(reference[part]) >= 50
    for text, answer, expected in zip(reference["texts"], answers, reference[part], strict=True):
        width = len(expected["mask"])
        np.testing.assert_array_equal(answer["mask"][:width], expected["mask"], err_msg=repr(text[:40]))
        assert not answer["mask"][width:].any()
        vectors = answer["token_embeddings"]
        np.testing.assert_allclose(
            vectors[answer["mask"] == 1],
            np.array(expected["vectors"]).reshape(-1, 16),
            atol=1e-4,
            err_msg=repr(text[:40]),
        )
        assert not vectors[answer["mask"] == 0].any()


def test_smoke_passes_on_all(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
    said = trb("smoke", str(repository), *urls, *FEW, "--json")
    report = json.loads(said)
    assert report["ok"] is True
    assert report["parity_proven"] is True
    assert set(report["endpoints"]) == {*SPARSE, *LATE}


def test_check_finds_nothing_wrong(repository: Path) -> None:
    findings = json.loads(trb("check", str(repository), "--json"))
    assert findings == []


def test_requests_of_any_length_make_batches(server: serve.RunningServer, retrieval: Path) -> None:
    texts = json.loads((retrieval / "splade" / "reference.json").read_text())["texts"]
    for name in ("splade", "pylate"):
        client = HttpClient(server.urls.http)
        send = partial(rows, server, name, texts, "at once")
        salvo.joins(client, [f"{name}_model"], len(texts), send, most=len(texts))

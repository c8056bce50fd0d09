"""Every length up to the maximum, every pooling, mixed in batches: the answers of the plain graph.

The reference runs the exported file itself in ONNX Runtime, one text at a time and unpadded, and pools in
numpy; the server runs tokenizer, ragged front, batcher, the graph without padding or in groups, and the head.
"""

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import salvo
from onnxruntime.quantization import quantize_dynamic
from tokenizers import Tokenizer

from tests.support.zoo import Zoo
from triton_repo_builder.endpoint.plan import text_memory
from triton_repo_builder.model.graph import query_blocks
from triton_repo_builder.model.graph.heads.pooling import POOLINGS
from triton_repo_builder.model.graph.packing import rewrite as packing
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build
from triton_repo_builder.produce.write import publish
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_json

pytestmark = pytest.mark.server

TASKS = Path(__file__).resolve().parents[1] / "data" / "models" / "tasks"
GROUPED = ("grouped", "grouped_blocks")
BLOCKS = ("blocks", "grouped_blocks")
"""Attention of more than a few tokens in blocks of queries, and few tokens in a run."""
ENDPOINTS = {**{pooling: pooling for pooling in POOLINGS}, **dict.fromkeys((*GROUPED, *BLOCKS), "mean")}
"""Without padding, and those in groups of similar length, with their poolings."""
LONGEST = 256
LENGTHS = range(2, LONGEST + 1)  # 2: the special tokens alone
MIX = random.Random(0).sample(LENGTHS, len(LENGTHS))


def text(length: int) -> str:
    """A text of so many tokens, [CLS] and [SEP] included: each of these words is one token."""
    words = ("the", "cat", "sat", "on", "a", "mat", "and", "we", "all", "saw", "it")
    return " ".join(words[(length + position) % len(words)] for position in range(length - 2))


@pytest.fixture(scope="module")
def server(
    zoo: Zoo, tmp_path_factory: pytest.TempPathFactory, exported: Path
) -> Iterator[serve.RunningServer]:
    repository = tmp_path_factory.mktemp("ragged") / "model_repository"
    for name, pooling in ENDPOINTS.items():
        options = BuildOptions(
            model=exported / "minilm_fp32",
            name=name,
            pooling=pooling,
            output=repository,
            instances=1,
            run_tokens=300 if name in BLOCKS else None,
        )
        rows = "groups" if name in GROUPED else "packed"
        with pytest.MonkeyPatch.context() as patch:
            if rows == "groups":  # as of a graph that cannot run without padding
                patch.setattr(packing, "obstacle", lambda graph: "a test")
            if name in BLOCKS:  # as of texts of thousands of tokens
                patch.setattr(packing, "MOST_SCORES", 1000)
                patch.setattr(query_blocks, "MOST_SCORES", 1000)
                patch.setattr(text_memory, "LONG", 1)
            made = build.build(options)
        assert made.entry.served.facts["rows"] == rows
        publish.publish(publish.prepare(made, repository))
    for name, source in (("int8", exported / "minilm_fp32"), ("asked", TASKS / "qa")):
        quantised = tmp_path_factory.mktemp(name) / name
        shutil.copytree(source, quantised, ignore=shutil.ignore_patterns("model.onnx"))
        quantize_dynamic(source / "model.onnx", quantised / "model.onnx")
        made = build.build(BuildOptions(model=quantised, output=repository, instances=1))
        assert made.entry.served.facts["rows"] == "single"
        publish.publish(publish.prepare(made, repository))
    with zoo.serving(repository) as running:
        yield running


@pytest.fixture(scope="module")
def hidden(exported: Path) -> dict[int, Any]:
    """Token vectors of each length, from the original file."""
    tokenizer = Tokenizer.from_file(str(exported / "minilm_fp32" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    session = onnxruntime.InferenceSession(str(exported / "minilm_fp32" / "model.onnx"))
    vectors = {}
    for length in LENGTHS:
        ids = tokenizer.encode(text(length)).ids
        assert len(ids) == length
        feeds = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, length), np.int64),
            "token_type_ids": np.zeros((1, length), np.int64),
        }
        vectors[length] = session.run(None, feeds)[0][0].astype(np.float64)
    return vectors


def pooled(tokens: Any, pooling: str) -> Any:
    count = len(tokens)
    rows = {
        "mean": lambda: tokens.mean(axis=0),
        "mean_sqrt_len": lambda: tokens.sum(axis=0) / np.sqrt(count),
        "cls": lambda: tokens[0],
        "lasttoken": lambda: tokens[-1],
        "weightedmean": lambda: (
            (tokens * np.arange(1, count + 1)[:, None]).sum(axis=0) / np.arange(1, count + 1).sum()
        ),
        "max": lambda: tokens.max(axis=0),
    }
    row = rows[pooling]()
    return row / np.linalg.norm(row)


def ask(server: serve.RunningServer, pooling: str, lengths: list[int]) -> Any:
    texts = np.array([[text(length)] for length in lengths], dtype=object)
    return HttpClient(server.urls.http).infer(pooling, encode_json({"TEXT": texts}))["embedding"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_mixed_lengths_in_one_request(server: serve.RunningServer, hidden: Any, endpoint: str) -> None:
    for start in range(0, len(MIX), 32):
        lengths = MIX[start : start + 32]
        expected = np.array([pooled(hidden[length], ENDPOINTS[endpoint]) for length in lengths])
        np.testing.assert_allclose(ask(server, endpoint, lengths), expected, atol=1e-5)


def test_requests_of_all_lengths_at_once(server: serve.RunningServer, hidden: Any) -> None:
    client = HttpClient(server.urls.http)

    def send() -> None:
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda length: ask(server, "mean", [length]), MIX))
        for length, answer in zip(MIX, answers, strict=True):
            np.testing.assert_allclose(answer[0], pooled(hidden[length], "mean"), atol=1e-5)

    # Joined, although no two of these requests have the same shape.
    salvo.joins(client, ["mean_model"], len(MIX), send, most=len(MIX) / 2)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_groups_give_one_answer_in_any_batch(server: serve.RunningServer, endpoint: str) -> None:
    """Padding and other rows do not change the order in which anything is added: the same bits."""
    lengths = MIX[:64]
    alone = np.array([ask(server, endpoint, [length])[0] for length in lengths])
    for rows in (2, 7, 32):
        for start in range(0, len(lengths), rows):
            together = ask(server, endpoint, lengths[start : start + rows])
            assert np.array_equal(together, alone[start : start + rows]), lengths[start : start + rows]


def test_dynamic_int8_gives_one_answer_in_any_batch(server: serve.RunningServer) -> None:
    """It scales by the largest number of a run, so rows run one by one: the same bits beside any others."""
    alone = {length: ask(server, "int8", [length])[0] for length in (2, 5, 17, 40, 133, 256)}
    for lengths in ([2, 5, 17, 40, 133, 256], [256, 2, 2, 5], [17, 40], [133] * 3 + [17]):
        for length, answer in zip(lengths, ask(server, "int8", lengths), strict=True):
            assert np.array_equal(answer, alone[length]), length

    def send() -> None:
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda length: ask(server, "int8", [length]), list(alone) * 16))
        for length, answer in zip(list(alone) * 16, answers, strict=True):
            assert np.array_equal(answer[0], alone[length]), length

    salvo.joins(HttpClient(server.urls.http), ["int8_model"], 16 * len(alone), send, most=8 * len(alone))


def test_a_head_after_the_loop_gives_one_answer_in_any_batch(server: serve.RunningServer) -> None:
    """Spans of a context are found in all rows at once, and their scores are the same bits all the same."""
    http = HttpClient(server.urls.http)
    contexts = [text(length) for length in (5, 17, 40, 133, 256)]

    def score(*picked: str) -> list[float]:
        asked = {
            "QUESTION": np.array([["where is the cat"]] * len(picked), dtype=object),
            "CONTEXT": np.array([[each] for each in picked], dtype=object),
        }
        return [float(each) for each in http.infer("asked", encode_json(asked))["score"].reshape(-1)]

    alone = [score(context)[0] for context in contexts]
    assert score(*contexts) == alone
    assert score(*reversed(contexts)) == alone[::-1]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda index: (index % 5, score(contexts[index % 5])[0]), range(160)))
    assert all(answer == alone[index] for index, answer in answers)

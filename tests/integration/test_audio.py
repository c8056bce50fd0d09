"""Audio endpoints on a real server, against transformers and ONNX Runtime on the untouched file.

Exports of PyTorch models: ``make conformance``, docs/tasks.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import salvo
import tiny
import tiny_sounds
import transformers
from onnx import TensorProto

from tests.integration.test_clients import RUN
from tests.support.cli import FEW, trb
from tests.support.rows import column
from triton_repo_builder.endpoint.golden import audio as golden
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.codegen import example, python_client, snippets

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]
OTHERS: dict[str, dict[str, Any]] = {
    "half": {"dtype": TensorProto.FLOAT16},
    "one_file": {"batch": 1},
    "mixing": {"mean": True},
}
"""Proven by their golden cases."""
COUNTS = (400, 719, 720, 8_000, 8_000, 8_000, 8_000, 33_333)
FILES = [
    tiny_sounds.wav(tiny_sounds.noise(n, 1 + seed % 2, seed)) for seed, n in enumerate((*COUNTS, *COUNTS))
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sounds")
    tiny_sounds.classifier(root / "bark")
    tiny_sounds.recogniser(root / "speech")
    for name, graph in OTHERS.items():
        tiny_sounds.classifier(root / name, **graph)
    return root


@pytest.fixture(scope="module")
def repository(exported: Path) -> Path:
    target = exported / "repository"
    trb("build", "--model", str(exported / "bark"), "--output", str(target), "--top-k", "3")
    for name in ("speech", *OTHERS):
        tiny.put(exported / name, target, golden=True, device="cpu", instances=1)
    return target


def request(*data: bytes) -> dict[str, Any]:
    return {"AUDIO": column(list(data))}


def logits(folder: Path, file: bytes) -> Any:
    """By Python's ``wave``, transformers and ONNX Runtime; nothing of ours in it."""
    own = transformers.Wav2Vec2FeatureExtractor.from_pretrained(folder)
    values = own(tiny_sounds.samples(file), sampling_rate=tiny_sounds.RATE, return_tensors="np")
    return onnxruntime.InferenceSession(str(folder / "model.onnx")).run(None, dict(values))[0][0]


def test_labels_and_scores(client: GrpcClient, exported: Path) -> None:
    found = set()
    for file in FILES:
        row = logits(exported / "bark", file).astype(np.float64)
        scores = np.exp(row) / np.exp(row).sum()
        best = np.argsort(-scores)[:3]
        got = client.infer("bark", request(file))
        assert got["top_labels"][0].tolist() == [tiny_sounds.LABELS[str(n)].encode() for n in best]
        np.testing.assert_allclose(got["top_scores"][0], scores[best], atol=1e-4)
        assert got["label"][0, 0] == got["top_labels"][0, 0]
        found.add(got["label"][0, 0])
    assert len(found) > 1  # else it would prove little


def test_text_of_speech(client: GrpcClient, exported: Path) -> None:
    tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(exported / "speech")
    expected = [
        tokenizer.decode(logits(exported / "speech", file).argmax(axis=-1)).encode() for file in FILES
    ]
    alone = [client.infer("speech", request(file))["text"][0, 0] for file in FILES]
    assert alone == expected
    together = client.infer("speech", request(*FILES[3:7]))["text"][:, 0].tolist()
    assert together == expected[3:7]
    with ThreadPoolExecutor(16) as pool:  # of any length, at the same time
        beside = list(pool.map(lambda file: client.infer("speech", request(file))["text"][0, 0], FILES * 4))
    assert beside == expected * 4
    assert len(set(expected)) > 8
    assert any(b" " in text for text in expected)


def test_files_of_one_length_make_batches(server: serve.RunningServer, client: GrpcClient) -> None:
    files = FILES[3:7] * 16

    def send() -> None:
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda file: client.infer("speech", request(file)), files))

    http = HttpClient(server.urls.http)
    salvo.joins(http, ["speech_preprocess", "speech_model"], len(files), send, most=len(files))


BAD = {
    b"": "has no bytes",
    b"no sound at all": "is not a WAV, FLAC, OGG, MP3 or AIFF file",
    FILES[3][:9_000]: "is cut short: it has 9000 of 32044 bytes",
    golden.sounds()["studio.flac"][:9_000]: "is cut short",
    tiny_sounds.wav(tiny_sounds.noise(399)): "is too short: 399 samples at 16000 Hz, the model needs 400",
    tiny_sounds.wav(tiny_sounds.noise(0)): "has no samples",
    tiny_sounds.wav(tiny_sounds.noise(121_000), 1_000): "is longer than 120 s",
}


@pytest.mark.parametrize("data", BAD, ids=list(BAD.values()))
def test_a_bad_file_fails_alone(client: GrpcClient, data: bytes) -> None:
    expected = client.infer("speech", request(FILES[3]))["text"][0, 0]

    def send(file: bytes) -> Any:
        try:
            return client.infer("speech", request(file))["text"][0, 0]
        except RequestFailed as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, [FILES[3], data] * 4))
    assert answers[::2] == [expected] * 4
    for error in answers[1::2]:
        assert isinstance(error, RequestFailed)
        assert error.kind == "refused"
        assert f"file 0 of input 'AUDIO' {BAD[data]}" in error.message


def test_files_of_several_lengths_are_no_rows_of_one_request(client: GrpcClient) -> None:
    with pytest.raises(RequestFailed, match="become 400, 719 samples: send files of different length in req"):
        client.infer("speech", request(*FILES[:2]))


def test_smoke_passes(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
    report = json.loads(trb("smoke", str(repository), *urls, *FEW, "--json"))
    assert report["ok"] is True
    assert report["parity_proven"] is True
    assert set(report["endpoints"]) == {"bark", "speech", *OTHERS}


def test_check_finds_nothing_wrong(repository: Path) -> None:
    findings = json.loads(trb("check", str(repository), "--json"))
    assert [finding for finding in findings if finding["severity"] == "error"] == []


@pytest.mark.parametrize("language", sorted(RUN))
def test_every_printed_call_runs(server: serve.RunningServer, repository: Path, language: str) -> None:
    found = example.of_server(server.urls.http, "speech", repository / "speech")
    call = python_client.calls(found, server.urls.http)[language]
    done = subprocess.run([*RUN[language], call], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (call, done.stderr)
    assert "text" in done.stdout
    assert "error" not in done.stdout


def test_the_printed_curl_line_works(server: serve.RunningServer, repository: Path) -> None:
    line = snippets.usage(server.urls.http, "bark", repository / "bark").curl
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    answer = {output["name"]: output for output in json.loads(ended.stdout)["outputs"]}
    assert answer["label"]["data"][0] in tiny_sounds.LABELS.values()


def test_the_documented_call_works(server: serve.RunningServer, client: GrpcClient, tmp_path: Path) -> None:
    """The Python lines of docs/audio.md, as they stand there but for the address."""
    text = (ROOT / "docs" / "audio.md").read_text()
    blocks = re.findall(r"((?:^    .*\n)+)", text, re.MULTILINE)
    script = next(block for block in blocks if "tritonclient" in block)
    script = "\n".join(line.removeprefix("    ") for line in script.splitlines())
    script = script.replace("localhost:8000", server.urls.http.removeprefix("http://"))
    (tmp_path / "speech.wav").write_bytes(FILES[7])
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, cwd=tmp_path, timeout=60
    )
    assert client.infer("speech", request(FILES[7]))["text"][0, 0] in ended.stdout

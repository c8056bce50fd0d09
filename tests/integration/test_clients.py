"""Every printed call and the generated client, run against the real server as a user would."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny

from tests.support.serve_repository import HALF, Serve, python, serve, text, trb
from triton_repo_builder.base.errors import Code
from triton_repo_builder.run.client import JSON, Body, HttpClient

pytestmark = pytest.mark.server
LANGUAGES = ("curl", "python", "javascript")
RUN = {
    "curl": ["bash", "-c"],
    "python": [sys.executable, "-c"],
    "javascript": ["node", "--input-type=module", "-e"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Serve]:
    """Text with labels, text with vectors, tensors, a large tensor, half floats, strings, no batching."""
    root = folder / "repo"
    tiny.put(tiny.embedder(folder / "bert"), root, golden=True)
    tiny.put(tiny.classifier(folder / "mood"), root, golden=True)
    tiny.put(tiny.tensor_model(folder / "net.onnx"), root, golden=True, max_batch_size=4)
    tiny.put(tiny.tensor_model(folder / "one.onnx", batch=1), root, golden=True)
    text(root, "echo")
    python(root, "image", dims="3, 224, 224")
    python(root, "half", HALF, out="FP16")
    with serve(folder, root, "--json") as server:
        server.ready()
        yield server


def client(folder: Path, running: Serve, name: str) -> Any:
    """The generated module, imported."""
    file = folder / f"{name}_client.py"
    said = trb(folder, "client", name, "--url", running.http, "--output", str(file), "--force")
    assert said.returncode == 0, said.stderr
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["bert", "mood", "net", "one", "echo", "image"])
def test_every_printed_call_runs(folder: Path, running: Serve, name: str, language: str) -> None:
    said = trb(folder, "client", name, "--url", running.http, "--language", language)
    assert said.returncode == 0, said.stderr
    done = subprocess.run(
        [*RUN[language], said.stdout], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (said.stdout, done.stderr)
    outputs = {"bert": "embedding", "mood": "label", "echo": "Y", "image": "Y"}
    assert outputs.get(name, "Y") in done.stdout
    assert "error" not in done.stdout


@pytest.mark.parametrize("name", ["bert", "mood", "net", "one", "echo"])
def test_the_short_call_is_answered(folder: Path, running: Serve, name: str) -> None:
    said = trb(folder, "client", name, "--url", running.http, "--language", "generate")
    assert said.returncode == 0, said.stderr
    done = subprocess.run(
        ["bash", "-c", said.stdout], capture_output=True, text=True, timeout=60, check=False
    )
    document = json.loads(done.stdout)
    output = {"bert": "embedding", "mood": "label"}.get(name, "Y")
    assert document["model_name"] == name
    assert output in document, document


@pytest.mark.parametrize("name", ["image", "half"])
def test_no_short_call(folder: Path, running: Serve, name: str) -> None:
    """Too long a line, and half floats."""
    said = trb(folder, "client", name, "--url", running.http, "--language", "generate")
    assert said.returncode == Code.UNSUPPORTED_TYPE.exit
    assert "[unsupported-type]" in said.stderr


@pytest.mark.parametrize("name", ["bert", "mood", "net", "one", "echo", "image", "half"])
def test_every_client_runs_as_it_is(folder: Path, running: Serve, name: str) -> None:
    client(folder, running, name)
    done = subprocess.run(
        [sys.executable, "-I", str(folder / f"{name}_client.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])


@pytest.mark.parametrize(
    ("name", "shown"),
    [("bert", "print(len(vectors))"), *((name, "") for name in ("mood", "echo"))],
)
def test_the_lines_printed_beside_a_client_run(folder: Path, running: Serve, name: str, shown: str) -> None:
    output = folder / f"{name}_lines.py"
    said = trb(folder, "client", name, "--url", running.http, "--output", str(output))
    assert said.returncode == 0, said.stderr
    wrote, _, lines = said.stdout.partition("\n\n")
    assert wrote == f"wrote {output}"
    done = subprocess.run(
        [sys.executable, "-c", f"{lines}\n{shown}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 1


def test_a_client_answers_in_types(folder: Path, running: Serve) -> None:
    module = client(folder, running, "mood")
    texts = ["hello fox", "the", "größer 😀"] * 15  # more rows than one request may have
    answers = module.infer(texts)
    assert len(answers) == 45
    assert [answer.label for answer in answers[:3]] * 15 == [answer.label for answer in answers]
    for answer in answers:
        assert isinstance(answer.label, str) and isinstance(answer.score, float)
        assert answer.label == f"label {int(np.argmax(answer.scores))}"
    assert module.infer([]) == []
    with pytest.raises(module.InferenceError, match="unknown model"):
        module.PATH = "/v2/models/absent/infer"
        module.infer(["x"])


def test_embed_answers_any_number_of_texts_as_one_at_a_time(folder: Path, running: Serve) -> None:
    module = client(folder, running, "bert")
    texts = [f"hello {'fox ' * (number % 7)}{number}" for number in range(150)]
    together = module.embed(iter(texts))
    alone = [module.infer([text])[0].embedding for text in texts]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)
    np.testing.assert_allclose(module.embed(texts, concurrency=1), alone, rtol=0, atol=1e-6)
    assert module.embed([]) == []
    with pytest.raises(TypeError, match="list of texts"):
        module.embed("hello")
    with pytest.raises(module.InferenceError, match="unknown model"):
        module.PATH = "/v2/models/absent/infer"
        module.embed(texts)


def test_several_texts_as_the_short_call_lose_their_shape(running: Serve) -> None:
    """What the line beside the short call warns of: Triton's generate extension writes no shapes."""
    http = HttpClient(running.http)

    def generate(text: object) -> dict[str, Any]:
        body = Body(data=json.dumps({"TEXT": text}).encode(), headers=JSON)
        answer: dict[str, Any] = http.call("POST", "/v2/models/bert/generate", body)
        return answer

    one, two = generate("hello")["embedding"], generate(["hello", "fox"])["embedding"]
    assert len(two) == 2 * len(one)
    np.testing.assert_allclose(two[: len(one)], one, rtol=1e-5)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_call_takes_a_batch(folder: Path, running: Serve, language: str) -> None:
    said = trb(folder, "client", "mood", "--url", running.http, "--language", language)
    done = subprocess.run(
        [*RUN[language], said.stdout], capture_output=True, text=True, timeout=60, check=True
    )
    labels = {"curl": '"shape":[2,1]', "python": "label 1 ['label", "javascript": "label 1 [ 'label"}
    assert labels[language] in done.stdout


@pytest.mark.parametrize("file", ["call.js", "call.mjs", "call.sh"])
def test_a_file_with_a_call_runs(folder: Path, running: Serve, file: str) -> None:
    """With the address of the server that runs the repository: none is named."""
    path = str(folder / file)
    said = trb(folder, "client", "bert", str(folder / "repo"), "--output", path)
    assert (said.returncode, said.stdout) == (0, f"wrote {path}\n"), said.stderr
    assert running.http in (folder / file).read_text()
    program = "sh" if file.endswith("sh") else "node"
    done = subprocess.run([program, path], capture_output=True, text=True, timeout=60, check=True)
    assert "embedding" in done.stdout


def test_a_client_equals_onnxruntime(folder: Path, running: Serve) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 32)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"))
    expected = session.run(None, {"X": rows})[0]
    got = [answer.y for answer in client(folder, running, "net").infer(rows)]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    one = client(folder, running, "one").infer(rows[:1].tolist())
    np.testing.assert_allclose(one.y, expected[:1], rtol=1e-5, atol=1e-5)


def test_half_floats_travel(folder: Path, running: Serve) -> None:
    (answer,) = client(folder, running, "half").infer([[1.5, 0.25]])
    assert answer.y == [3.0, 0.5]


def test_bytes_that_are_no_text_arrive(folder: Path, running: Serve) -> None:
    (answer,) = client(folder, running, "echo").infer([b"abc"])
    assert answer.y == "abc"
    done = subprocess.run(
        [sys.executable, str(folder / "echo_client.py"), "one", "two", "--url", running.http],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"y": "one"}, {"y": "two"}]

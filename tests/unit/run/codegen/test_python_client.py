"""Clients and calls from what config.pbtxt states: types, names, and endpoints that cannot be called so."""

from __future__ import annotations

import ast
import base64
import shutil
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_images
from click.testing import CliRunner
from mypy import api

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import group
from triton_repo_builder.endpoint.golden import image
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.codegen import example, python_client, snippets

URL = "http://127.0.0.1:8000"

HAND_MADE = """backend: "python"
max_batch_size: 4
input [
  { name: "class" data_type: TYPE_STRING dims: [ 1 ] optional: true },
  { name: "in:0" data_type: TYPE_FP16 dims: [ 2, -1 ] },
  { name: "in_0" data_type: TYPE_BOOL dims: [ 1 ] }
]
output [
  { name: "url" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "2nd \\"x\\"" data_type: TYPE_STRING dims: [ 1 ] }
]
"""
EMBEDDER = """backend: "python"
max_batch_size: 4
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "embedding" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def hand_made(root: Path, config: str = HAND_MADE) -> Path:
    (root / "net" / "1").mkdir(parents=True)
    (root / "net" / "config.pbtxt").write_text(config)
    return root


def source(root: Path, name: str = "net") -> str:
    return python_client.typed(example.of_repository(root, name), URL)


def load(text: str) -> dict[str, Any]:
    # Its dataclass asks for the module that it is in.
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, "client.py", "exec"), space)
    return space


def signature(text: str, name: str) -> list[tuple[str, str]]:
    tree = ast.parse(text)
    found = next(node for node in ast.walk(tree) if getattr(node, "name", "") == name)
    if isinstance(found, ast.FunctionDef):
        return [(arg.arg, ast.unparse(arg.annotation)) for arg in found.args.args if arg.annotation]
    assert isinstance(found, ast.ClassDef)
    return [
        (ast.unparse(line.target), ast.unparse(line.annotation))
        for line in found.body
        if isinstance(line, ast.AnnAssign)
    ]


def test_types_and_names(tmp_path: Path) -> None:
    text = source(hand_made(tmp_path))
    assert signature(text, "infer") == [
        ("in_0", "Sequence[Sequence[Sequence[float]]]"),
        ("in_0_2", "Sequence[bool]"),
        ("class_", "Sequence[str | bytes] | None"),
    ]
    assert signature(text, "Answer") == [("url", "list[int]"), ("2nd".join(["t_", "__x"]), "str")]


@pytest.mark.parametrize(
    "config",
    [HAND_MADE, HAND_MADE.replace("max_batch_size: 4\n", ""), EMBEDDER],
    ids=["batched", "one", "text"],
)
def test_clients_are_clean_to_mypy(config: str, tmp_path: Path) -> None:
    file = tmp_path / "client_module.py"
    file.write_text(source(hand_made(tmp_path / "repo", config)))
    said, errors, code = api.run(
        ["--strict", "--config-file=", "--cache-dir", str(tmp_path / "c"), str(file)]
    )
    assert (code, errors) == (0, ""), said


def test_numbers_survive_packing(tmp_path: Path) -> None:
    space = load(source(hand_made(tmp_path)))
    for kind, values in {
        "FP16": [0.5, -2.0],
        "FP32": [0.25, 1e10],
        "FP64": [1e-300],
        "BOOL": [True, False],
        "INT64": [-(2**63), 2**63 - 1],
        "UINT8": [0, 255],
        "BYTES": ["", "größer 😀"],
    }.items():
        assert space["_unpack"](kind, space["_pack"](kind, values)) == values
    assert space["_pack"]("BYTES", [b"\xff"]) == struct.pack("<I", 1) + b"\xff"


def test_shapes(tmp_path: Path) -> None:
    space = load(source(hand_made(tmp_path)))
    assert space["_flatten"]([[1, 2, 3], [4, 5, 6]]) == ([2, 3], [1, 2, 3, 4, 5, 6])
    assert space["_flatten"](["ab", "c"]) == ([2], ["ab", "c"])
    assert space["_nest"]([1, 2, 3, 4, 5, 6], [2, 3]) == [[1, 2, 3], [4, 5, 6]]
    assert space["_nest"]([], [2, 0]) == [[], []]
    with pytest.raises(ValueError, match="equal shapes"):
        space["_flatten"]([[1], [1, 2]])


def test_one_text_is_no_list_of_letters(tmp_path: Path) -> None:
    space = load(source(hand_made(tmp_path)))
    with pytest.raises(TypeError, match="list of rows"):
        space["infer"]("hello", [True])
    with pytest.raises(ValueError, match="same number"):
        space["infer"]([[[1.0], [1.0]]], [True, False])


def embedder(root: Path) -> dict[str, Any]:
    """The client of an embedding endpoint, with a server that answers each text with its number."""
    (root / "bert" / "1").mkdir(parents=True)
    (root / "bert" / "config.pbtxt").write_text(EMBEDDER)
    return load(source(root, "bert"))


def test_embed_keeps_several_requests_under_way_and_the_order(tmp_path: Path) -> None:
    space = embedder(tmp_path)
    sizes, running, most = [], [0], [0]
    lock = threading.Lock()

    def answer(batch: dict[str, Any], url: str, timeout: float) -> dict[str, Any]:
        rows = batch["TEXT"]
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            sizes.append(len(rows))
        time.sleep(0.05 if rows[0] == "0" else 0.01)  # the first one ends last of the four
        with lock:
            running[0] -= 1
        return {"embedding": [[float(text)] for text in rows]}

    space["_request"] = answer
    assert space["embed"](str(number) for number in range(65)) == [[float(number)] for number in range(65)]
    assert sorted(sizes) == [1, *[4] * 16]
    assert most == [4]
    assert space["embed"]([]) == []
    space["embed"](["1"] * 20, concurrency=1)
    with pytest.raises(TypeError, match="list of texts"):
        space["embed"]("hello")


def test_a_failed_request_ends_the_others(tmp_path: Path) -> None:
    space = embedder(tmp_path)
    calls = []

    def refuse(batch: dict[str, Any], url: str, timeout: float) -> dict[str, Any]:
        calls.append(batch)
        time.sleep(0.01)
        raise space["InferenceError"]("no")

    space["_request"] = refuse
    with pytest.raises(RuntimeError, match="no"):
        space["embed"](["x"] * 4_000)
    assert len(calls) < 100


def test_only_one_vector_is_embedded(tmp_path: Path) -> None:
    one = '{ name: "a" data_type: TYPE_FP32 dims: [ 2 ] }'
    two = f"output [ {one}, " + one.replace('"a"', '"b"') + " ]"
    for number, output in enumerate((two, two.replace("[ 2 ]", "[ 1 ]"), two.replace("FP32", "STRING"))):
        (tmp_path / f"m{number}" / "1").mkdir(parents=True)
        head = EMBEDDER[: EMBEDDER.index("output")]
        (tmp_path / f"m{number}" / "config.pbtxt").write_text(head + output)
        assert "def embed(" not in source(tmp_path, f"m{number}")


def test_half_floats_have_a_client_and_no_json_call(tmp_path: Path) -> None:
    root = hand_made(tmp_path)
    source(root)
    with pytest.raises(TrbError) as caught:
        python_client.calls(example.of_repository(root, "net"), URL)
    assert caught.value.code == Code.UNSUPPORTED_TYPE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("TYPE_FP16", "TYPE_BF16"), "BF16"),
        (('backend: "python"', 'backend: "python" model_transaction_policy { decoupled: true }'), "stream"),
    ],
)
def test_what_has_no_client(change: tuple[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError, match=words) as caught:
        source(hand_made(tmp_path, HAND_MADE.replace(*change)))
    assert caught.value.code == Code.UNSUPPORTED_TYPE


def test_calls_hold_the_golden_example(tmp_path: Path, output: Path) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), output, golden=True)
    said = python_client.calls(example.of_repository(output, "bert"), URL)
    short = said.pop("generate")
    head = "-H 'Content-Type: application/json'"
    assert short == f'curl -s {URL}/v2/models/bert/generate {head} -d \'{{"TEXT": "Hello"}}\''
    assert said.keys() == {"curl", "python", "javascript"}
    for text in said.values():
        assert "Hello" in text
        assert f"{URL}/v2/models/bert/infer" in text
    assert "BYTES [1]" not in source(output, "bert")
    assert "embedding: list[float]" in source(output, "bert")


def test_calls_say_how_many_texts_they_take(tmp_path: Path, output: Path) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), output, golden=True)
    found = example.of_repository(output, "bert")
    titles = snippets.titles(found)
    assert titles["generate"].startswith("one text (the answers to several would be one flat list")
    assert {titles[call] for call in ("curl", "python", "javascript")} == {"1 to 32 texts in a request"}
    said = python_client.calls(found, URL)
    assert '"shape": [2, 1], "data": ["Hello", ' in said["curl"]
    assert '"shape": [len(texts), 1], "data": texts' in said["python"]
    assert "shape: [texts.length, 1], data: texts" in said["javascript"]


def test_rows_of_several_texts(tmp_path: Path) -> None:
    """Two inputs of texts, one of them a word of JavaScript in the plural."""
    text = '{ name: "%s" data_type: TYPE_STRING dims: [ 1 ] }'
    inputs = ", ".join(text % name for name in ("argument", "TEXT"))
    config = EMBEDDER.replace(text % "TEXT", inputs)
    (tmp_path / "pair" / "1").mkdir(parents=True)
    (tmp_path / "pair" / "config.pbtxt").write_text(config)
    found = example.of_repository(tmp_path, "pair")
    assert snippets.titles(found)["generate"].startswith("one row (")
    said = python_client.calls(found, URL)
    assert 'const arguments_2 = ["hello", "hello"]; // 1 to 4' in said["javascript"]
    assert "texts = ['hello', 'hello']  # 1 to 4" in said["python"]
    assert "def embed(" not in source(tmp_path, "pair")


def test_an_endpoint_of_numbers_has_no_batch_of_texts(tmp_path: Path, output: Path) -> None:
    tiny.put(tiny.tensor_model(tmp_path / "net.onnx"), output, golden=True, max_batch_size=4)
    found = example.of_repository(output, "net")
    assert found.rows == ()
    assert snippets.titles(found).keys() == {"generate"}
    assert snippets.titles(found)["generate"].startswith("one item (")


def test_a_file_of_the_users_choice(tmp_path: Path, output: Path) -> None:
    wheel = tiny_images.wheel(tmp_path / "pillow.whl")
    tiny.put(tiny_images.folder(tmp_path / "vit"), output, pillow_wheel=(wheel,))
    tiny.put(tiny.tensor_model(tmp_path / "net.onnx"), output, golden=True, max_batch_size=4)
    photo = tmp_path / "my photo.jpg"
    photo.write_bytes(tiny_images.file())
    done = command("vit", str(output), "--file", str(photo))
    assert done.return_value == 0
    assert done.stdout.count(str(photo)) == 3
    assert f"file='{photo}'; size=" in done.stdout
    assert f'with open({str(photo)!r}, "rb")' in done.stdout
    assert f'readFileSync("{photo}")' in done.stdout
    assert command("vit", str(output), "--file", str(tmp_path / "none")).exception.code == Code.NOT_FOUND
    assert command("net", str(output), "--file", str(photo)).exception.code == Code.USAGE


def test_a_file_of_several_inputs_is_unclear(tmp_path: Path) -> None:
    inputs = [Tensor(name=name, datatype="BYTES", shape=(-1, 1)) for name in ("A", "B", "AUDIO")]
    (tmp_path / "a").write_bytes(b"a")

    def request(*tensors: Tensor) -> example.Example:
        return example.example(Endpoint(name="m", inputs=tensors, outputs=(), max_batch_size=1), tmp_path)

    with pytest.raises(TrbError, match="several") as caught:
        example.of_file(request(*inputs[:2]), tmp_path / "a")
    assert caught.value.code == Code.USAGE
    assert example.of_file(request(*inputs), tmp_path / "a").inputs[0]["name"] == "AUDIO"


@pytest.mark.parametrize(
    ("file", "options", "start"),
    [
        ("c.js", (), "// Call of the Triton endpoint bert"),
        ("c.ts", (), "// Call"),
        ("c.txt", ("--language", "javascript"), "// Call"),
        ("c.sh", (), "#!/bin/sh"),
        ("c.txt", ("--language", "generate"), "#!/bin/sh"),
        ("c.js", ("--language", "python"), '"""Client of'),
        ("c", (), '"""Client of'),
    ],
)
def test_a_file_is_in_its_language(
    file: str, options: tuple[str, ...], start: str, tmp_path: Path, output: Path
) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), output)
    path = tmp_path / file
    done = command("bert", str(output), "--output", str(path), *options)
    assert done.return_value == 0
    assert path.read_text().startswith(start)
    if options:
        assert done.stdout == ""


def test_without_golden_cases_the_warm_up_file_is_the_example(tmp_path: Path, output: Path) -> None:
    wheel = tiny_images.wheel(tmp_path / "pillow.whl")
    tiny.put(tiny_images.folder(tmp_path / "vit"), output, pillow_wheel=(wheel,))
    found = example.of_repository(output, "vit")
    png = next(iter(image.images().values()))
    assert found.file == png
    said = python_client.calls(found, URL)
    assert said.keys() == {"curl", "python", "javascript"}
    assert all(base64.b64encode(png).decode() in text for text in said.values())
    text = source(output, "vit")
    assert "python THIS_FILE FILE... [--url" in text
    assert f"infer(files or {[png]!r}" in text
    (output / "vit_preprocess" / "warmup" / "image").unlink()
    assert example.of_repository(output, "vit").file is None


def test_a_text_to_warm_up_with_is_no_file(tmp_path: Path, output: Path) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), output)
    found = example.of_repository(output, "bert")
    assert (found.file, found.inputs[0]["data"]) == (None, "hello")
    assert "python THIS_FILE TEXT... [--url" in source(output, "bert")


@pytest.mark.parametrize(
    ("data", "shown"), [([1, 2, 3, 4], "infer(x=[[1, 2], [3, 4]])"), (0, "infer(x=…)"), ([], "infer(x=…)")]
)
def test_lines_that_use_a_client_have_the_rows_of_the_example(data: Any, shown: str) -> None:
    x = Tensor(name="X", datatype="INT64", shape=(-1, 2))
    asked = example.Example(
        endpoint=Endpoint(name="net", inputs=(x,), outputs=(x,), max_batch_size=8),
        obstacle="",
        inputs=({"name": "X", "datatype": "INT64", "shape": [2, 2], "data": data},),
        file=None,
    )
    lines = f"from client import infer\n\nfor answer in {shown}:\n    print(answer.x)"
    assert python_client.usage(asked, "client") == lines


def command(*arguments: str) -> Any:
    return CliRunner().invoke(group, ["client", *arguments], standalone_mode=False)


def test_the_command(tmp_path: Path, output: Path) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), output)
    file = tmp_path / "client.py"
    done = command("bert", str(output), "--output", str(file))
    assert done.return_value == 0
    assert f"wrote {file}" in done.stdout
    assert "from client import embed" in done.stdout
    calls = command("bert", str(output)).stdout
    for heading in ("── curl", "── python", "── javascript", "any number: --output client.py"):
        assert heading in calls
        assert heading not in done.stdout
    assert command("bert", str(output), "--output", str(file)).return_value == 0
    file.write_text("mine")
    refused = command("bert", str(output), "--output", str(file))
    assert refused.exception.code == Code.EDITED_FILE
    assert file.read_text() == "mine"
    assert command("bert", str(output), "--output", str(file), "--force").return_value == 0
    missing = command("nobody", str(output))
    assert missing.exception.code == Code.NOT_FOUND
    shutil.rmtree(output)
    assert command("bert", str(output)).exception.code == Code.REPOSITORY_UNREADABLE
    assert sys.version_info >= (3, 10)

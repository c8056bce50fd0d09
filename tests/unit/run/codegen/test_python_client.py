"""Clients and calls from what config.pbtxt states: types, names, and endpoints that cannot be called so."""

from __future__ import annotations

import ast
import base64
import shutil
import struct
import sys
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
from triton_repo_builder.run.codegen import example, python_client

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


@pytest.mark.parametrize("batched", [True, False])
def test_clients_are_clean_to_mypy(batched: bool, tmp_path: Path) -> None:
    config = HAND_MADE if batched else HAND_MADE.replace("max_batch_size: 4\n", "")
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


def command(*arguments: str) -> Any:
    return CliRunner().invoke(group, ["client", *arguments], standalone_mode=False)


def test_the_command(tmp_path: Path, output: Path) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), output)
    file = tmp_path / "client.py"
    done = command("bert", str(output), "--output", str(file))
    assert done.return_value == 0
    assert f"wrote {file}" in done.stdout
    for heading in ("── curl", "── python", "── javascript"):
        assert heading in done.stdout
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

"""A graph and a tokenizer are programs: what they may take is bounded, and one clear error says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from cli import call, kind
from onnx import FunctionProto, GraphProto, TensorProto, helper, numpy_helper

from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import original
from triton_repo_builder.model.graph import isolated, reader
from triton_repo_builder.model.read import tokenizer_limits, wire

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
GIB = 1 << 30


def value(name: str, shape: list[Any], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, *numbers: Any, kind: type = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, dtype=kind), name)


X, Y = value("x", ["batch", 4]), value("y", ["batch", 4])


def loop(step: Any, *, shape: list[Any]) -> GraphProto:
    """``while True: v = step(v)``."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), step],
        "body",
        [value("i", [], INT64), value("on", [], BOOL), value("v", shape)],
        [value("still", [], BOOL), value("w", shape)],
    )
    node = helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)
    true = numpy_helper.from_array(np.array(True), "true")
    return helper.make_graph([node], "g", [X], [value("y", shape)], [true])


def endless() -> GraphProto:
    return loop(helper.make_node("Add", ["v", "v"], ["w"]), shape=["batch", 4])


def growing() -> GraphProto:
    return loop(helper.make_node("Concat", ["v", "v"], ["w"], axis=1), shape=["batch", None])


def expanding() -> GraphProto:
    """640 GB in one step."""
    nodes = [helper.make_node("Expand", ["x", "size"], ["e"]), helper.make_node("ReduceSum", ["e"], ["y"])]
    return helper.make_graph(
        nodes, "g", [X], [value("y", [1, 1, 1])], [constant("size", 40_000_000, 1000, 1, 4)]
    )


def answering(rows: int = 150_000_000) -> GraphProto:
    """An answer that the process could hold, and the command not beside it."""
    nodes = [helper.make_node("Expand", ["x", "size"], ["y"])]
    return helper.make_graph(nodes, "g", [X], [value("y", [None, None])], [constant("size", rows, 4)])


def functions(depth: int) -> tuple[GraphProto, list[FunctionProto]]:
    """Functions of which each calls the next one twice."""
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    made = [helper.make_function("f", "F0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], sets)]
    for number in range(1, depth):
        calls = [
            helper.make_node(f"F{number - 1}", ["a"], ["m"], domain="f"),
            helper.make_node(f"F{number - 1}", ["m"], ["b"], domain="f"),
        ]
        made.append(helper.make_function("f", f"F{number}", ["a"], ["b"], calls, sets))
    node = helper.make_node(f"F{depth - 1}", ["x"], ["y"], domain="f")
    return helper.make_graph([node], "g", [X], [Y]), made


def save_functions(path: Path, depth: int) -> Path:
    graph, made = functions(depth)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=sets, functions=made, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def children() -> set[int]:
    """Processes that run sessions, of whichever command."""
    found = set()
    for place in Path("/proc").iterdir():
        try:
            if b"graph.sessions" in (place / "cmdline").read_bytes():
                found.add(int(place.name))
        except (OSError, ValueError):
            continue
    return found


def refused(model: Path, out: Path, **limits: str) -> str:
    """The one error of a build, which wrote nothing and left no process."""
    done = call("build", "--model", model, "--output", out, env=limits)
    assert (done.returncode, done.stdout) == (3, ""), done.stdout + done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("error: ") == 1
    assert not out.exists()
    return done.stderr


def test_a_loop_without_end(tmp_path: Path) -> None:
    model = tiny.save(tmp_path / "m.onnx", endless())
    assert refused(model, tmp_path / "out", TRB_MODEL_SECONDS="1") == (
        f"error: {model}: the model ran for more than 1 s and was ended [golden-failed]\n"
        "  fix: if it needs longer on this machine, set TRB_MODEL_SECONDS to the seconds that one run may "
        "take; else the graph does not end: export it again\n"
    )
    assert isolated.SESSIONS.end() == 0  # nothing is left to end


@pytest.mark.parametrize("make", [growing, expanding, answering])
def test_a_graph_that_fills_the_memory(make: Callable[[], GraphProto], tmp_path: Path) -> None:
    isolated.SESSIONS.end()  # its limit is set as it starts
    model = tiny.save(tmp_path / "m.onnx", make())
    assert refused(model, tmp_path / "out", TRB_MODEL_MEMORY="3", TRB_MODEL_SECONDS="60") == (
        f"error: {model}: the model needs more memory than the 3.0 GiB that it may use [golden-failed]\n"
        "  fix: build on a machine with more free memory, or set TRB_MODEL_MEMORY to the GiB that it may "
        "use; a small model that fills the memory is damaged or hostile\n"
    )
    isolated.SESSIONS.end()


@pytest.mark.parametrize("argv", [("inspect",), ("build", "--no-golden", "--model"), ("build", "--model")])
def test_functions_that_call_each_other(argv: tuple[str, ...], tmp_path: Path) -> None:
    model = save_functions(tmp_path / "m" / "model.onnx", 40)
    more = ("--output", tmp_path / "out") if argv[0] == "build" else ()
    done = call(*argv, model, *more)
    assert (done.returncode, (tmp_path / "out").exists()) == (3, False)
    assert done.stderr == (
        f"error: {model}: its functions call each other so often that it has 549,755,813,888 nodes: at most "
        "500,000 can be served [unsupported-model]\n"
        "  fix: export it again without functions, or inline them: onnx.inliner.inline_local_functions\n"
    )


def test_such_functions_in_a_repository(tmp_path: Path) -> None:
    save_functions(tmp_path / "r" / "m" / "1" / "model.onnx", 40)
    done = call("check", tmp_path / "r")
    assert done.returncode == 1 and "so often that it has 549,755,813,888 nodes" in done.stdout


def test_functions_that_are_served(tmp_path: Path) -> None:
    model = save_functions(tmp_path / "model.onnx", 8)
    done = call("build", "--model", model, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr


def test_a_function_that_calls_itself(tmp_path: Path) -> None:
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    function = helper.make_function(
        "f", "R", ["a"], ["b"], [helper.make_node("R", ["a"], ["b"], domain="f")], sets
    )
    graph = helper.make_graph([helper.make_node("R", ["x"], ["y"], domain="f")], "g", [X], [Y])
    model = helper.make_model(graph, opset_imports=sets, functions=[function], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert "its function 'R' calls itself" in refused(tmp_path / "m.onnx", tmp_path / "out")


def test_others_are_built_beside_a_loop_without_end(tmp_path: Path) -> None:
    tiny.save(tmp_path / "models" / "a.onnx", endless())
    tiny.tensor_model(tmp_path / "models" / "b.onnx")
    done = call(
        "build", "--all", tmp_path / "models", "--output", tmp_path / "out", env={"TRB_MODEL_SECONDS": "1"}
    )
    assert done.returncode == 11
    assert "was ended [golden-failed]" in done.stderr
    assert (tmp_path / "out" / "b" / "1" / "model.onnx").is_file() and not (tmp_path / "out" / "a").exists()


def test_a_crash_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's process ends in the middle of a run."""
    loaded = original.load(reader.read_source(tiny.save(tmp_path / "m.onnx", endless())))
    child = isolated.SESSIONS._child
    assert child is not None
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(TrbError) as caught:
        loaded.run(None, {"x": np.zeros((1, 4), np.float32)})
    assert (caught.value.code, caught.value.where) == (Code.GOLDEN_FAILED, str(tmp_path / "m.onnx"))
    assert caught.value.message == "the process that ran the model ended (SIGSEGV)"


def test_it_ends_with_the_command(tmp_path: Path) -> None:
    """A command that is killed leaves no loop behind."""
    model = tiny.save(tmp_path / "m.onnx", endless())
    before = children()
    argv = [
        sys.executable,
        "-m",
        "triton_repo_builder",
        "build",
        "--model",
        model,
        "--output",
        tmp_path / "out",
    ]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        while not (started := children() - before):
            assert running.poll() is None
            time.sleep(0.05)
        running.kill()
    deadline = time.monotonic() + 60
    while started & children():
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)


@pytest.mark.parametrize("text", ["x", "-1", "0", "nan"])
def test_a_limit_that_is_none(text: str, tmp_path: Path) -> None:
    model = tiny.tensor_model(tmp_path / "m.onnx")
    done = call("build", "--model", model, "--output", tmp_path / "out", env={"TRB_MODEL_SECONDS": text})
    assert (done.returncode, "TRB_MODEL_SECONDS is" in done.stderr) == (2, True), done.stderr


def test_it_imports_nothing_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "onnxruntime", "json", "runpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    child, connection = process.spawn_python("triton_repo_builder.model.graph.sessions", str(4 * GIB))
    connection.send(("version", (), ()))
    kind, version = connection.recv()
    connection.close()
    child.wait()
    assert kind is None and version and not (tmp_path / "marker").exists()


# --- tokenizers --------------------------------------------------------------------------------------


def replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def template(*single: str, tokens: int = 1) -> dict[str, Any]:
    def piece(name: str) -> dict[str, Any]:
        kind = "Sequence" if name in "AB" else "SpecialToken"
        return {kind: {"id": name, "type_id": 0}}

    special = {"[CLS]": {"id": "[CLS]", "ids": [2] * tokens, "tokens": ["[CLS]"] * tokens}}
    pieces = [piece(name) for name in single]
    pair = [piece("A"), piece("B")]
    return {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": pieces,
            "pair": pair,
            "special_tokens": special,
        }
    }


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "doubled forty times": (sequence(*[replace("a", "aa")] * 40), "makes more than 100,000 characters"),
    "two long replacements": (
        sequence(replace("e", "o" * 4000), replace("o", "x" * 4000)),
        "makes more than 100,000 characters",
    ),
    "each character, three times": (
        sequence(*[{"type": "Replace", "pattern": {"Regex": "."}, "content": "y" * 500}] * 3),
        "makes more than 100,000 characters",
    ),
    "a replacement of a megabyte": (replace("a", "b" * (1 << 20)) | {}, "is a text of 1,048,576 characters"),
    "what is put before": (
        {"normalizer": {"type": "Prepend", "prepend": "b" * (1 << 20)}},
        "is a text of 1,048,576",
    ),
    "a hidden trigger": (
        sequence(*[replace("qqq", "")], replace("zx", "aa" * 100), *[replace("a", "aaaa")] * 12),
        "makes more than 100,000 characters",
    ),
    "an unknown token": (template("[X]", "A"), "its template has the token '[X]', which it does not define"),
    "a million tokens": (
        template("[CLS]", "A", tokens=1_000_000),
        "its template adds 1,000,000 tokens to every text",
    ),
    "the text a hundred times": (template(*["A"] * 100), "repeats a text"),
    "a second text that is not there": (template("B"), "has one that is not there"),
}
HOSTILE["a replacement of a megabyte"] = (
    {"normalizer": HOSTILE["a replacement of a megabyte"][0]},
    HOSTILE["a replacement of a megabyte"][1],
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_tokenizer_that_amplifies(name: str, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "m")
    change, message = HOSTILE[name]
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    error = refused(folder, tmp_path / "out")
    assert f"error: {file}: " in error and message in error and "[tokenizer-invalid]" in error
    assert len(error) < 1000


def test_an_unknown_token_that_is_long(tmp_path: Path) -> None:
    """Each character that it stands for would cost its length."""
    folder = tiny.embedder(tmp_path / "m")
    file = folder / "tokenizer.json"
    document = json.loads(file.read_text())
    document["model"]["unk_token"] = "x" * (1 << 20)
    document["model"]["vocab"]["x" * (1 << 20)] = len(document["model"]["vocab"])
    file.write_text(json.dumps(document))
    assert "its model.unk_token is a text of 1,048,576 characters" in refused(folder, tmp_path / "out")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_number_of_tokens_to_make(name: str, nested: bool, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "m")
    file = folder / name
    stated = json.loads(file.read_text()) if file.is_file() else {}
    asked = {"extra_ids": 10**9}
    file.write_text(json.dumps(stated | ({"init_kwargs": [asked]} if nested else asked)))
    assert "its extra_ids is 1,000,000,000: at most 10,000 tokens" in refused(folder, tmp_path / "out")


def test_a_file_of_empty_messages(tmp_path: Path) -> None:
    """Each node of two bytes would take hundreds in memory."""
    (tmp_path / "model.onnx").write_bytes(
        b"\x08\x08" + wire.field(7, wire.field(1, b"") * (wire.MOST + 1)) + wire.field(8, b"\x10\x11")
    )
    done = call("inspect", tmp_path / "model.onnx")
    assert kind(done.stderr) is Code.NOT_ONNX


def split_by(folder: Path, pattern: str) -> Path:
    """A tokenizer that splits texts by a pattern."""
    document = json.loads((folder / "tokenizer.json").read_bytes())
    document["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder


@pytest.mark.slow
def test_a_pattern_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library cannot be interrupted: it is given up after a time."""
    monkeypatch.setattr(tokenizer_limits, "SECONDS", 2.0)
    folder = split_by(tiny.embedder(tmp_path / "model"), r"(?:([a-zA-Z ,.])|([a-zA-Z ,.])){16}\1\2(?<=[0-9])")
    done = call("build", "--model", folder, "--output", tmp_path / "out")
    assert kind(done.stderr) is Code.TOKENIZER_INVALID
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--golden", "--no-golden"])
def test_a_pattern_that_is_given_up_says_one_thing(
    option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The library panics, and prints a stack trace of it."""
    folder = split_by(tiny.embedder(tmp_path / "model"), r"([a-z ]+)*\1*(?<=[0-9])")
    done = call("build", "--model", folder, "--output", tmp_path / "out", option)
    assert kind(done.stderr) is Code.TOKENIZER_INVALID
    assert "retry-limit-in-match over" in done.stderr
    assert "panicked" not in capfd.readouterr().err
    assert not (tmp_path / "out").exists()

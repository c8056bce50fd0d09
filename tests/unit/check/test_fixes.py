"""Corrections: the text that comes of them, and that what is not safe stays."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.check import fixes
from triton_repo_builder.check.finding import Finding

MODEL = "class TritonPythonModel:\n    def execute(self, r): ...\n"
HEAD = 'backend: "python"\n'
IO = (
    'input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
)
MANY = "".join(f'input [ {{ name: "{n}" data_type: TYPE_FP32 dims: [ 4 ] }} ]\n' for n in range(120))


def corrected(tmp_path: Path, text: str) -> str:
    (tmp_path / "m" / "1").mkdir(parents=True)
    file = tmp_path / "m" / "config.pbtxt"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "m" / "1" / "model.py").write_text(
        "class TritonPythonModel:\n    def execute(self, r): ...\n"
    )
    read = repository.read(tmp_path, lenient=True)

    def judged(texts: Mapping[str, str]) -> list[Finding]:
        return check.check(read.with_texts(texts), releases.default())

    changed = fixes.correct({str(file): fixes.exact(str(file))}, judged)
    fixes.write(changed)
    return file.read_bytes().decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + IO, HEAD + IO),
        (HEAD + IO.replace("TYPE_FP32", "FP32"), HEAD + IO),
        (HEAD + IO.replace("TYPE_FP32", '"TYPE_FP32"'), HEAD + IO),
        (HEAD + IO.replace('"X"', "\u201cX\u201d").replace('"Y"', "\u201cY\u201d"), HEAD + IO),
        ("\ufeff" + HEAD + IO.replace(" data", "\u00a0data"), HEAD + IO),
        (HEAD.replace("python", "Python") + IO, HEAD + IO),
        (HEAD + 'name: "other"\n' + IO, HEAD + IO),
        ((HEAD + IO).replace("TYPE_FP32", "FP32").replace("\n", "\r\n"), (HEAD + IO).replace("\n", "\r\n")),
        ("# \udce9\n" + HEAD + IO.replace("TYPE_FP32", "FP32"), "# \udce9\n" + HEAD + IO),
        (HEAD + 'name: "x" "y"\n' + IO, HEAD + 'name: "x" "y"\n' + IO),
        (HEAD + "name: \"x\" # why\n'y'\n" + IO, HEAD + "name: \"x\" # why\n'y'\n" + IO),
        (HEAD + 'name: "x\\"y" # why\n' + IO, HEAD + " # why\n" + IO),
        ('name: "x",' + HEAD + IO, HEAD + IO),
        ("backend: 'Python'\n" + IO, HEAD + IO),
        (HEAD + MANY.replace("TYPE_", ""), HEAD + MANY),
        (HEAD + IO + "max_batch_size: -1\n", HEAD + IO + "max_batch_size: -1\n"),
    ],
)
def test_texts(tmp_path: Path, text: str, expected: str) -> None:
    assert corrected(tmp_path, text) == expected


def test_a_brace_in_a_comment(tmp_path: Path) -> None:
    step = 'step [ # { "s" }\n{@ model_name: "m" input_map { key: "X" value: "X" } '
    step += 'output_map { key: "Y" value: "Y" } } ]'
    text = f'platform: "ensemble"\n{IO}ensemble_scheduling {{ {step} }}\n'
    for name, config in (("m", HEAD + IO), ("e", text.replace("@", ""))):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").write_text(MODEL)
        (tmp_path / name / "config.pbtxt").write_text(config)
    read, file = repository.read(tmp_path), str(tmp_path / "e" / "config.pbtxt")

    def judged(texts: Mapping[str, str]) -> list[Finding]:
        return check.check(read.with_texts(texts), releases.default())

    changed = fixes.correct({file: text.replace("@", "")}, judged)
    assert changed == {file: text.replace("@", " model_version: -1")}


def test_what_is_written_keeps_mode_and_link(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    fixes.write({str(link): "new"})
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode), link.is_symlink()) == ("new", 0o640, True)


def test_a_line_of_a_diff_ends_where_a_line_of_the_file_does() -> None:
    diff = fixes.diff("m", "# a\u2028b\x0c\r\nx\n", "# a\u2028b\x0c\r\ny\n")
    assert diff == "--- a/m\n+++ b/m\n@@ -1,2 +1,2 @@\n # a\u2028b\x0c\r\n-x\n+y\n"


def test_a_diff_applies_as_a_patch() -> None:
    assert fixes.diff("m/config.pbtxt", "a\nb", "a\nc\n") == (
        "--- a/m/config.pbtxt\n+++ b/m/config.pbtxt\n@@ -1,2 +1,2 @@\n a\n-b\n"
        "\\ No newline at end of file\n+c\n"
    )


STEP = 'model_name: "m" input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (f"step [ {{ model_version: 0 {STEP} }} ]", f"step [ {{ model_version: -1 {STEP} }} ]"),
        (f"step [ < {STEP} > ]", f"step [ < model_version: -1 {STEP} > ]"),
        (f"step {{ {STEP} model_version: 0 }}", f"step {{ {STEP} model_version: -1 }}"),
        (f"step [ {{ model_version: 7 {STEP} }} ]", ""),
    ],
    ids=["stated", "angle", "behind", "another version"],
)
def test_a_step_s_version_is_never_written_into_a_map(tmp_path: Path, step: str, expected: str) -> None:
    before = f'platform: "ensemble"\n{IO}ensemble_scheduling {{ {step} }}\n'
    assert of_two(tmp_path, HEAD + IO, before) == ([before.replace(step, expected)] if expected else [])


def test_a_correction_that_brings_a_finding_is_not_made(tmp_path: Path) -> None:
    """The mended type of a step would be another than its ensemble's."""
    typed = IO.replace("TYPE_FP32", "TYPE_INT32")
    ensemble = f'platform: "ensemble"\n{typed}ensemble_scheduling {{ step {{ model_version: -1 {STEP} }} }}\n'
    graph = '<ir_version: 8, opset_import: ["" : 17]>\ng (float[N,4] X) => (float[N,4] Y) { Y = Relu(X) }'
    head = 'backend: "onnxruntime"\nmax_batch_size: 8\ninstance_group { count: 1 kind: KIND_CPU }\n'
    assert of_two(tmp_path, head + typed, f"max_batch_size: 8\n{ensemble}", graph) == []
    assert of_two(tmp_path / "alone", head + typed, "", graph) == [head + IO]


@pytest.mark.parametrize(
    ("file", "expected"),
    [("model.plan", 'platform: "tensorrt_plan"\n'), ("model.onnx", 'backend: "onnxruntime"\n'), ("x", None)],
)
def test_the_file_decides_between_platform_and_backend(tmp_path: Path, file: str, expected: str) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / file).write_bytes(b"")
    text = f'platform: "tensorrt_plan"\nbackend: "onnxruntime"\n{IO}'
    config = tmp_path / "m" / "config.pbtxt"
    config.write_text(text)
    read = repository.read(tmp_path)
    changed = fixes.correct(
        {str(config): text}, lambda texts: check.check(read.with_texts(texts), releases.default())
    )
    assert [each.replace("\n\n", "\n").lstrip() for each in changed.values()] == [
        f"{expected}{IO}" for _ in [1] if expected
    ]


def of_two(tmp_path: Path, model: str, ensemble: str, graph: str = "") -> list[str]:
    """The changed texts of a model and of an ensemble on it; a model of Python unless it has a graph."""
    import onnx.parser

    texts = {}
    for name, config in (("m", model), ("e", ensemble)):
        if config:
            (tmp_path / name / "1").mkdir(parents=True, exist_ok=True)
            (tmp_path / name / "1" / "model.py").write_text(MODEL)
            (tmp_path / name / "config.pbtxt").write_text(config)
            texts[str(tmp_path / name / "config.pbtxt")] = config
    if graph:
        content = onnx.parser.parse_model(graph).SerializeToString()
        (tmp_path / "m" / "1" / "model.onnx").write_bytes(content)
    read = repository.read(tmp_path)
    return [
        *fixes.correct(
            texts, lambda changed: check.check(read.with_texts(changed), releases.default())
        ).values()
    ]

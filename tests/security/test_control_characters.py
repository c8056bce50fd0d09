"""Codes that a terminal obeys are never printed as they are, whoever chose the name that holds them."""

from __future__ import annotations

import ast
import json
import unicodedata
from pathlib import Path

import onnx
import pytest
import tiny
from cli import call

from triton_repo_builder.base import text
from triton_repo_builder.cli import console

CODES = "\x1b[2J\x1b]0;t\x07\r\x08\x7f\x9b31m\u202e\u2066\u2028"
"""Clears the screen, sets the title, rings, overwrites the line, turns the order of letters around."""
NAME = f"a{CODES}b"
PACKAGE = Path(text.__file__).parent


def assert_visible(*printed: str) -> None:
    joined = "".join(printed)
    assert joined
    raw = {c for c in joined if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs")}
    raw |= {
        c for c in joined if c in "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    }
    assert not raw, joined


def spoil(path: Path) -> Path:
    """A model whose every name has such codes."""
    model = onnx.load(path)
    model.producer_name = model.producer_version = NAME
    model.metadata_props.add(key=NAME, value=NAME)
    model.doc_string = model.graph.name = model.graph.doc_string = NAME
    for node in model.graph.node:
        node.name = NAME + node.name
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Also the folder and the tensors."""
    path = tiny.tensor_model(tmp_path / NAME / f"{NAME}.onnx", inputs=(f"X{CODES}",), outputs=(f"Y{CODES}",))
    return spoil(path)


def test_inspect(strange: Path) -> None:
    shown = call("inspect", strange)
    assert shown.returncode == 0
    assert_visible(shown.stdout)
    assert r"a\x1b[2J" in shown.stdout
    facts = call("inspect", strange, "--json")
    assert_visible(facts.stdout)
    document = json.loads(facts.stdout)
    assert document["inputs"][0]["name"] == f"X{CODES}"
    assert document["producer"] == f"{NAME} {NAME}"


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--diff",), ("--explain",), ("--json",)])
def test_build(more: tuple[str, ...], strange: Path, tmp_path: Path) -> None:
    done = call("build", "--model", strange, "--output", tmp_path / f"out{CODES}", *more)
    assert_visible(done.stdout, done.stderr)


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--diff",), ("--explain",), ("--json",)])
def test_labels(more: tuple[str, ...], tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "m")
    spoil(folder / "model.onnx")
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {number: f"{label}{CODES}" for number, label in config["id2label"].items()}
    config["_name_or_path"] = config["transformers_version"] = NAME
    (folder / "config.json").write_text(json.dumps(config))
    done = call("build", "--model", folder, "--output", tmp_path / "out", *more)
    assert_visible(done.stdout, done.stderr)


def test_many_models(strange: Path, tmp_path: Path) -> None:
    tiny.tensor_model(tmp_path / "ok.onnx")
    for more in ((), ("--json",), ("--diff",)):
        done = call("build", "--all", tmp_path, "--output", tmp_path / "out", *more)
        assert_visible(done.stdout, done.stderr)


def test_errors(tmp_path: Path) -> None:
    """The place, the message and the fix; also those of click."""
    (tmp_path / f"{NAME}.onnx").write_bytes(b"no model")
    for argv in (
        ("inspect", tmp_path / f"{NAME}.onnx"),
        ("inspect", tmp_path / f"{NAME}.onnx", "--json"),
        ("inspect", tmp_path / f"{NAME}\n.none"),
        ("build", "--model", tmp_path, "--file", NAME),
        ("build", "--model", "m.onnx", f"--{NAME}"),
        (NAME,),
        ("check", tmp_path / NAME),
        ("serve", tmp_path / NAME),
    ):
        done = call(*argv)
        assert done.returncode not in (0, 70)
        assert_visible(done.stderr)
    assert_visible(call("inspect", tmp_path / f"{NAME}.onnx", "--json").stdout)


FORMATS = ("text", "json", "github", "junit", "sarif")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Of a stranger: names in config.pbtxt, in the manifest, of models and files."""
    root = tmp_path / "r"
    tiny.put(tiny.classifier(tmp_path / "ok"), root)
    for name in (NAME, "m"):
        tiny.tensor_model(root / name / "1" / "model.onnx")
        (root / name / f"{NAME}.txt").write_text(NAME)
        (root / name / "config.pbtxt").write_text(
            f'name: "{NAME}"\nbackend: "{NAME}"\n'
            f'input {{ name: "X{CODES}" data_type: TYPE_FP32 dims: [ 4 ] }}\n'
        )
    manifest = json.loads((root / "manifest.json").read_text())
    entry = manifest["endpoints"]["ok"]
    (entry.get("served", entry))["recorded_with"] = NAME
    for source in entry.get("sources", []):
        source["file"] = NAME
    entry["labels"] = {NAME: NAME}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


@pytest.mark.parametrize("form", FORMATS)
def test_check(form: str, repository: Path) -> None:
    done = call("check", repository, "--format", form)
    assert done.returncode in (0, 1)
    assert_visible(done.stdout + done.stderr)


@pytest.mark.parametrize(
    "argv",
    [
        ("provenance", "{r}"),
        ("provenance", "{r}", "--json"),
        ("diff", "{r}", "{other}"),
        ("diff", "{other}", "{r}"),
        ("diff", "{r}", "{other}", "--json"),
        ("client", NAME, "{r}"),
        ("remove", NAME, "{r}"),
        ("verify", "{r}"),
        ("commit", "{r}", "-m", NAME),
    ],
)
def test_commands_on_a_repository(argv: tuple[str, ...], repository: Path, tmp_path: Path) -> None:
    tiny.put(tiny.classifier(tmp_path / "other", labels=4), tmp_path / "s", name="ok")
    done = call(
        *(part.replace("{r}", str(repository)).replace("{other}", str(tmp_path / "s")) for part in argv)
    )
    assert "Traceback" not in done.stderr
    assert_visible(done.stdout, done.stderr)


def test_visible() -> None:
    assert text.visible("a\x1b[1m\n\tb\x9b\u202e") == "a\\x1b[1m\n\tb\\u009b\\u202e"
    assert text.visible("é 日本 😀 👩‍👩‍👧 \xa0") == "é 日本 😀 👩‍👩‍👧 \xa0"
    assert json.loads(text.visible(json.dumps("\x9b\u202e\x1b", ensure_ascii=False))) == "\x9b\u202e\x1b"
    assert text.visible("a\nb", lines=False) == "a\\nb"


def test_styles_are_ours_alone(capsys: pytest.CaptureFixture[str]) -> None:
    console.echo(console.style(NAME, bold=True), NAME)
    assert_visible(capsys.readouterr().out)
    assert isinstance(console.style("a", bold=True), console.Styled)
    assert console.style("a\x1b[8m", fg="red") == "\x1b[31ma\\x1b[8m\x1b[0m"


def test_one_door_prints() -> None:
    """No command prints past ``console``, which rich's texts would."""
    for path in (PACKAGE / "cli").glob("*.py"):
        if path.name == "console.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "click.secho", "click.style", "Text", "sys.stdout.write"), path

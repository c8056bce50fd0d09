"""A model's folder is data: none of its Python, pickles and templates runs, and nobody is asked about it."""

from __future__ import annotations

import json
import os
import pickle
import pty
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tiny

QUESTION = ("custom code", "[y/N]", "trust_remote_code")
PYTHON = (
    *("configuration_x.py", "modeling_x.py", "tokenization_x.py", "processing_x.py", "image_processing_x.py"),
    *("setup.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "__init__.py"),
    *("numpy.py", "json.py", "onnx.py", "transformers.py", "tokenizers.py", "onnxruntime.py"),
)
PICKLES = (
    "pytorch_model.bin",
    "tokenizer.pkl",
    "training_args.bin",
    "vocab.pkl",
    "model.joblib",
    "scaler.npy",
)
CLASSES = {
    "AutoConfig": "configuration_x.XConfig",
    "AutoModel": "modeling_x.XModel",
    "AutoTokenizer": ["tokenization_x.XTokenizer", "tokenization_x.XTokenizerFast"],
    "AutoProcessor": "processing_x.XProcessor",
    "AutoImageProcessor": "image_processing_x.XImageProcessor",
}


class Planted:
    """What a pickle runs when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.system, (f"touch '{self.marker}'",)


def plant(folder: Path, marker: Path) -> None:
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nraise SystemExit('it ran')\n"
    for name in PYTHON:
        (folder / name).write_text(code)
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(Planted(marker)))
    walk = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    walk += f"{{{{ cycler.__init__.__globals__.os.system('touch {marker}') }}}}"
    (folder / "chat_template.jinja").write_text(walk)
    for name in ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"):
        file = folder / name
        stated = json.loads(file.read_text()) if file.is_file() else {}
        more = {
            "auto_map": CLASSES,
            "chat_template": walk,
            "custom_pipelines": {"x": {"impl": "modeling_x.X"}},
        }
        file.write_text(json.dumps(stated | more))


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def custom_tokenizer(folder: Path) -> Path:
    tiny.embedder(folder)
    change(folder / "tokenizer_config.json", tokenizer_class="XTokenizer")
    return folder


def known_class(folder: Path) -> Path:
    return tiny.embedder(folder)


def config_only(folder: Path) -> Path:
    """As nomic-embed and gte have it: an architecture of their own, and a tokenizer of transformers."""
    tiny.embedder(folder)
    change(folder / "config.json", model_type="nomic_bert_x", architectures=["NomicBertModel"])
    return folder


def slow(folder: Path) -> Path:
    """vocab.txt alone, which transformers converts."""
    tiny.embedder(folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)))
    (folder / "tokenizer.json").unlink()
    return folder


COMMANDS = {
    "inspect": ("inspect", "{folder}"),
    "inspect_json": ("inspect", "{folder}", "--json"),
    "build": ("build", "--model", "{folder}", "--output", "{out}"),
    "from_model": (
        "build",
        "--model",
        "{folder}/model.onnx",
        "--from-model",
        "{folder}",
        "--output",
        "{out}",
    ),
    "all": ("build", "--all", "{above}", "--output", "{out}"),
    "optimize": ("optimize", "{folder}", "-o", "{out}", "--steps", "int8"),
    "check": ("check", "{folder}"),
}


def run(
    argv: Sequence[str], folder: Path, out: Path, *, cwd: Path, stdin: str = "y\ny\ny\n"
) -> subprocess.CompletedProcess[str]:
    filled = [part.format(folder=folder, above=folder.parent, out=out) for part in argv]
    return subprocess.run(
        [str(Path(sys.executable).with_name("trb")), *filled],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.parametrize(
    ("make", "command"),
    [
        *((custom_tokenizer, command) for command in COMMANDS),
        *((make, "build") for make in (known_class, config_only, slow)),
    ],
)
def test_nothing_of_a_models_folder_runs(make: Callable[[Path], Path], command: str, tmp_path: Path) -> None:
    folder, marker = make(tmp_path / "models" / "x"), tmp_path / "marker"
    plant(folder, marker)
    done = run(COMMANDS[command], folder, tmp_path / "out", cwd=tmp_path)
    printed = done.stdout + done.stderr
    assert not marker.exists()
    assert not [word for word in QUESTION if word in printed], printed
    assert "Traceback" not in printed and "it ran" not in printed, printed
    if command in ("build", "all", "from_model") and make is not slow:
        assert done.returncode == 0, printed
        own = "Python code of the model's own, which is not run: the server follows tokenizer.json alone"
        assert own in done.stderr


def test_a_tokenizer_of_python_alone_is_refused(tmp_path: Path) -> None:
    folder, marker = custom_tokenizer(tmp_path / "x"), tmp_path / "marker"
    (folder / "tokenizer.json").rename(folder / "qwen.tiktoken")
    plant(folder, marker)
    done = run(COMMANDS["build"], folder, tmp_path / "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"error: {folder}: its tokenizer is Python code of the model's own, which is not run, and has no "
        "tokenizer.json [slow-tokenizer]\n"
        "  fix: write a tokenizer.json for it and put it there, or serve the model with --task tensor, and "
        "tokenize at the client\n"
    )
    assert not marker.exists() and not (tmp_path / "out").exists()


def test_nobody_is_asked_on_a_terminal(tmp_path: Path) -> None:
    folder, marker = config_only(tmp_path / "x"), tmp_path / "marker"
    plant(folder, marker)
    ours, theirs = pty.openpty()
    argv = [
        sys.executable,
        "-m",
        "triton_repo_builder",
        "build",
        "--model",
        folder,
        "--output",
        tmp_path / "out",
    ]
    os.write(ours, b"y\ny\ny\n")
    done = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, check=False, timeout=200)
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, marker.exists()) == (0, False), done.stderr
    assert not [word for word in QUESTION if word in done.stderr + done.stdout]


def test_transformers_cannot_import_a_file_of_a_model(tmp_path: Path) -> None:
    """Whatever a release of it passes on: the one function that does so is taken away, the question too."""
    folder, marker = config_only(tmp_path / "x"), tmp_path / "marker"
    plant(folder, marker)
    code = (
        "from triton_repo_builder.model.read import transformers_library as t\n"
        "for kind in ('AutoConfig', 'AutoTokenizer', 'AutoImageProcessor', 'AutoProcessor'):\n"
        "    for trust in (True, None):\n"
        "        try:\n"
        f"            getattr(t.load(), kind).from_pretrained({str(folder)!r}, trust_remote_code=trust)\n"
        "        except Exception as error:\n"
        "            print(kind, trust, 'refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="y\n" * 9,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert not marker.exists()
    assert "[y/N]" not in done.stdout + done.stderr
    assert "AutoConfig True refused" in done.stdout


@pytest.mark.parametrize(
    "name", ["special_tokens_map.json", "tokenizer_config.json", "generation_config.json"]
)
@pytest.mark.parametrize("key", ["vocab_file", "tokenizer_file"])
def test_a_document_too_deep_to_be_cleared_is_not_passed_on(name: str, key: str, tmp_path: Path) -> None:
    """Its keys could name any file, whose lines would become the vocabulary."""
    folder, deep = slow(tmp_path / "x"), "[" * 150 + "]" * 150
    (folder / name).write_text(f'{{"{key}": "/etc/passwd", "x": {deep}}}')
    done = run(COMMANDS["build"], folder, tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith(
        f"error: {folder / name}: is not readable JSON: nested more than 100 levels"
    )
    assert not (tmp_path / "out").exists()

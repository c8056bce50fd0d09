"""Nothing outside a model's folder is taken in: its author chose its links, and named its files."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import tiny
from cli import call

from triton_repo_builder.measure.optimize import speed
from triton_repo_builder.model.graph import per_row

SECRET = b"a file of the user's own, which no author of a model may have"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "home" / "secret"
    file.parent.mkdir()
    file.write_bytes(SECRET)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.embedder(tmp_path / "model")


def taken_in(out: Path, secret: Path) -> bool:
    """Whether a file of the repository is that file, or holds what is in it."""
    files = [file for file in out.rglob("*") if file.is_file()] if out.exists() else []
    return any(file.samefile(secret) or SECRET in file.read_bytes() for file in files)


def build(folder: Path, out: Path, *more: str) -> str:
    """The error of a build that must fail at once, with nothing written."""
    done = call("build", "--model", folder, "--output", out, *more)
    assert done.returncode in (3, 4), done.stdout + done.stderr
    assert not out.exists()
    return done.stderr


def external(path: Path, location: str) -> None:
    """A model whose one weight is in the file ``location``."""
    tiny.tensor_model(path)
    model = onnx.load(path)
    weight = next(one for one in model.graph.initializer if len(one.dims) == 2)
    shape = list(weight.dims)
    weight.Clear()
    weight.name, weight.data_type = "W", onnx.TensorProto.FLOAT
    weight.dims.extend(shape)
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("golden", ["--golden", "--no-golden"])
def test_weights_behind_a_link(golden: str, secret: Path, tmp_path: Path) -> None:
    model = tmp_path / "m" / "model.onnx"
    external(model, "w.bin")
    (tmp_path / "m" / "w.bin").symlink_to(secret)
    for given in (model, model.parent):
        error = build(given, tmp_path / "out", golden)
        assert (
            f"{model.parent}/w.bin: this leads out of the model's folder, to {secret} [outside-folder]"
            in error
        )


@pytest.mark.parametrize("location", ["model.onnx", "./model.onnx", "same.onnx"])
def test_weights_in_the_models_own_file(location: str, tmp_path: Path) -> None:
    """ONNX Runtime would take the file's own bytes for numbers; in the repository it has another name."""
    path = tmp_path / "model" / "model.onnx"
    external(path, location)
    (path.parent / "same.onnx").hardlink_to(path)
    for golden in ("--golden", "--no-golden"):
        error = build(path, tmp_path / "out", golden)
        assert "which is the model itself [external-data]" in error
    served = tmp_path / "repo"
    tiny.put(tiny.tensor_model(tmp_path / "other.onnx"), served)
    model = next(served.rglob("model.onnx"))
    model.unlink()
    shutil.copyfile(path, model)
    (model.parent / "same.onnx").hardlink_to(model)
    done = call("check", served)
    assert done.returncode == 1
    assert "which is the model itself [onnx-external-data]" in done.stdout


def test_weights_behind_a_linked_folder(secret: Path, tmp_path: Path) -> None:
    model = tmp_path / "m" / "model.onnx"
    external(model, "d/secret")
    (tmp_path / "m" / "d").symlink_to(secret.parent)
    assert "[outside-folder]" in build(model, tmp_path / "out")


@pytest.mark.parametrize("location", ["../home/secret", "{secret}", "x/../../home/secret"])
def test_weights_at_a_path_outside(location: str, secret: Path, tmp_path: Path) -> None:
    model = tmp_path / "m" / "model.onnx"
    external(model, location.format(secret=secret))
    (tmp_path / "m" / "x").mkdir()
    assert "[external-data]" in build(model, tmp_path / "out")


NAMES = (
    *("model.onnx", "config.json", "tokenizer.json", "tokenizer_config.json", "modules.json"),
    *("1_Pooling/config.json", "special_tokens_map.json", "vocab.txt", "sentence_bert_config.json"),
    *("config_sentence_transformers.json", "preprocessor_config.json"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_a_link(name: str, folder: Path, tmp_path: Path) -> None:
    """Of the very content that is right: it is refused for where it is."""
    file = folder / name
    if not file.exists():
        tiny.put_json(file, {})
    away = tmp_path / "home" / "file"
    away.parent.mkdir()
    file.rename(away)
    file.symlink_to(away)
    error = build(folder, tmp_path / "out")
    assert f"{file}: this leads out of the model's folder, to {away} [outside-folder]" in error


def test_a_link_to_a_folder_of_a_module(folder: Path, tmp_path: Path) -> None:
    (folder / "1_Pooling").rename(tmp_path / "away")
    (folder / "1_Pooling").symlink_to(tmp_path / "away")
    assert "[outside-folder]" in build(folder, tmp_path / "out")


@pytest.mark.parametrize("path", ["../away", "{tmp}/away"])
def test_a_module_that_is_named_outside(path: str, folder: Path, tmp_path: Path) -> None:
    (folder / "1_Pooling").rename(tmp_path / "away")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = path.format(tmp=tmp_path)
    (folder / "modules.json").write_text(json.dumps(modules))
    assert "[outside-folder]" in build(folder, tmp_path / "out")


def test_a_vocabulary_behind_a_link(folder: Path, secret: Path, tmp_path: Path) -> None:
    """transformers would follow it, and its lines would be tokens."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").symlink_to(secret)
    assert "[outside-folder]" in build(folder, tmp_path / "out")
    assert not taken_in(tmp_path / "out", secret)


def test_a_link_inside_the_folder_is_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "files").mkdir()
    (folder / "tokenizer.json").rename(folder / "files" / "t.json")
    (folder / "tokenizer.json").symlink_to("files/t.json")
    assert call("build", "--model", folder, "--output", tmp_path / "out").returncode == 0


def cached(folder: Path, cache: Path) -> Path:
    """The folder as Hugging Face's cache holds it: each file a link to a blob."""
    snapshot, blobs = cache / "snapshots" / "abc", cache / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(file for file in folder.rglob("*") if file.is_file())):
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, blobs / f"{number:064}")
        link.symlink_to(os.path.relpath(blobs / f"{number:064}", link.parent))
    return snapshot


def test_the_cache_of_hugging_face_is_read(folder: Path, tmp_path: Path) -> None:
    tiny.externalise(folder / "model.onnx")
    snapshot = cached(folder, tmp_path / "models--org--name")
    done = call("build", "--model", snapshot, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("place", ["cache", "models--org--name/other", "models--org--name/snapshots"])
def test_what_only_looks_like_that_cache(place: str, folder: Path, tmp_path: Path) -> None:
    """Another folder's blobs, and blobs that are a link themselves."""
    snapshot = cached(folder, tmp_path / "models--org--name")
    if place.endswith("snapshots"):
        (tmp_path / "models--org--name" / "blobs").rename(tmp_path / "away")
        (tmp_path / "models--org--name" / "blobs").symlink_to(tmp_path / "away")
    else:
        moved = tmp_path / place / "x"
        moved.mkdir(parents=True)
        for file in snapshot.rglob("*"):
            if file.is_file():
                (moved / file.relative_to(snapshot)).parent.mkdir(exist_ok=True)
                (moved / file.relative_to(snapshot)).symlink_to(file.resolve())
        snapshot = moved
    assert "[outside-folder]" in build(snapshot, tmp_path / "out")


def test_what_the_user_names_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).symlink_to(folder / name)
    argv = (
        "--model",
        tmp_path / "model.onnx",
        "--tokenizer",
        tmp_path / "tokenizer.json",
        "--pooling",
        "mean",
    )
    done = call("build", *argv, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr


# --- many models -----------------------------------------------------------------------------------


def build_all(above: Path, out: Path) -> str:
    done = call("build", "--all", above, "--output", out)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_a_linked_model_among_many(tmp_path: Path) -> None:
    tiny.tensor_model(tmp_path / "home" / "private.onnx")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.onnx").symlink_to(tmp_path / "home" / "private.onnx")
    assert "[outside-folder]" in build_all(tmp_path / "models", tmp_path / "out")
    (tmp_path / "models" / "m.onnx").unlink()
    (tmp_path / "models" / "m").symlink_to(tmp_path / "home")
    assert "[outside-folder]" in build_all(tmp_path / "models", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["tokenizer", "from-model", "preprocessor"])
def test_a_trb_toml_that_names_files_outside(option: str, folder: Path, tmp_path: Path) -> None:
    """That of a model among many came with the model."""
    tiny.embedder(tmp_path / "home")
    (tmp_path / "models").mkdir()
    folder.rename(tmp_path / "models" / "m")
    (tmp_path / "models" / "m" / "trb.toml").write_text(f'[build]\n{option} = "../../home"\n')
    assert "[outside-folder]" in build_all(tmp_path / "models", tmp_path / "out")


def test_a_trb_toml_that_brings_code(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    folder.rename(tmp_path / "models" / "m")
    (tmp_path / "models" / "m" / "trb.toml").write_text('[build]\ntokenizers-wheel = "evil.whl"\n')
    said = build_all(tmp_path / "models", tmp_path / "out")
    assert "may not set it: what it names runs in the server" in said


# --- optimize ----------------------------------------------------------------------------------------


def test_optimize_copies_no_file_from_outside(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_row, "SMALLEST", 16)
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    folder = tiny.classifier(tmp_path / "model", labels=8)
    (folder / "README.md").symlink_to(secret)
    done = call("optimize", folder, "-o", tmp_path / "out", "--steps", "int8:per-row", "--max-drop", "0.9")
    assert done.returncode == 0, done.stderr
    assert not taken_in(tmp_path / "out", secret)


# --- what is no file -----------------------------------------------------------------------------------


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        os.chdir(path.parent)  # such an address is short
        door.bind(path.name)


MAKERS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": bind,
    "endless": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.onnx", "modules.json", "model.onnx_data"]
)
def test_what_is_no_file_is_refused_at_once(
    name: str, kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "model.onnx_data":
        tiny.externalise(folder / "model.onnx")
    (folder / name).unlink()
    MAKERS[kind](folder / name)
    for argv in (("inspect", folder), ("build", "--model", folder, "--output", tmp_path / "out")):
        done = call(*argv)
        assert done.returncode in (3, 4), done.stdout + done.stderr
        assert "error: " in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.fixture
def slow(folder: Path) -> Path:
    """A tokenizer that transformers makes of a vocabulary."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text(WORDS + "\n".join(tiny.WORDS))
    tiny.put_json(
        folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": 24}
    )
    return folder


@pytest.mark.parametrize("key", ["vocab_file", "tokenizer_file", "vocab", "added_tokens_file"])
@pytest.mark.parametrize("document", ["special_tokens_map.json", "tokenizer_config.json"])
def test_a_key_that_names_a_file(slow: Path, secret: Path, tmp_path: Path, document: str, key: str) -> None:
    """transformers would open what these keys name."""
    secret.write_bytes(b"[UNK]\n" + SECRET)
    stated = json.loads((slow / document).read_bytes()) if (slow / document).exists() else {}
    tiny.put_json(slow / document, {**stated, key: str(secret)})
    done = call("build", "--model", slow, "--output", tmp_path / "out")
    assert done.returncode in (0, 3), done.stderr
    assert not taken_in(tmp_path / "out", secret)


def test_a_fast_tokenizer_of_another_folder(slow: Path, secret: Path, tmp_path: Path) -> None:
    outside = tiny.embedder(tmp_path / "other") / "tokenizer.json"
    other = tmp_path / "home" / "tokenizer.4.0.0.json"
    other.write_bytes(outside.read_bytes().replace(b"fox", SECRET[:9].replace(b" ", b"_")))
    config = json.loads((slow / "tokenizer_config.json").read_bytes())
    tiny.put_json(
        slow / "tokenizer_config.json", {**config, "fast_tokenizer_files": [f"../home/{other.name}"]}
    )
    done = call("build", "--model", slow, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert all(
        SECRET[:9].replace(b" ", b"_") not in file.read_bytes()
        for file in (tmp_path / "out").rglob("tokenizer.json")
    )


def test_a_tokenizer_class_that_is_none(slow: Path, tmp_path: Path) -> None:
    tiny.put_json(slow / "tokenizer_config.json", {"tokenizer_class": "AutoModel"})
    assert "not the name of a tokenizer" in build(slow, tmp_path / "out")


def test_a_large_document(slow: Path, tmp_path: Path) -> None:
    with (slow / "special_tokens_map.json").open("wb") as file:
        file.truncate(6 << 30)
    assert "larger than" in build(slow, tmp_path / "out")

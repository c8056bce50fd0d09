"""A repository is changed as a whole or not at all, and what is the user's stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import publish


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedder, a classifier, an image-like model."""
    folder = tmp_path_factory.mktemp("models")
    tiny.embedder(folder / "embedder")
    tiny.classifier(folder / "classifier")
    tiny.tensor_model(folder / "net.onnx")
    return folder


def manifest(output: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return document


def check_manifest(output: Path) -> None:
    """Every file of ours is listed with its checksum, and nothing else is."""
    for path, fact in manifest(output)["files"].items():
        assert files.hash_file(output / path) == fact["sha256"], path
        assert (output / path).stat().st_size == fact["bytes"], path


def refused(model: Path, output: Path, code: Code, **options: Any) -> TrbError:
    """The error of a build that leaves everything as it was."""
    before = tiny.tree(output.parent)
    with pytest.raises(TrbError) as caught:
        tiny.put(model, output, **options)
    assert caught.value.code == code
    assert caught.value.remedy
    assert tiny.tree(output.parent) == before
    return caught.value


def times(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in (folder, *folder.rglob("*"))}


def test_a_rebuild_gives_the_same_bytes_anywhere(models: Path, tmp_path: Path) -> None:
    trees = []
    for place in ("a", "b"):
        folder = tmp_path / place / "some folder" / "embedder"
        shutil.copytree(models / "embedder", folder)
        tiny.put(folder, tmp_path / place / "repo", golden=True)
        trees.append(tiny.tree(tmp_path / place / "repo"))
    assert trees[0] == trees[1]
    text = b"".join(path.read_bytes() for path in (tmp_path / "a" / "repo").rglob("*.json"))
    assert str(tmp_path).encode() not in text
    check_manifest(tmp_path / "a" / "repo")


def test_an_unchanged_build_touches_nothing(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    before = times(output.parent)
    publication = tiny.put(models / "embedder", output)
    assert not publication.changes
    assert publish.diff(publication) == ""
    assert times(output.parent) == before


def test_a_repository_that_is_complete_is_what_was_published(models: Path, output: Path) -> None:
    publication = tiny.put(models / "embedder", output)
    found = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert found == {*manifest(output)["files"], "manifest.json"}
    assert set(publication.changes.added) == set(manifest(output)["files"])
    read = repository.read(output)
    assert [model.name for model in read.endpoints] == ["embedder"]
    assert all(model.error is None and model.versions == (1,) for model in read.models)


def test_the_users_model_is_byte_for_byte_his(models: Path, output: Path) -> None:
    before = tiny.tree(models)
    tiny.put(models / "embedder", output)
    assert tiny.tree(models) == before
    served = output / "embedder_model" / "1" / "weights.onnx"
    assert served.read_bytes() == (models / "embedder" / "model.onnx").read_bytes()


def test_other_endpoints_stay(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    before = tiny.tree(output)
    tiny.put(models / "net.onnx", output)
    after = tiny.tree(output)
    assert {path: after[path] for path in before if path != "manifest.json"} == {
        path: digest for path, digest in before.items() if path != "manifest.json"
    }
    assert list(manifest(output)["endpoints"]) == ["embedder", "net"]
    check_manifest(output)


def test_a_changed_option_changes_what_it_must(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    publication = tiny.put(models / "embedder", output, instances=3)
    # The endpoint's own states the content digest.
    assert publication.changes.changed == ("embedder/config.pbtxt", "embedder_model/config.pbtxt")
    assert publication.changes.added == publication.changes.removed == ()
    text = publish.diff(publish.prepare(tiny.make(models / "embedder", output), output, force=True))
    assert "-instance_group { count: 3 kind: KIND_CPU }" in text
    assert "+instance_group { count: 2 kind: KIND_CPU }" in text


def test_a_model_that_was_changed_in_place_is_seen(models: Path, tmp_path: Path, output: Path) -> None:
    shutil.copytree(models / "embedder", tmp_path / "m")
    tiny.put(tmp_path / "m", output)
    tiny.text_model(tmp_path / "m" / "model.onnx", rows=80)  # written through the hard link
    publication = tiny.put(tmp_path / "m", output)
    configs = {f"{name}/config.pbtxt" for name in ("m", "m_tokenizer", "m_model")}  # they name its sha256
    assert set(publication.changes.changed) == {"m_model/1/weights.onnx", "m_model/1/model.onnx", *configs}
    check_manifest(output)


# --- the user's own files ----------------------------------------------------------------------------


def test_the_users_files_are_carried_over_as_they_are(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    mine = output / "embedder_model" / "notes" / "läs mig.sh"
    mine.parent.mkdir()
    mine.write_text("#!/bin/sh")
    mine.chmod(0o755)
    os.utime(mine, (1, 2))
    (output / "embedder" / "link").symlink_to("../embedder_model/notes")
    (output / "embedder" / "broken").symlink_to("nowhere")
    (output / "README.md").write_text("ours is not the only file here")
    (output / "own_model" / "1").mkdir(parents=True)
    publication = tiny.put(models / "embedder", output, instances=3)
    assert publication.changes.kept == ("embedder/broken", "embedder/link", "embedder_model/notes/läs mig.sh")
    assert (mine.read_text(), mine.stat().st_mode & 0o777, mine.stat().st_mtime) == ("#!/bin/sh", 0o755, 2)
    assert (output / "embedder" / "link").readlink() == Path("../embedder_model/notes")
    assert (output / "embedder" / "broken").readlink() == Path("nowhere")
    assert (output / "README.md").exists()
    assert (output / "own_model" / "1").is_dir()
    check_manifest(output)


def test_an_edited_file_is_refused_and_force_replaces_it(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    edited = output / "embedder_model" / "config.pbtxt"
    written = edited.read_text()
    edited.write_text(written.replace("count: 2", "count: 9"))
    error = refused(models / "embedder", output, Code.EDITED_FILE)
    assert error.message == "changed since trb wrote it: embedder_model/config.pbtxt"
    made = tiny.make(models / "embedder", output)
    assert "-instance_group { count: 9" in publish.diff(publish.prepare(made, output, force=True))
    tiny.put(models / "embedder", output, force=True)
    assert edited.read_text() == written


def test_many_edited_files_are_counted(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    for path in manifest(output)["files"]:
        if not path.endswith((".so", ".onnx", "tokenizer.json")) and "/vendor/" not in path:
            (output / path).unlink()
            (output / path).write_bytes(b"\xff edited")
    error = refused(models / "embedder", output, Code.EDITED_FILE)
    assert error.message.endswith(" more")
    made = tiny.make(models / "embedder", output)
    assert "edited" in publish.diff(publish.prepare(made, output, force=True))


def test_an_edit_of_another_endpoint_is_nobodys_business(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    tiny.put(models / "net.onnx", output)
    (output / "net" / "config.pbtxt").write_text("edited")
    tiny.put(models / "embedder", output, instances=3)
    assert (output / "net" / "config.pbtxt").read_text() == "edited"


def test_a_deleted_file_is_written_again(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    (output / "embedder_tokenizer" / "1" / "model.py").unlink()
    publication = tiny.put(models / "embedder", output)
    assert publication.changes.added == ("embedder_tokenizer/1/model.py",)
    check_manifest(output)


def test_a_file_replaced_by_a_broken_link_is_written_again(models: Path, output: Path) -> None:
    tiny.put(models / "net.onnx", output)
    path = output / "net" / "1" / "model.onnx"
    path.unlink()
    path.symlink_to("gone")
    tiny.put(models / "net.onnx", output)
    assert not path.is_symlink()
    check_manifest(output)


# --- versions and names ------------------------------------------------------------------------------


def test_version_two_beside_version_one(models: Path, output: Path, tmp_path: Path) -> None:
    tiny.put(models / "embedder", output)
    first = {p: d for p, d in tiny.tree(output).items() if "/1/" in p}
    shutil.copytree(models / "embedder", tmp_path / "new" / "embedder")
    tiny.text_model(tmp_path / "new" / "embedder" / "model.onnx", rows=80)
    tiny.put(tmp_path / "new" / "embedder", output, version=2)
    assert {p: d for p, d in tiny.tree(output).items() if "/1/" in p} == first
    assert [model.versions for model in repository.read(output).models] == [(1, 2)] * 3
    assert manifest(output)["endpoints"]["embedder"]["version"] == 2
    listed = manifest(output)["files"]
    for name in ("embedder/{}/.gitkeep", "embedder_tokenizer/{}/model.py", "embedder_model/{}/weights.onnx"):
        assert {name.format(1), name.format(2)} <= listed.keys()
    check_manifest(output)
    before = times(output)
    assert not tiny.put(tmp_path / "new" / "embedder", output, version=2).changes
    assert times(output) == before
    # and version 1 again, beside 2
    tiny.put(models / "embedder", output)
    assert {p: d for p, d in tiny.tree(output).items() if "/1/" in p} == first
    check_manifest(output)


def test_another_model_under_the_same_name_is_said(models: Path, output: Path, tmp_path: Path) -> None:
    assert tiny.put(models / "embedder", output).changes.notes == ()
    assert tiny.put(models / "embedder", output, max_batch_size=4).changes.notes == ()
    shutil.copytree(models / "embedder", tmp_path / "new" / "embedder")
    tiny.text_model(tmp_path / "new" / "embedder" / "model.onnx", rows=80)
    (note,) = tiny.put(tmp_path / "new" / "embedder", output).changes.notes
    assert note.startswith(
        "the endpoint 'embedder' was built from another model, which this replaces (model.onnx "
    )


def test_versions_with_other_outputs_cannot_share_a_configuration(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output, name="one")
    error = refused(models / "classifier", output, Code.OUTPUT_FOREIGN, name="one", version=2)
    assert error.message.startswith("version 1 has other inputs, outputs or steps")
    tiny.put(models / "classifier", output, name="one", version=2, force=True)
    assert manifest(output)["endpoints"]["one"]["task"] == "text-classification"


def test_a_dry_run_knows_of_edits(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    with (output / "embedder" / "config.pbtxt").open("a") as file:
        file.write("# mine\n")
    made = tiny.make(models / "embedder", output)
    assert publish.prepare(made, output, force=True).changes.edited == ("embedder/config.pbtxt",)


def test_another_task_drops_the_models_it_has_not(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    (output / "embedder_model" / "mine.txt").write_text("mine")
    publication = tiny.put(models / "embedder", output, task="tensor")
    assert manifest(output)["endpoints"]["embedder"]["models"] == ["embedder"]
    assert "embedder_tokenizer/1/model.py" in publication.changes.removed
    assert {path.name for path in output.iterdir()} == {"embedder", "embedder_model", "manifest.json"}
    assert tiny.tree(output / "embedder_model").keys() == {"mine.txt"}
    check_manifest(output)


@pytest.mark.parametrize("name", ["embedder_model", "embedder_tokenizer"])
def test_a_name_that_another_endpoint_has_is_refused(name: str, models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    error = refused(models / "net.onnx", output, Code.OUTPUT_FOREIGN, name=name)
    assert error.message == "the directory belongs to the endpoint 'embedder'; nothing was touched"


def test_the_other_way_round(models: Path, output: Path) -> None:
    tiny.put(models / "net.onnx", output, name="embedder_tokenizer")
    refused(models / "embedder", output, Code.OUTPUT_FOREIGN)


def test_a_directory_of_the_user_is_refused(models: Path, output: Path) -> None:
    tiny.put(models / "net.onnx", output)
    (output / "embedder_model").mkdir()
    error = refused(models / "embedder", output, Code.OUTPUT_FOREIGN)
    assert error.message == "the directory was not written by trb; nothing was touched"


@pytest.mark.parametrize("content", [None, "{}", '{"version": 3, "files": []}', "[]"])
def test_a_foreign_folder_is_refused(content: str | None, models: Path, output: Path) -> None:
    output.mkdir()
    (output / ("manifest.json" if content else "thesis.docx")).write_text(content or "x")
    error = refused(models / "net.onnx", output, Code.OUTPUT_FOREIGN)
    assert error.message == "holds files but no manifest.json of trb; nothing was touched"


def test_a_file_is_no_repository(models: Path, output: Path) -> None:
    output.write_text("x")
    assert refused(models / "net.onnx", output, Code.OUTPUT_FOREIGN).message == "is a file, not a folder"


@pytest.mark.parametrize(
    "content",
    ["{", "\x00", '{"endpoints": {}, "files": []}', '{"endpoints": {"net": {}}, "files": {}}',
     '{"endpoints": {}, "files": {"a/b": {"bytes": 3}}}'],
)  # fmt: skip
def test_a_damaged_manifest_is_refused(content: str, models: Path, output: Path) -> None:
    output.mkdir()
    (output / "manifest.json").write_text(content)
    refused(models / "net.onnx", output, Code.REPOSITORY_UNREADABLE)


def test_an_empty_folder_and_a_link_to_one_will_do(models: Path, output: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    output.symlink_to(tmp_path / "real", target_is_directory=True)
    tiny.put(models / "net.onnx", output)
    assert output.is_symlink()
    check_manifest(tmp_path / "real")


def test_relative_and_unicode_outputs(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.put(models / "net.onnx", Path("répertoire 模型") / "sub")
    check_manifest(tmp_path / "répertoire 模型" / "sub")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    tiny.put(models / "net.onnx", Path())
    check_manifest(tmp_path / "here")
    assert {path.name for path in tmp_path.iterdir()} == {"here", "répertoire 模型"}


def test_a_model_inside_the_output_itself(models: Path, output: Path) -> None:
    tiny.put(models / "embedder", output)
    content = (models / "embedder" / "model.onnx").read_bytes()
    weights = output / "embedder_model" / "1" / "weights.onnx"
    tiny.put(weights, output, name="embedder", task="embedding", tokenizer=models / "embedder")
    assert weights.read_bytes() == content
    check_manifest(output)
    tiny.put(weights, output, name="embedder", task="tensor")
    assert (output / "embedder" / "1" / "model.onnx").read_bytes() == content
    check_manifest(output)


def test_read_only_and_linked_sources(models: Path, output: Path, tmp_path: Path) -> None:
    path = tiny.tensor_model(tmp_path / "real.onnx")
    path.chmod(0o400)
    (tmp_path / "link.onnx").symlink_to(path)
    tiny.put(tmp_path / "link.onnx", output)
    served = output / "link" / "1" / "model.onnx"
    assert (served.is_symlink(), served.read_bytes()) == (False, path.read_bytes())


# --- failure -----------------------------------------------------------------------------------------


def test_a_failed_swap_leaves_the_old_repository(
    models: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.put(models / "embedder", output)
    before = tiny.tree(output.parent)
    rename, calls = Path.rename, 0

    def failing(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == failing_call:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    # Three models and the manifest, each moved out and in.
    for failing_call in range(1, 9):
        calls = 0
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", failing)
            with pytest.raises(TrbError, match="cannot be written: Input/output error"):
                tiny.put(models / "embedder", output, instances=3)
        assert calls >= failing_call
        assert tiny.tree(output.parent) == before


@pytest.fixture(params=["simulated", "tmpfs"])
def full_disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Any]]:
    """(a folder, a function that fills its disk but for so many bytes).

    A real tmpfs where this user may mount one; else, and besides, writes that fail after so many bytes.
    """
    place = tmp_path / "disk"
    with tiny.small_disk(place, "40m") as mounted:
        if request.param == "simulated" or not mounted:
            yield place, lambda left: _limit_writes(monkeypatch, left)
            return
        yield place, lambda left: _fill(place / "filler", left)


def _fill(filler: Path, left: int) -> None:
    free = os.statvfs(filler.parent)
    filler.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - left)))


def _limit_writes(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    put = files.put

    def limited(file: files.File, root: Path) -> None:
        nonlocal left
        left -= file.size()
        if left < 0:
            (root / file.path).parent.mkdir(parents=True, exist_ok=True)
            (root / file.path).write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(root / file.path))
        put(file, root)

    monkeypatch.setattr(files, "put", limited)


@pytest.mark.parametrize("left", [0, 4096, 3_000_000])
def test_a_full_disk_leaves_the_old_repository_and_no_litter(
    left: int, models: Path, full_disk: tuple[Path, Any]
) -> None:
    place, fill = full_disk
    output = place / "sub" / "model_repository"
    tiny.put(models / "net.onnx", output)
    before = tiny.tree(place / "sub")
    fill(left)
    with pytest.raises(TrbError) as caught:
        tiny.put(models / "embedder", output)
    assert caught.value.code == Code.DISK_FULL
    assert caught.value.message == "the disk is full; the repository is unchanged"
    assert tiny.tree(place / "sub") == before


def test_a_volume_can_be_the_output(models: Path, tmp_path: Path) -> None:
    """As in ``docker run -v volume:/models``: nothing can be renamed into it from beside it."""
    output = tmp_path / "volume"
    with tiny.small_disk(output, "40m"):
        tiny.put(models / "net.onnx", output)
        tiny.put(models / "net.onnx", output, instances=3)
        check_manifest(output)
        assert {path.name for path in output.iterdir()} == {"net", "manifest.json"}
    assert list(tmp_path.iterdir()) == [output]


def test_below_a_file_nothing_can_be_written(models: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    error = refused(models / "net.onnx", tmp_path / "file" / "repo", Code.OUTPUT_NOT_WRITABLE)
    assert error.message.startswith("cannot be written: ")

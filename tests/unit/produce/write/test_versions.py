"""Versions beside each other: what is served stays served until somebody promotes another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import two_versions

from triton_repo_builder import check, repository
from triton_repo_builder.base import files, releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import publish, versions
from triton_repo_builder.repository import Manifest, pbtxt
from triton_repo_builder.repository.manifest import FileRecord
from triton_repo_builder.ship.deploy import diff, promote, snapshot
from triton_repo_builder.ship.stores import external_weights

MODELS = ("sentiment", "sentiment_tokenizer", "sentiment_model")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_versions.make(tmp_path_factory.mktemp("models"))


def put(model: Path, output: Path, version: int, *, serve: bool = False, **options: Any) -> None:
    made = tiny.make(model, output, version=version, golden=True, **options)
    publish.publish(publish.prepare(versions.place(made, output, serve=serve), output))


def both(models: tuple[Path, Path], output: Path) -> Path:
    put(models[0], output, 1)
    put(models[1], output, versions.following(output, "sentiment"), source_run="run-2")
    return output


def entry(output: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((output / "manifest.json").read_text())["endpoints"]["sentiment"]
    return document


def config(output: Path, model: str) -> dict[str, Any]:
    return pbtxt.parse((output / model / "config.pbtxt").read_text())


def is_served(output: Path, version: int) -> None:
    """Everything says so: policies, pins, cases, manifest; and check finds nothing."""
    for model in MODELS:
        assert config(output, model)["version_policy"] == {"specific": {"versions": [version]}}
    steps = config(output, "sentiment")["ensemble_scheduling"]["step"]
    assert {step["model_version"] for step in steps} == {version}
    assert entry(output)["version"] == version
    assert entry(output)["cases"] == "sentiment/smoke.json"
    own = output / "sentiment" / str(version) / "shared" / "smoke.json"
    assert (output / "sentiment" / "smoke.json").read_bytes() == own.read_bytes()
    listed = json.loads((output / "manifest.json").read_text())["files"]
    for path, fact in listed.items():
        assert files.hash_file(output / path) == fact["sha256"], path
    assert check.check(repository.read(output), releases.default()) == []


def test_the_next_version_is_not_served_and_changes_nothing_of_the_first(
    models: tuple[Path, Path], output: Path
) -> None:
    put(models[0], output, 1)
    first = {path: digest for path, digest in tiny.tree(output).items() if "/1" in path}
    both(models, output)
    after = tiny.tree(output)
    assert {path: digest for path, digest in after.items() if path in first} == first
    assert [model.versions for model in repository.read(output).models] == [(1, 2)] * 3
    is_served(output, 1)
    assert entry(output)["versions"]["2"]["cases"] == "sentiment/2/shared/smoke.json"
    assert versions.following(output, "sentiment") == 3


def test_unchanged_files_are_links(models: tuple[Path, Path], output: Path) -> None:
    both(models, output)
    one, two = (output / "sentiment_tokenizer" / number for number in ("1", "2"))
    assert (one / "model.py").samefile(two / "model.py")
    assert not (one / "tokenizer.json").samefile(two / "tokenizer.json")


def test_the_same_build_again_changes_nothing(models: tuple[Path, Path], output: Path) -> None:
    both(models, output)
    before = tiny.tree(output)
    put(models[1], output, 2, source_run="run-2")
    put(models[0], output, 1)
    assert tiny.tree(output) == before


def test_a_new_number_that_was_asked_for_is_served(models: tuple[Path, Path], output: Path) -> None:
    put(models[0], output, 1)
    put(models[1], output, 2, serve=True)
    is_served(output, 2)
    assert entry(output)["previous"] == 1
    # Notes of a build tell what it changed: a second build of the served version changes nothing.
    again = tiny.make(models[1], output, version=2, golden=True)
    assert versions.place(again, output, serve=True).notes == again.notes
    # A build of the first does not bring it back: that is what rollback is for.
    put(models[0], output, 1, serve=True)
    is_served(output, 2)


def test_promote_and_rollback_in_the_repository(models: tuple[Path, Path], output: Path) -> None:
    both(models, output)
    before = tiny.tree(output)
    move = promote.plan(output, "sentiment", 2)
    assert move is not None
    promote.in_repository(move)
    is_served(output, 2)
    assert "run-2" in (output / "sentiment_model" / "config.pbtxt").read_text()
    assert promote.plan(output, "sentiment", 2) is None
    back = promote.plan(output, "sentiment", None)
    assert back is not None
    promote.in_repository(back)
    is_served(output, 1)
    assert entry(output).pop("previous") == 2
    assert {p: d for p, d in tiny.tree(output).items() if p != "manifest.json"} == {
        p: d for p, d in before.items() if p != "manifest.json"
    }


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("other", 2, "trb built no endpoint 'other' here"),
        ("sentiment", 7, "has no version 7 that trb built"),
        ("sentiment", None, "version 1 is the first that was served"),
    ],
)
def test_what_cannot_be_promoted(
    models: tuple[Path, Path], output: Path, name: str, version: int | None, message: str
) -> None:
    both(models, output)
    with pytest.raises(TrbError) as caught:
        promote.plan(output, name, version)
    assert (caught.value.code, caught.value.message) == (Code.PROMOTE_FAILED, message)
    assert caught.value.remedy


def test_an_edited_file_is_not_overwritten(models: tuple[Path, Path], output: Path) -> None:
    both(models, output)
    with (output / "sentiment_model" / "config.pbtxt").open("a") as file:
        file.write("# mine\n")
    with pytest.raises(TrbError) as caught:
        promote.plan(output, "sentiment", 2)
    assert caught.value.code == Code.EDITED_FILE
    assert promote.plan(output, "sentiment", 2, force=True) is not None


def test_versions_that_need_different_configurations_are_refused(
    models: tuple[Path, Path], output: Path
) -> None:
    put(models[0], output, 1)
    before = tiny.tree(output)
    for options, field in (
        ({"max_length": 9}, "parameter max_length"),
        ({"max_batch_size": 4}, "max_batch_size"),
    ):
        made = tiny.make(models[1], output, version=2, **options)
        with pytest.raises(TrbError) as caught:
            versions.place(made, output, serve=False)
        assert caught.value.code == Code.OUTPUT_FOREIGN
        assert f"has another {field}" in caught.value.message
    assert tiny.tree(output) == before
    # What only costs time may differ.
    put(models[1], output, 2, instances=3, threads=2)
    is_served(output, 1)


def test_a_damaged_version_is_not_promoted(models: tuple[Path, Path], output: Path) -> None:
    both(models, output)
    model = output / "sentiment_model" / "2" / "model.onnx"
    whole = model.read_bytes()
    for content, words in ((b"junk", "was changed"), (None, "is missing")):
        model.unlink()
        if content is not None:
            model.write_bytes(content)
        with pytest.raises(TrbError) as caught:
            promote.plan(output, "sentiment", 2)
        assert caught.value.code == Code.PROMOTE_FAILED
        assert f"sentiment_model/2/model.onnx {words}" in caught.value.message
    model.write_bytes(whole)
    assert promote.plan(output, "sentiment", 2) is not None


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "sentiment/../../outside", "link/outside"])
def test_fetch_writes_nothing_outside_of_the_repository(tmp_path: Path, name: str) -> None:
    root, elsewhere_folder = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere_folder.mkdir()
    (root / "link").symlink_to(elsewhere_folder)
    source = tmp_path / "file"
    source.write_text("x")
    sha256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    manifest = Manifest(files={name: FileRecord(sha256=sha256, bytes=1, url=source.as_uri())})
    with pytest.raises(TrbError, match="lists a file outside of the repository"):
        external_weights.fetch(root, manifest, lambda text: None)
    assert not list(tmp_path.rglob("outside"))


def test_the_difference_of_two_versions_in_words(models: tuple[Path, Path], output: Path) -> None:
    both(models, output)
    with snapshot.read("sentiment@1", output) as old, snapshot.read("sentiment@2", output) as new:
        found = diff.compare(old, new)
        assert diff.compare(old, old) == []
    said = {(d.effect, d.about): d.text for d in found}
    assert said[("answers", "weights")].startswith("another model (")
    assert "recorded inputs differ by up to 0." in said[("answers", "weights")]
    assert said[("answers", "tokenizer")] == "another tokenizer.json"
    assert said[("origin", "source run")] == "none → run-2"
    assert not [d for d in found if d.effect == "breaking"]


def test_what_breaks_clients_is_said(models: tuple[Path, Path], tmp_path: Path) -> None:
    tiny.classifier(tmp_path / "new" / "sentiment", labels=2)
    tiny.embedder(tmp_path / "other" / "sentiment")
    tiny.put(models[0], tmp_path / "a")
    tiny.put(tmp_path / "new" / "sentiment", tmp_path / "b", max_batch_size=4, max_length=9, instances=1)
    tiny.put(tmp_path / "other" / "sentiment", tmp_path / "c")
    read = {name: snapshot.of_repository(repository.read(tmp_path / name)) for name in "abc"}
    b = [(d.effect, d.about, d.text) for d in diff.compare(read["a"], read["b"])]
    assert ("breaking", "labels", "no longer answered: label 2") in b
    assert ("breaking", "outputs", "scores is FP32[-1, 2], before FP32[-1, 3]") in b
    assert ("breaking", "batching", "a request may carry 4 rows, before 32") in b
    assert ("answers", "truncation", "texts are cut off after 9 tokens, before 24") in b
    assert ("operation", "instances", "model: 2 on CPU → 1 on CPU") in b
    assert [effect for effect, _, _ in b] == sorted([e for e, _, _ in b], key=diff.EFFECTS.index)
    c = [(d.effect, d.about, d.text) for d in diff.compare(read["a"], read["c"])]
    assert ("breaking", "outputs", "scores is no longer returned") in c
    assert ("compatible", "outputs", "embedding FP32[-1, 8] is now returned, too") in c
    gone = diff.compare(read["a"], {})
    assert [(d.effect, d.text) for d in gone] == [("breaking", "is gone: requests get 404")]


def test_one_row_and_one_input_are_said_as_such(models: tuple[Path, Path], tmp_path: Path) -> None:
    tiny.put(models[0], tmp_path / "a")
    tiny.put(models[0], tmp_path / "b", max_batch_size=1)
    a, b = (snapshot.of_repository(repository.read(tmp_path / name)) for name in "ab")
    said = [d.text for d in diff.compare(a, b)]
    assert "a request may carry 1 row, before 32" in said


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ([3.0, 4.1], "stored ones stay comparable"),
        (
            [4.0, 3.0],
            "cosine 0.9600, at least 0.9600: stored ones are of another kind: an index must be made anew",
        ),
        ([3.0, 4.0, 0.0], "at least 0.0000: stored ones are of another kind: an index must be made anew"),
        ([6.0, 8.0], ""),
    ],
)
def test_stored_vectors_are_judged_by_the_recorded_ones(new: list[float], said: str) -> None:
    def cases(vector: list[float], name: str = "embedding") -> dict[str, Any]:
        return {"a": {"inputs": ["x"], "outputs": [{"name": name, "data": [vector]}]}}

    found = [text for _, _, text in diff._vectors(cases([3.0, 4.0]), cases(new))]
    assert (found == []) if not said else found[0].endswith(said)
    assert [*diff._vectors(cases([3.0, 4.0], "scores"), cases(new, "scores"))] == []


def refuses(what: str, repo: Path) -> TrbError:
    with pytest.raises(TrbError) as caught, snapshot.read(what, repo):
        pass
    assert caught.value.remedy
    return caught.value


def test_a_folder_that_is_no_repository_has_no_difference(tmp_path: Path) -> None:
    (tmp_path / "src" / "package").mkdir(parents=True)
    (tmp_path / "src" / "package" / "code.py").write_text("x = 1\n")
    (tmp_path / "manifest.json").write_text('{"name": "of a web application"}')
    for folder in (tmp_path, tmp_path / "src", tmp_path / "src" / "package"):
        error = refuses(str(folder), tmp_path)
        assert (error.code, error.where) == (Code.REPOSITORY_UNREADABLE, str(folder))
        assert error.message == "holds no model"
    error = refuses(str(tmp_path / "nothing"), tmp_path)
    assert (error.code, error.message) == (Code.REPOSITORY_UNREADABLE, "no such model repository")


@pytest.mark.parametrize("content", [b"max_batch_size: {{{", b'name: "caf\xe9"'])
def test_a_broken_configuration_is_named(models: tuple[Path, Path], output: Path, content: bytes) -> None:
    both(models, output)
    kept = output / "sentiment_model" / "2" / "shared" / "config.pbtxt"
    old, whole = output / "sentiment_model" / "1" / "shared" / "config.pbtxt", kept.read_bytes()
    for file in (kept, old):
        before = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(TrbError) as caught:
            promote.plan(output, "sentiment", 2)
        assert (caught.value.code, caught.value.where) == (Code.REPOSITORY_UNREADABLE, str(file))
        file.write_bytes(before)
    assert promote.plan(output, "sentiment", 2) is not None
    kept.write_bytes(content)
    assert refuses("sentiment@2", output).where == str(kept)
    kept.write_bytes(whole)
    front = output / "sentiment_model" / "config.pbtxt"
    front.write_bytes(content)
    assert refuses("sentiment@1", output).where == str(front)
    assert refuses(str(output), output).where == str(front)
    (output / "manifest.json").rename(output / "elsewhere.json")
    assert refuses(str(output), output).where == str(front)
    (output / "elsewhere.json").rename(output / "manifest.json")
    with pytest.raises(TrbError) as caught:
        put(models[0], output, 3)
    assert (caught.value.code, caught.value.where) == (Code.REPOSITORY_UNREADABLE, str(front))
    front.unlink()
    with pytest.raises(TrbError, match="No such file"):
        put(models[0], output, 3)


LIGHT = """
import sys
from triton_repo_builder.cli import group
for argv in sys.argv[1:]:
    group.main(argv.split("|"), standalone_mode=False)
    heavy = {"onnx", "jinja2", "numpy"} & sys.modules.keys()
    assert not heavy, (argv, heavy)
"""


def test_what_moves_versions_imports_no_onnx_jinja2_or_numpy(models: tuple[Path, Path], output: Path) -> None:
    repo = str(both(models, output))
    commands = (
        ("diff", "sentiment@1", "sentiment@2", "--repo", repo),
        ("promote", "sentiment", repo, "--version", "2"),
        ("rollback", "sentiment", repo),
        ("remove", "sentiment", "--output", repo, "--keep", "1"),
        ("remove", "sentiment", "--output", repo),
    )
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *("|".join(command) for command in commands)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert not (output / "sentiment").exists()

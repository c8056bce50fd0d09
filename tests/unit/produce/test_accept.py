"""Hand edits become part of the record, and later builds keep them or stop."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tiny
import two_versions

from triton_repo_builder import check, repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check import verified
from triton_repo_builder.produce import accept, keep_edits, render_again
from triton_repo_builder.produce.accept import Acceptance, Recover
from triton_repo_builder.produce.build import Build
from triton_repo_builder.produce.write import accepted as in_place
from triton_repo_builder.produce.write import identical, publish, versions
from triton_repo_builder.repository import integrity, manifest
from triton_repo_builder.repository.edits import Approval, Edit
from triton_repo_builder.ship.deploy import diff, promote, snapshot

ROOT = Path(__file__).resolve().parents[3]
JO = Approval(by="Jo <jo@example.org>", why="faster here")
MODEL = "sentiment_model/config.pbtxt"
OWN = "sentiment/config.pbtxt"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_versions.make(tmp_path_factory.mktemp("models"))


@cache
def rendered(model: Path, **options: Any) -> Build:
    """A build does not depend on the folder that it goes to."""
    built: Build = tiny.make(model, model.parent / "none", **options)
    return built


def build(model: Path, output: Path, *, version: int = 1, force: bool = False, **options: Any) -> Build:
    """As ``trb build``."""
    built = rendered(model, version=version, **options)
    built = keep_edits.keep(built, output, force=force)
    placed = versions.place(built, output, serve=False, force=force)
    publish.publish(publish.prepare(placed, output, force=force))
    return built


def edit(output: Path, path: str, old: str, new: str) -> bytes:
    """Edit a file by hand; the content as it was built."""
    file = output / path
    before = file.read_bytes()
    assert old.encode() in before
    file.unlink()
    file.write_bytes(before.replace(old.encode(), new.encode()))
    return before


def lost(path: str, matches: Callable[[bytes], bool]) -> None:
    """Nothing remembers an earlier content."""
    return


def remembering(**contents: bytes) -> Recover:
    return lambda path, matches: next(filter(matches, contents.values()), None)


def accepted(output: Path, *names: str, recover: Recover = lost, approval: Approval = JO) -> Acceptance:
    acceptance = accept.prepare(output, names, approval, recover)
    accept.write(acceptance)
    return acceptance


def refusal(output: Path, *names: str) -> TrbError:
    before = tiny.tree(output)
    with pytest.raises(TrbError) as caught:
        accepted(output, *names)
    assert tiny.tree(output) == before
    assert caught.value.remedy
    return caught.value


def edits_of(output: Path, version: int = 1) -> dict[str, Edit]:
    recorded = manifest.read(output)
    assert recorded is not None
    return dict(recorded.endpoints["sentiment"].versions[version].edits)


def is_right(output: Path) -> None:
    """Neither check nor anything that compares digests finds an edit."""
    assert [each for each in check.built_findings(repository.read(output)) if each.severity == "error"] == []
    recorded = manifest.read(output)
    assert recorded is not None
    integrity.prove(output, recorded, "it")


def edited(models: tuple[Path, Path], output: Path, **options: Any) -> bytes:
    """A repository with one accepted edit of the ONNX model's instances; the file as it was built."""
    build(models[0], output, **options)
    before = edit(output, MODEL, "count: 2", "count: 3")
    accepted(output, recover=remembering(before=before))
    return before


# --- what is recorded --------------------------------------------------------------------------------


def test_an_accepted_edit_is_right_and_is_recorded(models: tuple[Path, Path], output: Path) -> None:
    before = edited(models, output)
    is_right(output)
    entry = edits_of(output)[MODEL]
    assert entry.approvals == (JO,)
    assert entry.built == in_place.sha256(before)
    assert entry.diff is not None
    assert "+instance_group { count: 3 kind: KIND_CPU }" in entry.diff
    assert b"count: 3" in (output / MODEL).read_bytes()


def test_the_endpoint_s_own_configuration_and_its_batch_size(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    before = edit(output, OWN, "max_batch_size: 32", "max_batch_size: 16")
    accepted(output, recover=remembering(before=before))
    is_right(output)
    recorded = manifest.read(output)
    assert recorded is not None
    assert recorded.endpoints["sentiment"].served.endpoint.max_batch_size == 16
    assert not any("trb.content" in line for line in edits_of(output)[OWN].diff or ())


def test_two_endpoints_read_as_their_configurations(models: tuple[Path, Path], output: Path) -> None:
    """Tensors of the manifest are those of config.pbtxt, or any edit would look like another interface."""
    tiny.put(tiny.tensor_model(output.parent / "net.onnx"), output)
    build(models[0], output)
    edit(output, OWN, "# Written by trb.", "# Mine.")
    edit(output, "net/config.pbtxt", "# Written by trb.", "# Mine.")
    assert [each.path for each in accepted(output).edits] == ["net/config.pbtxt", OWN]
    is_right(output)


def test_only_the_named_files(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    edit(output, "sentiment_tokenizer/1/model.py", "import json", "import json  # mine")
    edit(output, "sentiment_model/labels.txt", "label 0", "label null")
    acceptance = accepted(output, "sentiment_model/labels.txt")
    assert [each.path for each in acceptance.edits] == ["sentiment_model/labels.txt"]
    codes = {each.code for each in check.built_findings(repository.read(output)) if each.severity == "error"}
    assert codes == {"manifest-changed"}
    assert [each.path for each in accepted(output, "sentiment_tokenizer").edits] == [
        "sentiment_tokenizer/1/model.py"
    ]
    is_right(output)


def test_nothing_to_accept(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    before = tiny.tree(output)
    assert accepted(output).edits == ()
    assert tiny.tree(output) == before


def test_a_second_edit_keeps_the_first_and_its_reason(models: tuple[Path, Path], output: Path) -> None:
    before = edited(models, output)
    first = edit(output, MODEL, "dynamic_batching { }", "")
    again = Approval(by="Kim", why="one by one")
    accepted(output, recover=remembering(first=first), approval=again)
    entry = edits_of(output)[MODEL]
    assert entry.approvals == (JO, again)
    assert entry.built == in_place.sha256(before)
    assert [line for line in entry.diff or () if line[0] in "+-"] == [
        "-instance_group { count: 2 kind: KIND_CPU }",
        "+instance_group { count: 3 kind: KIND_CPU }",
        "-dynamic_batching { }",
        "+",
    ]
    is_right(output)


def test_the_same_reason_twice_is_recorded_once(models: tuple[Path, Path], output: Path) -> None:
    """As when a diff is added later, with --model, by the same command line."""
    build(models[0], output)
    before = edit(output, MODEL, "count: 2", "count: 3")
    accepted(output)
    accepted(output, recover=remembering(before=before))
    assert edits_of(output)[MODEL].approvals == (JO,)
    assert edits_of(output)[MODEL].diff is not None


def test_what_was_built_is_known_by_all_but_its_content_digest(
    models: tuple[Path, Path], output: Path
) -> None:
    """An edit of another file has changed that line since the endpoint's configuration was committed."""
    build(models[0], output)
    committed = (output / OWN).read_bytes()
    edit(output, MODEL, "count: 2", "count: 3")
    accepted(output)
    edit(output, OWN, "# Written by trb.", "# Mine.")
    accepted(output, recover=remembering(other=b"{", committed=committed))
    diff = edits_of(output)[OWN].diff
    assert [line[:8] for line in diff or () if line[0] in "+-"] == ["-# Writt", "+# Mine."]
    is_right(output)


def test_a_file_that_is_as_built_again_is_no_edit(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    untouched = tiny.tree(output)
    before = edit(output, MODEL, "count: 2", "count: 3")
    accepted(output, recover=remembering(before=before))
    (output / MODEL).write_bytes(before)
    acceptance = accepted(output, recover=remembering(before=before))
    assert acceptance.edits[0].edit is None
    assert tiny.tree(output) == untouched


def test_what_was_built_is_rendered_again(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output, instances=4, max_queue_delay=200)
    before = edit(output, MODEL, "count: 4", "count: 3")
    recorded = manifest.read(output)
    assert recorded is not None
    renderer = render_again.Renderer(recorded, models[0], lambda message: None)
    assert renderer.content(MODEL, before.__eq__) == before
    other = render_again.Renderer(recorded, models[1], lambda message: None)
    assert other.content(MODEL, before.__eq__) is None


def test_a_failure_leaves_everything_as_it_was(
    models: tuple[Path, Path], output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(models[0], output)
    edit(output, MODEL, "count: 2", "count: 3")
    acceptance = accept.prepare(output, (), JO, lost)
    before, write = tiny.tree(output.parent), files.write

    def full(file: Path, content: bytes, **options: Any) -> None:
        if file.name == "manifest.json":
            raise TrbError(Code.DISK_FULL, "full")
        write(file, content, **options)

    monkeypatch.setattr(accept.files, "write", full)
    with pytest.raises(TrbError):
        accept.write(acceptance)
    assert tiny.tree(output.parent) == before


# --- refusals ----------------------------------------------------------------------------------------


def test_what_check_finds_wrong_is_refused(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    edit(output, MODEL, "count: 2", "count: two")
    error = refusal(output)
    assert error.code is Code.FAILED_CHECKS
    assert "[config-syntax]" in error.message or "count" in error.message


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (
            OWN,
            'name: "TEXT" data_type: TYPE_STRING dims: [1]',
            'name: "TEXT" data_type: TYPE_STRING dims: [2]',
        ),
        ("sentiment_model/1/weights.onnx", "", ""),
    ],
)
def test_edits_that_a_record_cannot_keep_right(
    path: str, old: str, new: str, models: tuple[Path, Path], output: Path
) -> None:
    build(models[0], output)
    if old:
        edit(output, path, old, new)
    else:
        (output / path).unlink()
        (output / path).write_bytes((models[1] / "model.onnx").read_bytes())
    assert refusal(output).code in (Code.EDITED_FILE, Code.FAILED_CHECKS)


def test_a_shared_tokenizer_is_refused(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output, share_tokenizer=True)
    path = next(path for path in tiny.tree(output) if path.endswith("/config.pbtxt") and "tokenizer" in path)
    edit(output, path, "# Written by trb.", "# Mine.")
    assert refusal(output).code is Code.EDITED_FILE


def test_both_files_of_a_digest_or_none(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    edit(output, MODEL, "count: 2", "count: 3")
    edit(output, OWN, "# Written by trb.", "# Mine.")
    assert refusal(output, MODEL).code is Code.EDITED_FILE


def test_a_file_that_nobody_wrote(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    assert refusal(output, "sentiment_model/notes.txt").code is Code.NOT_FOUND


# --- added files -------------------------------------------------------------------------------------

WARMUP = "sentiment_model/warmup/tokens"


def warmed_up(output: Path) -> bytes:
    """Warm-up data from a file, by hand; config.pbtxt as it was built."""
    name = next(iter(sorted(file.name for file in (output / WARMUP).parent.iterdir())))
    before = edit(output, MODEL, f'input_data_file: "{name}"', 'input_data_file: "tokens"')
    (output / WARMUP).write_bytes((output / WARMUP).with_name(name).read_bytes())
    return before


def test_an_added_file_that_an_edit_needs_is_kept_by_all(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    before = warmed_up(output)
    assert refusal(output, MODEL).code is Code.FAILED_CHECKS
    acceptance = accepted(output, recover=remembering(before=before))
    assert [each.path for each in acceptance.edits] == [MODEL, WARMUP]
    assert check.built_findings(repository.read(output)) == []
    verified.check(repository.read(output))
    recorded = manifest.read(output)
    assert recorded is not None
    schema = json.loads((ROOT / "docs" / "schema" / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(recorded.to_text()))
    tree = tiny.tree(output)
    built = build(models[0], output)
    assert tiny.tree(output) == tree
    assert f"the accepted file {WARMUP} is kept: faster here (Jo)" in built.notes
    build(models[1], output, max_batch_size=16)
    assert (output / WARMUP).is_file()
    verified.check(repository.read(output))


def test_an_added_file_goes_with_its_version(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    build(models[1], output, version=2)
    warmed_up(output)
    accepted(output)
    verified.check(repository.read(output))
    assert (output / "sentiment_model/1/shared/warmup/tokens").is_file()
    move = promote.plan(output, "sentiment", 2)
    assert move is not None
    promote.in_repository(move)
    assert not (output / WARMUP).exists()
    verified.check(repository.read(output))


def test_an_added_file_is_dropped_by_force_and_ends_if_it_is_removed(
    models: tuple[Path, Path], output: Path
) -> None:
    build(models[0], output)
    (output / "sentiment_model" / "notes.txt").write_text("mine")
    assert [each.path for each in accepted(output, "sentiment_model").edits] == ["sentiment_model/notes.txt"]
    built = build(models[0], output, force=True)
    assert "the accepted file sentiment_model/notes.txt is dropped (--force): faster here (Jo)" in built.notes
    (output / "sentiment_model" / "notes.txt").write_text("mine")
    accepted(output)
    (output / "sentiment_model" / "notes.txt").unlink()
    built = build(models[0], output)
    assert "is there no more: it is no longer recorded" in built.notes[-1]
    verified.check(repository.read(output))


# --- refusals of other folders -----------------------------------------------------------------------


def test_a_folder_that_trb_did_not_build(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        accept.prepare(tmp_path, (), JO, lost)
    assert caught.value.code is Code.REPOSITORY_UNREADABLE


# --- later builds ------------------------------------------------------------------------------------


def test_the_same_build_again_changes_nothing(models: tuple[Path, Path], output: Path) -> None:
    edited(models, output)
    before = tiny.tree(output)
    built = build(models[0], output)
    assert tiny.tree(output) == before
    assert built.notes[-1] == f"the accepted edit of {MODEL} is kept: faster here (Jo)"


def test_another_model_keeps_the_edit(models: tuple[Path, Path], output: Path) -> None:
    edited(models, output)
    build(models[1], output, max_batch_size=16)
    assert b"count: 3" in (output / MODEL).read_bytes()
    assert b"max_batch_size: 16" in (output / MODEL).read_bytes()
    assert edits_of(output)[MODEL].approvals == (JO,)
    is_right(output)


@pytest.mark.parametrize("same", [True, False])
def test_a_file_whose_built_text_is_unknown(same: bool, models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    edit(output, MODEL, "count: 2", "count: 3")
    accepted(output)
    assert edits_of(output)[MODEL].diff is None
    if same:
        build(models[0], output)
        assert edits_of(output)[MODEL].diff is not None
        is_right(output)
        return
    before = tiny.tree(output)
    with pytest.raises(TrbError) as caught:
        build(models[0], output, max_batch_size=16)
    assert caught.value.code is Code.EDITED_FILE
    assert f"trb accept {output} --why REASON --model PATH" in caught.value.remedy
    assert tiny.tree(output) == before


def test_a_conflict_stops_the_build_and_names_itself(models: tuple[Path, Path], output: Path) -> None:
    edited(models, output)
    before = tiny.tree(output)
    with pytest.raises(TrbError) as caught:
        build(models[0], output, instances=1)
    assert caught.value.code is Code.EDITED_FILE
    assert caught.value.where == str(output / MODEL)
    assert "+instance_group { count: 3 kind: KIND_CPU }" in caught.value.message
    assert "--force" in caught.value.remedy
    assert tiny.tree(output) == before


def test_force_drops_the_edit_and_says_so(models: tuple[Path, Path], output: Path) -> None:
    edited(models, output)
    built = build(models[0], output, force=True)
    assert built.notes[-1] == f"the accepted edit of {MODEL} is dropped (--force): faster here (Jo)"
    assert edits_of(output) == {}
    assert b"count: 2" in (output / MODEL).read_bytes()
    is_right(output)


def test_an_edit_that_the_build_makes_by_itself_ends(models: tuple[Path, Path], output: Path) -> None:
    edited(models, output)
    built = build(models[0], output, instances=3)
    assert "it is no longer one" in built.notes[-1]
    assert edits_of(output) == {}
    is_right(output)


def test_an_edit_of_a_file_that_is_no_longer_written(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    edit(output, "sentiment_model/labels.txt", "label 0", "label null")
    accepted(output)
    with pytest.raises(TrbError) as caught:
        build(models[0], output, task="tensor")
    assert caught.value.code is Code.EDITED_FILE


def test_an_edit_that_the_server_would_refuse_with_this_build(
    models: tuple[Path, Path], output: Path
) -> None:
    build(models[0], output)
    before = edit(output, MODEL, "dynamic_batching { }", "dynamic_batching { preferred_batch_size: [16] }")
    accepted(output, recover=remembering(before=before))
    with pytest.raises(TrbError) as caught:
        build(models[0], output, max_batch_size=8)
    assert caught.value.code is Code.FAILED_CHECKS
    assert MODEL in caught.value.message


def test_an_edit_after_the_accepted_one_is_refused_as_any_other(
    models: tuple[Path, Path], output: Path
) -> None:
    edited(models, output)
    edit(output, MODEL, "count: 3", "count: 4")
    with pytest.raises(TrbError) as caught:
        build(models[0], output)
    assert caught.value.code is Code.EDITED_FILE
    assert "trb accept" in caught.value.remedy


# --- several versions --------------------------------------------------------------------------------


def test_the_next_version_has_the_edit_of_the_served_one(models: tuple[Path, Path], output: Path) -> None:
    edited(models, output)
    build(models[1], output, version=2)
    is_right(output)
    assert edits_of(output, 2)[MODEL].approvals == (JO,)
    for path in (MODEL, "sentiment_model/1/shared/config.pbtxt", "sentiment_model/2/shared/config.pbtxt"):
        assert b"count: 3" in (output / path).read_bytes()
    move = promote.plan(output, "sentiment", 2)
    assert move is not None
    promote.in_repository(move)
    is_right(output)
    assert promote.plan(output, "sentiment", None) is not None
    again = keep_edits.keep(rendered(models[1], version=3), output)
    assert identical.twin(again, output) == 2


@pytest.mark.parametrize("path", [MODEL, "sentiment_model/1/shared/config.pbtxt"])
def test_both_copies_of_a_served_version_change(path: str, models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    build(models[1], output, version=2)
    edit(output, path, "count: 2", "count: 3")
    acceptance = accepted(output)
    assert [line for line in acceptance.edits[0].edit.diff or () if line[0] in "+-"] == [  # type: ignore[union-attr]
        "-instance_group { count: 2 kind: KIND_CPU }",
        "+instance_group { count: 3 kind: KIND_CPU }",
    ]
    assert [*edits_of(output)] == [MODEL]
    assert edits_of(output, 2) == {}
    for copy in (MODEL, "sentiment_model/1/shared/config.pbtxt"):
        assert b"count: 3" in (output / copy).read_bytes()
    is_right(output)


def test_an_edit_of_a_waiting_version(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    build(models[1], output, version=2)
    edit(output, "sentiment/2/shared/config.pbtxt", "# Written by trb.", "# Mine.")
    accepted(output)
    assert [*edits_of(output, 2)] == [OWN]
    is_right(output)
    move = promote.plan(output, "sentiment", 2)
    assert move is not None
    promote.in_repository(move)
    is_right(output)
    assert b"# Mine." in (output / OWN).read_bytes()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (MODEL, "versions: [ 1 ]", "versions: [ 2 ]"),
        (OWN, "model_version: 1", "model_version: 2"),
        (MODEL, "max_batch_size: 32", "max_batch_size: 16"),
    ],
)
def test_what_versions_share_is_not_edited(
    path: str, old: str, new: str, models: tuple[Path, Path], output: Path
) -> None:
    build(models[0], output)
    build(models[1], output, version=2)
    edit(output, path, old, new)
    assert refusal(output).code in (Code.EDITED_FILE, Code.FAILED_CHECKS)


def test_two_copies_that_differ(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    build(models[1], output, version=2)
    edit(output, MODEL, "count: 2", "count: 3")
    edit(output, "sentiment_model/1/shared/config.pbtxt", "count: 2", "count: 4")
    assert refusal(output).code is Code.EDITED_FILE


# --- shown -------------------------------------------------------------------------------------------


def test_diff_names_accepted_edits(models: tuple[Path, Path], output: Path) -> None:
    build(models[0], output)
    old = snapshot.of_repository(repository.read(output))
    before = edit(output, MODEL, "count: 2", "count: 3")
    accepted(output, recover=remembering(before=before))
    new = snapshot.of_repository(repository.read(output))
    there = [each.text for each in diff.compare(old, new) if each.about == "edited"]
    assert there == [f"{MODEL}: faster here (Jo)"]
    back = [each.text for each in diff.compare(new, old) if each.about == "edited"]
    assert back == [f"{MODEL}: no longer, before: faster here (Jo)"]


def test_a_manifest_with_edits_is_read_back(models: tuple[Path, Path], output: Path) -> None:
    edited(models, output)
    recorded = manifest.read(output)
    assert recorded is not None
    assert json.loads(recorded.to_text()) == json.loads(files.read_text(output / "manifest.json"))
    schema = json.loads((ROOT / "docs" / "schema" / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(recorded.to_text()))
    entry = recorded.endpoints["sentiment"].served
    assert replace(entry, edits={}).to_json().keys() == entry.to_json().keys() - {"edits"}

"""Older versions are removed with ``trb build --keep N`` and ``trb remove NAME --keep N``, and only these."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import two_versions

from tests.support.cli import call, kind, trb
from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code
from triton_repo_builder.produce.write import prune, publish, versions
from triton_repo_builder.repository import manifest


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_versions.make(tmp_path_factory.mktemp("models"))


def put(model: Path, output: Path, version: int, **options: Any) -> None:
    serve = options.pop("serve", False)
    made = tiny.make(model, output, version=version, golden=True, **options)
    publish.publish(publish.prepare(versions.place(made, output, serve=serve), output))


@pytest.fixture(scope="module")
def built(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("built") / "model_repository"
    for number in range(1, 6):
        put(models[number % 2], output, number, serve=number > 3, source_run=f"run-{number}")
    return output


@pytest.fixture
def five(built: Path, output: Path) -> Path:
    """Versions 1 to 5; the fifth is served, the fourth was before."""
    shutil.copytree(built, output)
    return output


def present(output: Path) -> tuple[int, ...]:
    """The versions of every model, which are the manifest's; check finds nothing."""
    read = repository.read(output)
    (numbers,) = {model.versions for model in read.models}
    recorded = manifest.read(output)
    assert recorded is not None
    assert tuple(sorted(recorded.endpoints["sentiment"].versions)) == numbers
    assert all((output / path).is_file() for path in recorded.files)
    assert check.check(read, releases.default()) == []
    return numbers


def pruned(output: Path, keep: int, **options: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    pruning = prune.plan(output, ["sentiment"], keep, **options)
    prune.write(pruning)
    return pruning.removed["sentiment"], pruning.edited


def files_of(output: Path, *numbers: int) -> list[str]:
    return sorted(
        path.relative_to(output).as_posix()
        for number in numbers
        for path in output.glob(f"*/{number}/**/*")
        if path.is_file()
    )


def test_the_oldest_are_removed_but_never_what_is_served(models: tuple[Path, Path], output: Path) -> None:
    for number in range(1, 6):
        put(models[number % 2], output, number)
    own = output / "sentiment_model" / "2" / "notes.txt"
    own.write_text("mine")
    assert pruned(output, 2) == ((3,), ("sentiment_model/2/notes.txt",))
    assert pruned(output, 2, force=True) == ((), ("sentiment_model/2/notes.txt",))
    own.unlink()
    assert pruned(output, 2) == ((2,), ())
    assert present(output) == (1, 4, 5)
    assert pruned(output, 2) == ((), ())


def test_an_edited_version_is_removed_with_force_only(five: Path) -> None:
    edited = five / "sentiment_model" / "1" / "shared" / "config.pbtxt"
    with edited.open("a") as file:
        file.write("# mine\n")
    assert pruned(five, 2) == ((2, 3), ("sentiment_model/1/shared/config.pbtxt",))
    assert pruned(five, 2, force=True) == ((1,), ())
    assert present(five) == (4, 5)


def test_the_version_that_was_just_built_stays(five: Path) -> None:
    assert prune.plan(five, ["sentiment"], 1, built=2).removed["sentiment"] == (1, 3)


def test_a_model_that_another_endpoint_uses_keeps_its_versions(models: tuple[Path, Path], five: Path) -> None:
    recorded = manifest.read(five)
    assert recorded is not None
    entry = recorded.endpoints["sentiment"]
    other = replace(entry.served, models=("other", "sentiment_tokenizer"))
    both = {**recorded.endpoints, "other": versions.arrange({5: other}, 5)}
    pruning = prune.plan(five, ["sentiment"], 2, recorded=replace(recorded, endpoints=both))
    assert pruning.removed["sentiment"] == (1, 2, 3)
    assert {path.split("/")[0] for path in pruning.publication.changes.removed} == {
        "sentiment",
        "sentiment_model",
    }


def test_every_preview_of_a_build_lists_what_keep_removes(models: tuple[Path, Path], output: Path) -> None:
    build = ("build", "--model", models[0], "--output", output, "--keep", "2")
    for number in range(1, 6):
        trb(*build[:-2], "--version", str(number), "--source-run", f"run-{number}")
    assert present(output) == (1, 2, 3, 4, 5)
    build = (*build, "--version", "5", "--source-run", "run-5")
    before, gone = tiny.tree(output), files_of(output, 1, 2, 3)

    shown = call(*build, "--dry-run")
    assert f"dry run: 0 added, 0 changed, {len(gone)} removed; nothing was written" in shown.stdout
    assert "note: would remove version 3 (--keep)" in shown.stderr
    assert "  - sentiment_model/3/weights.onnx\n" in shown.stdout
    planned = json.loads(trb(*build, "--dry-run", "--json"))
    assert (planned["changes"]["removed"], planned["removed_versions"]) == (gone, [1, 2, 3])
    assert [*planned["versions"]] == ["4"]
    difference = trb(*build, "--diff")
    assert "--- sentiment_model/3/shared/config.pbtxt\n+++ /dev/null\n" in difference
    assert "removed: sentiment_model/3/weights.onnx (" in difference
    assert tiny.tree(output) == before

    done = json.loads(trb(*build, "--json"))
    assert {**done, "written": False, "notes": []} == {**planned, "notes": []}
    assert "removed version 3 (--keep)" in done["notes"]
    assert not [note for note in done["notes"] if "is served now" in note]
    assert present(output) == (4, 5)
    assert json.loads(trb(*build, "--json"))["removed_versions"] == []


def test_the_summary_of_a_build_counts_what_keep_removes(models: tuple[Path, Path], five: Path) -> None:
    gone = files_of(five, 1, 2, 3)
    build = ("build", "--model", models[0], "--output", five, "--version", "next", "--keep", "3")
    planned = json.loads(trb(*build, "--dry-run", "--json"))
    done = call(*build)
    added = len(planned["changes"]["added"])
    assert planned["changes"]["removed"] == gone
    assert f"{five}: {added} added, 0 changed, {len(gone)} removed\n" in done.stdout
    assert files_of(five, 6) == planned["changes"]["added"]
    assert present(five) == (4, 5, 6)


def test_versions_are_removed_without_the_model(five: Path) -> None:
    remove = ("remove", "sentiment", "--output", five, "--keep", "2")
    before, gone = tiny.tree(five), files_of(five, 1, 2, 3)
    shown = trb(*remove, "--dry-run")
    assert "sentiment: would remove versions 1, 2, 3; versions 4, 5 stay, 5 is served\n" in shown
    assert f"dry run: 0 added, 0 changed, {len(gone)} removed; nothing was written" in shown
    planned = json.loads(trb(*remove, "--dry-run", "--json"))
    assert (planned["written"], planned["removed_versions"]) == (False, {"sentiment": [1, 2, 3]})
    assert planned["changes"] == {"added": [], "changed": [], "removed": gone}
    assert tiny.tree(five) == before

    assert trb(*remove) == (
        "sentiment: removed versions 1, 2, 3; versions 4, 5 stay, 5 is served\n"
        f"{five}: 0 added, 0 changed, {len(gone)} removed\n"
    )
    assert present(five) == (4, 5)
    rest = {
        path: digest for path, digest in before.items() if (five / path).exists() and path != "manifest.json"
    }
    assert {path: digest for path, digest in tiny.tree(five).items() if path != "manifest.json"} == rest
    trb("rollback", "sentiment", five)
    assert present(five) == (4, 5)
    # The version before the served one is 5 now, and it stays too.
    assert "no version to remove; versions 4, 5 stay, 4 is served" in trb(*remove[:-1], "1")


def test_fewer_versions_than_asked_for_is_nothing_to_do(five: Path) -> None:
    before = tiny.tree(five)
    remove = ("remove", "sentiment", "--output", five, "--keep", "9")
    stays = "sentiment: no version to remove; versions 1, 2, 3, 4, 5 stay, 5 is served\n"
    assert trb(*remove) == f"{stays}{five}: unchanged\n"
    assert trb(*remove, "--dry-run") == f"{stays}dry run: unchanged; nothing was written\n"
    assert json.loads(trb(*remove, "--json"))["removed_versions"] == {"sentiment": []}
    assert tiny.tree(five) == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("sentiment", "other", "--keep", "1"), Code.NOT_FOUND, "no endpoint 'other' that trb built"),
        (("sentiment", "--keep", "0"), Code.USAGE, "--keep: 0 is not in the range x>=1"),
        (("sentiment", "--keep", "x"), Code.USAGE, "'x' is not a whole number"),
    ],
)
def test_what_cannot_be_removed(five: Path, arguments: tuple[str, ...], code: Code, message: str) -> None:
    before = tiny.tree(five)
    done = call("remove", *arguments, "--output", five)
    assert (done.returncode, kind(done.stderr)) == (code.exit, code)
    assert message in done.stderr
    assert tiny.tree(five) == before


def test_a_dry_run_accounts_for_every_file(models: tuple[Path, Path], output: Path) -> None:
    build = ("build", "--model", models[0], "--output", output)
    trb(*build)
    remove = ("remove", "sentiment", "--output", output)
    removed = json.loads(trb(*remove, "--dry-run", "--json"))["changes"]["removed"]
    vendored = [path for path in removed if "/vendor/" in path]
    assert vendored
    lines = [line for line in trb(*remove, "--dry-run").splitlines() if line.startswith("  - ")]
    assert f"  - sentiment_tokenizer/1/vendor/ ({len(vendored)} files)" in lines
    assert len(lines) - 1 + len(vendored) == len(removed)
    done = json.loads(trb(*remove, "--json"))
    assert (done["written"], done["changes"]["removed"]) == (True, removed)
    assert done["removed_versions"] == {"sentiment": [1]}

"""Many models in one build: what is found, how it is named, what is shared, what a failure costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import group
from triton_repo_builder.produce import build_all
from triton_repo_builder.produce.build_all import BuildAllResult
from triton_repo_builder.produce.write import publish, remove

QUICK: dict[str, Any] = {"golden": False}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Three embedders with one tokenizer, one with another, and two plain files."""
    root = tmp_path / "models"
    tiny.embedder(root / "en" / "mini")
    tiny.embedder(root / "de" / "mini")
    tiny.embedder(root / "tone")
    tiny.pooling(root / "tone", "pooling_mode_cls_token")
    other = tiny.embedder(root / "other")
    tiny.tokenizer(other / "tokenizer.json", extra=("one", "more"))
    tiny.tensor_model(root / "plain" / "net.onnx")
    tiny.tensor_model(root / "plain" / "nat.onnx")
    return root


def make(root: Path, output: Path, **flags: Any) -> BuildAllResult:
    return build_all.build_all(build_all.discover(root), {}, {**QUICK, **flags}, output)


def put(root: Path, output: Path, **flags: Any) -> BuildAllResult:
    made = make(root, output, **flags)
    publish.publish(made.publication)
    return made


def steps(output: Path, name: str) -> tuple[str, ...]:
    model = repository.read(output).model(name)
    assert model is not None
    return model.steps


def errors(output: Path) -> list[str]:
    found = check.check(repository.read(output), releases.default())
    return [f"{finding.where} {finding.code}" for finding in found if finding.severity == "error"]


def manifest(output: Path) -> Any:
    return json.loads((output / "manifest.json").read_text())


def test_names_are_paths(models: Path) -> None:
    (models / ".hidden").mkdir()
    tiny.tensor_model(models / ".hidden" / "no.onnx")
    tiny.text_model(models / "en" / "mini" / "onnx" / "model_int8.onnx")
    names = [(found.name, found.model.relative_to(models).as_posix()) for found in build_all.discover(models)]
    assert names == [
        ("de_mini", "de/mini"),
        ("en_mini", "en/mini"),
        ("other", "other"),
        ("plain_nat", "plain/nat.onnx"),
        ("plain_net", "plain/net.onnx"),
        ("tone", "tone"),
    ]


def test_the_folder_itself_may_be_the_model(tmp_path: Path) -> None:
    (found,) = build_all.discover(tiny.embedder(tmp_path / "bert"))
    assert found.name == "bert"


def test_a_folder_that_links_to_itself_ends(models: Path) -> None:
    (models / "loop").symlink_to(models)
    assert len(build_all.discover(models)) == 6


@pytest.mark.parametrize("make_folder", [False, True])
def test_nothing_found(make_folder: bool, tmp_path: Path) -> None:
    if make_folder:
        (tmp_path / "empty").mkdir()
    with pytest.raises(TrbError) as caught:
        build_all.discover(tmp_path / "empty")
    assert caught.value.code == Code.NOT_FOUND


def test_equal_tokenizers_are_stored_once(models: Path, output: Path) -> None:
    made = put(models, output)
    assert made.failed == ()
    tokenizers = sorted(path.name for path in output.glob("tokenizer_*"))
    assert len(tokenizers) == 2
    assert not list(output.glob("*_tokenizer"))
    shared = steps(output, "tone")[0]
    assert [steps(output, name)[0] == shared for name in ("en_mini", "de_mini", "other")] == [
        True,
        True,
        False,
    ]
    assert manifest(output)["endpoints"]["tone"]["models"] == ["tone", shared, "tone_model"]
    assert all(model.complete for model in repository.read(output).models if model.stated)
    assert errors(output) == []
    # Another maximum length is another tokenizer model.
    found = [one for one in build_all.discover(models) if not one.name.startswith("plain")]
    again = build_all.build_all(found, {"max_length": 7}, QUICK, output)
    assert again.failed == ()
    assert {name for build in again.builds for name in build.plan.shared}.isdisjoint(tokenizers)


def test_the_same_bytes_in_any_order_and_company(models: Path, tmp_path: Path) -> None:
    put(models, tmp_path / "all")
    for folder in ("tone", "plain", "other", "en", "de"):
        alone = models / folder
        found = [one for one in build_all.discover(models) if one.model.is_relative_to(alone)]
        made = build_all.build_all(found, {}, QUICK, tmp_path / "one by one")
        publish.publish(made.publication)
    assert tiny.tree(tmp_path / "all") == tiny.tree(tmp_path / "one by one")


def test_building_again_touches_nothing(models: Path, output: Path) -> None:
    put(models, output)
    before = {path: path.stat().st_ino for path in output.rglob("*")}
    assert not put(models, output).publication.changes
    assert {path: path.stat().st_ino for path in output.rglob("*")} == before


def test_only_what_changed_is_replaced(models: Path, output: Path) -> None:
    put(models, output)
    before = {path.name: path.stat().st_ino for path in output.iterdir()}
    tiny.tensor_model(models / "plain" / "net.onnx", opset=18)
    put(models, output)
    after = {path.name: path.stat().st_ino for path in output.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"plain_net", "manifest.json"}


def test_an_endpoint_built_alone_leaves_the_shared_tokenizer_to_the_others(
    models: Path, output: Path
) -> None:
    put(models, output)
    shared = steps(output, "tone")[0]
    tiny.put(models / "tone", output)
    assert steps(output, "tone")[0] == "tone_tokenizer"
    assert steps(output, "de_mini")[0] == shared
    assert errors(output) == []
    assert manifest(output)["endpoints"]["tone"]["models"] == ["tone", "tone_tokenizer", "tone_model"]
    for name in ("en_mini", "de_mini"):
        tiny.put(models / name.replace("_", "/"), output, name=name)
    # Nobody needs it any more.
    assert not (output / shared).exists()
    assert not [path for path in manifest(output)["files"] if path.startswith(shared)]
    assert errors(output) == []


def test_a_classifier_that_takes_pairs_has_a_tokenizer_model_of_its_own(models: Path, output: Path) -> None:
    tiny.classifier(models / "labels")
    tiny.classifier(models / "more_labels", labels=5)
    put(models, output)
    assert steps(output, "labels")[0] == steps(output, "more_labels")[0] != steps(output, "tone")[0]
    assert errors(output) == []


def test_one_model_may_join_a_shared_tokenizer(models: Path, output: Path) -> None:
    put(models, output)
    tiny.put(models / "tone", output, name="late", share_tokenizer=True)
    assert steps(output, "late") == (steps(output, "tone")[0], "late_model")
    assert errors(output) == []


def test_an_edited_shared_tokenizer_is_kept(models: Path, output: Path) -> None:
    put(models, output)
    config = output / steps(output, "tone")[0] / "config.pbtxt"
    config.write_text(config.read_text() + "# mine\n")
    made = make(models, output)
    assert {failure.name: failure.error.code for failure in made.failed} == dict.fromkeys(
        ("de_mini", "en_mini", "tone"), Code.EDITED_FILE
    )
    assert [build.name for build in made.builds] == ["other", "plain_nat", "plain_net"]


def test_removing_one_endpoint_leaves_the_others_whole(models: Path, output: Path) -> None:
    put(models, output)
    shared = steps(output, "tone")[0]
    mine = output / "tone" / "notes.txt"
    mine.write_text("mine")
    publish.publish(remove.remove(output, ["tone", "plain_net"]))
    assert [path.name for path in (output / "tone").iterdir()] == ["notes.txt"]
    assert not (output / "tone_model").exists()
    assert not (output / "plain_net").exists()
    assert (output / shared / "config.pbtxt").is_file()
    mine.unlink()
    (output / "tone").rmdir()
    assert errors(output) == []
    publish.publish(remove.remove(output, ["en_mini", "de_mini"]))
    assert not (output / shared).exists()
    assert sorted(manifest(output)["endpoints"]) == ["other", "plain_nat"]
    assert {path.split("/")[0] for path in manifest(output)["files"]} == {
        path.name for path in output.iterdir() if path.is_dir()
    }
    assert errors(output) == []
    # Built again, all is as it was at first.
    put(models, output)
    assert steps(output, "tone")[0] == shared


def test_removing_what_is_not_there_or_was_edited(models: Path, output: Path) -> None:
    put(models, output)
    before = tiny.tree(output)
    with pytest.raises(TrbError) as caught:
        remove.remove(output, ["nobody"])
    assert caught.value.code == Code.NOT_FOUND
    config = output / "tone_model" / "config.pbtxt"
    text = config.read_text()
    config.write_text(text + "# mine\n")
    with pytest.raises(TrbError) as caught:
        remove.remove(output, ["tone"])
    assert caught.value.code == Code.EDITED_FILE
    config.write_text(text)
    assert tiny.tree(output) == before
    done = CliRunner().invoke(
        group, ["remove", "tone", "--output", str(output), "--dry-run"], standalone_mode=False
    )
    assert "- tone/config.pbtxt" in done.stdout
    assert tiny.tree(output) == before
    CliRunner().invoke(group, ["remove", "tone", "--output", str(output)], standalone_mode=False)
    assert not (output / "tone").exists()


def test_names_in_a_cache_of_hugging_face_are_without_hashes(tmp_path: Path) -> None:
    model = tmp_path / "hub" / "models--BAAI--bge-m3"
    tiny.embedder(model / "snapshots" / ("c0ffee" * 6 + "0123"))
    tiny.tensor_model(tmp_path / "hub" / "models--x--net" / "snapshots" / ("5" * 40) / "onnx" / "int8.onnx")
    assert [found.name for found in build_all.discover(tmp_path / "hub")] == [
        *("BAAI_bge-m3", "x_net_onnx_int8"),
    ]
    for root in (model, model / "snapshots", model / "snapshots" / ("c0ffee" * 6 + "0123")):
        assert [found.name for found in build_all.discover(root)] == ["bge-m3"]


def test_check_names_every_endpoint_whose_tokenizer_is_gone(models: Path, output: Path) -> None:
    put(models, output)
    shared = steps(output, "tone")[0]
    (output / shared).rename(output.parent / "gone")
    found = errors(output)
    for name in ("tone", "en_mini", "de_mini"):
        assert any(f"/{name}/config.pbtxt" in line for line in found), (name, found)
    assert not any("/other/" in line for line in found)


def test_what_one_endpoint_needs_survives_the_failure_of_its_build(models: Path, output: Path) -> None:
    put(models, output)
    shared = steps(output, "tone")[0]
    (models / "tone" / "model.onnx").unlink()  # the repository has a hard link to it
    (models / "tone" / "model.onnx").write_bytes(b"broken")
    # The others give the shared tokenizer up, and the endpoint that fails still needs it.
    for folder in ("en/mini", "de/mini"):
        (models / folder / "trb.toml").write_text("[build]\nmax_length = 7\n")
    made = put(models, output)
    assert [failure.name for failure in made.failed] == ["tone"]
    assert steps(output, "tone")[0] == shared
    assert (output / shared / "config.pbtxt").is_file()
    assert errors(output) == []


def test_a_failure_does_not_stop_the_others(models: Path, output: Path) -> None:
    (models / "tone" / "model.onnx").write_bytes(b"no model")
    (models / "de" / "mini" / "trb.toml").write_text("[build]\ntask = 'nonsense'\n")
    made = put(models, output)
    assert {failure.name: failure.error.code for failure in made.failed} == {
        "de_mini": Code.USAGE,
        "tone": Code.NOT_ONNX,
    }
    assert sorted(manifest(output)["endpoints"]) == ["en_mini", "other", "plain_nat", "plain_net"]
    with pytest.raises(TrbError) as caught:
        build_all.build_all(build_all.discover(models), {}, QUICK, output, fail_fast=True)
    assert caught.value.code == Code.USAGE


def test_options_of_each_model(models: Path, output: Path) -> None:
    (models / "tone" / "trb.toml").write_text("[build]\nname = 'mood'\nmax_batch_size = 3\n")
    (models / "plain" / "trb.toml").write_text("[build]\ninstances = 5\n")
    found = build_all.discover(models)
    made = build_all.build_all(found, {"max_batch_size": 9}, QUICK, output)
    sizes = {build.name: build.entry.to_json()["max_batch_size"] for build in made.builds}
    assert sizes == {"de_mini": 9, "en_mini": 9, "mood": 3, "other": 9, "plain_nat": 9, "plain_net": 9}
    counts = {build.name: build.plan.models[-1].instance_group.count for build in made.builds}  # type: ignore[union-attr]
    assert (counts["plain_nat"], counts["tone" if "tone" in counts else "mood"]) == (5, 2)


def test_a_common_option_need_not_mean_something_to_every_model(models: Path, output: Path) -> None:
    made = make(models, output, max_length=7, normalize=True)
    assert made.failed == ()
    (models / "plain" / "trb.toml").write_text("[build]\nnormalize = true\n")
    made = build_all.build_all(build_all.discover(models), {}, {**QUICK, "max_length": 7}, output)
    assert [failure.error.message for failure in made.failed] == ["does not apply to task tensor"] * 2


def test_names_that_clash(models: Path, output: Path) -> None:
    tiny.tensor_model(models / "en_mini.onnx")
    tiny.tensor_model(models / "tone_model.onnx")
    made = make(models, output)
    messages = {failure.model.name: failure.error.message for failure in made.failed}
    assert messages == {
        "en_mini.onnx": f"'en_mini' is also the name of {models / 'en' / 'mini'}",
        "tone_model.onnx": "its directory 'tone_model' is also one of the endpoint 'tone'",
    }


def test_options_that_cannot_be_common(tmp_path: Path) -> None:
    config = tmp_path / "trb.toml"
    config.write_text("[build]\nname = 'x'\n")
    with pytest.raises(TrbError, match="for every model"):
        build_all.common_options(config)


def test_no_model_of_the_hub_is_fetched(models: Path, output: Path) -> None:
    (models / "tone" / "trb.toml").write_text("[build]\nmodel = 'hf://a/b'\n")
    (failed,) = make(models, output).failed
    assert (failed.error.code, failed.error.where) == (Code.USAGE, "--model")
    assert failed.error.remedy.endswith("--model hf://a/b")


def test_a_bug_in_one_model_is_its_own(models: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = build_all.build.build

    def build(options: Any, **more: Any) -> Any:
        if options.name == "tone":
            raise KeyError("oops")
        return right(options, **more)

    monkeypatch.setattr(build_all.build, "build", build)
    made = make(models, output)
    assert [(failure.name, failure.error.message) for failure in made.failed] == [
        ("tone", "trb failed on it: KeyError: 'oops'")
    ]


# --- the command -------------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    return CliRunner().invoke(group, ["build", "--no-golden", *arguments], standalone_mode=False)


def test_the_command_reports_and_exits(models: Path, output: Path) -> None:
    done = command("--all", str(models), "--output", str(output))
    assert done.return_value == 0
    assert "6 endpoints, 2 tokenizers" in done.stdout
    (models / "tone" / "model.onnx").write_bytes(b"no model")
    done = command("--all", str(models), "--output", str(output))
    assert done.return_value == Code.SOME_FAILED.exit
    assert f"failed: tone: {models}/tone/model.onnx" in done.stderr
    assert "1 of 6 models were not built" in done.stderr


def test_the_command_as_json(models: Path, output: Path) -> None:
    (models / "tone" / "model.onnx").write_bytes(b"no model")
    done = command("--all", str(models), "--output", str(output), "--json")
    document = json.loads(done.stdout)
    assert [endpoint["endpoint"] for endpoint in document["endpoints"]][:2] == ["de_mini", "en_mini"]
    assert document["failed"][0]["exit_code"] == Code.NOT_ONNX.exit
    assert document["written"] is True


def test_a_dry_run_writes_nothing(models: Path, output: Path) -> None:
    done = command("--all", str(models), "--output", str(output), "--dry-run")
    assert "nothing was written" in done.stdout
    assert not output.exists()
    assert "+" in command("--all", str(models), "--output", str(output), "--diff").stdout
    assert not output.exists()


@pytest.mark.parametrize("flag", [("--name", "x"), ("--model", "x"), ("--explain",)])
def test_flags_of_one_model(flag: tuple[str, ...], models: Path) -> None:
    done = command("--all", str(models), *flag)
    assert isinstance(done.exception, TrbError)
    assert done.exception.code == Code.USAGE


def test_fail_fast_needs_all(models: Path) -> None:
    done = command("--model", str(models / "tone"), "--fail-fast")
    assert isinstance(done.exception, TrbError)

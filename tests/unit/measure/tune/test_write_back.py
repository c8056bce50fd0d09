"""The chosen setting in config.pbtxt, trb.toml and manifest.json of a repository that trb built."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from tune_values import compared, report, trial

from tests.support import cli
from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import load_toml
from triton_repo_builder.measure.tune import write_back
from triton_repo_builder.measure.tune.report import Report
from triton_repo_builder.repository import content, integrity
from triton_repo_builder.repository.journal import recovery

SOURCE = Path(__file__).resolve().parents[4] / "model_repository"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SOURCE, tmp_path / "model_repository"))


def better(**setting: object) -> Report:
    default = compared("default", 100, 100, 100)
    best = compared("best", 150, 151, 152, default=(100, 100, 100), **setting)
    return report(trial(), compared=(default, best), chosen="best", setting=best.setting, better=True)


def test_the_repository_stays_whole_and_says_what_changed(root: Path, tmp_path: Path) -> None:
    toml = tmp_path / "trb.toml"
    toml.write_text('[build]\nmodel = "m"\ninstances = 9\n')
    findings = cli.call("check", root).stdout
    before = repository.read(root)
    assert before.manifest is not None
    absent = integrity.altered(root, before.manifest.files)  # what git does not hold
    made_of = better(instances=1, **{"max batch": 16, "tokenizer instances": 2, "batching": 200})
    made = write_back.changes(made_of, before, toml)
    assert {change.shown for change in made} == {
        "sentiment/config.pbtxt",
        "sentiment_model/config.pbtxt",
        "sentiment_tokenizer/config.pbtxt",
        "trb.toml",
    }
    assert all("+# trb tune: 151 requests/s" in c.diff for c in made if c.shown != "trb.toml")
    with write_back.written(made_of, before, made):
        pass
    after = repository.read(root)
    assert after.manifest is not None
    assert integrity.altered(root, after.manifest.files) == absent
    entry = after.manifest.endpoints["sentiment"].served
    assert entry.content == content.of_version(root, after.manifest, "sentiment", 1)
    assert content.stated(after.model("sentiment").config) == entry.content  # type: ignore[union-attr]
    assert entry.endpoint.max_batch_size == 16
    wanted = {"instances": 1, "max_batch_size": 16, "tokenizer_instances": 2, "max_queue_delay": 200}
    assert wanted.items() <= (entry.options or {}).items()
    assert load_toml(toml.read_text())["build"] == {
        "model": "m",
        "instances": 1,
        "max-batch-size": 16,
        "tokenizer-instances": 2,
        "batching": "on",
        "max-queue-delay": "200us",
    }
    assert cli.call("check", root).stdout == findings


def test_everything_is_put_back_if_the_proof_fails(root: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    repo = repository.read(root)
    made_of = better(instances=1)
    with (
        pytest.raises(RuntimeError),
        write_back.written(made_of, repo, write_back.changes(made_of, repo, None)),
    ):
        raise RuntimeError
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_what_the_user_had_edited_stays_an_edit(root: Path) -> None:
    config = root / "sentiment_model" / "config.pbtxt"
    config.write_text(config.read_text() + "# mine\n")
    repo = repository.read(root)
    made_of = better(instances=1)
    with write_back.written(made_of, repo, write_back.changes(made_of, repo, None)):
        pass
    manifest = repository.read(root).manifest
    assert manifest is not None
    changed = [each.path for each in integrity.altered(root, manifest.files) if not each.missing]
    assert changed == ["sentiment_model/config.pbtxt"]
    assert config.read_text().endswith("# mine\n")


def test_a_variant_that_was_chosen_gets_the_setting_in_its_own_models(root: Path, tmp_path: Path) -> None:
    toml = tmp_path / "trb.toml"
    toml.write_text("[build]\n")  # of the other endpoint
    default = compared("default", 100, variant="sentiment_fp32")
    best = compared("best", 150, default=(100,), variant="sentiment", instances=3)
    chosen = report(
        trial(setting=default.setting),
        compared=(default, best),
        chosen="best",
        setting=best.setting,
        better=True,
        endpoint="sentiment_fp32",
        space={name: [value] for name, value in best.setting.items()},
    )
    repo = repository.read(root)
    made = write_back.changes(chosen, repo, toml)
    assert [change.shown for change in made] == ["sentiment_model/config.pbtxt"]
    with write_back.written(chosen, repo, made):
        pass
    manifest = repository.read(root).manifest
    assert manifest is not None
    assert (manifest.endpoints["sentiment"].served.options or {})["instances"] == 3
    assert write_back.chosen(chosen) == "sentiment"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"build": {"instances": 2}}),
        ("[build]", {"build": {"instances": 2}}),
        ("[build]\ninstances = 1  # one\n", {"build": {"instances": 2}}),
        (
            "[build] # x\na = 1\n\n[other]\ninstances = 7\n",
            {"build": {"a": 1, "instances": 2}, "other": {"instances": 7}},
        ),
    ],
)
def test_trb_toml(text: str, expected: object) -> None:
    assert load_toml(write_back.toml(text, {"instances": 2})) == expected


@pytest.mark.parametrize(
    "text",
    [
        "build.instances = 1\n",
        "build = { instances = 1 }\n",
        '["build"]\ninstances = 1\n',
        '[build]\nmodel = """\ninstances = 9\n"""\n',
        '[build]\n"instances" = 1\n',
    ],
)
def test_a_trb_toml_that_cannot_be_edited_is_refused_whole(root: Path, tmp_path: Path, text: str) -> None:
    """Rather than written so that the next build fails, or another value changes."""
    config = tmp_path / "trb.toml"
    config.write_text(text)
    with pytest.raises(TrbError) as caught:
        write_back.changes(better(instances=3), repository.read(root), config)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, str(config))
    assert "instances = 3" in caught.value.remedy
    assert config.read_text() == text


@pytest.mark.parametrize("content", [b"[build", b"\xff", b"\xef\xbb\xbf[build]\n"])
def test_a_trb_toml_that_no_build_can_read(root: Path, tmp_path: Path, content: bytes) -> None:
    config = tmp_path / "trb.toml"
    config.write_bytes(content)
    with pytest.raises(TrbError) as caught:
        write_back.changes(better(instances=3), repository.read(root), config)
    assert caught.value.code is Code.USAGE


def test_a_trb_toml_of_another_repository_stays(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "trb.toml"
    config.write_text('[build]\noutput = "elsewhere"\n')
    made = write_back.changes(better(instances=3), repository.read(root), config)
    assert [change.shown for change in made] == ["sentiment_model/config.pbtxt"]
    config.write_text(f'[build]\noutput = "{root.name}"\n')
    made = write_back.changes(better(instances=3), repository.read(root), config)
    assert [change.shown for change in made] == ["sentiment_model/config.pbtxt", "trb.toml"]


def test_line_ends_of_windows_stay(root: Path, tmp_path: Path) -> None:
    toml, config = tmp_path / "trb.toml", root / "sentiment_model" / "config.pbtxt"
    toml.write_bytes(b'[build]\r\nmodel = "m"\r\ninstances = 1\r\n')
    config.write_bytes(config.read_bytes().replace(b"\n", b"\r\n"))
    repo = repository.read(root)
    made_of = better(instances=3)
    with write_back.written(made_of, repo, write_back.changes(made_of, repo, toml)):
        pass
    assert toml.read_bytes() == b'[build]\r\nmodel = "m"\r\ninstances = 3\r\n'
    assert config.read_bytes().count(b"\n") == config.read_bytes().count(b"\r\n")
    assert b"trb tune" in config.read_bytes()


@pytest.mark.parametrize("moment", ["before the diff", "after it"])
def test_what_was_edited_meanwhile_is_not_overwritten(root: Path, moment: str) -> None:
    config = root / "sentiment_model" / "config.pbtxt"
    repo, made_of = repository.read(root), better(instances=3)
    made = write_back.changes(made_of, repo, None)
    config.write_text(config.read_text() + "version_policy { latest { num_versions: 2 } }\n")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(TrbError) as caught:
        if moment == "before the diff":
            made = write_back.changes(made_of, repo, None)
        with write_back.written(made_of, repo, made):
            pass
    assert (caught.value.code, caught.value.where) == (Code.EDITED_FILE, str(config))
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_process_that_is_killed_before_the_proof_is_undone_by_the_next(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    pid = os.fork()
    if not pid:
        repo, made_of = repository.read(root), better(instances=3)
        with write_back.written(made_of, repo, write_back.changes(made_of, repo, None)):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert {path: path.read_bytes() for path in before} != before
    assert any("left the repository half changed" in note for note in recovery.recover(root))
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import IO

import pytest
from bad_repositories import lay_out
from click.testing import CliRunner, Result

from triton_repo_builder import cli
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import check as check_command
from triton_repo_builder.cli.check import command


def run(*arguments: object) -> tuple[int, str]:
    result: Result = CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)
    assert result.exception is None
    return int(result.return_value), result.output


def test_errors_fail_and_everything_is_shown(tmp_path: Path) -> None:
    code, output = run(lay_out("several", tmp_path / "r"))
    assert code == 1
    assert output.endswith("2 models checked: 7 errors, 2 warnings\n")
    assert output.count("  fix: ") == 9


def test_warnings_fail_only_when_strict(tmp_path: Path) -> None:
    repository = lay_out("queue-delay-clearml", tmp_path / "r")
    assert run(repository)[0] == 0
    assert run(repository, "--strict")[0] == 1


def test_nothing_to_say(tmp_path: Path) -> None:
    repository = lay_out("field-too-new", tmp_path / "r")
    assert run(repository, "--triton-release", "24.11") == (0, "1 model checked, no findings\n")


def test_json(tmp_path: Path) -> None:
    code, output = run(lay_out("name-mismatch", tmp_path / "r"), "--json")
    assert code == 1
    assert json.loads(output) == [
        {
            "severity": "error",
            "code": "name-mismatch",
            "where": f"{tmp_path}/r/m/config.pbtxt:5:1",
            "message": "unexpected directory name 'm' for model 'bert', directory name must equal model name",
            "remedy": "make the two equal, or leave name out",
            "model": "m",
            "file": f"{tmp_path}/r/m/config.pbtxt",
            "line": 5,
            "column": 1,
        }
    ]


def test_the_current_folder_is_a_repository_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = lay_out("name-mismatch", tmp_path / "r")
    monkeypatch.chdir(repository)
    entry = json.loads(run(".", "--json")[1])[0]
    assert (entry["model"], entry["file"]) == ("m", "m/config.pbtxt")
    assert run(".")[1].splitlines()[1].strip() == 'name: "bert"'
    (repository / "trb.toml").write_text('[check.models]\nm = ["name-mismatch"]\n')
    assert run(".")[0] == 0


def test_a_folder_whose_name_ends_like_a_line(tmp_path: Path) -> None:
    (tmp_path / "r" / "d:5:7").mkdir(parents=True)
    entry = json.loads(run(tmp_path / "r", "--json")[1])[0]
    place = (entry["code"], entry["model"], entry["file"], entry["line"])
    assert place == ("not-a-model", "d:5:7", f"{tmp_path}/r/d:5:7", 0)


def test_a_server_that_does_not_answer_has_no_line(tmp_path: Path) -> None:
    repository = lay_out("queue-delay-clearml", tmp_path / "r")
    entry = json.loads(run(repository, "--select", "live-*", "--live", "http://127.0.0.1:1", "--json")[1])[0]
    assert (entry["file"], entry["line"]) == ("http://127.0.0.1:1", 0)


def test_a_baseline_holds_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r").mkdir()
    assert run(tmp_path / "r", "--write-baseline", tmp_path / "known.json")[0] == 0
    monkeypatch.chdir(tmp_path / "r")
    assert run(".", "--baseline", tmp_path / "known.json")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert run("r", "--baseline", tmp_path / "known.json")[0] == 0


def test_a_baseline_of_several_repositories_knows_them_apart(tmp_path: Path) -> None:
    """A fault that is known in one is new in the other, of a model with the same name too."""
    faulty, sound = lay_out("tensor-dims-zero", tmp_path / "a"), tmp_path / "b"
    shutil.copytree(faulty, sound)
    config = sound / "m" / "config.pbtxt"
    wrong = config.read_text()
    config.write_text(wrong.replace("[ 0 ]", "[ 4 ]"))
    assert run(sound)[0] == 0
    known = tmp_path / "known.json"
    assert run(faulty, sound, "--write-baseline", known)[0] == 0
    assert run(faulty, sound, "--baseline", known)[0] == 0
    assert run(f"{faulty.parent}/./{faulty.name}", f"{sound}/", "--baseline", known)[0] == 0
    config.write_text(wrong)
    code, output = run(faulty, sound, "--baseline", known)
    assert code == 1
    assert f"{sound}/m/config.pbtxt" in output
    assert f"{faulty}/m/config.pbtxt" not in output


def test_a_baseline_of_names_that_are_no_text_in_a_folder_that_is_new(tmp_path: Path) -> None:
    (tmp_path / "r" / "bad\udcff").mkdir(parents=True)
    assert run(tmp_path / "r", "--write-baseline", tmp_path / "new" / "known.json")[0] == 0
    assert run(tmp_path / "r", "--baseline", tmp_path / "new" / "known.json")[0] == 0


def test_several_repositories_are_one_report(tmp_path: Path) -> None:
    one = lay_out("name-mismatch", tmp_path / "one")
    two = lay_out("queue-delay-clearml", tmp_path / "two")
    code, output = run(one, two)
    assert code == 1
    assert output.endswith("2 models checked: 1 error, 2 warnings\n")


def test_an_empty_repository_is_an_error_unless_it_may_be(tmp_path: Path) -> None:
    code, output = run(tmp_path)
    assert code == 1
    assert "[repository-empty]" in output
    assert run(tmp_path, "--allow-empty") == (0, "0 models checked, no findings\n")


def test_selection_baseline_and_policies_together(tmp_path: Path) -> None:
    repository = lay_out("several", tmp_path / "r")
    policy = tmp_path / "policies.toml"
    policy.write_text('[policy.small]\nfield = "max_batch_size"\nmaximum = 8\n')
    code, output = run(repository, "--select", "policy-small", "--policy", policy)
    assert code == 1
    assert "e/config.pbtxt:2:1: error: max_batch_size is 16: at most 8 [policy-small]" in output
    assert run(repository, "--write-baseline", tmp_path / "known.json")[0] == 0
    code, output = run(repository, "--baseline", tmp_path / "known.json")
    assert (code, output) == (0, "2 models checked, no findings; 9 findings of the baseline not shown\n")


def test_an_option_that_is_given_twice_adds_up(tmp_path: Path) -> None:
    repository = lay_out("several", tmp_path / "r")
    output = run(repository, "--select", "name-mismatch", "--select", "tensor-dims,tensor-duplicate")[1]
    assert output.endswith("2 models checked: 2 errors, 1 warning\n")
    output = run(repository, "--ignore", "tensor-*,queue-*", "--ignore", "ensemble-*")[1]
    assert output.endswith("2 models checked: 2 errors, 0 warnings\n")


def test_a_fix_is_shown_and_written_only_if_asked_to(tmp_path: Path) -> None:
    repository = lay_out("name-mismatch", tmp_path / "r")
    config = repository / "m" / "config.pbtxt"
    before = config.read_text()
    code, output = run(repository, "--fix")
    assert code == 1
    assert '-name: "bert"' in output
    assert config.read_text() == before
    run(repository, "--fix", "--write")
    assert run(repository)[0] == 0


def test_a_page_of_each_code_and_of_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run("--explain", "ensemble-shape")
    assert code == 0
    assert "ensemble-shape" in output
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", "--explain", "ensemble-shapes"])
    assert caught.value.code == Code.USAGE.exit
    assert "did you mean 'ensemble-shape'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--write", "."], 2),
        (["--fix", "--write", "s3://b/r"], 2),
        (["nowhere"], 4),
        (["--triton-release", "1.0", "nowhere"], 2),
        (["--live", "http://[::1", "."], 2),
        (["--live", "", "."], 2),
        (["--live", "http://localhost:abc", "."], 2),
    ],
)
def test_refusals(arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", *arguments])
    assert caught.value.code == code


def test_exit_code_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", str(lay_out("tensor-dims-zero", tmp_path / "r"))])
    assert caught.value.code == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_is_for_terminals_that_want_it(
    no_color: str, coloured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr("triton_repo_builder.cli.check.sys.stdout.isatty", lambda: True, raising=False)
    assert check_command._colour() == coloured


def test_an_unreadable_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = lay_out("python-import", tmp_path / "r")

    readable = files.opened

    def refuse(path: Path) -> IO[bytes]:
        if path.name != "model.py":
            return readable(path)
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files, "opened", refuse)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", str(repository)])
    assert caught.value.code == 1
    output = capsys.readouterr().out
    assert "cannot be read: Permission denied" in output
    assert "/m/1/model.py [file-unreadable]" in output


@pytest.mark.parametrize("place", ["m", "m/1", "m/1/model.py", "m/config.pbtxt"])
def test_a_model_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    repository = lay_out("max-batch-size-negative", tmp_path / "r")
    for given, above in ((repository / place, str(repository)), (Path("r") / place, "r")):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(TrbError) as raised:
            command.main([str(given)], standalone_mode=False)
        assert raised.value.message == "belongs to the model 'm', and is not a repository"
        assert raised.value.remedy == f"name the folder above the model's: trb check {above}"


def test_within_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lay_out("max-batch-size-negative", tmp_path / "r") / "m")
    with pytest.raises(TrbError) as raised:
        command.main([], standalone_mode=False)
    assert raised.value.remedy.endswith("trb check ..")


def test_a_repository_beside_a_stray_configuration(tmp_path: Path) -> None:
    repository = lay_out("max-batch-size-negative", tmp_path / "r")
    shutil.copy2(repository / "m" / "config.pbtxt", repository)
    shutil.copy2(repository / "m" / "config.pbtxt", tmp_path)
    (tmp_path / "empty").mkdir()
    assert "1 model checked: 1 error" in run(repository)[1]
    assert run(tmp_path / "empty", "--allow-empty")[0] == 0

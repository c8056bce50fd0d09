from __future__ import annotations

import json
from pathlib import Path

import pytest
from bad_repositories import lay_out
from click.testing import CliRunner, Result

from triton_repo_builder import cli
from triton_repo_builder.cli.check import command
from triton_repo_builder.errors import Code


def run(*arguments: object) -> tuple[int, str]:
    result: Result = CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)
    assert result.exception is None
    return int(result.return_value), result.output


def test_errors_fail_and_everything_is_shown(tmp_path: Path) -> None:
    code, output = run(lay_out("several", tmp_path / "r"))
    assert code == 1
    assert output.endswith("2 models checked: 8 errors, 1 warning\n")
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
            "where": f"{tmp_path}/r/m/config.pbtxt:5",
            "message": "unexpected directory name 'm' for model 'bert', directory name must equal model name",
            "remedy": "make the two equal, or leave name out",
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "code"), [(["nowhere"], 4), (["--triton-release", "1.0", "nowhere"], 2)]
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


def test_an_unreadable_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = lay_out("python-import", tmp_path / "r")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", str(repository)])
    assert caught.value.code == Code.REPOSITORY_UNREADABLE.exit
    assert "m/1/model.py: cannot be read: Permission denied" in capsys.readouterr().err

from __future__ import annotations

import ast
import dataclasses
import errno
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import tiny
from click.shell_completion import BashComplete
from click.testing import CliRunner

from triton_repo_builder import cli
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import console
from triton_repo_builder.model.read.options import ORIGINS, BuildOptions

EXISTING = [name for name in cli.COMMANDS if (Path(cli.__file__).parent / f"{name}.py").is_file()]
HEAVY = (
    "numpy",
    "onnx",
    "onnxruntime",
    "rich",
    "grpc",
    "tritonclient",
    "transformers",
    "huggingface_hub",
    "tokenizers",
    "jinja2",
    "google",
    "docker",
)


def run(*argv: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(argv))
    return int(caught.value.code or 0)


# --- start-up ----------------------------------------------------------------------------------------


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new interpreter: neither our modules nor the heavy ones are imported."""
    for name in list(sys.modules):
        if name.split(".")[0] in (*HEAVY, "triton_repo_builder"):
            monkeypatch.delitem(sys.modules, name)


def loaded() -> set[str]:
    return {name.split(".")[0] for name in sys.modules} & set(HEAVY)


@pytest.mark.parametrize("argv", [["--help"], ["--version"], *([name, "--help"] for name in EXISTING)])
def test_help_imports_nothing_heavy(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    group = importlib.import_module("triton_repo_builder.cli").group
    result = CliRunner().invoke(group, argv)
    assert result.exit_code == 0
    assert result.output
    assert loaded() == set()


def test_the_list_of_commands_imports_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    group = importlib.import_module("triton_repo_builder.cli").group
    output = CliRunner().invoke(group, ["--help"]).output
    assert all(name in output for name in cli.COMMANDS)
    assert not {f"triton_repo_builder.cli.{name}" for name in cli.COMMANDS} & sys.modules.keys()


def test_importing_the_modules_of_commands_is_cheap_by_their_text() -> None:
    """The same by the source: no heavy import at the top of a command's file."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        for item in ast.parse(path.read_text()).body:
            names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
            names += [str(item.module)] if isinstance(item, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & set(HEAVY), path


# --- help and completion -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXISTING)
def test_every_command_shows_an_example(name: str) -> None:
    output = CliRunner().invoke(cli.group, [name, "--help"]).output
    assert "Example" in output
    assert output.count(f"trb {name}") >= 1


def complete(line: str, words: str) -> list[str]:
    completer = BashComplete(cli.group, {}, "trb", "_TRB_COMPLETE")
    return [item.value for item in completer.get_completions(line.split(), words)]


def test_completion_knows_commands_and_options() -> None:
    assert complete("", "bu") == ["build"]
    assert complete("", "ins") == ["inspect"]
    assert complete("build", "--max-b") == ["--max-batch-size"]
    assert complete("build --batching", "") == ["on", "off", "auto"]
    assert complete("build --task", "image") == ["image-classification", "image-embedding"]


def test_the_completion_script_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TRB_COMPLETE", "zsh_source")
    assert run() == 0
    assert "#compdef trb" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("biuld", "did you mean trb build?"),
        ("inspekt", "did you mean trb inspect?"),
        ("xyzzy", "see trb --help"),
    ],
)
def test_an_unknown_command(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(word) == 2
    assert capsys.readouterr().err == f"error: {word}: no such command [usage]\n  fix: {hint}\n"


@pytest.mark.parametrize(
    ("line", "where", "message", "remedy"),
    [
        ("build --modle x", "--modle", "no such option", "did you mean --model?"),
        ("tune --xyzzy", "--xyzzy", "no such option", "see trb tune --help"),
        ("--xyzzy", "--xyzzy", "no such option", "see trb --help"),
        ("build --model", "--model", "requires an argument", "see trb build --help"),
        ("build --dry-run=3", "--dry-run", "does not take a value", "see trb build --help"),
        (
            "build --batching x",
            "--batching",
            "'x' is not one of 'on', 'off', 'auto'",
            "see trb build --help",
        ),
        ("build --max-batch-size x", "--max-batch-size", "'x' is not a whole number", "see trb build --help"),
        ("build --version x", "--version", "'x' is neither a number nor next", "see trb build --help"),
        ("promote net", "--version", "is missing", "see trb promote --help"),
        ("promote net --version x", "--version", "'x' is not a whole number", "see trb promote --help"),
        ("diff a", "B", "is missing", "see trb diff --help"),
        ("commit -m x a b", "b", "is one argument too many", "see trb commit --help"),
        ("bench --timeout x", "--timeout", "'x' is not a time like 2s, 500ms or 6h", "see trb bench --help"),
        (
            "serve --image x --triton-release 25.03",
            "",
            "--image and --triton-release both choose the image",
            "use one of them",
        ),
        (
            "serve --trace a:4318",
            "--trace",
            "'a:4318' is not the address of a receiver",
            "write otlp://HOST:4318",
        ),
        (
            "gateway --trace grpc://a",
            "--trace",
            "'grpc://a' is not the address of a receiver",
            "write otlp://",
        ),
        (
            "serve --log-format yaml",
            "--log-format",
            "'yaml' is not one of 'none', 'text', 'json'",
            "see trb serve --help",
        ),
        ("tune --slo p99=1s --matrix --write", "", "--matrix is a table on standard output", "leave out"),
    ],
)
def test_errors_of_the_command_line_look_like_the_others(
    line: str, where: str, message: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*line.split()) == Code.USAGE.exit
    printed = capsys.readouterr()
    place = f"{where}: " if where else ""
    first, second = printed.err.splitlines()
    assert first == f"error: {place}{message} [usage]"
    assert second.startswith(f"  fix: {remedy}")
    assert printed.out == ""
    name, *arguments = line.split()
    assert run(name, "--json", *arguments) == Code.USAGE.exit
    document = json.loads(capsys.readouterr().out)
    assert (document["code"], document["exit_code"], document["where"]) == ("usage", 2, where)
    assert (document["error"], document["remedy"][: len(remedy)]) == (message, remedy)


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    printed = capsys.readouterr()
    assert "Usage: trb" in printed.out + printed.err
    assert "error" not in printed.err


# --- exit codes --------------------------------------------------------------------------------------


def command(error: BaseException | None, result: Any = None) -> click.Command:
    @click.command()
    def made() -> Any:
        if error is not None:
            raise error
        return result

    return made


@pytest.mark.parametrize(
    ("error", "result", "code"),
    [
        (None, None, 0),
        (None, 1, 1),
        (TrbError(Code.DISK_FULL, "full"), None, 5),
        (click.UsageError("no"), None, 2),
        (KeyboardInterrupt(), None, 130),
        (click.Abort(), None, 130),
        (ZeroDivisionError("oh"), None, 70),
        (BrokenPipeError(32, "Broken pipe"), None, 0),
    ],
)
def test_exit_codes(
    error: BaseException | None,
    result: Any,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = command(error, result)
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, name: made)
    assert run("build") == code
    err = capfd.readouterr().err
    assert ("Traceback" in err) is (code == 70)
    assert ("This is a bug in trb" in err) is (code == 70)


def test_an_error_has_a_place_a_message_and_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(TrbError(Code.USAGE, "is wrong", where="there", remedy="do this"))
    assert capsys.readouterr().err == "error: there: is wrong [usage]\n  fix: do this\n"
    console.print_error(TrbError(Code.USAGE, "is wrong"))
    assert capsys.readouterr().err == "error: is wrong [usage]\n"


def test_with_json_an_error_is_an_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "absent.onnx", "--json") == Code.NOT_FOUND.exit
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["code"], document["exit_code"]) == ("not-found", 4)
    assert document["where"] == "absent.onnx"
    assert "[not-found]" in printed.err


def test_the_commands_are_listed_by_group() -> None:
    output = CliRunner().invoke(cli.group, ["--help"]).output
    headings = [line for line in output.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", "Build:", "Run:", "Prove:", "Ship:"]


# --- build and inspect -------------------------------------------------------------------------------


def test_build_writes_and_says_what(tmp_path: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.classifier(tmp_path / "sentiment")
    argv = ["build", "--model", str(folder), "--output", str(output), "--no-golden"]
    assert run(*argv) == 0
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "without golden cases nothing has shown" in printed.err
    assert (
        "endpoint sentiment: TEXT BYTES[-1, 1], optional TEXT_PAIR BYTES[-1, 1], "
        "label BYTES[-1, 1], score FP32[-1, 1], scores FP32[-1, 3]" in printed.out
    )
    assert (output / "manifest.json").is_file()
    assert run(*argv) == 0
    assert f"{output}: unchanged" in capsys.readouterr().out


def test_dry_run_and_diff_write_nothing(
    tmp_path: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.tensor_model(tmp_path / "net.onnx")
    argv = ["build", "--model", str(path), "--output", str(output), "--no-golden"]
    assert run(*argv, "--dry-run") == 0
    assert "dry run: 2 added, 0 changed, 0 removed; nothing was written" in capsys.readouterr().out
    assert run(*argv, "--diff") == 0
    assert '+name: "net"' in capsys.readouterr().out
    assert not output.exists()
    assert run(*argv) == 0
    capsys.readouterr()
    assert run(*argv, "--diff", "--preferred-batch-size", "8,4", "--max-queue-delay", "2ms") == 0
    assert (
        "+dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 2000 }"
        in capsys.readouterr().out
    )
    assert run(*argv, "--diff") == 0
    assert capsys.readouterr().out == "no change\n"


def test_another_release_alone_is_a_change_of_the_manifest(
    tmp_path: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.tensor_model(tmp_path / "net.onnx")
    argv = ["build", "--model", str(path), "--output", str(output), "--no-golden"]
    assert run(*argv, "--triton-release", "24.10") == 0
    capsys.readouterr()
    assert run(*argv, "--triton-release", "25.06", "--diff") == 0
    assert "changed: manifest.json: net: triton_release 24.10 → 25.06\n" in capsys.readouterr().out
    assert run(*argv, "--triton-release", "25.06", "--dry-run") == 0
    assert "only manifest.json changes (net: triton_release 24.10 → 25.06" in capsys.readouterr().out
    assert run(*argv, "--triton-release", "25.06") == 0
    assert "only manifest.json changes (net: triton_release 24.10 → 25.06" in capsys.readouterr().out
    assert run(*argv, "--triton-release", "25.06") == 0
    assert f"{output}: unchanged" in capsys.readouterr().out


def test_build_as_json(tmp_path: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.tensor_model(tmp_path / "net.onnx")
    assert run("build", "--model", str(path), "--output", str(output), "--no-golden", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["endpoint"], document["written"]) == ("net", True)
    assert document["changes"]["added"] == ["net/1/model.onnx", "net/config.pbtxt"]


def test_trb_toml_in_the_working_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.tensor_model(tmp_path / "net.onnx")
    (tmp_path / "trb.toml").write_text('[build]\nmodel = "net.onnx"\ngolden = false\ninstances = 7\n')
    monkeypatch.chdir(tmp_path)
    assert run("build", "--instances", "3") == 0
    assert "count: 3" in (tmp_path / "model_repository" / "net" / "config.pbtxt").read_text()


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_inspect(extra: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.embedder(tmp_path / "bert [x]")
    assert run("inspect", str(folder), *extra) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "attention_mask" in printed.out
    if extra:
        assert json.loads(printed.out)["max_length"] == 24
    else:
        assert "at most 24 tokens (tokenizer_config.json)" in printed.out
        assert "bert [x]" in printed.out


def test_inspect_shows_what_a_build_would_stumble_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.text_model(tmp_path / "m.onnx")
    (tmp_path / "vocab.txt").write_text("x")
    assert run("inspect", str(tmp_path / "m.onnx")) == 0
    assert "a build would fail: the tokenizer has 'vocab.txt'" in capsys.readouterr().out


def test_a_full_disk_behind_standard_output_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli.group, "main", full)
    assert run("inspect", "x") == Code.OUTPUT_NOT_WRITABLE.exit
    assert capsys.readouterr().err == (
        "error: the output cannot be written: No space left on device [disk-full]\n"
        "  fix: free some space, or correct the disk, then run the same command again\n"
    )


def test_a_pipe_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    assert run("inspect", str(tmp_path / "pipe.onnx")) == Code.NOT_FOUND.exit
    assert "not a regular file" in capsys.readouterr().err


def test_the_next_command_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny.classifier(tmp_path / "bert")
    target = tmp_path / "my repository"
    assert run("build", "--model", str(model), "--no-golden", "--output", str(target)) == 0
    assert f"trb smoke '{target}' proves it" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["model_repository", "my repository"])
def test_after_the_next_version_the_last_line_promotes_it(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.tensor_model(tmp_path / "net.onnx")
    argv = ["build", "--model", "net.onnx", "--no-golden", "--output", folder]
    assert run(*argv) == 0
    capsys.readouterr()
    assert run(*argv, "--version", "next", "--source-run", "2") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    place = "" if folder == "model_repository" else " 'my repository'"
    assert last == f"next: trb promote net{place} --version 2 serves it in place of version 1"
    assert run("promote", "net", folder, "--version", "2") == 0


def test_the_facts_of_the_next_version_are_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.text_model(tmp_path / "bert" / "model.onnx")
    model = tiny.describe(tmp_path / "bert", architectures=["BertModel"])
    argv = ["build", "--model", str(model), "--no-golden", "--output", str(tmp_path / "repository")]
    assert run(*argv, "--pooling", "mean") == 0
    assert "pooling mean" in capsys.readouterr().out
    assert run(*argv, "--pooling", "cls", "--version", "next") == 0
    assert "pooling cls" in capsys.readouterr().out


def test_every_build_option_has_a_flag() -> None:
    command = cli.group.get_command(click.Context(cli.group), "build")
    assert command is not None
    flags = {parameter.name for parameter in command.params}
    no_flags = {ORIGINS, "hub", "target", "conversion"}
    assert {field.name for field in dataclasses.fields(BuildOptions)} - no_flags <= flags


def test_keep_goes_with_a_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("build", "--model", str(tmp_path / "none"), "--output", str(tmp_path / "out"), "--keep", "2")
    assert run(*argv) == Code.USAGE.exit
    assert "--keep goes with --version next" in capsys.readouterr().err
    for more in (("--version", "next"), ("--version", "3")):
        assert run(*argv, *more) == Code.NOT_FOUND.exit
    (tmp_path / "trb.toml").write_text("[build]\nversion = 3\n")
    assert run(*argv, "--config", str(tmp_path / "trb.toml")) == Code.NOT_FOUND.exit


# --- paths -------------------------------------------------------------------------------------------


def paths() -> list[tuple[str, click.Parameter]]:
    found = []
    for name in EXISTING:
        command = cli.group.get_command(click.Context(cli.group), name)
        assert command is not None
        below = command.commands.values() if isinstance(command, click.Group) else [command]
        found += [(name, one) for each in below for one in each.params if isinstance(one.type, click.Path)]
    return found


@pytest.mark.parametrize(("command", "parameter"), paths(), ids=lambda value: getattr(value, "name", value))
def test_the_path_of_a_variable_that_is_not_set_is_refused(command: str, parameter: click.Parameter) -> None:
    """click alone would take it for the folder one is in."""
    with pytest.raises(click.BadParameter, match="the path is empty"):
        parameter.type.convert("", parameter, None)


@pytest.mark.parametrize("argv", [["diff", "", "b"], ["diff", "a", ""], ["push", ""], ["pull", ""]])
def test_an_empty_argument_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*argv) == 2
    assert "it is empty" in capsys.readouterr().err


def test_a_path_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """In the file's own name, in its folder's, and behind a link."""
    folder = tmp_path / os.fsdecode(b"dir\xff")
    tiny.tensor_model(folder / "m.onnx")
    (tmp_path / "link.onnx").symlink_to(folder / "m.onnx")
    for given in (folder, folder / "m.onnx", tmp_path / "link.onnx"):
        argv = [sys.executable, "-m", "triton_repo_builder", "build", "--model", given]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == Code.BAD_NAME.exit
        assert "this path is not UTF-8" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "model_repository").exists()


@pytest.mark.parametrize("how", [">&-", ">&- 2>&-"])
def test_closed_output_is_no_crash(how: str, tmp_path: Path) -> None:
    tiny.tensor_model(tmp_path / "m.onnx")
    command = f'"$0" -m triton_repo_builder inspect m.onnx {how}'
    done = subprocess.run(["sh", "-c", command, sys.executable], cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_a_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    tiny.tensor_model(tmp_path / "m.onnx")
    command = 'mkdir gone && cd gone && rmdir ../gone && "$0" -m triton_repo_builder build --model "$1"'
    argv = ["sh", "-c", command, sys.executable, str(tmp_path / "m.onnx")]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == Code.NOT_FOUND.exit
    assert "does not exist any more" in done.stderr and "Traceback" not in done.stderr

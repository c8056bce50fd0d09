"""``trb doctor``: questions, exit codes, text and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tests.support.doctor_threads import BATCHED, GROWTH, doubled, graph, plain, x, y
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli.doctor import command
from triton_repo_builder.measure.doctor.cause import QUESTIONS


def run(*arguments: str | Path) -> int:
    return int(command.main([str(argument) for argument in arguments], standalone_mode=False))


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    plain(tmp_path / "healthy")
    return tmp_path / "healthy"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A graph whose configuration has no batch though it asks for one."""
    root = tmp_path / "broken"
    graph(root, "m", f"max_batch_size: 0\n{x('-1, 4')}{y('-1, 4')}{BATCHED}", doubled(["batch", 4]))
    return root


def test_without_a_cause(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(healthy, "--question", "batching") == 0
    assert capsys.readouterr().out == (
        "Why does it not batch?\n  nothing found\n"
        "  not known: rows per execution: name the server's URL, or measure with --bench\n"
    )


def test_with_a_cause(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(broken, "--question", "batching") == 1
    title, cause, fix, *_ = capsys.readouterr().out.splitlines()
    assert title == QUESTIONS["batching"]
    assert cause.startswith(f"  {broken}/m/config.pbtxt:")
    assert cause.endswith("[batching-no-rows]")
    assert fix.startswith("    fix: set max_batch_size: 8")


def test_settings_of_a_model_that_is_not_ready_are_not_called_good(
    healthy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = next(healthy.glob("*/config.pbtxt"))
    config.write_text(config.read_text().replace("TYPE_FP32", "TYPE_INT32", 1))
    run(healthy, "--question", "batching")
    said = capsys.readouterr().out
    assert f"not known: the settings of {config.parent.name}, not ready: repair that first" in said


def test_a_model_that_is_not_ready_either_may_still_be_asked_why_it_does_not_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "both"
    wrong = x("-1, 4").replace("TYPE_FP32", "TYPE_INT32")
    graph(root, "m", f"max_batch_size: 0\n{wrong}{y('-1, 4')}", doubled(["batch", 4]))
    assert run(root, "--question", "batching") == 1
    assert "[batching-no-rows]" in capsys.readouterr().out
    run(root)
    assert "[batching-no-rows]" not in capsys.readouterr().out


def test_without_a_question_a_model_that_could_batch_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "single"
    graph(root, "m", f"max_batch_size: 0\n{x('-1, 4')}{y('-1, 4')}", doubled(["batch", 4]))
    run(root)
    said = capsys.readouterr().out
    assert "not known: whether m should batch: max_batch_size is 0; ask with --question batching" in said


def test_all_questions_are_answered_in_order(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(healthy) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Why")]
    assert titles == list(QUESTIONS.values())


def test_a_misnamed_file_is_named_and_what_it_hides_is_mended(
    broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (broken / "m" / "1" / "model.onnx").rename(broken / "m" / "1" / "scores.onnx")
    config = broken / "m" / "config.pbtxt"
    config.write_text('name: "other"\n' + config.read_text())
    assert run(broken, "-o", tmp_path / "copy") == 1
    printed = capsys.readouterr().out
    assert "m/config.pbtxt: name removed" in printed
    assert 'm/config.pbtxt: default_model_filename: "scores.onnx"' in printed
    assert "left:" not in printed
    assert run(tmp_path / "copy") == 0


def test_json(broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    assert run(broken, "--question", "batching,ready", "--json", "-o", copy) == 1
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"answers", "repaired"}
    first, second = document["answers"]
    assert (first["question"], second["question"]) == ("batching", "ready")
    (cause,) = first["causes"]
    assert set(cause) == {
        *("questions", "code", "model", "where", "message", "evidence", "remedy", "repairs"),
    }
    assert (cause["code"], cause["model"]) == ("batching-no-rows", "m")
    assert document["repaired"] == {"path": str(copy), "done": cause["repairs"], "left": []}
    assert "max_batch_size: 8" in (copy / "m" / "config.pbtxt").read_text()


def test_a_copy_without_a_change_is_said(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(healthy, "-o", tmp_path / "copy") == 0
    assert f"copy without a change: {tmp_path / 'copy'}" in capsys.readouterr().out


def test_a_log_is_explained(healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(GROWTH)
    assert run(healthy, "--log", tmp_path / "log", "--question", "shared-memory") == 1
    output = capsys.readouterr().out
    assert "the server ran out of shared memory [shared-memory-growth]" in output
    assert "log line 1: Failed to increase the shared memory pool size" in output


ROWS = "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'minilm'\n"


def test_a_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a repository or a server: the message's cause and cure, and nothing else."""
    monkeypatch.chdir(tmp_path)
    Path("error.txt").write_text(ROWS)
    assert run("--log", "error.txt") == 1
    title, cause, text, fix, *_ = capsys.readouterr().out.splitlines()
    assert title == QUESTIONS["requests"]
    assert cause == (
        "  log line 1: the request has more rows than the model's max_batch_size, 8 [request-rows]"
    )
    assert text == "    inference request batch-size must be <= 8 for 'minilm'"
    assert fix.startswith("    fix: send at most 8 rows a request")


def test_a_log_without_a_known_message(
    tmp_path: Path,
    healthy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("forum.log").write_text("it does not work\n")
    assert run("--log", "forum.log") == 0
    assert capsys.readouterr().out == "no known message in forum.log\n"
    assert run(healthy, "--log", "forum.log") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no known message in forum.log"


def test_a_named_question_without_anything_still_needs_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrbError) as raised:
        run("--question", "batching")
    assert raised.value.code is Code.REPOSITORY_UNREADABLE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--question", "speed"], "'speed' is not one of batching,"),
        (["http://localhost:1", "-o", "copy"], "-o writes a copy of a repository"),
        ([".", "--bench"], "--bench sends requests to a server"),
        (["--expect", "v.jsonl"], "--expect compares with a server's answers: name its URL"),
        (["http://localhost:1", "--model", "."], "--model and --endpoint belong to --expect"),
        (["a", "b"], "name one repository, one URL, or one of each"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        run(*arguments)
    assert message in raised.value.message


def test_a_folder_with_files_is_not_overwritten(broken: Path, healthy: Path) -> None:
    with pytest.raises(TrbError) as raised:
        run(broken, "-o", healthy)
    assert raised.value.code is Code.OUTPUT_FOREIGN


def test_a_missing_log(healthy: Path, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as raised:
        run(healthy, "--log", tmp_path / "none")
    assert raised.value.where == str(tmp_path / "none")

"""The command line of ``trb bench``: values, what is announced, what is refused before anything starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench_values import level, report, split
from click.testing import CliRunner, Result

from triton_repo_builder import cli
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import InvalidValue, Numbers, Seconds
from triton_repo_builder.cli.bench import command
from triton_repo_builder.cli.bench_report import print_report
from triton_repo_builder.cli.options import addresses
from triton_repo_builder.measure.bench import BenchOptions, json_text
from triton_repo_builder.measure.bench.report.report import BenchReport, Ratio
from triton_repo_builder.run.serve.background import registry
from triton_repo_builder.run.serve.processes import proc


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", *arguments])
    return int(end.value.code or 0), capsys.readouterr().err


def test_numbers_and_times() -> None:
    assert Numbers(int).parse("4,1,4") == (4, 1)
    assert Numbers(float).parse("0.5,2") == (0.5, 2.0)
    for text in ("", "0", "1,,2", "a", "-3", "nan", "1e9", "inf"):
        with pytest.raises(InvalidValue, match="not a list of numbers above 0 and below 1,000,000,000"):
            Numbers(float).parse(text)
    parse = Seconds().parse
    assert [parse(text) for text in ("2s", "500ms", "1.5m", "3")] == [2.0, 0.5, 90.0, 3.0]
    for text in ("", "2w", "s", "-1s"):
        with pytest.raises(InvalidValue, match="not a time like 2s"):
            parse(text)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_what_cannot_be_meant_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = refused(["--fixed", "a", "--lengths", "3"], capsys)
    assert (code, "--corpus or --lengths" in text) == (Code.USAGE.exit, True)
    code, text = refused(["--grpc-url", "x:1"], capsys)
    assert (code, "go with --url" in text) == (Code.USAGE.exit, True)
    code, text = refused([str(tmp_path / "absent")], capsys)
    assert (code, "no such model repository" in text) == (Code.REPOSITORY_UNREADABLE.exit, True)
    repository = Path(__file__).parents[3] / "model_repository"
    code, text = refused([str(repository), "--endpoint", "nope"], capsys)
    assert (code, f"{repository}: has no endpoint nope" in text) == (Code.USAGE.exit, True)
    code, text = refused(["--baseline", str(tmp_path / "absent.json")], capsys)
    assert (code, "absent.json" in text) == (Code.NOT_FOUND.exit, True)
    code, text = refused(["--max-windows", "2"], capsys)
    assert (code, "less than --min-windows 3" in text) == (Code.USAGE.exit, True)
    code, text = refused(["--max-regression", "20%"], capsys)
    assert (code, "needs --baseline FILE or --against DIR" in text) == (Code.USAGE.exit, True)
    code, text = refused(["--max-regression", "20"], capsys)
    assert (code, "must be from 0 to 1, not 20" in text) == (Code.USAGE.exit, True)
    assert "is not a URL" in invoke("--url", "ftp://x").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--min-windows", "3"], "--duration and --min-windows both set the time of a level"),
        (["--max-windows", "10"], "--duration and --max-windows both set the time of a level"),
        (["--replay", "a.jsonl"], "--replay takes as long as its log"),
        (["--window", "0"], "times must be above 0"),
        (["--duration", "0"], "nothing is measured in no time"),
    ],
)
def test_a_duration_that_contradicts_other_options_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = refused(["--duration", "4s", *words], capsys)
    assert (code, message in text) == (Code.USAGE.exit, True), text


@pytest.mark.parametrize(
    ("duration", "window", "windows"),
    [("1m", "2s", 30), ("5s", "2s", 3), ("1s", "2s", 1), ("0.7s", "100ms", 7), ("1.1s", "100ms", 11)],
)
def test_a_duration_is_filled_with_windows(
    monkeypatch: pytest.MonkeyPatch, duration: str, window: str, windows: int
) -> None:
    taken: list[BenchOptions] = []

    def run(*given: object) -> BenchReport:
        taken.extend(each for each in given if isinstance(each, BenchOptions))
        return report(level())

    monkeypatch.setattr("triton_repo_builder.cli.bench._run", run)
    assert invoke("--url", "x", "--duration", duration, "--window", window).exit_code == 0
    assert [(each.min_windows, each.max_windows) for each in taken] == [(windows, windows)]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("throughput", "status"), [(11.0, 1), (95.0, 0)])
def test_a_regression_is_an_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
    throughput: float,
    status: int,
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json_text(report(level())))
    now = report(level(throughput=throughput))
    monkeypatch.setattr("triton_repo_builder.cli.bench._run", lambda *given: now)
    gate = ["--baseline", str(file), "--max-regression", "20%", "--output", str(tmp_path / "now")]
    monkeypatch.setattr("triton_repo_builder.measure.bench.write", lambda report, folder: ())
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "--url", "x", *gate, *(["--json"] if as_json else [])])
    shown = capsys.readouterr()
    assert end.value.code == status, shown.err
    line = f"grpc 16 clients: throughput is 0.110 x, below the limit of 0.800 x, against {file}"
    assert (line in shown.err, "[slower]" in shown.err) == (bool(status), bool(status))
    if as_json:
        assert json.loads(shown.out)["verdict"]["passed"] is not bool(status)
    else:
        assert ("passed: no throughput is lower" in shown.out) is not bool(status)


def test_a_server_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = refused(["--url", "http://127.0.0.1:9", "--min-windows", "20", "--concurrency", "1"], capsys)
    assert code == Code.UNREACHABLE.exit
    assert "no tritonserver answers" in text
    assert "1 level of 42 to 42 s: at most 0:42 min" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_measured_is_printed_though_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    def full(report: BenchReport, folder: Path) -> tuple[Path, ...]:
        raise TrbError(Code.DISK_FULL, "the disk is full", where=str(folder), remedy="free some space")

    monkeypatch.setattr("triton_repo_builder.measure.bench.write", full)
    monkeypatch.setattr("triton_repo_builder.cli.bench._run", lambda *given: report(level()))
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "--url", "x", "--output", str(tmp_path), *(["--json"] if as_json else [])])
    shown = capsys.readouterr()
    assert end.value.code == Code.DISK_FULL.exit
    assert "the disk is full" in shown.err
    if as_json:
        assert json.loads(shown.out)["levels"][0]["throughput"] == 100.0
    else:
        assert "100.0" in shown.out
        assert "wrote" not in shown.out


def test_addresses_default_to_the_host() -> None:
    found = addresses("http://gpu-7:9000", None, None)
    assert (found.http, found.grpc) == ("http://gpu-7:9000", "gpu-7:9001")
    assert found.metrics == "http://gpu-7:9002/metrics"
    assert addresses("[::1]:8000", None, None).grpc == "[::1]:8001"
    assert addresses("https://x", None, None).grpc == "grpcs://x:8001"
    assert addresses("https://x:443").grpc == "grpcs://x:444"
    assert addresses("x:65535").metrics == "http://x:8002/metrics", "no port has two above it"


def test_addresses_of_a_server_in_the_background_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    urls = {
        "http": "http://127.0.0.1:9100",
        "grpc": "127.0.0.1:9101",
        "metrics": "http://127.0.0.1:9102/metrics",
    }
    pid = os.getpid()
    entry = registry.Background(
        pid=pid, born=proc.start_time(pid), name="a", repository="/a", engine="embedded", server_pid=None,
        urls=urls, log="", started=0.0,
    )  # fmt: skip
    registry.write(registry.folder() / "a.json", entry)
    found = addresses("localhost:9100")
    assert (found.grpc, found.metrics) == (urls["grpc"], urls["metrics"])
    assert addresses("localhost:9100", "x:1").grpc == "x:1"
    assert addresses("localhost:9200").grpc == "localhost:9201"
    assert addresses("gpu-7:9100").grpc == "gpu-7:9101"


def test_the_report_is_printed_with_its_ratios_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    ratio = Ratio(
        variant="b", against="a", level="grpc 16 clients", throughput=1.35, p50=0.5, p99=None, server_cpu=0.8
    )
    made = report(
        level(variant="a"),
        level(variant="b", models=(split("[red]"),), bottleneck="the client is late"),
        ratios=(ratio,),
    )
    print_report(made, [Path("out/report.json")])
    text = capsys.readouterr().out
    for part in ("1.35 x", "bert_model", "[red]", "note: b grpc 16 clients: the client is late", "wrote out"):
        assert part in text

"""How ``trb bench`` tells what it found: JSON, CSV, tables, page, plots, ratios."""

from __future__ import annotations

import csv
import errno
import importlib.util
import io
import json
import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from bench_values import latency, level, report, split, window

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.report import (
    comparison,
    files,
    html,
    png,
    table,
)
from triton_repo_builder.measure.bench.report import csv as csv_report
from triton_repo_builder.measure.bench.report import json as json_report
from triton_repo_builder.measure.bench.report.report import BenchReport, Client


def csv_text(made: BenchReport) -> str:
    return csv_report.render(made, {})["report.csv"].decode()


OPEN = {"mode": "open", "concurrency": None, "rate": 50.0}


def test_json_has_every_number_and_its_schema() -> None:
    document = json.loads(json_report.text(report(level(), level(**OPEN))))
    assert document["schema"] == 1
    first, second = document["levels"]
    assert (first["throughput"], first["latency"]["p99"], first["windows"][0]["throughput"]) == (
        100.0,
        20.0,
        100.0,
    )
    assert first["models"][2]["batches"] == {"4": 25}
    assert (second["mode"], second["rate"], second["concurrency"]) == ("open", 50.0, None)


def test_every_field_is_documented() -> None:
    text = (Path(__file__).resolve().parents[5] / "docs" / "bench.md").read_text()
    document = report(level()).to_json()
    names = [*document, *document["levels"][0], *document["levels"][0]["models"][0]]
    names += [*document["levels"][0]["client"], *document["levels"][0]["totals"]]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_csv_has_a_row_per_level() -> None:
    failing = level(
        latency=None, failures={"timeout": 3, "HTTP 500": 2}, server_cpu_ms=None, gpu_utilization={"a": 0.5}
    )
    rows = list(csv.DictReader(io.StringIO(csv_text(report(level(), failing)))))
    assert [row["throughput"] for row in rows] == ["100.0", "100.0"]
    assert (rows[0]["p99_ms"], rows[0]["rows_per_execution"]) == ("20.0", "4.0")
    assert (rows[1]["p99_ms"], rows[1]["failed"], rows[1]["server_cpu_ms"]) == ("", "5", "")
    assert (rows[1]["failures"], rows[1]["gpu_utilization"]) == ("timeout: 3; HTTP 500: 2", "0.5")


def test_rows_per_execution_are_those_of_the_busiest_model() -> None:
    main = level().main_model
    assert main is not None
    assert main.model == "bert_model"
    alone = level(models=(split("bert"),)).main_model
    assert alone is not None
    assert alone.model == "bert"
    assert level(models=()).main_model is None


def test_columns_appear_where_they_tell_something() -> None:
    header, rows = table.level_table(report(level()))
    assert "variant" not in header
    assert "length" not in header
    assert "busiest GPU" not in header
    assert all(len(row) == len(header) for row in rows)
    rich, rows = table.level_table(
        report(level(variant="a", length=32), level(variant="b", latency=None, gpu_utilization={"x": 0.5}))
    )
    assert {"variant", "length", "busiest GPU"} < set(rich)
    assert all(len(row) == len(rich) for row in rows)
    assert table.model_table(report(level()))[3][1] == "(outside the server)"


def test_the_busiest_gpu_is_shown_and_the_json_keeps_each() -> None:
    eight = {f"GPU-{n}": 0.87 if n == 5 else 0.0 for n in range(8)}
    made = report(level(gpu_utilization=eight), level())
    header, rows = table.level_table(made)
    assert [row[header.index("busiest GPU")] for row in rows] == ["87%", "-"]
    assert [row["gpu_utilization"] for row in csv.DictReader(io.StringIO(csv_text(made)))] == [
        "0.87",
        "",
    ]
    assert made.to_json()["levels"][0]["gpu_utilization"] == eight


def test_remarks_name_failures_noise_instability_and_the_client() -> None:
    troubled = level(
        failures={"HTTP 500": 2},
        examples={"HTTP 500": "too small"},
        bottleneck="the client is a bottleneck",
        stable=False,
        spread={"throughput": 0.3, "p95": None},
        client=Client(processes=1, busiest_core=0.2, cores=0.2, cpu_ms=None, lag_ms=None, machine_busy=0.9),
    )
    assert table.remarks(report(troubled, notes=("a note",))) == [
        "a note",
        "grpc 16 clients: the client is a bottleneck",
        "grpc 16 clients: other programs used 30% of this machine's CPU; it can do better",
        "grpc 16 clients: 2 failed, HTTP 500: too small",
        "grpc 16 clients: not stable after 3 windows; the last differ by throughput ±30%",
    ]
    assert table.remarks(report(level())) == []


@pytest.mark.parametrize(("count", "said"), [(1, "was 1"), (2, "were 2")])
def test_stability_is_unknown_with_fewer_than_three_windows(count: int, said: str) -> None:
    few = level(stable=None, windows=(window(),) * count, spread={"throughput": 0.06, "p95": 0.0})
    assert table.remarks(report(few)) == [
        f"grpc 16 clients: whether it is stable is unknown: that takes 3 windows, and there {said}"
    ]
    header, (row,) = table.level_table(report(few))
    assert row[header.index("stable")] == "unknown"
    silent = level(stable=False, spread={"throughput": None, "p95": None})
    assert table.remarks(report(silent))[0].endswith("3 windows; nothing was answered in some of them")


def test_what_triton_counts_twice_is_said() -> None:
    failing = level(
        failures={"gRPC INTERNAL": 779},
        models=(replace(split("bert"), failed=1554), replace(split("bert_model"), failed=0)),
    )
    assert any(
        "hence 1554 in the table; the clients saw 779" in text for text in table.remarks(report(failing))
    )
    alone = level(models=(replace(split("bert"), failed=5),))
    assert table.remarks(report(alone)) == [], "no ensemble"


def test_a_split_of_another_time_or_other_requests_is_said() -> None:
    short = level(seconds=3.0, split_seconds=2.0, outside_ms=None, failures={"gRPC UNAVAILABLE": 5})
    assert any("the split per model covers 2.0 of 3.0 s" in text for text in table.remarks(report(short)))
    assert table.model_table(report(short))[0][2] == "50.0", "100 requests in its own 2 s"
    failing = level(outside_ms=None, failures={"timeout": 5})
    texts = table.remarks(report(failing))
    assert any("time outside the server is unknown: failed requests" in text for text in texts)
    assert "(outside the server)" not in [row[1] for row in table.model_table(report(failing))]
    late = level(outside_ms=None, failures={}, examples={"timeout": "in the warm-up"})
    assert "time outside the server is unknown" in table.remarks(report(late))[0]
    assert table.remarks(report(level(outside_ms=None, split_seconds=None, models=()))) == []


class Outside(HTMLParser):
    """Collects what a browser would fetch, and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_and_escapes_everything() -> None:
    made = report(level(examples={"x": "<script>"}, failures={"x": 1}))
    text = html.render(made, {"throughput.png": b"PNG", "latency.png": b"\x89PNG"})["report.html"].decode()
    reader = Outside()
    reader.feed(text)
    assert reader.found == ["data:image/png;base64,UE5H", "data:image/png;base64,iVBORw=="]
    assert "script" not in reader.tags
    assert "b" not in reader.tags, "the command line held <b>"
    assert "&lt;script&gt;" in text


def test_lines_of_a_plot_are_named_by_what_differs() -> None:
    levels = [level(variant=v, concurrency=n) for v in ("ours", "theirs") for n in (16, 1)]
    found = png.series(levels)
    assert list(found) == ["ours", "theirs"]
    assert [one.concurrency for one in found["ours"]] == [1, 16]
    assert list(png.series([level(), level(protocol="http", length=32)])) == ["grpc", "http length 32"]
    assert list(png.series([level()])) == [""]


def test_files_are_written_whole_and_the_same_each_time(tmp_path: Path) -> None:
    made = report(level(), level(concurrency=1, latency=None), level(**OPEN))
    first = {path.name: path.read_bytes() for path in files.write(made, tmp_path / "new" / "folder")}
    again = {path.name: path.read_bytes() for path in files.write(made, tmp_path / "new" / "folder")}
    assert first == again
    assert set(first) == {"report.json", "report.csv", "report.html", "latency.png", "throughput.png"}
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(first)


def test_missing_matplotlib_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TrbError) as raised:
        files.open_folder(tmp_path / "out")
    assert raised.value.code == Code.ENGINE_MISSING
    assert "pip install" in raised.value.remedy
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrbError) as raised:
        files.open_folder(tmp_path / "file" / "out")
    assert raised.value.code == Code.OUTPUT_NOT_WRITABLE


@pytest.mark.parametrize("name", ["report.json", "latency.png", "report.html"])
def test_a_full_disk_leaves_the_older_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files.write(report(level(throughput=1.0)), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    real = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.name != name:
            return real(path, content)
        real(path, content[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TrbError) as raised:
        files.write(report(level(throughput=2.0)), tmp_path)
    assert (raised.value.code, raised.value.where) == (Code.DISK_FULL, str(tmp_path))
    assert raised.value.message == "the disk is full; an earlier report is unchanged"
    assert "--output" in raised.value.remedy
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_in_the_place_of_a_file_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    (tmp_path / "report.json" / "mine").touch()
    with pytest.raises(TrbError, match=r"cannot be written: report\.json is a folder there") as raised:
        files.open_folder(tmp_path)
    assert (raised.value.code, raised.value.where) == (Code.OUTPUT_NOT_WRITABLE, str(tmp_path))
    assert (tmp_path / "report.json" / "mine").exists()


def saved(tmp_path: Path, *levels: Any, **changes: Any) -> Path:
    path = tmp_path / "old.json"
    path.write_text(json_report.text(report(*levels, **changes)))
    return path


def test_ratios_to_a_baseline(tmp_path: Path) -> None:
    file = saved(tmp_path, level(throughput=80.0, latency=latency(10.0), server_cpu_ms=20.0))
    made = comparison.compare(
        report(level(), level(concurrency=4), seconds=1.0), comparison.load(file), file
    ).baseline
    assert made is not None
    (ratio,) = made.ratios
    assert (ratio.throughput, ratio.p50, ratio.p99, ratio.server_cpu) == (1.25, 0.5, 0.5, 0.5)
    assert table.ratio_table(made.ratios) == [["grpc 16 clients", "1.25 x", "0.50 x", "0.50 x", "0.50 x"]]
    assert made.notes == (f"1 of 2 levels have no counterpart of the same load in {file}",)


def test_what_makes_a_comparison_doubtful_is_said(tmp_path: Path) -> None:
    file = saved(
        tmp_path,
        level(latency=None, server_cpu_ms=None, sent="other"),
        machine={"cpu": "a CPU", "cores": 64, "memory_gib": 8.0},
        client="perf-analyzer",
    )
    made = comparison.compare(report(level()), comparison.load(file), file).baseline
    assert made is not None
    assert (made.ratios[0].throughput, made.ratios[0].p50, made.ratios[0].server_cpu) == (1.0, None, None)
    assert made.notes == (
        "another machine: cores was 64, is 2",
        "other texts or tensors were sent",
        "another client: perf-analyzer",
    )


def test_variants_are_compared_with_their_own_kind(tmp_path: Path) -> None:
    file = saved(tmp_path, level(variant="a", throughput=50.0), level(variant="b", throughput=200.0))
    made = comparison.compare(report(level(variant="b")), comparison.load(file), file).baseline
    assert made is not None
    assert [(ratio.against, ratio.throughput) for ratio in made.ratios] == [("b", 0.5)]


def test_what_was_sent_is_compared_level_by_level(tmp_path: Path) -> None:
    """Not what the texts are called, nor how they were counted."""
    old = level(length=16, sent="a"), level(length=64, sent="b")
    words = {"": {"source": "shipped corpus", "texts": 420, "unit": "words", "median": 17}}
    file = saved(tmp_path, *old, texts=words)
    document = comparison.load(file)

    def notes(*levels: Any) -> tuple[str, ...]:
        made = comparison.compare(report(*levels), document, file).baseline
        assert made is not None
        return made.notes

    assert notes(level(length=16, sent="a")) == ()
    assert notes(level(length=16, sent="c")) == ("other texts or tensors were sent",)
    assert notes(old[0], level(length=64, sent="c")) == ("other texts or tensors were sent at 1 of 2 levels",)
    document = replace(document, levels=(document.levels[0], replace(document.levels[1], sent="")))
    assert notes(*old) == ("whether the same was sent is unknown: the older report does not record it",)


def test_a_report_compares_with_itself(tmp_path: Path) -> None:
    made = report(level(), level(latency=None, server_cpu_ms=None, **OPEN), level(length=8))
    file = saved(tmp_path, *made.levels)
    found = comparison.compare(made, comparison.load(file), file).baseline
    assert found is not None
    assert (len(found.ratios), found.notes) == (3, ())


DAMAGE: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("client",), None, "client is null, not a text"),
    (("client",), "\ud800", r'client is "\ud800", not a text'),
    (("machine",), None, "machine is null, not an object"),
    (("machine", "cpu"), [], "machine.cpu is [], not a number"),
    (("levels",), {}, "levels is {}, not a list of levels"),
    (("levels",), [], "levels is [], not a list of levels"),
    (("levels", 1), 7, "levels[1] is 7, not an object"),
    (("levels", 1, "variant"), ..., "levels[1].variant is missing"),
    (("levels", 1, "variant"), [], "levels[1].variant is [], not a text"),
    (("levels", 1, "protocol"), None, "levels[1].protocol is null, not a text"),
    (("levels", 1, "concurrency"), "16", 'levels[1].concurrency is "16", not a number'),
    (("levels", 1, "rate"), ..., "levels[1].rate is missing"),
    (("levels", 1, "rows"), True, "levels[1].rows is true, not a number"),
    (("levels", 1, "throughput"), "abc", 'levels[1].throughput is "abc", not a number that is 0 or more'),
    (("levels", 1, "throughput"), None, "levels[1].throughput is null"),
    (("levels", 1, "throughput"), -1, "levels[1].throughput is -1"),
    (("levels", 1, "throughput"), float("nan"), "levels[1].throughput is NaN"),
    (("levels", 1, "throughput"), 10**400, "levels[1].throughput is 1000"),
    (("levels", 1, "server_cpu_ms"), {}, "levels[1].server_cpu_ms is {}"),
    (("levels", 1, "latency"), [1], "levels[1].latency is [1], not an object or null"),
    (("levels", 1, "latency", "p50"), "x", 'levels[1].latency.p50 is "x"'),
    (("levels", 1, "latency", "p99"), ..., "levels[1].latency.p99 is missing"),
    (("levels", 1, "sent"), 3, "levels[1].sent is 3, not a text"),
]


@pytest.mark.parametrize(("path", "value", "said"), DAMAGE)
def test_a_damaged_report_is_refused_before_anything_is_measured(
    tmp_path: Path, path: tuple[Any, ...], value: Any, said: str
) -> None:
    document = json.loads(json_report.text(report(level(), level(concurrency=4))))
    place = document
    for part in path[:-1]:
        place = place[part]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    with pytest.raises(TrbError) as raised:
        comparison.load(file)
    assert raised.value.code == Code.USAGE
    assert raised.value.message.startswith(f"is a damaged report: {said}")
    assert "report.json" in raised.value.remedy


@pytest.mark.parametrize("changes", [{"texts": []}, {"texts": {"": 3}}, {"servers": None}, {"notes": 7}])
def test_what_a_comparison_does_not_read_may_be_damaged(tmp_path: Path, changes: dict[str, Any]) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({**report(level()).to_json(), **changes}))
    made = comparison.compare(report(level()), comparison.load(file), file).baseline
    assert made is not None
    assert made.notes == ()


NO_REPORT = ["no json", "[" * 100_000, "[]", '{"schema": 2}', '{"schema": 1, "levels": [{}]}']


@pytest.mark.parametrize("text", NO_REPORT)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(TrbError) as raised:
        comparison.load(file)
    assert raised.value.code == Code.USAGE
    with pytest.raises(TrbError) as raised:
        comparison.load(tmp_path / "absent.json")
    assert raised.value.code == Code.NOT_FOUND


def test_windows_keep_their_own_numbers() -> None:
    document = report(level(windows=(window(10), window(20, None)))).to_json()
    assert [one["throughput"] for one in document["levels"][0]["windows"]] == [10.0, 20.0]
    assert document["levels"][0]["windows"][1]["latency"] is None

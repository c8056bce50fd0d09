"""``trb bench`` against a real server: counts are the server's, files are whole, failures are counted."""

from __future__ import annotations

import csv
import itertools
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import trb
from tests.support.docs_accounts import matching
from tests.support.servers import free
from triton_repo_builder import repository
from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import main
from triton_repo_builder.measure import bench
from triton_repo_builder.measure.bench import connectivity
from triton_repo_builder.measure.bench.report import table
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import JSON, Body, HttpClient, statistics
from triton_repo_builder.run.serve.processes.cpu import server_process

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.one(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def one(self, x):
        if x[0, 0] < 0.5:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("too small"))
        time.sleep(0.05)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
AROUND = """
platform: "ensemble"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
ensemble_scheduling { step [{
  model_name: "picky" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
}] }
"""
SHORT = bench.BenchOptions(
    concurrency=(4,), warmup=0.1, window=0.2, min_windows=2, max_windows=2, timeout=5.0, processes=2
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sentiment example, and a slow model that refuses half of the requests."""
    root = tmp_path_factory.mktemp("bench")
    process.run(
        [sys.executable, str(ROOT / "examples" / "sentiment" / "make_model.py"), str(root / "export")]
    )
    target = root / "model_repository"
    trb("build", "--model", root / "export", "--name", "sentiment", "--output", target, "--no-golden")
    (target / "picky" / "1").mkdir(parents=True)
    (target / "picky" / "1" / "model.py").write_text(MODEL)
    (target / "picky" / "config.pbtxt").write_text(CONFIG)
    (target / "both" / "1").mkdir(parents=True)
    (target / "both" / "config.pbtxt").write_text(AROUND)
    return target


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[serve.RunningServer]:
    options = free()
    with serve.start(folder, options) as running:
        yield running


def run(server: serve.RunningServer, folder: Path, **changes: Any) -> bench.BenchReport:
    options = replace(SHORT, **{"endpoint": "sentiment", **changes})
    return bench.run(server.urls, repository.read(folder), options, pid=server.pid)


def test_counts_are_those_of_the_server_over_every_protocol_and_loop(
    server: serve.RunningServer, folder: Path
) -> None:
    report = run(server, folder, protocols=("grpc", "http", "http-binary"), rates=(100.0,), rows=2)
    assert [(level.protocol, level.mode) for level in report.levels] == [
        (protocol, mode) for protocol in ("grpc", "http", "http-binary") for mode in ("closed", "open")
    ]
    for level in report.levels:
        totals = level.totals
        assert (totals.failed, level.failures) == (0, {}), level.examples
        assert totals.sent == totals.answered >= level.answered > 0
        assert totals.server_rows == 2 * totals.sent
        assert {one.model for one in level.models} == {
            "sentiment",
            "sentiment_tokenizer",
            "sentiment_model",
        }
        for one in level.models:
            # Read under load, the server's counters are some requests apart; the totals above are not.
            assert abs(one.rows - 2 * one.requests) <= 16
            assert one.rows_per_execution is not None
            assert one.rows_per_execution > 1.5
            assert abs(sum(one.batches.values()) - one.executions) <= 4 or one.model == "sentiment"
            assert one.request_ms is not None
            assert one.infer_ms is not None
            assert 0 < one.infer_ms <= one.request_ms
        latency = level.latency
        assert latency is not None
        assert 0 < latency.p50 <= latency.p95 <= latency.p99 <= latency.max
        assert level.server_cpu_ms is not None
        assert level.server_cpu_ms > 0
        assert level.client.processes == 2
        assert len(level.windows) == 2
        assert level.stable is None
        # An open loop arrives as often as asked, whatever the answers do: 80 % is 5 sigma at 100/s for 0.4 s.
        if level.mode == "open":
            arrived = sum(window.arrived for window in level.windows)
            assert abs(arrived - 100 * level.seconds) < 0.8 * 100 * level.seconds


@pytest.mark.slow
def test_failures_are_counted_by_kind_and_stop_nothing(server: serve.RunningServer, folder: Path) -> None:
    report = run(server, folder, endpoint="picky", protocols=("grpc", "http"), lengths=(4,))
    kinds = [set(level.failures) for level in report.levels]
    assert kinds == [{"gRPC INTERNAL"}, {"HTTP 500"}]
    for level in report.levels:
        assert level.answered > 0
        assert "too small" in next(iter(level.examples.values()))
        assert level.totals.sent == level.totals.answered + level.totals.failed
    # An ensemble's failed requests are counted twice by Triton; a note says so.
    within = run(server, folder, endpoint="both", lengths=(4,), window=1.0)
    own = next(one for one in within.levels[0].models if one.model == "both")
    assert own.failed > 1.5 * within.levels[0].failed > 0
    assert any("Triton counts a request that failed in it twice" in text for text in table.remarks(within))
    late = run(server, folder, endpoint="picky", timeout=0.02, concurrency=(1,), protocols=("grpc", "http"))
    assert all("timeout" in level.failures for level in late.levels)
    over = run(server, folder, endpoint="picky", concurrency=(), rates=(100.0,), in_flight=4)
    assert over.levels[0].failures["overrun"] > 0
    # Counted from when they were due: those that wait in the queue of four show it.
    assert over.levels[0].latency is not None
    assert over.levels[0].latency.p50 > 50


@contextmanager
def other_server() -> Iterator[str]:
    """A gRPC server that answers everything at once, and is not ours."""
    import grpc

    class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: object) -> object:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")

    running = grpc.server(ThreadPoolExecutor(2), handlers=[Anything()])
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        running.stop(None)


def refusal(server: serve.RunningServer, folder: Path, grpc: str, **changes: Any) -> TrbError:
    urls = bench.Urls(http=server.urls.http, grpc=grpc)
    options = replace(SHORT, **{"endpoint": "sentiment", **changes})
    with pytest.raises(TrbError) as raised:
        bench.run(urls, repository.read(folder), options)
    return raised.value


def test_grpc_that_leads_nowhere_is_an_error_before_the_first_level(
    server: serve.RunningServer, folder: Path
) -> None:
    begun = time.monotonic()
    error = refusal(server, folder, "127.0.0.1:9", window=60.0)
    assert time.monotonic() - begun < 30, "no level was run"
    assert (error.code, error.where) == (Code.UNREACHABLE, "127.0.0.1:9")
    assert "no tritonserver answers over gRPC" in error.message
    assert f"{server.urls.http} with --grpc-url" in error.remedy
    assert "no tritonserver answers over gRPC" in refusal(server, folder, server.urls.http[7:]).message
    # Where gRPC is not measured, its address does not matter.
    urls = bench.Urls(http=server.urls.http, grpc="127.0.0.1:9")
    options = replace(SHORT, endpoint="sentiment", protocols=("http",), concurrency=(1,))
    assert bench.run(urls, repository.read(folder), options).levels[0].answered


def test_grpc_that_leads_to_another_server_is_an_error_before_the_first_level(
    server: serve.RunningServer, folder: Path
) -> None:
    with other_server() as address:
        error = refusal(server, folder, address)
    assert (error.code, error.where) == (Code.UNREACHABLE, address)
    assert f"the statistics of {server.urls.http} did not count it" in error.message
    assert "--grpc-url" in error.remedy


def test_statistics_that_do_not_count_http_are_a_note(
    server: serve.RunningServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectivity, "SETTLE", 0.1)
    monkeypatch.setattr(connectivity, "_requests", lambda target, counters: 7)
    report = run(server, folder, protocols=("http",), concurrency=(1,))
    assert any("several servers answer there" in note for note in report.notes)


@contextmanager
def once_under_load(
    http: HttpClient, model: str, seconds: float, act: Callable[[], object]
) -> Iterator[None]:
    """Act ``seconds`` after the clients of a level have begun, however long they took to start."""

    def wait() -> None:
        while statistics.read(http)[model].rows < 10:
            time.sleep(0.05)
        time.sleep(seconds)
        act()

    with ThreadPoolExecutor(1) as pool:
        acted = pool.submit(wait)
        yield
        acted.result(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_within_a_level_leaves_what_was_measured(
    folder: Path, signal_: signal.Signals
) -> None:
    options = free("sentiment")
    with serve.start(folder, options) as doomed:
        assert doomed.pid is not None
        kill = partial(os.kill, doomed.pid, signal_)
        with once_under_load(HttpClient(doomed.urls.http), "sentiment", 2.0, kill):
            report = run(doomed, folder, window=0.5, min_windows=20, max_windows=20, concurrency=(2, 4))
    (level,) = report.levels
    assert level.ended.startswith("the server stopped answering; its last answer came ")
    assert "requests failed after them" in level.ended
    assert 1 <= len(level.windows) < 8
    assert level.answered > 0
    # Those of the time after it are in the totals; one client may fail before the other has its last answer.
    assert sum(level.failures.values()) <= 2
    assert level.totals.failed > 0
    assert {one.model for one in level.models} == {"sentiment", "sentiment_tokenizer", "sentiment_model"}
    assert level.server_cpu_ms is not None
    assert level.server_cpu_ms > 0
    assert report.notes[-1] == "1 of 2 levels were not measured: the server had stopped answering"


@pytest.mark.slow
def test_a_server_that_ends_in_the_first_window_leaves_what_the_clients_saw(folder: Path) -> None:
    options = free("sentiment")
    with serve.start(folder, options) as doomed:
        assert doomed.pid is not None
        kill = partial(os.kill, doomed.pid, signal.SIGKILL)
        with once_under_load(HttpClient(doomed.urls.http), "sentiment", 1.0, kill):
            (level,) = run(doomed, folder, window=6.0, concurrency=(2,)).levels
    assert level.ended
    assert level.answered > 0
    assert level.seconds < 5, "the time after the last answer is not measured"
    assert (level.models, level.server_cpu_ms, level.client.busiest_core) == ((), None, None)


@pytest.mark.slow
def test_a_model_that_is_loaded_again_ends_the_level(folder: Path) -> None:
    def again() -> None:
        for verb in ("unload", "load"):
            body = Body(data=b"{}", headers={})
            http.send("POST", f"/v2/repository/models/picky/{verb}", body)

    options = free("picky")
    with serve.start(folder, options) as other:
        http = HttpClient(other.urls.http)
        changes: dict[str, Any] = {"endpoint": "picky", "window": 0.5, "min_windows": 20, "max_windows": 20}
        with once_under_load(http, "picky", 1.5, again):
            (level,) = run(other, folder, concurrency=(2,), **changes).levels
    assert level.ended.startswith("the server was restarted, or loaded the model again")
    assert 1 <= len(level.windows) < 12
    assert level.models[0].requests > 0, "no count has fallen"


@pytest.mark.slow
def test_a_model_that_is_unloaded_leaves_a_split_of_its_own_time(folder: Path) -> None:
    options = free("sentiment", "picky")
    with serve.start(folder, options) as other:
        http = HttpClient(other.urls.http)
        body = Body(data=b"{}", headers={})
        unload = partial(http.send, "POST", "/v2/repository/models/sentiment/unload", body)
        changes: dict[str, Any] = {"window": 0.5, "min_windows": 12, "max_windows": 12}
        with once_under_load(http, "sentiment", 2.0, unload):
            report = run(other, folder, concurrency=(2,), **changes)
    (level,) = report.levels
    assert level.ended == "", "the server goes on"
    assert level.failed > 0
    assert level.split_seconds is not None
    assert level.seconds is not None
    assert 0 < level.split_seconds < level.seconds
    assert level.outside_ms is None
    assert any("the split per model covers" in text for text in table.remarks(report))


def test_what_failed_leaves_no_time_outside_the_server(server: serve.RunningServer, folder: Path) -> None:
    made = run(server, folder, endpoint="picky", lengths=(4,))
    (level,) = made.levels
    assert level.failed > 0
    assert level.answered > 0
    assert level.outside_ms is None
    assert any("time outside the server is unknown" in text for text in table.remarks(made))
    over = run(server, folder, endpoint="sentiment", concurrency=(), rates=(3000.0,), in_flight=16).levels[0]
    assert set(over.failures) == {"overrun"}
    assert over.outside_ms is not None, "those never reached the server"
    (level,) = run(server, folder, concurrency=(1,)).levels
    assert level.failures == {}
    assert level.split_seconds == level.seconds
    assert level.outside_ms is not None


def test_a_client_that_is_the_bottleneck_is_named(server: serve.RunningServer, folder: Path) -> None:
    report = run(server, folder, client_limit=0.001)
    assert report.levels[0].bottleneck.startswith("the client is a bottleneck: its busiest process used")


def test_the_process_of_a_server_is_found_by_its_port(server: serve.RunningServer) -> None:
    assert server_process(server.urls.http) == server.pid


def test_lengths_are_exact_and_each_is_a_level(server: serve.RunningServer, folder: Path) -> None:
    report = run(server, folder, lengths=(8, 32, 128))
    assert [level.length for level in report.levels] == [8, 32, 128]
    assert report.texts["sentiment"]["unit"] == "tokens"
    assert (report.texts["sentiment"]["shortest"], report.texts["sentiment"]["longest"]) == (8, 128)
    assert any("truncates texts at 64 tokens" in note for note in report.notes)


def test_variants_share_one_report(server: serve.RunningServer, folder: Path) -> None:
    local = repository.read(folder)
    variants = [
        bench.Variant(name="ensemble", urls=server.urls, repository=local, endpoint="sentiment"),
        bench.Variant(name="tokenizer", urls=server.urls, repository=local, endpoint="sentiment_tokenizer"),
    ]
    report = bench.run_variants(variants, SHORT)
    assert [level.variant for level in report.levels] == ["ensemble", "tokenizer"]
    ratio = report.ratios[0]
    assert (ratio.variant, ratio.against) == ("tokenizer", "ensemble")
    assert ratio.throughput == report.levels[1].throughput / report.levels[0].throughput


def test_the_example_of_the_page_runs(folder: Path, tmp_path: Path) -> None:
    ((_, block),) = matching("docs/bench.md", ("bench.Variant(",))
    short = "(4,), warmup=0.1, window=0.2, min_windows=2, max_windows=2"
    text = block.text.replace("(1, 16)", short).replace('"ours"', '"sentiment_tokenizer"')
    names = {"path": folder, "folder": tmp_path / "out"}
    exec(text.replace('"usual"', '"sentiment"'), names)
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [level["variant"] for level in document["levels"]] == ["sentiment", "sentiment_tokenizer"]


def test_two_repositories_are_measured_in_turns(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "after"
    shutil.copytree(folder, other)
    words = ["--endpoint", "sentiment", "--concurrency", "1,2", "--warmup", "100ms", "--window", "200ms"]
    arguments = ["bench", str(folder), *words, "--duration", "600ms", "--json", "--against"]
    with pytest.raises(SystemExit) as end:
        main([*arguments, str(other), "--max-regression", "100%"])
    shown = capfd.readouterr()
    assert shown.err.startswith("4 levels of") or "\n4 levels of" in shown.err
    report = json.loads(shown.out)
    turns = [(level["variant"], level["concurrency"]) for level in report["levels"]]
    assert turns == [(str(each), clients) for clients in (1, 2) for each in (folder, other)]
    assert [len(level["windows"]) for level in report["levels"]] == [3] * 4
    # Windows this short may differ by any factor: the verdict must follow the ratios, whichever they are.
    worse = [ratio["level"] for ratio in report["ratios"] if ratio["p99"] > 2]
    assert [(each["level"], each["quantity"]) for each in report["verdict"]["slower"]] == [
        (level, "p99") for level in worse
    ]
    assert (end.value.code, report["verdict"]["passed"]) == (int(bool(worse)), not worse), shown.err
    assert len({server["pid"] for server in report["servers"]}) == 2
    assert [ratio["against"] for ratio in report["ratios"]] == [str(folder)] * 2
    assert set(report["texts"]) == {str(folder), str(other)}
    for words in ([str(other), "--url", "http://127.0.0.1:9"], [str(folder)]):
        with pytest.raises(SystemExit) as end:
            main([*arguments, *words])
        assert end.value.code == Code.USAGE.exit
        assert "--against" in capfd.readouterr().err


def test_the_endpoint_must_be_clear_and_rows_must_fit(server: serve.RunningServer, folder: Path) -> None:
    with pytest.raises(TrbError, match="both, sentiment"):
        run(server, folder, endpoint="")
    with pytest.raises(TrbError, match="at most 8 rows"):
        run(server, folder, endpoint="picky", rows=9)
    with pytest.raises(TrbError, match="--fixed has no effect") as no:
        run(server, folder, endpoint="picky", fixed="a", concurrency=(1, 2))
    assert (no.value.code, no.value.where) == (Code.USAGE, "picky")
    with pytest.raises(TrbError, match="no endpoint nobody"):
        run(server, folder, endpoint="nobody")


def test_the_command_starts_a_server_writes_all_files_and_compares(
    server: serve.RunningServer, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--endpoint", "sentiment", "--concurrency", "2", "--warmup", "100ms", "--window", "200ms"]
    arguments = ["bench", str(folder), *words, "--max-windows", "3", "--output", str(tmp_path / "first")]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    shown = capfd.readouterr()
    assert end.value.code == 0, shown.err
    assert "1 level of 0.7 to 0.7 s: at most 0:00 min" in shown.err
    assert "2 clients" in shown.out
    assert "sentiment_tokenizer" in shown.out
    written = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert set(written) == {"report.json", "report.csv", "report.html", "latency.png", "throughput.png"}
    assert all(written[name].startswith(b"\x89PNG") for name in ("latency.png", "throughput.png"))
    document = json.loads(written["report.json"])
    assert document["schema"] == 1
    assert document["machine"]["cores"]
    assert document["servers"][0]["version"]
    assert len(list(csv.DictReader(written["report.csv"].decode().splitlines()))) == len(document["levels"])
    page = written["report.html"].decode()
    assert page.count("data:image/png;base64,") == 2
    assert "http://" not in page.replace(document["servers"][0]["url"], "")

    baseline = str(tmp_path / "first" / "report.json")
    where = ["--url", server.urls.http, "--grpc-url", server.urls.grpc]
    with pytest.raises(SystemExit) as end:
        main([*arguments[:-2], *where, "--json", "--baseline", baseline])
    again = json.loads(capfd.readouterr().out)
    assert end.value.code == 0
    (ratio,) = again["baseline"]["ratios"]
    assert ratio["throughput"] == pytest.approx(
        again["levels"][0]["throughput"] / document["levels"][0]["throughput"]
    )
    assert again["baseline"]["notes"] == []
    assert again["verdict"] is None

    # A baseline that was ten times as fast.
    document["levels"][0]["throughput"] *= 10
    Path(baseline).write_text(json.dumps(document))
    with pytest.raises(SystemExit) as end:
        main([*arguments[:-2], *where, "--json", "--baseline", baseline, "--max-regression", "0.5"])
    shown = capfd.readouterr()
    assert end.value.code == Code.SLOWER.exit
    (ratio,) = (document := json.loads(shown.out))["baseline"]["ratios"]
    slower = document["verdict"]["slower"][0]
    assert (slower["quantity"], slower["ratio"], slower["limit"]) == ("throughput", ratio["throughput"], 0.5)
    assert (
        f"grpc 2 clients: throughput is {ratio['throughput']:.3f} x, below the limit of 0.500 x" in shown.err
    )


def test_the_command_asks_for_the_grpc_address_of_a_server_that_runs(
    server: serve.RunningServer, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    quick = ["--endpoint", "sentiment", "--concurrency", "1", "--warmup", "0", "--window", "100ms"]
    where = ["--url", server.urls.http, "--grpc-url", "127.0.0.1:9", "--metrics-url", server.urls.metrics]
    with pytest.raises(SystemExit) as end:
        main(["bench", str(folder), *where, *quick, "--max-windows", "3", "--timeout", "1s"])
    shown = capfd.readouterr()
    assert end.value.code == Code.UNREACHABLE.exit
    assert "127.0.0.1:9" in shown.err
    assert "--grpc-url" in shown.err


def test_the_equivalent_perf_analyzer_commands_are_in_the_report(
    server: serve.RunningServer, folder: Path, tmp_path: Path
) -> None:
    """Their input file is in the program's format, and the endpoint answers what it holds."""
    report = run(
        server,
        folder,
        endpoint="sentiment",
        protocols=("http",),
        concurrency=(1,),
        rates=(50.0,),
        perf_analyzer=tmp_path,
    )
    closed, opened = (shlex.split(note.split(": ", 1)[1]) for note in report.notes if "perf_analyzer" in note)
    assert "--concurrency-range=1:1" in closed
    assert "--request-rate-range=50:50" in opened
    words = dict(itertools.pairwise(closed))
    (file,) = (word.partition("=")[2] for word in closed if word.startswith("--input-data="))
    entries = json.loads(Path(file).read_text())["data"]
    assert len(entries) == 420
    ((name, given),) = entries[0].items()
    tensor = {"name": name, "datatype": "BYTES", "shape": [1, *given["shape"]], "data": given["content"]}
    body = Body(data=json.dumps({"inputs": [tensor]}).encode(), headers=JSON)
    assert HttpClient(words["-u"]).infer(words["-m"], body)


def test_goodput_counts_only_what_came_in_time(server: serve.RunningServer, folder: Path) -> None:
    """The slow model takes 50 ms for a request; four clients wait for one another.

    Before the tests whose late requests the server still works through.
    """
    slo = Objective(percentile="p99", ms=120)
    report = run(server, folder, endpoint="picky", lengths=(4,), window=1.0, slo=slo)
    level = report.levels[0]
    assert level.goodput is not None and level.latency is not None
    assert 0 <= level.goodput < level.throughput


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [0.001, 0.025])
def test_a_short_timeout_bounds_requests_alone(
    server: serve.RunningServer, folder: Path, timeout: float
) -> None:
    """Picky takes 50 ms: every request is late, and the server is as well as before."""
    report = run(
        server, folder, endpoint="picky", protocols=("grpc", "http"), rates=(200.0,), timeout=timeout
    )
    for level in report.levels:
        assert level.ended == ""
        assert level.failures.keys() <= {"timeout", "gRPC INTERNAL", "HTTP 500"}, level.examples
        assert level.failures["timeout"] > 0
        assert level.totals.server_rows is not None, "statistics are given their own time"
    assert len(report.levels) == 4


def test_a_recorded_log_is_sent_once_with_its_times_and_repeats(
    server: serve.RunningServer, folder: Path, tmp_path: Path
) -> None:
    """Two bursts with a pause between them, of which no arrival by chance would think."""
    log = tmp_path / "log.jsonl"
    times = [0.001 * number for number in range(20)] + [2.0 + 0.001 * number for number in range(20)]
    lines = [json.dumps({"at": at, "text": "good"}) for at in times]
    log.write_text("\n".join([*lines[:39], json.dumps({"at": times[39], "text": "a bad word"})]))
    url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc, "--endpoint", "sentiment")
    out = trb(*("bench", folder, *url, "--replay", log, "--window", "250ms", "--slo", "p99=10s", "--json"))
    (level,) = json.loads(out)["levels"]
    assert level["totals"]["sent"] == level["totals"]["answered"] == 40
    assert level["totals"]["server_rows"] == 40
    arrived = [window["arrived"] for window in level["windows"]]
    assert sum(arrived) == 40
    # The first second holds one burst, and a pause after it.
    assert sum(arrived[:3]) == 20 and 0 in arrived[1:3]
    # All of them came within ten seconds, so goodput is throughput.
    assert level["goodput"] == pytest.approx(level["throughput"])
    (texts,) = json.loads(out)["texts"].values()
    assert "2 of 1 to 3 tokens" not in out and texts["texts"] == 2

"""Rates between two snapshots: each number against what was counted in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.counting_server import CountingServer, running, text_endpoint
from triton_repo_builder.run.observe.snapshot import AWAY, Observer, Snapshot
from triton_repo_builder.run.observe.window import EndpointWindow, Window, between

SECONDS = 2.0
TEXTS = 'model="bert_tokenizer",version="1"'


class Watched:
    """A server, and windows of exactly two seconds."""

    def __init__(self, server: CountingServer) -> None:
        self.server = server
        self.observer = Observer(server.urls)
        self.last = self.observer.take()

    def window(self) -> Window:
        now = replace(self.observer.take(), at=self.last.at + SECONDS)
        self.last, before = now, self.last
        return between(before, now)

    def endpoint(self) -> EndpointWindow:
        (endpoint,) = self.window().endpoints
        return endpoint


@pytest.fixture
def watched() -> Iterator[Watched]:
    with running(text_endpoint()) as server:
        yield Watched(server)


def load(server: CountingServer, requests: int = 40) -> None:
    server.count("bert", requests, ms=10)
    server.count("bert_tokenizer", requests, batch=4, ms=2)
    server.count("bert_model", requests, batch=8, ms=8)


def test_requests_latency_queue_and_rows_of_an_endpoint(watched: Watched) -> None:
    load(watched.server)
    watched.window()
    load(watched.server)
    endpoint = watched.endpoint()
    itself = endpoint.itself
    assert itself is not None
    assert (endpoint.endpoint, endpoint.version) == ("bert", "1")
    assert (itself.requests, itself.requests_per_s, itself.rows_per_s) == (40, 20.0, 20.0)
    assert itself.latency.mean == 10.0
    assert [step.model for step in endpoint.steps] == ["bert_tokenizer", "bert_model"]
    assert endpoint.queue_ms == pytest.approx(0.5 + 2.0)  # of both steps: an ensemble has no queue
    assert endpoint.rows_per_execution == 8  # of the model, not of the tokenizer
    assert endpoint.steps[0].batches == {4: 10}
    # 10 executions of 4 requests at 6 ms, 5 of 8 at 48 ms / 8 requests each counted once per execution.
    assert endpoint.busy == pytest.approx((10 * 1.5 + 5 * 6.0) / 1000 / SECONDS)


def test_a_percentile_is_the_servers_own_or_none(watched: Watched) -> None:
    load(watched.server)
    itself = watched.endpoint().itself
    assert itself is not None
    assert (itself.latency.p50, itself.latency.p99) == (None, None)
    name = 'nv_inference_request_summary_us{model="bert",version="1",quantile='
    watched.server.lines = [f'{name}"0.5"}} 4847', f'{name}"0.99"}} 24431']
    load(watched.server)
    itself = watched.endpoint().itself
    assert itself is not None
    assert (itself.latency.p50, itself.latency.p99) == (4.847, 24.431)
    itself = watched.endpoint().itself  # no request since: a percentile of the minute before is not of now
    assert itself is not None
    assert (itself.latency.mean, itself.latency.p50) == (None, None)


def test_failures_by_reason_or_only_their_number(watched: Watched) -> None:
    watched.server.models["bert"][0].fail = 6  # of an ensemble: 3 requests
    watched.server.models["bert_model"][0].fail = 6
    endpoint = watched.endpoint()
    assert [dict(model.failures) for model in endpoint.models] == [{"OTHER": 1.5}, {}, {"OTHER": 3.0}]
    watched.server.status["/metrics"] = 404
    watched.window()
    watched.server.models["bert"][0].fail = 10
    itself = watched.endpoint().itself
    assert itself is not None
    assert itself.failures == {"unknown": 1.0}


def test_numbers_of_texts_come_from_the_tokenizer(watched: Watched) -> None:
    counters = {"texts": 10, "tokens": 200, "unknown_tokens": 8, "truncated_texts": 1}
    watched.server.lines = [f"trb_{name}_total{{{TEXTS}}} {value}" for name, value in counters.items()]
    watched.window()
    watched.server.lines = [f"trb_{name}_total{{{TEXTS}}} {3 * value}" for name, value in counters.items()]
    watched.server.lines += [f'trb_refused_texts_total{{{TEXTS},reason="too_long"}} 4']
    endpoint = watched.endpoint()
    assert endpoint.ratio("tokens", "texts") == 20
    assert endpoint.ratio("unknown_tokens", "tokens") == 0.04
    assert endpoint.ratio("truncated_texts", "texts") == 0.1
    assert endpoint.ratio("token_cache_hits", "texts") is None
    assert endpoint.refused == {"too_long": 2.0}


def test_labels_of_all_kinds_of_answers(watched: Watched) -> None:
    model = 'model="bert_model",version="1"'
    watched.server.lines = [
        f'trb_answers_total{{{model},label="good"}} 6',
        f'trb_answers_total{{{model},label="bad"}} 1',
        f'trb_entities_total{{{model},type="PER"}} 1',
        f'trb_boxes_total{{{model},label="cat"}} 0',
    ]
    assert list(watched.endpoint().labels.items()) == [("good", 0.75), ("PER", 0.125), ("bad", 0.125)]
    assert watched.endpoint().labels == {}


def test_means_of_answers(watched: Watched) -> None:
    model = 'model="bert_model",version="1"'
    watched.server.lines = [
        f"trb_answer_confidence_sum{{{model}}} 3",
        f"trb_answer_confidence_count{{{model}}} 4",
        f"trb_embedding_norm_sum{{{model}}} 0",
        f"trb_embedding_norm_count{{{model}}} 0",
        f'trb_refused_files_total{{{model},reason="not_an_image"}} 2',
    ]
    endpoint = watched.endpoint()
    assert (endpoint.mean("answer_confidence"), endpoint.mean("embedding_norm")) == (0.75, None)
    assert endpoint.refused == {"not_an_image": 1.0}


def test_phases_have_a_mean_and_percentiles_between_buckets(watched: Watched) -> None:
    series = f'{{{TEXTS},phase="tokenize"'
    watched.server.lines = [
        f'trb_phase_seconds_bucket{series},le="0.001"}} 5',
        f'trb_phase_seconds_bucket{series},le="0.0025"}} 10',
        f'trb_phase_seconds_bucket{series},le="+Inf"}} 10',
        f"trb_phase_seconds_sum{series}}} 0.02",
        f"trb_phase_seconds_count{series}}} 10",
    ]
    phase = watched.endpoint().steps[0].phases["tokenize"]
    assert (phase.mean, phase.p50) == (2.0, 1.0)
    assert phase.p99 == pytest.approx(2.47)
    watched.server.lines = [line for line in watched.server.lines if "_bucket" not in line]
    watched.window()
    watched.server.lines = [f"trb_phase_seconds_sum{series}}} 0.05", f"trb_phase_seconds_count{series}}} 20"]
    phase = watched.endpoint().steps[0].phases["tokenize"]  # a release without histograms
    assert phase.mean == pytest.approx(3.0)
    assert (phase.p50, phase.p99) == (None, None)


def test_a_model_that_was_loaded_anew_counts_from_zero(watched: Watched) -> None:
    load(watched.server, 400)
    watched.window()
    for versions in watched.server.models.values():
        versions[0] = replace(versions[0], success=0, rows=0, executions=0, ns={})
    load(watched.server, 8)
    itself = watched.endpoint().itself
    assert itself is not None
    assert (itself.requests, itself.latency.mean) == (8, 10.0)


def test_a_version_that_just_came_has_no_rates_yet(watched: Watched) -> None:
    watched.server.add("new")
    by_name = {endpoint.endpoint: endpoint for endpoint in watched.window().endpoints}
    assert by_name["new"].models == ()
    assert (by_name["new"].queue_ms, by_name["new"].rows_per_execution) == (None, None)
    assert by_name["bert"].models


def test_a_step_that_two_endpoints_run_is_named_as_shared(watched: Watched) -> None:
    watched.server.add("second", steps=("bert_tokenizer", "bert_tokenizer"))
    watched.window()
    load(watched.server)
    first, second = watched.window().endpoints
    assert {step.model: step.shared_with for step in first.steps} == {
        "bert_tokenizer": ("second",),
        "bert_model": (),
    }
    assert second.runs["bert_tokenizer"] == 2
    assert second.queue_ms == pytest.approx(2 * 0.5)


def test_a_server_that_went_away_and_came_back_has_no_window_across_the_gap(watched: Watched) -> None:
    watched.server.status["/v2"] = 500
    gone = watched.window()
    assert (gone.seconds, gone.endpoints, gone.cores) == (None, (), None)
    watched.server.status.clear()
    back = watched.window()
    assert back.seconds is None
    assert [endpoint.models for endpoint in back.endpoints] == [()]
    load(watched.server)
    assert watched.endpoint().models


def test_cores_of_the_server_and_its_gpus(watched: Watched) -> None:
    watched.server.lines = [
        'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5',
        'nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1024',
        'nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 4096',
        "nv_cpu_utilization 0.75",
    ]
    window = watched.window()
    assert window.cores is not None
    assert window.cores >= 0
    assert window.machine_cpu == 0.75
    (gpu,) = window.gpus
    assert (gpu.uuid, gpu.utilization, gpu.used_bytes, gpu.total_bytes) == ("GPU-1", 0.5, 1024, 4096)


def test_cpu_time_of_another_process_is_not_compared(watched: Watched) -> None:
    before = Snapshot(at=1.0, urls=watched.server.urls, state="ready", pid=10, cpu_seconds=5.0)
    assert between(before, replace(before, at=3.0, cpu_seconds=8.0)).cores == 1.5
    assert between(before, replace(before, at=3.0, pid=11, cpu_seconds=8.0)).cores is None
    assert between(before, replace(before, at=3.0, state=AWAY)).cores is None


def test_cores_of_an_endpoint_whose_steps_all_have_processes(watched: Watched) -> None:
    before = watched.observer.take()
    steps = {("bert_tokenizer", "1"): 1.0, ("bert_model", "1"): 5.0}
    after = replace(before, at=before.at + 2, model_seconds={key: value + 3 for key, value in steps.items()})
    (endpoint,) = between(replace(before, model_seconds=steps), after).endpoints
    assert endpoint.cores == 3.0
    assert [model.cores for model in endpoint.models] == [None, 1.5, 1.5]
    some = {("bert_tokenizer", "1"): 1.0}
    (endpoint,) = between(replace(before, model_seconds=some), after).endpoints
    assert endpoint.cores is None
    fell = replace(after, model_seconds=dict.fromkeys(steps, 0.0))
    (endpoint,) = between(replace(before, model_seconds=steps), fell).endpoints
    assert endpoint.cores is None


def test_models_that_failed_to_load_are_named(watched: Watched) -> None:
    broken = watched.server.add("broken")
    broken.state, broken.reason = "UNAVAILABLE", "Internal: no such file"
    (entry,) = watched.window().failed
    assert (entry.name, entry.reason) == ("broken", "Internal: no such file")

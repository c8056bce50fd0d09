"""Causes that follow from given facts, and none that does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny

from tests.support import doctor_threads as threads
from tests.support.doctor_threads import BATCHED, BIG, CPU, doubled, graph, python, x, y
from triton_repo_builder import repository
from triton_repo_builder.base import releases
from triton_repo_builder.measure.doctor import doctor
from triton_repo_builder.measure.doctor.cause import QUESTIONS, Cause
from triton_repo_builder.measure.doctor.facts import Facts
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.client import IndexEntry, Urls
from triton_repo_builder.run.client.statistics import Counters
from triton_repo_builder.run.observe.snapshot import Snapshot

MS = 1_000_000
URLS = Urls(http="http://s:8000", grpc="s:8001")
JOINING = BIG.replace("answers = []", "answers = []\n        np.concatenate([])")


def facts(root: Path | None = None, *questions: str, **more: Any) -> Facts:
    read = repository.read(root, lenient=True) if root else None
    return Facts(release=releases.get("24.10"), questions=frozenset(questions), repository=read, **more)


def causes(given: Facts, question: str = "") -> dict[str, Cause]:
    """Causes of a question, or of all, by their code."""
    answers = doctor.diagnose(given, (question,) if question else tuple(QUESTIONS))
    return {cause.code: cause for cause in doctor.found(answers)}


def counters(requests: int, executions: int, total: float = 10, queue: float = 0) -> Counters:
    """Counters of requests of one row, with mean milliseconds."""
    times = {
        "success": (requests, int(requests * total * MS)),
        "queue": (requests, int(requests * queue * MS)),
    }
    return Counters(rows=requests, executions=executions, times=times)


def served(texts: Mapping[str, str] | None = None, counted: Counters | None = None, **more: Any) -> Snapshot:
    """A server with loaded models of these configurations."""
    configs = {name: ModelConfig(pbtxt.parse(text)) for name, text in (texts or {}).items()}
    counts = {(name, "1"): counted or Counters() for name in configs}
    return Snapshot(at=0, urls=URLS, state="ready", configs=configs, counters=counts, **more)


# --- batching


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (f"max_batch_size: 8\n{x('4')}{y('4')}", "batching-off"),
        (f"max_batch_size: 1\n{x('4')}{y('4')}", "batching-one"),
        (f"max_batch_size: 0\n{x('-1, 4')}{y('-1, 4')}", "batching-no-rows"),
        (
            f"max_batch_size: 8\n{x('4')}{y('4')}dynamic_batching {{ preferred_batch_size: [ 4 ] }}\n",
            "batching-preferred",
        ),
    ],
)
def test_settings_are_a_cause_only_for_who_asks(config: str, code: str, tmp_path: Path) -> None:
    graph(tmp_path, "m", config, doubled(["batch", 4]))
    assert set(causes(facts(tmp_path, "batching"), "batching")) == {code}
    assert causes(facts(tmp_path)) == {}


def test_a_fixed_graph_cannot_batch_and_no_file_is_edited_for_it(tmp_path: Path) -> None:
    graph(tmp_path, "m", f"max_batch_size: 0\n{x('4, 3')}{y('4, 3')}", threads.flattened())
    cause = causes(facts(tmp_path, "batching"))["batching-fixed-graph"]
    assert cause.repairs == ()


@pytest.mark.parametrize(("code", "repaired"), [(BIG, True), (JOINING, False)])
def test_ragged_inputs_are_written_only_for_code_that_takes_them(
    code: str, repaired: bool, tmp_path: Path
) -> None:
    python(tmp_path, "m", code, f"max_batch_size: 8\n{x('-1')}{y('-1')}{BATCHED}{CPU}")
    cause = causes(facts(tmp_path, "batching"))["batching-lengths"]
    assert bool(cause.repairs) is repaired
    assert ("model.py joins requests" in cause.remedy) is not repaired


def test_nothing_is_said_of_code_that_was_not_read() -> None:
    text = f'backend: "python"\nmax_batch_size: 8\n{x("-1")}{y("1")}{BATCHED}'
    cause = causes(facts(None, "batching", snapshot=served({"m": text})))["batching-lengths"]
    assert "if model.py does not join" in cause.remedy
    assert cause.where == "http://s:8000/v2/models/m/config: input.0.dims"


@pytest.mark.parametrize(
    ("delay", "counted", "message"),
    [
        (0, counters(100, 100, 10, 0.1), "no request waited for another: clients send one at a time"),
        (5000, counters(100, 100, 10, 5), "no second request came within the 5 ms that each one waits"),
        (0, counters(100, 100, 10, 5), ""),
        (0, counters(100, 25, 10, 0.1), ""),
        (0, counters(19, 19, 10, 0.1), ""),
    ],
    ids=["lone", "delayed", "waiting", "merging", "too-few"],
)
def test_statistics_are_a_cause_if_they_say_so(delay: int, counted: Counters, message: str) -> None:
    wait = f"max_queue_delay_microseconds: {delay}" if delay else ""
    text = f'backend: "onnxruntime"\nmax_batch_size: 8\n{x("4")}{y("4")}dynamic_batching {{ {wait} }}\n'
    found = causes(facts(None, "batching", snapshot=served({"m": text}, counted)))
    assert set(found) == ({"batching-no-company"} if message else set())
    light = causes(facts(snapshot=served({"m": text}, counted)))
    assert bool(light) is (bool(message) and delay > 0), "a light load alone is no fault"
    if message:
        cause = found["batching-no-company"]
        assert cause.message.startswith(message)
        assert cause.evidence[0] == "inference_count 100 / execution_count 100 = 1.00 rows per execution"


@pytest.mark.parametrize(("queue", "found"), [(480, {"queue-delay-long"}), (50, set())])
def test_a_delay_that_outlasts_the_model_is_a_cause_also_if_requests_join(
    queue: float, found: set[str]
) -> None:
    wait = "dynamic_batching { max_queue_delay_microseconds: 500000 }"
    text = f'backend: "onnxruntime"\nmax_batch_size: 8\n{x("4")}{y("4")}{wait}\n'
    assert set(causes(facts(snapshot=served({"m": text}, counters(100, 25, 500, queue))))) == found


def test_a_changed_file_hides_no_cause(tmp_path: Path, output: Path) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), output, name="bert")
    config = output / "bert_model" / "config.pbtxt"
    wait = "dynamic_batching { max_queue_delay_microseconds: 2000000"
    config.write_text(config.read_text().replace("dynamic_batching {", wait))
    found = causes(facts(output))
    assert {"manifest-changed", "queue-delay-long"} <= set(found)
    assert "ready" not in found["manifest-changed"].questions


def test_too_few_executions_are_said() -> None:
    text = f'backend: "onnxruntime"\nmax_batch_size: 8\n{x("4")}{y("4")}{BATCHED}'
    (answer,) = doctor.diagnose(facts(snapshot=served({"m": text}, counters(3, 3))), ("batching",))
    assert answer.causes == ()
    assert answer.unknown == ("rows per execution of m: fewer than 20 executions yet; measure with --bench",)


# --- the first request


@pytest.mark.parametrize(("first", "later", "slow"), [(900, 3, True), (90, 3, False), (900, 300, False)])
def test_a_first_request_is_slow_beside_later_ones(first: float, later: float, slow: bool) -> None:
    given = facts(slow_starts=(("m", first, later),))
    assert set(causes(given)) == ({"first-slow"} if slow else set())


def test_a_late_load_explains_its_time(tmp_path: Path) -> None:
    threads.THREADS["server#7161"].lay(tmp_path)
    found = causes(facts(tmp_path, slow_starts=(("t7161_late", 900, 3),)))
    assert set(found) == {"first-late-load"}
    assert "self.weights" in found["first-late-load"].message


@pytest.mark.parametrize(
    ("parameters", "warm", "repairs"),
    [("", False, 2), ("", True, 1), ("cached", False, 1), ("cached", True, 0)],
)
def test_an_engine_is_built_on_request_unless_it_is_kept_and_warmed(
    parameters: str, warm: bool, repairs: int, tmp_path: Path
) -> None:
    kept = 'parameters { key: "trt_engine_cache_enable" value: "1" }' if parameters else ""
    fast = f'gpu_execution_accelerator [ {{ name: "tensorrt" {kept} }} ]'
    sample = 'inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } }'
    text = f"optimization {{ execution_accelerators {{ {fast} }} }}\n"
    text += f'model_warmup [ {{ name: "w" batch_size: 1 {sample} }} ]\n' if warm else ""
    graph(tmp_path, "m", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}{text}", doubled(["batch", 4]))
    cause = causes(facts(tmp_path), "first-request").get("first-engine")
    assert (len(cause.repairs) if cause else 0) == repairs


# --- shared memory


def processes(root: Path, count: int, dims: str = "4") -> None:
    some = f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n"
    python(root, "m", BIG, f"max_batch_size: 8\n{x(dims)}{y(dims)}{BATCHED}{some}")


@pytest.mark.parametrize(("count", "cause"), [(63, False), (65, True)])
def test_processes_are_counted_against_the_room(count: int, cause: bool, tmp_path: Path) -> None:
    processes(tmp_path, count)
    found = causes(facts(tmp_path, "shared-memory"), "shared-memory")
    assert set(found) == ({"shared-memory-small"} if cause else set())
    assert causes(facts(tmp_path), "shared-memory") == {}


def test_the_servers_own_room_counts(tmp_path: Path) -> None:
    processes(tmp_path, 65)
    room = (1 << 30, 1 << 30)
    assert causes(facts(tmp_path, "shared-memory", shared_memory=room), "shared-memory") == {}


def test_a_message_states_the_region_and_the_model(tmp_path: Path) -> None:
    threads.THREADS["server#4869"].lay(tmp_path)
    found = causes(facts(tmp_path, log=threads.THREADS["server#4869"].log), "shared-memory")
    cause = found["shared-memory-start"]
    assert cause.model == "t4869_model2"
    assert "t4869_model2" in cause.where
    assert cause.message.startswith("4 Python processes need up to 256 MiB of shared memory")
    assert cause.evidence[0].startswith("log line 1: Unable to initialize shared memory key")


def test_a_size_that_varies_is_not_counted(tmp_path: Path) -> None:
    processes(tmp_path, 1, "-1")
    (answer,) = doctor.diagnose(facts(tmp_path), ("shared-memory",))
    assert "the largest request of m: a size varies, so that its bytes are not counted" in answer.unknown


# --- the GPU


@pytest.mark.parametrize(("gpus", "cause"), [(1, True), (0, False), (None, False)])
def test_a_model_is_kept_off_a_gpu_only_if_there_is_one(
    gpus: int | None, cause: bool, tmp_path: Path
) -> None:
    graph(tmp_path, "m", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}", doubled(["batch", 4]))
    assert set(causes(facts(tmp_path, gpus=gpus), "gpu")) == ({"gpu-kind-cpu"} if cause else set())


@pytest.mark.parametrize(("queue", "cause"), [(8, True), (1, False)])
def test_a_step_holds_up_an_ensemble_if_its_queue_does(queue: float, cause: bool, tmp_path: Path) -> None:
    threads.steps(tmp_path)
    texts = {model.name: model.text or "" for model in repository.read(tmp_path).models}
    found = causes(facts(snapshot=served(texts, counters(100, 50, 10, queue))), "gpu")
    assert set(found) == ({"gpu-waits-for-step"} if cause else set())
    assert causes(facts(tmp_path, "gpu"), "gpu") == {}


# --- answers


@pytest.mark.parametrize(("mode", "cause"), [("FP16", True), ("FP32", False)])
def test_half_precision_is_a_cause(mode: str, cause: bool) -> None:
    fast = f'name: "tensorrt" parameters {{ key: "precision_mode" value: "{mode}" }}'
    text = f'backend: "onnxruntime"\nmax_batch_size: 8\n{x("4")}{y("4")}{BATCHED}'
    text += f"optimization {{ execution_accelerators {{ gpu_execution_accelerator [ {{ {fast} }} ] }} }}\n"
    found = causes(facts(snapshot=served({"m": text})), "answers")
    assert set(found) == ({"answers-precision"} if cause else set())


def test_a_neighbour_that_changes_a_row_is_a_cause() -> None:
    cause = causes(facts(beside=(("m", "Y", 0.25, 8),)), "answers")["answers-neighbour"]
    assert cause.evidence == ("difference 0.25 of the largest number",)


def test_what_was_measured_is_said_without_a_cause() -> None:
    given = facts(beside=(("m", "Y", 1.6e-7, 8),))
    assert causes(given, "answers") == {}
    (answer,) = doctor.diagnose(given, ("answers",))
    (line,) = answer.measured
    assert line == (
        "m: 8 rows, each alone and in a batch with the others: largest difference of Y 1.6e-07 of its "
        "largest number (allowed 0.001)"
    )


# --- ready


def test_a_reason_without_an_explanation_is_quoted() -> None:
    entry = IndexEntry(name="m", version="1", state="UNAVAILABLE", reason="Internal: the moon is full")
    found = causes(facts(snapshot=served(index=(entry,))), "ready")
    assert found["load-failed"].message == "Internal: the moon is full"


def test_a_reason_with_an_explanation_has_its_code() -> None:
    reason = "Invalid argument: unexpected inference output 'Z', allowed outputs are: Y"
    entry = IndexEntry(name="m", version="1", state="UNAVAILABLE", reason=reason)
    found = causes(facts(snapshot=served(index=(entry,))), "ready")
    assert set(found) == {"onnx-name"}
    assert found["onnx-name"].model == "m"


@pytest.mark.parametrize(
    ("alive", "unready", "cause"), [(True, False, 0), (False, False, 1), (True, True, 1)]
)
def test_a_process_that_is_gone(alive: bool, unready: bool, cause: int) -> None:
    text = f'backend: "python"\nmax_batch_size: 8\n{x("4")}{y("4")}{BATCHED}'
    seconds = {("m" if alive else "other", "1"): 1.0}
    snapshot = served({"m": text}, pid=7, model_seconds=seconds)
    found = causes(facts(snapshot=snapshot, unready=frozenset({"m"} if unready else ())), "ready")
    assert len(found) == cause
    assert set(found) <= {"process-gone"}


# --- whole


def test_a_server_without_models_has_no_cause_and_missing_facts_are_said() -> None:
    answers = doctor.diagnose(facts(snapshot=served()))
    assert [answer.question for answer in answers] == list(QUESTIONS)
    assert doctor.found(answers) == ()
    assert any(answer.unknown for answer in answers)


def test_causes_that_are_left_name_the_copy(tmp_path: Path) -> None:
    threads.THREADS["server#3741"].lay(tmp_path / "r")
    given = facts(tmp_path / "r", "batching")
    repaired = doctor.repair(given, tmp_path / "copy", ("batching",))
    assert [cause.code for cause in repaired.left] == ["batching-lengths"]
    assert all(str(tmp_path / "copy") in cause.where for cause in repaired.left)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "r"]

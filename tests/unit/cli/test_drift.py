from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import call
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.report import files
from triton_repo_builder.repository import reference
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.reference import Distribution, Reference
from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.client.statistics import Counters
from triton_repo_builder.run.observe import exposition, prometheus, snapshot
from triton_repo_builder.run.observe.exposition import Page
from triton_repo_builder.run.observe.snapshot import Observer, Snapshot

URL = ("--url", "http://127.0.0.1:8000")
MODEL = 'model="bert_tokenizer",version="1"'
REFERENCE = f"""
trb_reference_share{{{MODEL},metric="text_tokens",bucket="8"}} 0.5
trb_reference_share{{{MODEL},metric="text_tokens",bucket="16"}} 0.5
trb_reference_texts{{{MODEL},metric="text_tokens"}} 2000
trb_reference_share{{model="bert_model",version="1",metric="answers",bucket="good"}} 1
trb_reference_texts{{model="bert_model",version="1",metric="answers"}} 12
"""


def texts(short: int, long: int) -> str:
    """Samples of so many texts of 8 and of 16 tokens."""
    counts = (("8", short), ("16", short + long), ("+Inf", short + long))
    return "\n".join(f'trb_text_tokens_bucket{{{MODEL},le="{le}"}} {count}' for le, count in counts)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the pages that a server shows, one after the other."""

    def pages(*contents: str, state: str = snapshot.READY, **more: Any) -> None:
        waiting = list(contents)

        def take(self: Observer) -> Snapshot:
            page = Page(exposition.read(waiting.pop(0) if len(waiting) > 1 else waiting[0]))
            steps = [{"model_name": f"bert_{step}"} for step in ("tokenizer", "model")]
            config = ModelConfig({"ensemble_scheduling": {"step": steps}})
            return Snapshot(
                at=0.0,
                urls=Urls(http=self.urls.http, grpc="", metrics=self.urls.metrics),
                state=state,
                configs={"bert": config},
                counters={(name, "1"): Counters() for name in ("bert", "bert_tokenizer", "bert_model")},
                page=page,
                **more,
            )

        monkeypatch.setattr(Observer, "take", take)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)

    return pages


def rows(*arguments: str | Path) -> dict[str, dict[str, Any]]:
    done = call("drift", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {row["metric"]: row for row in json.loads(done.stdout)}


def refused(*arguments: str | Path) -> dict[str, Any]:
    done = call("drift", *arguments, "--json")
    error: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == error["exit_code"]
    return error


def test_a_table_and_bars_for_people(serve: Callable[..., None]) -> None:
    serve(REFERENCE + texts(100, 100))
    done = call("drift", *URL)
    assert done.returncode == 0
    assert "bert_tokenizer" in done.stdout
    assert "reference too small (12 texts)" in done.stdout
    assert "≤ 16    50.0 % ████████████    50.0 % ████████████" in done.stdout


def test_verdicts_for_programs(serve: Callable[..., None]) -> None:
    serve(REFERENCE + texts(0, 300))
    found = rows(*URL)
    assert {metric: row["verdict"] for metric, row in found.items()} == {
        "text_tokens": "drifted",
        "answers": "reference too small",
    }
    tokens = found["text_tokens"]
    assert (tokens["endpoints"], tokens["model"], tokens["version"]) == (["bert"], "bert_tokenizer", "1")
    assert (tokens["texts"], tokens["texts_needed"], tokens["reference_texts"]) == (300, 100, 2000)
    assert (tokens["reference"]["16"], tokens["now"]["16"]) == (0.5, 1.0)
    assert tokens["psi"] > 0.25
    assert found["answers"]["psi"] is None


def test_the_index_is_shown_without_a_verdict_too(serve: Callable[..., None]) -> None:
    serve(REFERENCE + texts(30, 50))
    done = call("drift", *URL)
    assert " 0.06   too few texts, 100 are needed" in done.stdout


def test_models_that_are_not_loaded_any_more_are_left_out(serve: Callable[..., None]) -> None:
    serve(REFERENCE.replace('"bert_model"', '"unloaded_model"') + texts(0, 300))
    assert list(rows(*URL)) == ["text_tokens"]


@pytest.mark.parametrize(("short", "code"), [(150, 0), (0, 1)])
def test_fail_exits_1_after_drift_only(short: int, code: int, serve: Callable[..., None]) -> None:
    serve(REFERENCE + texts(short, 150))
    assert call("drift", *URL, "--fail").returncode == code
    assert call("drift", *URL).returncode == 0


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_fail_without_any_verdict_is_no_success(words: tuple[str, ...], serve: Callable[..., None]) -> None:
    serve(REFERENCE.replace("} 2000", "} 8") + texts(150, 150))
    done = call("drift", *URL, "--fail", *words)
    assert done.returncode == 1
    assert "[not-compared]" in done.stderr
    assert "reference too small" in done.stderr
    assert "trb smoke --live" in done.stderr
    assert call("drift", *URL, *words).returncode == 0


def test_fail_names_what_has_no_verdict_beside_what_has_one(serve: Callable[..., None]) -> None:
    serve(REFERENCE + texts(150, 150))
    done = call("drift", *URL, "--fail")
    assert done.returncode == 0
    assert "no verdict on answers of bert_model" in done.stderr


def test_a_window_is_what_came_between_two_looks(serve: Callable[..., None]) -> None:
    serve(REFERENCE + texts(500, 500), REFERENCE + texts(500, 800))
    found = rows(*URL, "--for", "30s")
    assert (found["text_tokens"]["texts"], found["text_tokens"]["verdict"]) == (300, "drifted")


def test_a_prometheus_in_place_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []

    def page(url: str, seconds: float) -> Page:
        asked.append((url, seconds))
        return Page(exposition.read(REFERENCE + texts(70, 80)))

    monkeypatch.setattr(prometheus, "page", page)
    found = rows("--prometheus", "http://prometheus:9090", "--window", "7d")
    assert (found["text_tokens"]["verdict"], found["text_tokens"]["endpoints"]) == ("stable", [])
    assert asked == [("http://prometheus:9090", 7 * 86_400)]


def test_endpoints_of_a_prometheus_are_those_of_the_repository(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repository_of("bert", tmp_path)
    monkeypatch.setattr(prometheus, "page", lambda *_: Page(exposition.read(texts(70, 80))))
    found = rows("--prometheus", "http://prometheus:9090", "--repo", tmp_path)
    assert (found["text_tokens"]["endpoints"], found["text_tokens"]["texts"]) == (["bert"], 150)


def test_a_plot(serve: Callable[..., None], tmp_path: Path) -> None:
    serve(REFERENCE + texts(100, 100))
    assert call("drift", *URL, "--plot", tmp_path / "drift.png").returncode == 0
    assert (tmp_path / "drift.png").read_bytes()[:4] == b"\x89PNG"
    error = refused(*URL, "--plot", tmp_path / "no" / "drift.png")
    assert error["code"] == Code.OUTPUT_NOT_WRITABLE.kind


@pytest.mark.parametrize(("name", "start"), [("drift.svg", b"<?xml"), ("drift.PDF", b"%PDF")])
def test_other_formats_of_a_plot(name: str, start: bytes, serve: Callable[..., None], tmp_path: Path) -> None:
    serve(REFERENCE + texts(100, 100))
    contents = []
    for _ in range(2):
        assert call("drift", *URL, "--plot", tmp_path / name).returncode == 0
        contents.append((tmp_path / name).read_bytes())
    assert contents[0].startswith(start)
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["x.txt", "x"])
def test_other_endings_of_a_plot_are_refused(name: str, serve: Callable[..., None], tmp_path: Path) -> None:
    serve(REFERENCE + texts(100, 100))
    error = refused(*URL, "--plot", tmp_path / name)
    assert (error["code"], error["where"]) == (Code.USAGE.kind, "--plot")
    assert list(tmp_path.iterdir()) == []


def test_a_plot_without_matplotlib(serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def need(library: str, option: str) -> None:
        raise TrbError(Code.ENGINE_MISSING, library, where=option)

    serve(REFERENCE)
    monkeypatch.setattr(files, "need", need)
    error = refused(*URL, "--plot", "drift.png")
    assert (error["code"], error["where"]) == (Code.ENGINE_MISSING.kind, "--plot")


@pytest.mark.parametrize(
    ("page", "facts", "kind"),
    [
        (texts(100, 100), {}, Code.NOT_FOUND),
        ("nv_inference_count 3", {}, Code.NOT_FOUND),
        ("", {"metrics_problem": "http://127.0.0.1:8002/metrics: Connection refused"}, Code.UNREACHABLE),
        ("", {"state": snapshot.AWAY, "problem": "no answer: Connection refused"}, Code.UNREACHABLE),
        ("", {"state": snapshot.NO_TRITON, "problem": "404: not found"}, Code.UNREACHABLE),
    ],
)
def test_nothing_to_compare_is_one_message(
    page: str, facts: dict[str, str], kind: Code, serve: Callable[..., None]
) -> None:
    serve(page, **facts)
    error = refused(*URL)
    assert (error["code"], bool(error["where"]), bool(error["remedy"])) == (kind.kind, True, True)


def test_a_repository_without_a_reference(serve: Callable[..., None], tmp_path: Path) -> None:
    serve(REFERENCE + texts(100, 100))
    (tmp_path / "bert" / "1").mkdir(parents=True)
    (tmp_path / "bert" / "config.pbtxt").write_text('backend: "python"\n')
    error = refused(*URL, "--repo", tmp_path)
    assert (error["code"], error["where"]) == (Code.NOT_FOUND.kind, str(tmp_path))


def repository_of(endpoint: str, root: Path) -> None:
    """An ensemble whose tokenizer has a reference."""
    (root / endpoint / "1").mkdir(parents=True)
    (root / endpoint / "config.pbtxt").write_text(
        f'platform: "ensemble"\nensemble_scheduling {{ step [{{ model_name: "{endpoint}_tokenizer" }}] }}\n'
    )
    version = root / f"{endpoint}_tokenizer" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text('backend: "python"\n')
    tokens = Distribution(texts=2000, shares={"8": 0.5, "16": 0.5})
    stored = Reference(source="x", distributions={"text_tokens": tokens})
    (version / reference.FILE).write_text(reference.dump(stored))


def test_a_repository_of_other_endpoints(serve: Callable[..., None], tmp_path: Path) -> None:
    serve(texts(100, 100))
    repository_of("reviews", tmp_path)
    error = refused(*URL, "--repo", tmp_path)
    assert (error["code"], error["where"]) == (Code.NOT_FOUND.kind, str(tmp_path))
    assert "has references of reviews version 1; the server" in error["error"]
    assert error["error"].endswith("serves bert version 1")


def test_an_empty_folder_as_repository(serve: Callable[..., None], tmp_path: Path) -> None:
    serve(REFERENCE + texts(100, 100))
    error = refused(*URL, "--repo", tmp_path)
    assert (error["code"], error["error"]) == (Code.REPOSITORY_UNREADABLE.kind, "holds no model")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--prometheus", "http://p:9090", *URL),
        ("--prometheus", "http://p:9090", "--for", "3s"),
        (*URL, "--window", "3m"),
        (*URL, "--for", "0s"),
    ],
)
def test_options_that_are_refused(arguments: tuple[str, ...], serve: Callable[..., None]) -> None:
    serve(REFERENCE)
    assert refused(*arguments)["code"] == Code.USAGE.kind

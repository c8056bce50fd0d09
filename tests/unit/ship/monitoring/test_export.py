"""The files of ``trb export monitoring``: same input same bytes, and nothing of the user's is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import serve_repository
from tests.support.prometheus import panel_queries
from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.manifest import Origin
from triton_repo_builder.run.gateway import metrics
from triton_repo_builder.ship import rendered as rendered_folder
from triton_repo_builder.ship.monitoring import export, provenance, rules, source
from triton_repo_builder.ship.monitoring.rules import Objective, Settings
from triton_repo_builder.ship.rendered import Rendered

GOLDEN = Path(__file__).resolve().parents[4] / "model_repository"
SETTINGS = Settings(objective=Objective(share=0.99, seconds=0.05), gateways=("gateway:9000",))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """The golden repository, whose tokenizer counts."""
    copy = shutil.copytree(GOLDEN, tmp_path / "model_repository")
    (copy / "sentiment_tokenizer" / "1" / "metrics.py").touch()
    return copy


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A repository that trb did not build, with a name that is a pattern and that Grafana would split."""
    root = tmp_path / "foreign"
    serve_repository.whole(root)
    serve_repository.python(root, "a.b,c")
    return root


def exported(path: Path, settings: Settings = SETTINGS) -> Rendered:
    return export.render(repository.read(path), settings)


def rendered(path: Path, settings: Settings = SETTINGS) -> Mapping[str, bytes]:
    return exported(path, settings).contents


def board(contents: dict[str, bytes], name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(contents[f"grafana/{name}.json"])
    return document


def titles(contents: dict[str, bytes], name: str) -> list[str]:
    return [panel["title"] for panel in board(contents, name)["panels"]]


def test_equal_input_gives_equal_bytes_wherever_the_repository_is(repo: Path, tmp_path: Path) -> None:
    other = shutil.copytree(repo, tmp_path / "elsewhere")
    assert rendered(repo) == rendered(other)


def test_the_four_panels_of_the_article_come_first(repo: Path) -> None:
    shown = titles(rendered(repo), "contents")
    assert shown[:4] == ["Unknown tokens", "Latency buckets", "Answers by label", "Confidence"]
    kinds = [panel["type"] for panel in board(rendered(repo), "contents")["panels"]]
    assert kinds[:4] == ["timeseries", "heatmap", "heatmap", "heatmap"]


def test_a_foreign_repository_gets_only_what_triton_itself_counts(foreign: Path) -> None:
    contents = rendered(foreign, replace(SETTINGS, gateways=()))
    assert {path for path in contents if path.startswith("grafana/")} == {
        "grafana/provisioning.yml",
        "grafana/serving.json",
    }
    text = contents["rules.yml"].decode() + str([*panel_queries(board(contents, "serving"))])
    assert "nv_inference_request_success" in text
    assert "trb_" not in text.replace("trb_requests", "").replace("trb_steps", "").replace(
        "trb_objective", ""
    ).replace("trb_alerts", "")


def test_metrics_that_are_switched_off_have_no_panels(repo: Path) -> None:
    config = repo / "sentiment_tokenizer" / "config.pbtxt"
    off = 'parameters { key: "metrics" value { string_value: "off" } }'
    config.write_text(f"{config.read_text()}\n{off}\n")
    assert "grafana/contents.json" not in rendered(repo)


def test_names_are_patterns_that_mean_themselves(foreign: Path) -> None:
    contents = rendered(foreign)
    variable = board(contents, "serving")["templating"]["list"][1]
    assert r"a[.]b\\x{2c}c" in contents["rules.yml"].decode()
    assert variable["query"] == r"a.b c : a[.]b\\x{2c}c,whole : whole|step"


def test_every_endpoint_has_its_alert_with_all_its_models(repo: Path) -> None:
    text = rendered(repo)["rules.yml"].decode()
    models = "sentiment|sentiment_tokenizer|sentiment_model"
    assert f'{models}"}})) == 3)' in text


def test_the_delay_of_a_batcher_is_no_excess(repo: Path) -> None:
    config = repo / "sentiment_model" / "config.pbtxt"
    config.write_text(
        config.read_text().replace(
            "dynamic_batching { }", "dynamic_batching { max_queue_delay_microseconds: 5000 }"
        )
    )
    assert "expr: |-\n          vector(0.005)" in rendered(repo)["rules.yml"].decode()


def test_the_limit_falls_on_a_bucket_of_the_gateway() -> None:
    assert rules.GATEWAY_SECONDS == metrics.BUCKETS
    assert rules.smallest(rules.GATEWAY_SECONDS, 0.03) == 0.05
    assert rules.smallest(rules.GATEWAY_SECONDS, 31) == 0


def test_a_large_budget_still_alerts() -> None:
    half = Settings(objective=Objective(share=0.5, seconds=0.05))
    facts = source.Source(
        endpoints=(source.Endpoint(name="a", models=("a",)),),
        batching={},
        counting=frozenset(),
        tokenizers=frozenset(),
    )
    fast = next(
        rule
        for group in rules.groups(facts, half)
        for rule in group.rules
        if rule.name == "TrbBudgetBurnFast"
    )
    assert "> 0.9\n" in fast.expression


@pytest.mark.parametrize("text", ["https://mlflow/run|1](javascript:x)", "<b>x</b>", "run|1", "[a](b)"])
def test_a_run_cannot_break_the_table(text: str) -> None:
    cell = provenance._linked(text)
    assert "<b>" not in cell
    assert cell.replace(r"\|", "").count("|") == 0
    assert "](javascript" not in cell.replace(r"\]", "")


def test_a_run_that_is_a_url_is_a_link_from_the_series_and_in_the_table(repo: Path) -> None:
    read = repository.read(repo)
    assert read.manifest is not None
    entry = read.manifest.endpoints["sentiment"]
    origin = Origin(source_run="https://mlflow/run/1", dataset_id="october")
    served = replace(entry.served, provenance=origin)
    manifest = replace(read.manifest, endpoints={"sentiment": replace(entry, served=served)})
    contents = export.render(replace(read, manifest=manifest), SETTINGS).contents
    panels = {panel["title"]: panel for panel in board(contents, "serving")["panels"]}
    override = panels["Requests"]["fieldConfig"]["overrides"][0]
    assert override["matcher"]["options"] == "sentiment v1"
    assert [link["url"] for link in override["properties"][0]["value"]] == ["https://mlflow/run/1"]
    table = panels["Where a model comes from"]["options"]["content"]
    assert "(https://mlflow/run/1) | october |" in table


def test_panels_do_not_overlap(repo: Path) -> None:
    for name in ("serving", "contents", "gateway"):
        cells: set[tuple[int, int]] = set()
        for panel in board(rendered(repo), name)["panels"]:
            place = panel["gridPos"]
            area = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert place["x"] + place["w"] <= 24
            assert not cells & area
            cells |= area


def test_drift_is_computed_over_both_windows(repo: Path) -> None:
    text = rendered(repo, replace(SETTINGS, drift_window="6h"))["drift.yml"].decode()
    assert "[6h]" in text
    assert "[5m]" in text
    assert "[1h]" not in text


def test_prometheus_sends_alerts_to_each_alertmanager(repo: Path) -> None:
    text = rendered(repo, replace(SETTINGS, alertmanagers=("a:9093", "b:9093")))["prometheus.yml"].decode()
    section = "alerting:\n  alertmanagers:\n    - static_configs:\n        - targets:\n"
    assert f'{section}            - "a:9093"\n            - "b:9093"\nscrape_configs:' in text
    assert "alerting:" not in rendered(repo)["prometheus.yml"].decode()


def test_a_second_export_changes_nothing(repo: Path, tmp_path: Path) -> None:
    output = tmp_path / "monitoring"
    first = rendered_folder.write(exported(repo), output)
    assert {change.path for change in first} == {*rendered(repo)}
    assert rendered_folder.write(exported(repo), output) == ()
    assert not [path for path in output.rglob("*") if path.name.startswith(".")]


def test_what_is_not_written_any_more_is_removed_and_your_files_stay(repo: Path, tmp_path: Path) -> None:
    output = tmp_path / "monitoring"
    rendered_folder.write(exported(repo), output)
    (output / "alertmanager.yml").write_text("yours")
    changes = rendered_folder.write(exported(repo, replace(SETTINGS, gateways=())), output)
    assert ("grafana/gateway.json", "stale") in [(change.path, change.state) for change in changes]
    assert not (output / "grafana" / "gateway.json").exists()
    assert (output / "alertmanager.yml").read_text() == "yours"


def test_an_edited_file_is_kept(repo: Path, tmp_path: Path) -> None:
    output = tmp_path / "monitoring"
    rendered_folder.write(exported(repo), output)
    (output / "rules.yml").write_text("mine")
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    with pytest.raises(TrbError) as caught:
        rendered_folder.write(exported(repo), output)
    assert caught.value.code is Code.EDITED_FILE
    assert before == {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    rendered_folder.write(exported(repo), output, force=True)
    assert (output / "rules.yml").read_bytes() == rendered(repo)["rules.yml"]


@pytest.mark.parametrize("index", [None, "{", '{"files": 1}', "[]"])
def test_a_folder_of_something_else_is_not_touched(repo: Path, tmp_path: Path, index: str | None) -> None:
    output = tmp_path / "other"
    output.mkdir()
    (output / "prometheus.yml").write_text("yours")
    if index is not None:
        (output / export.INDEX).write_text(index)
    for call in (rendered_folder.write, rendered_folder.differences):
        with pytest.raises(TrbError) as caught:
            call(exported(repo), output)
        assert caught.value.code is Code.OUTPUT_FOREIGN
    assert (output / "prometheus.yml").read_text() == "yours"


def test_an_index_names_no_file_elsewhere(repo: Path, tmp_path: Path) -> None:
    output = tmp_path / "monitoring"
    rendered_folder.write(exported(repo), output)
    victim = tmp_path / "victim.yml"
    victim.write_text("yours")
    index = output / export.INDEX
    document = json.loads(index.read_text())
    document["files"] |= {"../victim.yml": "0", str(victim): "0", "grafana/../../victim.yml": "0"}
    index.write_text(json.dumps(document))
    rendered_folder.write(exported(repo), output, force=True)
    assert victim.read_text() == "yours"


def test_a_link_that_a_clone_brings_is_not_followed(repo: Path, tmp_path: Path) -> None:
    output, elsewhere = tmp_path / "monitoring", tmp_path / "elsewhere"
    rendered_folder.write(exported(repo), output)
    (output / "grafana").rename(elsewhere)
    (elsewhere / "serving.json").write_text("yours")
    (output / "grafana").symlink_to(elsewhere)
    with pytest.raises(TrbError) as caught:
        rendered_folder.write(exported(repo), output, force=True)
    assert caught.value.code is Code.OUTPUT_FOREIGN
    assert (elsewhere / "serving.json").read_text() == "yours"


def test_a_folder_that_cannot_be_written_stays_as_it_is(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "monitoring"
    rendered_folder.write(exported(repo), output)
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    create, calls = rendered_folder.files.create, []

    def full(file: Path, content: bytes) -> None:
        calls.append(file)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        create(file, content)

    monkeypatch.setattr(rendered_folder.files, "create", full)
    with pytest.raises(TrbError) as caught:
        rendered_folder.write(
            exported(repo, replace(SETTINGS, window="10m", targets=("other:8002",))), output, force=True
        )
    assert caught.value.code is Code.DISK_FULL
    assert before == {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    with pytest.raises(TrbError) as caught:
        rendered(tmp_path)
    assert caught.value.code is Code.REPOSITORY_UNREADABLE

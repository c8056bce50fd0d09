"""What ``trb build --explain`` and the comments of config.pbtxt say is so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_images
from click.testing import CliRunner

from triton_repo_builder.cli import group
from triton_repo_builder.endpoint.plan.reasons import Why
from triton_repo_builder.produce.build import Build

MODELS = Path(__file__).parents[2] / "data" / "models"


def reasons(made: Build) -> dict[str, str]:
    return {name: f"{setting.value}: {setting.reason}" for name, setting in made.settings.explained()}


def test_an_export_that_runs_without_padding(output: Path) -> None:
    told = reasons(tiny.make(MODELS / "embedding" / "minilm_fp32", output, golden=True))
    assert told["padding"] == f"ragged: {Why.FRONT_PACKED.value}"
    assert told["batching"] == f"on: {Why.NO_PADDING.value}"


def test_another_engine_gets_groups(output: Path) -> None:
    """It may not know the loop that packed rows need."""
    export = MODELS / "embedding" / "minilm_fp32"
    told = reasons(tiny.make(export, output, golden=True, accelerator="openvino", device="cpu"))
    assert (
        told["padding"] == f"ragged: {Why.FRONT_GROUPS.value.format(reason='another engine takes the graph')}"
    )


@pytest.mark.parametrize(
    ("options", "padding", "batching"),
    [
        (
            {"golden": True},
            f"ragged: {Why.FRONT_GROUPS.value.format(reason='no attention of a known form')}",
            Why.LENGTHS_MIX.value,
        ),
        ({"padding": "rows"}, "rows: set by --padding", Why.EQUAL_LENGTHS.value),
        ({"padding": "batch"}, "batch: set by --padding", Why.PADDED_TOGETHER.value),
        (
            {"padding": "fixed:12"},
            "fixed:12: set by --padding",
            Why.JOINS.value,
        ),
        (
            {"padding": "rows", "origins": {"padding": "trb.toml"}},
            "rows: set in trb.toml",
            Why.EQUAL_LENGTHS.value,
        ),
        (
            {"padding": "rows", "batching": "on"},
            "rows: set by --padding",
            f"set by --batching on; {Why.EQUAL_LENGTHS.value}",
        ),
        (
            {"raw_output": True},
            "rows: no ragged front: output 'last_hidden_state' is as long as its row, so that it is never "
            "padded for another request",
            Why.EQUAL_LENGTHS.value,
        ),
    ],
)
def test_padding_and_what_it_lets_join(
    options: dict[str, Any], padding: str, batching: str, tmp_path: Path, output: Path
) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, **options)
    told = reasons(made)
    assert (told["padding"], told["batching"]) == (padding, f"on: {batching}")
    assert f"# {batching}\ndynamic_batching {{ }}" in tiny.config(made, "bert_model")


def test_padding_that_the_graph_decides(tmp_path: Path, output: Path) -> None:
    fixed = reasons(tiny.make(tiny.embedder(tmp_path / "fixed", length=16), output))
    assert fixed["padding"] == "fixed:16: the graph takes exactly 16 tokens"
    old = reasons(tiny.make(tiny.classifier(tmp_path / "old", opset=10), output, raw_output=True))
    assert old["padding"] == "batch: no ragged front: opset 10 has no CumSum"
    one = reasons(tiny.make(tiny.embedder(tmp_path / "one", batch=1), output))
    assert one["padding"].startswith("rows: the model takes one text at a time: ")
    assert one["tokenizer-instances"] == f"1: {Why.ONE_TEXT.value}"


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({}, "The ONNX model, with its front and head in the graph."),
        ({"padding": "rows"}, "The ONNX model, with its head in the graph."),
        ({"raw_output": True}, "The ONNX model as it is."),
    ],
)
def test_what_is_in_the_graph(options: dict[str, Any], about: str, tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, **options)
    assert made.plan.network.about == about
    assert tiny.config(made, "bert_model").startswith(f"# {about}\n")


def test_a_front_without_a_head(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.classifier(tmp_path / "tone"), output, raw_output=True)
    assert made.plan.network.about == "The ONNX model, with its front in the graph."


def test_one_row_is_never_joined_with_another(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, max_batch_size=1)
    assert all("dynamic_batching" not in tiny.config(made, model.name) for model in made.plan.models)
    assert made.plan.models[1].about == "Tokenizer: texts to token ids."
    assert reasons(made)["tokenizer-instances"] == f"1: {Why.ONE_TEXT.value}"
    wheel = tiny_images.wheel(tmp_path / "p.whl")
    folder = tiny_images.folder(tmp_path / "images")
    images = tiny.make(folder, output, max_batch_size=1, pillow_wheel=(wheel,))
    assert all("dynamic_batching" not in tiny.config(images, model.name) for model in images.plan.models)


def test_what_a_request_carries(tmp_path: Path, output: Path) -> None:
    limit = "32: a common limit; a request may carry as many "
    wheel = tiny_images.wheel(tmp_path / "p.whl")
    for folder, what, options in (
        (tiny.embedder(tmp_path / "bert"), "texts", {}),
        (tiny_images.folder(tmp_path / "images"), "images", {"pillow_wheel": (wheel,)}),
        (tiny.tensor_model(tmp_path / "net.onnx"), "rows", {}),
    ):
        told = reasons(tiny.make(folder, output, **options))
        assert told["max-batch-size"] == limit + what
        assert ("padding" in told) == (what == "texts")


def test_tensors_of_open_shape_join_where_they_are_equal(tmp_path: Path, output: Path) -> None:
    whole = tiny.make(tiny.tensor_model(tmp_path / "net.onnx"), output)
    assert reasons(whole)["batching"] == f"on: {Why.JOINS.value}"
    text = tiny.make(tiny.embedder(tmp_path / "bert"), output, task="tensor")
    assert reasons(text)["batching"].startswith(
        f"on: {Why.EQUAL_SHAPES.value.removesuffix('({inputs})')}('input_ids' and "
    )


def test_what_trb_toml_set_and_what_a_flag(tmp_path: Path, output: Path) -> None:
    file = tmp_path / "trb.toml"
    tiny.embedder(tmp_path / "all" / "bert")
    file.write_text("[build]\ninstances = 3\nthreads = 2\ngolden = false\n")
    one = ["build", "--model", tmp_path / "all" / "bert", "--output", output, "--config", file]
    done = CliRunner().invoke(group, [*map(str, one), "--threads", "1", "--explain"], standalone_mode=False)
    assert "  instances 3: set in trb.toml; 3 instances with 1 thread each " in done.stdout
    assert "  threads 1: set by --threads\n" in done.stdout
    file.rename(tmp_path / "common.toml")
    (tmp_path / "all" / "bert" / "trb.toml").write_text("[build]\nthreads = 1\n")
    every = ["build", "--all", tmp_path / "all", "--output", output, "--config", tmp_path / "common.toml"]
    done = CliRunner().invoke(group, [*map(str, every), "--json"], standalone_mode=False)
    settings = json.loads(done.stdout)["endpoints"][0]["settings"]
    assert settings["instances"]["value"] == 3
    assert settings["instances"]["reason"].startswith("set in common.toml; 3 instances with 1 thread each ")
    assert settings["threads"] == {"value": 1, "reason": "set in trb.toml"}


def test_what_was_set_by_hand_and_what_it_caps(output: Path) -> None:
    options = {"max_batch_size": 64, "preferred_batch_size": (8, 16), "max_queue_delay": 500}
    told = reasons(tiny.make(MODELS / "embedding" / "minilm_fp32", output, golden=True, **options))
    caps = Why.PREFERRED_CAPS.value.format(most=16, items="texts", limit=64)
    assert told["preferred-batch-size"] == f"8,16: set by --preferred-batch-size; {caps}"
    assert told["max-queue-delay"] == f"500 µs: set by --max-queue-delay; {Why.DELAY_UNIT.value}"
    options = {"max_batch_size": 16, "preferred_batch_size": (8, 16)}
    told = reasons(tiny.make(MODELS / "embedding" / "minilm_fp32", output, golden=True, **options))
    assert "max-queue-delay" not in told
    assert (
        Why.PREFERRED_REACHES.value.format(most=16, items="texts", limit=16) in told["preferred-batch-size"]
    )


def test_a_number_of_another_machine_says_of_which() -> None:
    """``measured`` alone would be of the machine that reads it."""
    for why in Why:
        assert "measured" not in why.value or "measured on " in why.value

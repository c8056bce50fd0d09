"""Zero-shot classification of images: both towers of one graph in one endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_images

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import zero_shot_image_classification
from triton_repo_builder.produce.build import Build
from triton_repo_builder.runtime.answers import zero_shot_classification as served


def build(folder: Path, **options: Any) -> Build:
    wheel = tiny_images.wheel(folder.parent / "pillow.whl")
    return tiny.make(folder, folder.parent / "repository", pillow_wheel=(wheel,), device="cpu", **options)


def test_both_towers_make_one_endpoint(tmp_path: Path) -> None:
    made = build(tiny_images.towers(tmp_path / "clip"), golden=True)
    names = [model.name for model in made.plan.models]
    assert names == ["clip", "clip_tokenizer", "clip_postprocess", "clip_preprocess", "clip_model"]
    assert made.plan.task == zero_shot_image_classification.NAME
    assert made.notes == ()
    endpoint, *_, network = made.plan.models
    assert [tensor.name for tensor in endpoint.input] == ["IMAGE", "LABELS"]
    assert [tensor.name for tensor in network.input] == ["trb_tokens", "pixel_values"]
    # One after the other: tritonserver 2.51.0 hangs if one of two steps at the same time refuses its input.
    tokenizer = next(step for step in endpoint.step if step.model_name == "clip_tokenizer")
    assert tokenizer.input_map == (("LABELS", "trb_texts"),)
    cases = json.loads(next(file.content for file in made.files if file.path == "clip/smoke.json"))["cases"]
    assert {tensor["name"] for case in cases for tensor in case["inputs"]} == {"IMAGE", "LABELS"}
    counts = {
        len(tensor["data"]) for case in cases for tensor in case["outputs"] if tensor["name"] == "scores"
    }
    assert len(counts) > 1
    sources = {source.file for source in made.entry.served.sources}
    assert {"preprocessor_config.json", "tokenizer.json"} <= sources


def test_the_rows_of_a_batch_run_at_once(tmp_path: Path) -> None:
    """Groups of labels would run the image tower again and again."""
    made = build(tiny_images.towers(tmp_path / "clip"))
    assert any("nothing has shown" in note for note in made.notes)
    assert "Loop" not in next(f.content for f in made.files if f.path == "clip_model/1/model.onnx").decode(
        "latin-1"
    )


def test_siglip_gets_all_its_tokens_and_scores_of_its_own(tmp_path: Path) -> None:
    config = {"model_type": "siglip", "text_config": {"max_position_embeddings": 16}}
    made = build(tiny_images.towers(tmp_path / "siglip", config=config), golden=True)
    models = {model.name: model for model in made.plan.models}
    assert dict(models["siglip_tokenizer"].parameters)["row_length"] == "16"
    assert dict(models["siglip_postprocess"].parameters)["multi_label"] == "true"


def test_as_many_labels_as_asked_for(tmp_path: Path) -> None:
    for options, most in (({}, "128"), ({"most_rows": 1000}, "1000")):
        made = build(tiny_images.towers(tmp_path / f"clip{most}"), **options)
        tokenizer = next(model for model in made.plan.models if model.name.endswith("_tokenizer"))
        assert dict(tokenizer.parameters)["most_rows"] == most


def test_a_graph_whose_images_change_each_other_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrbError, match="cannot share a run of the graph") as caught:
        build(tiny_images.towers(tmp_path / "clip", mixed=True), golden=True)
    assert caught.value.code == Code.NOT_BATCHABLE


@pytest.mark.parametrize("file", ["tokenizer.json", "preprocessor_config.json"])
@pytest.mark.parametrize("task", [None, "zero-shot-image-classification"])
def test_a_file_that_is_missing_is_named(task: str | None, file: str, tmp_path: Path) -> None:
    folder = tiny_images.towers(tmp_path / "clip")
    (folder / file).unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(TrbError) as caught:
        build(folder, task=task)
    assert caught.value.code == Code.NOT_FOUND
    assert caught.value.message == f"no {file} beside the model, which takes texts and images"
    assert "--from-model" in caught.value.remedy


@pytest.mark.parametrize(
    ("graph", "reason", "remedy"),
    [
        ({"tokens": 8}, "every text has 8 tokens", "dynamic axes [batch, tokens] on every input (optimum's"),
        (
            {"images": 1},
            "the first axis of input 'pixel_values' is fixed at 1",
            "a dynamic first axis on every",
        ),
    ],
)
def test_fixed_axes(graph: dict[str, int], reason: str, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        build(tiny_images.towers(tmp_path / "clip", **graph))
    assert caught.value.code == Code.NOT_BATCHABLE
    assert caught.value.message.endswith(f"takes rows of any length in a batch: {reason}")
    assert remedy in caught.value.remedy
    assert "--raw-output" not in caught.value.remedy  # which does not apply


def test_texts_as_long_as_the_tokenizer_does_not_allow(tmp_path: Path) -> None:
    config = {"architectures": ["SiglipModel"], "model_type": "siglip"}
    folder = tiny_images.towers(tmp_path / "siglip", config=config)
    with pytest.raises(TrbError) as caught:
        build(folder)
    assert caught.value.code == Code.TOKENIZER_MISMATCH
    assert caught.value.message.startswith("the model's texts have 32 tokens, more than the maximum of 24 (")


def test_without_config_json_nobody_knows_which_model_it_is(tmp_path: Path) -> None:
    folder = tiny_images.towers(tmp_path / "clip")
    (folder / "config.json").unlink()
    with pytest.raises(TrbError, match="names its model_type") as caught:
        build(folder)
    assert caught.value.code == Code.TASK_UNCLEAR


def test_a_template_without_a_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrbError, match="has no place for the label") as caught:
        build(tiny_images.towers(tmp_path / "clip"), hypothesis_template="a photo")
    assert "This is a photo of {}." in caught.value.remedy


@pytest.mark.parametrize(("each", "scores"), [("false", [0.8807971, 0.1192029]), ("true", [0.8807971, 0.5])])
def test_likeness_becomes_shares(each: str, scores: list[float]) -> None:
    answer = served.Answer({"multi_label": each}, Path()).answer(
        {"LABELS": np.array([b"a", b"b", b""], dtype=object), "trb_logits": np.array([0.0, 2.0, 2.0])}
    )
    assert answer["labels"] == [b"b", b"a"]
    np.testing.assert_allclose(answer["scores"], scores, rtol=1e-6)


def test_equal_scores_keep_the_order_of_the_labels() -> None:
    row = {"LABELS": np.array([b"x", b"y"], dtype=object), "trb_logits": np.array([1.0, 1.0])}
    assert served.Answer({}, Path()).answer(row)["labels"] == [b"x", b"y"]


def test_the_reference_is_the_same_arithmetic() -> None:
    run = SimpleNamespace(
        outputs={"logits_per_image": np.array([[0.0, 2.0]])}, example={"LABELS": ("a", "b")}
    )
    answer = zero_shot_image_classification._reference(each=False)(run)
    assert answer["labels"].tolist() == [[b"b", b"a"]]
    np.testing.assert_allclose(answer["scores"], [[0.8807971, 0.1192029]], rtol=1e-6)

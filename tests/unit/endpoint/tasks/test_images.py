"""Image tasks: which one a model has, their heads against their own arithmetic, and what is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
import tiny_images
import tiny_onnx as t
from onnx import TensorProto

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks import image_classification, image_embedding
from triton_repo_builder.model.graph import compose, reader
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce.build import Build


def chosen(folder: Path, wanted: str | None = None) -> tuple[str, str]:
    module, reason = tasks.choose(reader.read_source(folder), wanted)
    return module.NAME, reason


def served(path: Path, module: Any, pixels: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the composed graph answers, what the task's own arithmetic says)."""
    src = reader.read_source(path)
    task = module.plan(src, BuildOptions(model=path, **options))
    release = releases.default()
    composed = path.parent / "composed.onnx"
    composed.write_bytes(compose.compose(src.skeleton, weights="model.onnx", head=task.head, release=release))
    original, ours = onnxruntime.InferenceSession(str(src.path)), onnxruntime.InferenceSession(str(composed))
    feeds = {"pixel_values": pixels}
    names = [output.name for output in original.get_outputs()]
    expected = task.reference(
        dict(zip(names, original.run(None, feeds), strict=True)), np.ones((len(pixels), 1))
    )
    mine = [output.name for output in ours.get_outputs()]
    assert mine == [output.name for output in task.outputs]
    return dict(zip(mine, ours.run(None, feeds), strict=True)), expected


def pixels(rows: int = 6, dtype: Any = np.float32) -> Any:
    size = tiny_images.SIZE
    return np.random.default_rng(0).normal(size=(rows, 3, size, size)).astype(dtype)


@pytest.mark.parametrize(
    ("graph", "config"),
    [
        ({}, {}),
        ({"width": 9}, {"problem_type": "multi_label_classification"}),
        ({"width": 2}, {"problem_type": "regression"}),
        ({"width": 1}, {}),
        ({"softmax": True}, {}),
        ({"opset": 9}, {}),
        ({"dtype": TensorProto.FLOAT16}, {}),
    ],
)
def test_labels_and_scores(graph: dict[str, Any], config: dict[str, Any], tmp_path: Path) -> None:
    width = graph.get("width", 4)
    labels = {str(number): f"thing {number}" for number in range(width)}
    folder = tiny_images.folder(tmp_path / "m", config={**config, "id2label": labels}, **graph)
    data = pixels(dtype=np.float16 if "dtype" in graph else np.float32)
    got, expected = served(folder / "model.onnx", image_classification, data, top_k=3)
    top = min(3, width)
    assert got["top_labels"].shape == got["top_scores"].shape == (6, top)
    assert got["top_labels"].tolist() == [[text.decode() for text in row] for row in expected["top_labels"]]
    assert got["label"].tolist() == [row[:1] for row in got["top_labels"].tolist()]
    for name in ("score", "top_scores"):
        np.testing.assert_allclose(got[name], expected[name], atol=2e-3 if "dtype" in graph else 1e-6)
    if graph.get("softmax") or not config:
        assert got["top_scores"].max() <= 1


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ({"output": "pooler_output"}, {}),
        ({"output": "pooler_output", "rank": 4}, {"normalize": True}),
        ({"output": "image_embeds"}, {"normalize": True}),
        ({"output": "last_hidden_state", "rank": 3}, {"pooling": "cls"}),
        ({"output": "last_hidden_state", "rank": 3}, {"pooling": "mean", "normalize": True}),
        ({"output": "last_hidden_state", "rank": 4}, {}),
        ({"output": "last_hidden_state", "rank": 4, "opset": 9}, {"pooling": "mean"}),
    ],
)
def test_embeddings(graph: dict[str, Any], options: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_images.folder(tmp_path / "m", config={}, **graph)
    got, expected = served(folder / "model.onnx", image_embedding, pixels(), **options)
    assert got["embedding"].shape == (6, 4)
    np.testing.assert_allclose(got["embedding"], expected["embedding"], atol=1e-5)
    if options.get("normalize"):
        np.testing.assert_allclose(np.linalg.norm(got["embedding"], axis=1), 1, atol=1e-5)


def test_what_the_files_say(tmp_path: Path) -> None:
    assert chosen(tiny_images.folder(tmp_path / "c")) == ("image-classification", "")
    config = {"architectures": ["ViTModel"]}
    embedder = tiny_images.folder(tmp_path / "e", config=config, output="pooler_output")
    assert chosen(embedder) == ("image-embedding", "")
    assert chosen(embedder, "tensor") == ("tensor", "")
    other = tiny_images.folder(
        tmp_path / "d", config={"architectures": ["DetrForObjectDetection"]}, output="boxes"
    )
    name, why = chosen(other)
    assert name == "tensor"
    assert "the graph does not have its head (outputs: boxes" in why
    unnamed = tiny_images.folder(tmp_path / "u", config={"architectures": ["Other"]}, output="boxes")
    why = "no known task of images fits its outputs: served as plain tensors"
    assert chosen(unnamed) == ("tensor", why)


def test_what_is_a_guess_is_said_to_be_one(tmp_path: Path) -> None:
    guess = "task 'image-classification' is a guess from the model's files; --task overrides it"
    assert chosen(tiny_images.folder(tmp_path / "c", config={})) == ("image-classification", guess)
    path = tiny_images.model(tmp_path / "x.onnx")
    assert chosen(path) == (
        "tensor",
        "no preprocessor_config.json (--preprocessor names one): served as plain tensors",
    )
    assert chosen(tiny_images.model(tmp_path / "y.onnx", name="X")) == ("tensor", "")


@pytest.mark.parametrize("name", ["X", "pixel_values"])
def test_channels_last_without_a_preprocessor_is_said(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    pixels = t.tensor(name, ["n", 224, 224, 3])
    path.write_bytes(
        t.model([t.node("Identity", [name], ["Y"])], [pixels], [t.tensor("Y", ["n", 224, 224, 3])])
    )
    task, why = chosen(path)
    assert task == "tensor"
    assert why.startswith(f"'{name}' [N, 224, 224, 3] looks like images with the channels last")
    assert chosen(path, "tensor") == ("tensor", "")


def test_a_folder_called_onnx_belongs_to_the_one_above(tmp_path: Path) -> None:
    folder = tiny_images.folder(tmp_path / "vit")
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    assert chosen(folder) == ("image-classification", "")


def test_what_a_model_cannot_be(tmp_path: Path) -> None:
    path = tiny_images.model(tmp_path / "x.onnx")
    with pytest.raises(TrbError) as caught:
        chosen(path, "image-classification")
    assert caught.value.code == Code.NOT_FOUND
    assert caught.value.message.startswith("no preprocessor_config.json beside the model")
    with pytest.raises(TrbError) as caught:
        chosen(tiny.embedder(tmp_path / "text"), "image-embedding")
    assert caught.value.code == Code.TASK_UNCLEAR
    both = t.model(
        [
            t.node("Identity", ["pixel_values"], ["image_embeds"]),
            t.node("Identity", ["input_ids"], ["text_embeds"]),
        ],
        [t.tensor("pixel_values", ["b", 3, 8, 8]), t.tensor("input_ids", ["b", "n"], t.INT64)],
        [t.tensor("image_embeds", ["b", 3, 8, 8]), t.tensor("text_embeds", ["b", "n"], t.INT64)],
    )
    (tmp_path / "clip.onnx").write_bytes(both)
    for wanted in (None, "image-embedding"):
        with pytest.raises(TrbError, match="both towers") as caught:
            chosen(tmp_path / "clip.onnx", wanted)
        assert caught.value.code == Code.TASK_UNCLEAR
    assert chosen(tmp_path / "clip.onnx", "tensor") == ("tensor", "")


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        (
            {"output": "last_hidden_state", "rank": 3},
            {},
            "no file says how to pool output 'last_hidden_state'",
        ),
        ({"output": "last_hidden_state", "rank": 3}, {"pooling": "pooler"}, "the model has no pooled output"),
        (
            {"output": "pooler_output"},
            {"pooling": "cls"},
            "--pooling cls needs an output 'last_hidden_state' of tokens",
        ),
        ({"output": "pooler_output"}, {"pooling": "lasttoken"}, "'lasttoken' is unknown for images"),
    ],
)
def test_poolings_that_cannot_be(
    graph: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = tiny_images.folder(tmp_path / "m", config={}, **graph)
    with pytest.raises(TrbError) as caught:
        image_embedding.plan(reader.read_source(folder), BuildOptions(model=folder, **options))
    assert caught.value.message == message


def test_labels_must_be_as_many_as_scores(tmp_path: Path) -> None:
    folder = tiny_images.folder(tmp_path / "m", config={"id2label": {"0": "a", "1": "b"}})
    with pytest.raises(TrbError) as caught:
        image_classification.plan(reader.read_source(folder), BuildOptions(model=folder))
    assert caught.value.message == "config.json names 2 labels, output 'logits' has 4"


def build(folder: Path, output: Path, **options: Any) -> Build:
    wheel = tiny_images.wheel(folder.parent / "pillow.whl")
    return tiny.make(folder, output, pillow_wheel=(wheel,), device="cpu", **{"golden": True, **options})


@pytest.mark.parametrize("kind", ["EfficientNetImageProcessor", "LevitImageProcessor"])
def test_no_golden_cases_are_no_way_around_the_proof_of_pixels(
    kind: str, tmp_path: Path, output: Path
) -> None:
    size = {"shortest_edge": 8} if "Levit" in kind else {"height": 8, "width": 8}
    crop = {"height": 8, "width": 8}
    processor = {"image_processor_type": kind, "size": size, "crop_size": crop}
    folder = tiny_images.folder(tmp_path / "m", processor=processor)
    for golden in (True, False):
        with pytest.raises(TrbError) as caught:
            build(folder, output, golden=golden)
        assert caught.value.code is Code.UNSUPPORTED_MODEL
        assert f"{kind} does more than" in caught.value.message


@pytest.mark.parametrize("golden", [True, False])
def test_a_graph_that_scales_by_the_batch_takes_one_image(golden: bool, tmp_path: Path, output: Path) -> None:
    """Also where no recorded answers show that images change each other's."""
    folder = tiny_images.folder(tmp_path / "m")
    graph = onnx.load(folder / "model.onnx")
    graph.graph.node[0].input[0] = "again"
    graph.graph.node.insert(0, t.node("DynamicQuantizeLinear", ["pixel_values"], ["q", "scale", "zero"]))
    graph.graph.node.insert(1, t.node("DequantizeLinear", ["q", "scale", "zero"], ["again"]))
    onnx.save(graph, folder / "model.onnx")
    made = build(folder, output, golden=golden)
    assert made.plan.models[-1].max_batch_size == 0
    assert any("quantises activations at run time" in note for note in made.notes)
    with pytest.raises(TrbError) as caught:
        build(folder, output, golden=golden, batching="on")
    assert caught.value.code is Code.NOT_BATCHABLE


def test_what_is_built(tmp_path: Path, output: Path) -> None:
    made = build(tiny_images.folder(tmp_path / "vit"), output, top_k=2)
    assert [model.name for model in made.plan.models] == ["vit", "vit_preprocess", "vit_model"]
    paths = {file.path for file in made.files}
    assert {
        f"vit_preprocess/1/{name}" for name in ("model.py", "image_pixels.py", "spans.py", "preprocess.json")
    } <= paths
    assert {"vit/smoke.json", "vit/1/.gitkeep", "vit_preprocess/warmup/image"} <= paths
    assert "vit_preprocess/1/vendor/cp310/PIL/Image.py" in paths
    assert [(item["name"], item["shape"]) for item in made.entry.to_json()["outputs"]] == [
        ("label", [-1, 1]),
        ("score", [-1, 1]),
        ("top_labels", [-1, 2]),
        ("top_scores", [-1, 2]),
    ]
    assert [source.file for source in made.entry.served.sources] == [
        "model.onnx",
        "preprocessor_config.json",
    ]
    content = {file.path: file.content for file in made.files}
    settings = json.loads(content["vit_preprocess/1/preprocess.json"])
    assert (settings["resize"], settings["layout"]) == ({"height": 8, "width": 8}, "NCHW")
    assert "dynamic_batching" in tiny.config(made, "vit_preprocess")
    again = build(tmp_path / "vit", output, top_k=2)
    assert {file.path: file.sha256() for file in made.files} == {
        file.path: file.sha256() for file in again.files
    }


@pytest.mark.parametrize("graph", [{"batch": 1}, {"channels_last": True}, {"dtype": TensorProto.FLOAT16}])
def test_graphs_of_other_shapes(graph: dict[str, Any], tmp_path: Path, output: Path) -> None:
    made = build(tiny_images.folder(tmp_path / "vit", **graph), output)
    pixels = made.plan.models[2].input[0]
    if "batch" in graph:
        assert (made.plan.endpoint.max_batch_size, pixels.dims) == (0, (1, 3, 8, 8))
        assert made.plan.endpoint.output[0].dims == (1, 1)
    elif "channels_last" in graph:
        assert pixels.dims == (8, 8, 3)
    else:
        assert pixels.data_type == "TYPE_FP16"


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (
            {"size": {"shortest_edge": 8}},
            "images keep their shape (resized by an edge, not cropped), the model's input",
        ),
        (
            {"size": {"shortest_edge": 8, "longest_edge": 20}},
            "the preprocessing cannot be read: a longest_edge needs the class of the processor",
        ),
        ({"size": 16}, "makes images of [3, 16, 16], the model's input 'pixel_values' is [3, 8, 8]"),
    ],
)
def test_sizes_that_do_not_fit(processor: dict[str, Any], message: str, tmp_path: Path, output: Path) -> None:
    folder = tiny_images.folder(tmp_path / "vit", processor=processor)
    with pytest.raises(TrbError) as caught:
        build(folder, output)
    assert caught.value.code == Code.UNSUPPORTED_MODEL
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_length": 9}, "--max-length"),
        ({"pooling": "cls"}, "--pooling"),
        ({"raw_output": True}, "--raw-output"),
        ({"padding": "rows"}, "--padding"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], field: str, tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError) as caught:
        build(tiny_images.folder(tmp_path / "vit"), output, **options)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, field)
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.embedder(tmp_path / "e"), output, top_k=3)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--top-k")


def test_pixels_called_like_the_endpoints_input(tmp_path: Path) -> None:
    made = build(tiny_images.folder(tmp_path / "vit", name="IMAGE"), tmp_path / "out")
    preprocess, model = made.plan.endpoint.step
    assert (preprocess.input_map, preprocess.output_map) == ((("IMAGE", "IMAGE"),), (("IMAGE", "trb_IMAGE"),))
    assert model.input_map == (("IMAGE", "trb_IMAGE"),)


def test_a_segmenter_is_no_embedder(tmp_path: Path, output: Path) -> None:
    folder = tiny_images.folder(tmp_path / "seg", rank=4)
    with pytest.raises(
        TrbError, match=r"needs an output image_embeds or pooler_output or last_hidden_state; it h"
    ):
        build(folder, output, task="image-embedding")
    (folder / "config.json").unlink()
    assert "and no config.json names its labels: served as plain tensors" in chosen(folder)[1]


@pytest.mark.parametrize("name", ["pixel_values", "input", "images"])
def test_channels_that_the_export_leaves_open(name: str, tmp_path: Path, output: Path) -> None:
    folder = tiny_images.folder(tmp_path / "m")
    model = onnx.load(folder / "model.onnx")
    (pixels,) = model.graph.input
    for dim, axis in zip(pixels.type.tensor_type.shape.dim, ("n", "num_channels", "h", "w"), strict=True):
        dim.dim_param = axis
    onnx.save(model, folder / "model.onnx")
    tiny.rename(folder / "model.onnx", {"pixel_values": name})
    assert chosen(folder) == ("image-classification", "")
    wheel = (tiny_images.wheel(tmp_path / "p.whl"),)
    made = tiny.make(folder, output, golden=True, pillow_wheel=wheel)
    assert f"dims: [3, {tiny_images.SIZE}, {tiny_images.SIZE}]" in tiny.config(made, "m_model")
    config = json.loads((folder / "config.json").read_text())
    tiny.put_json(folder / "config.json", {**config, "num_channels": 1})
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, output, pillow_wheel=wheel)
    assert caught.value.code is Code.UNSUPPORTED_MODEL
    assert caught.value.message == (
        "num_channels is 1, and an image file gives three channels: red, green and blue"
    )


@pytest.mark.parametrize("name", ["input_features", "input_values"])
def test_sounds_of_four_axes_are_no_images(name: str, tmp_path: Path) -> None:
    shape: list[str | int] = ["n", "num_channels", "h", "w"]
    content = t.model([], [t.tensor(name, shape)], [t.tensor("logits", ["n", 4])])
    folder = tiny_images.folder(tmp_path / "m")
    (folder / "model.onnx").write_bytes(content)
    assert chosen(folder)[0] == "tensor"


@pytest.mark.parametrize(
    ("more", "output", "message"),
    [
        (
            "bbox",
            "logits",
            "this is layoutlmv3: it reads pages ('bbox': where each word is, as OCR finds it)",
        ),
        ("", "pred_boxes", "this is layoutlmv3: it finds objects by texts ('pred_boxes')"),
    ],
)
def test_texts_and_images_that_are_no_towers(more: str, output: str, message: str, tmp_path: Path) -> None:
    inputs = [t.tensor("input_ids", ["b", "n"], t.INT64), t.tensor("pixel_values", ["b", 3, 8, 8])]
    inputs += [t.tensor(more, ["b", "n", 4], t.INT64)] if more else []
    folder = tiny_images.folder(tmp_path / "m", config={"model_type": "layoutlmv3"})
    content = t.model([], inputs, [t.tensor(output, ["b", "n", 4])])
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(TrbError) as caught:
        chosen(folder)
    assert caught.value.code is Code.UNSUPPORTED_MODEL
    assert caught.value.message.startswith(message)
    assert chosen(folder, "tensor") == ("tensor", "")

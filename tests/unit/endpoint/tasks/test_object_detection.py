"""Object detection: the head against its own arithmetic, whose rules are transformers' and Ultralytics'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
import tiny_detectors
import tiny_images
from onnx import TensorProto, helper

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks import object_detection
from triton_repo_builder.endpoint.tasks.support import detections
from triton_repo_builder.model.graph import compose, reader
from triton_repo_builder.model.graph.heads.detection import BoxSelection
from triton_repo_builder.model.read import image_processor, image_reference
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce.build import Build, build
from triton_repo_builder.repository.tensor_names import IMAGE_SIZE
from triton_repo_builder.runtime import image_letterbox
from triton_repo_builder.runtime.image_pixels import Pixels

Make = Callable[[Path], Path]


def detr(**options: Any) -> Make:
    return lambda folder: tiny_detectors.detr(folder, **options) / "model.onnx"


def unnamed(folder: Path) -> Path:
    """As torch's own exporter calls them."""
    path = detr(background=False, model_type="rt_detr")(folder)
    tiny.rename(path, {"logits": "linear_16", "pred_boxes": "sigmoid"})
    return path


def yolo(**options: Any) -> Make:
    return lambda folder: tiny_detectors.yolo(folder / "yolo.onnx", **options)


def answers(path: Path, rows: int, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the composed graph answers, what the task's own arithmetic says)."""
    source = reader.read_source(path)
    task = object_detection.plan(source, BuildOptions(model=path, **options))
    composed = path.parent / "composed.onnx"
    release = releases.default()
    composed.write_bytes(compose.compose(source.skeleton, weights=path.name, head=task.head, release=release))
    original, ours = onnxruntime.InferenceSession(str(path)), onnxruntime.InferenceSession(str(composed))
    random = np.random.default_rng(0)
    shape = (rows, 3, tiny_detectors.SIZE, tiny_detectors.SIZE)
    pixels = random.normal(size=shape).astype(source.signature.inputs[0].dtype.numpy)
    sizes = random.integers(1, 900, (rows, 2))
    name = source.signature.inputs[0].name
    raw = dict(zip([o.name for o in original.get_outputs()], original.run(None, {name: pixels}), strict=True))
    expected = task.reference({**raw, "image_size": sizes}, np.ones((rows, 1), np.int64))
    given = ours.run(None, {name: pixels, "image_size": sizes})
    mine = [output.name for output in ours.get_outputs()]
    assert mine == [output.name for output in task.outputs]
    assert [list(o.shape[1:]) for o in ours.get_outputs()] == [list(o.dims) for o in task.outputs]
    return dict(zip(mine, given, strict=True)), expected


@pytest.mark.parametrize(
    ("make", "rows", "options"),
    [
        (detr(), 5, {}),
        (detr(background=False, model_type="rt_detr"), 5, {}),
        (detr(opset=11), 2, {"top_k": 3}),
        (unnamed, 3, {}),
        (detr(batch=1), 1, {}),
        (detr(dtype=TensorProto.FLOAT16), 3, {}),
        (detr(), 3, {"score_threshold": 0.0, "top_k": 40}),
        (detr(), 3, {"score_threshold": 1.0}),
        (yolo(), 5, {}),
        (yolo(), 5, {"iou_threshold": 0.2, "score_threshold": 0.6}),
        (yolo(), 2, {"top_k": 4, "iou_threshold": 1.0}),
        (yolo(), 3, {"score_threshold": 1.0}),
        (yolo(batch=1, opset=11), 1, {}),
        (yolo(end_to_end=True), 4, {}),
        (yolo(end_to_end=True, batch=1, dtype=TensorProto.FLOAT16), 1, {}),
    ],
)
def test_the_head_finds_what_the_arithmetic_finds(
    make: Make, rows: int, options: dict[str, Any], tmp_path: Path
) -> None:
    got, expected = answers(make(tmp_path), rows, **options)
    assert got["count"].tolist() == expected["count"].tolist()
    if options.get("score_threshold") == 1.0:
        assert not got["count"].any()
        assert not got["boxes"].any()
        assert set(got["labels"].ravel()) == {""}
    else:
        assert got["count"].max() > 1
    half = "FLOAT16" in str(make.__closure__)
    for row in range(rows):
        found = int(got["count"][row, 0])
        scores = got["scores"][row]
        assert (np.diff(scores[:found]) <= 0).all()
        assert not scores[found:].any()
        np.testing.assert_allclose(scores, expected["scores"][row], atol=1e-2 if half else 1e-5)
        # Labels and boxes by the score: equal ones may come in any order.
        distinct = [n for n in range(found) if (np.abs(np.delete(scores, n) - scores[n]) > 1e-5).all()]
        labels = [text.decode() for text in expected["labels"][row]]
        assert [got["labels"][row][n] for n in distinct] == [labels[n] for n in distinct]
        np.testing.assert_allclose(
            got["boxes"][row][distinct], expected["boxes"][row][distinct], rtol=1e-3, atol=1e-2
        )


def test_boxes_are_in_the_pixels_of_the_image(tmp_path: Path) -> None:
    """By hand: one query in the middle, a quarter wide; and one YOLO box in a letterbox of a wide image."""
    middle = np.array([[[0.5, 0.5, 0.25, 0.5]]])
    logits = np.array([[[9.0, 0.0, 0.0, 0.0]]])
    find = detections.by_query("logits", "pred_boxes", background=True)
    size = np.array([[100, 400]])
    found = find({"logits": logits, "pred_boxes": middle, "image_size": size}, 0)
    assert found.boxes.tolist() == [[150, 25, 250, 75]]
    selection = BoxSelection(labels=1, most=5, score=0.25, overlap=0.7)
    raw = np.array([[[8.0], [8.0], [8.0], [2.0], [0.9]]])
    find = detections.by_anchor("output0", selection, (16, 16))
    found = find({"output0": raw, "image_size": size}, 0)
    # 400 x 100 in 16 x 16: a 25th, 4 rows high, 6 rows of grey above.
    assert found.boxes.tolist() == [[100, 25, 300, 75]]


def test_noise_that_decides_is_seen() -> None:
    selection = BoxSelection(labels=1, most=5, score=0.25, overlap=0.7)
    unsure = detections.unsure(detections.by_anchor("output0", selection, (16, 16)), selection)

    def of(*boxes: tuple[float, ...]) -> frozenset[str]:
        return unsure(
            {"output0": np.array([boxes]).transpose(0, 2, 1), "image_size": np.array([[16, 16]])}, 1e-4
        )

    everything = frozenset({"boxes", "labels", "scores", "count"})
    assert of((4, 4, 4, 4, 0.9), (12, 12, 4, 4, 0.5)) == frozenset()
    assert of((4, 4, 4, 4, 0.9), (12, 12, 4, 4, 0.9)) == {"boxes", "labels"}  # either may come first
    assert of((4, 4, 4, 4, 0.9), (4, 4, 4, 4.1, 0.9)) == everything  # either may suppress the other
    assert of((4, 4, 4, 4, 0.9), (4, 4, 4, 2.8, 0.5)) == everything  # a share of 0.7
    assert of((4, 4, 4, 4, 0.2503)) == everything


@pytest.mark.parametrize(
    ("rows", "columns", "height", "width", "digest"),
    [
        (5, 7, 9, 3, "02ed991a9cfa6276"),
        (64, 48, 32, 24, "5c7aad1c08766a84"),
        (480, 640, 240, 320, "6ac8c63501385aa7"),
        (31, 500, 20, 320, "e432947a61e595be"),
        (1, 1, 8, 8, "506262706346304d"),
        (333, 200, 320, 192, "53697372bb040dac"),
        (100, 50, 320, 160, "e89e6e68c266e4a2"),
        (3, 400, 2, 320, "51191a0f84b23b06"),
    ],
)
def test_resized_as_opencv(rows: int, columns: int, height: int, width: int, digest: str) -> None:
    """Digests of cv2.resize(INTER_LINEAR) of OpenCV 5.0.0, of noise whose seed is the case's number."""
    seeds = (5, 64, 480, 31, 1, 333, 100, 3)
    noise = np.random.default_rng(seeds.index(rows)).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    made = image_letterbox.resized(noise, height, width)
    assert hashlib.sha256(made.tobytes()).hexdigest()[:16] == digest


def test_the_letterbox_is_what_exact_numbers_give(tmp_path: Path) -> None:
    spec = image_processor.letterboxed(tmp_path / "m.onnx", (32, 48))
    files = [tiny_images.file(w, h, seed=w) for w, h in ((20, 12), (300, 7), (48, 32), (1, 90), (97, 64))]
    pixels = image_reference.prove(spec, files)
    assert [one.shape for one in pixels] == [(3, 32, 48)] * 5
    served, size = Pixels(spec.settings("NCHW")).sized(files[0])
    assert size == (12, 20)
    assert served[0, 0, 0] == np.float32(114 / 255)


def test_which_task(tmp_path: Path) -> None:
    def chosen(path: Path) -> tuple[str, str]:
        task, reason = tasks.choose(reader.read_source(path), None)
        return task.NAME, reason

    assert chosen(tiny_detectors.detr(tmp_path / "detr")) == ("object-detection", "")
    assert chosen(tiny_detectors.yolo(tmp_path / "y" / "yolo.onnx")) == ("object-detection", "")
    other = tiny_detectors.yolo(tmp_path / "s" / "yolo.onnx", task="segment")
    assert chosen(other) == ("tensor", "no task of trb is Ultralytics' 'segment': served as plain tensors")
    assert chosen(unnamed(tmp_path / "torch")) == ("object-detection", "")
    alike = detr()(tmp_path / "alike")
    tiny.rename(alike, {"logits": "linear_16", "pred_boxes": "sigmoid"})
    assert chosen(alike)[0] == "tensor", "labels and no object are four, as the numbers of a box"
    config = tmp_path / "torch" / "config.json"
    tiny.put_json(config, {**json.loads(config.read_text()), "architectures": ["DetrModel"]})
    assert chosen(tmp_path / "torch")[0] == "tensor"
    older = tiny_detectors.yolo(tmp_path / "o" / "yolo.onnx")
    model = onnx.load(older)
    helper.set_model_props(model, {"stride": "32", "names": "{0: 'a'}"})
    onnx.save(model, older)
    assert "YOLOv5's own exporter" in chosen(older)[1]


@pytest.mark.parametrize(
    ("metadata", "code", "words"),
    [
        ({"names": "{0: 'a'"}, Code.UNSUPPORTED_MODEL, "'names' or 'imgsz'"),
        ({"names": "{1: 'a'}"}, Code.UNSUPPORTED_MODEL, "'names' or 'imgsz'"),
        ({"names": "[" * 5000}, Code.UNSUPPORTED_MODEL, "'names' or 'imgsz'"),
        ({"imgsz": "[0, 16]"}, Code.UNSUPPORTED_MODEL, "'names' or 'imgsz'"),
        ({"imgsz": "640.5"}, Code.UNSUPPORTED_MODEL, "'names' or 'imgsz'"),
        ({"names": "{0: 'a', 1: 'b'}"}, Code.TASK_UNCLEAR, "expects 6 numbers of each box, for 2 names"),
    ],
)
def test_metadata_that_does_not_fit(metadata: dict[str, str], code: Code, words: str, tmp_path: Path) -> None:
    path = tiny_detectors.yolo(tmp_path / "yolo.onnx", **metadata)
    with pytest.raises(TrbError) as error:
        object_detection.plan(reader.read_source(path), BuildOptions(model=path))
    assert error.value.code is code
    assert words in error.value.message


def test_metadata_in_other_words(tmp_path: Path) -> None:
    stated = {"names": "['thing 0', 'thing 1', 'thing 2']", "imgsz": "16"}
    path = tiny_detectors.yolo(tmp_path / "yolo.onnx", **stated)
    facts = dict(object_detection.plan(reader.read_source(path), BuildOptions(model=path)).facts)
    assert facts["labels"] == ["thing 0", "thing 1", "thing 2"]


@pytest.mark.parametrize(
    ("kind", "background"), [("detr", False), ("yolos", False), ("rt_detr", True), ("conditional_detr", True)]
)
def test_logits_that_the_kind_of_model_does_not_have(kind: str, background: bool, tmp_path: Path) -> None:
    path = tiny_detectors.detr(tmp_path, background=background, model_type=kind)
    with pytest.raises(TrbError, match=f"a {kind} model has .* logit") as caught:
        object_detection.plan(reader.read_source(path), BuildOptions(model=path))
    assert caught.value.remedy
    path = tiny_detectors.detr(tmp_path, background=not background, model_type=kind)
    object_detection.plan(reader.read_source(path), BuildOptions(model=path))


@pytest.mark.parametrize(
    ("end_to_end", "column", "value", "words"),
    [
        (False, slice(4, None), 3.0, "scores from 3 to 3"),
        (False, None, 0.5, "gives 8 numbers of each box, 7 were expected"),
        (True, slice(5, None), 9.0, "labels from 9 to 9, and the metadata names 3"),
        (True, slice(4, 5), -2.0, "scores from -2 to -2"),
    ],
)
def test_outputs_that_are_not_what_the_metadata_says(
    end_to_end: bool, column: slice | None, value: float, words: str, tmp_path: Path
) -> None:
    path = tiny_detectors.yolo(tmp_path / "yolo.onnx", end_to_end=end_to_end)
    made = object_detection.plan(reader.read_source(path), BuildOptions(model=path))
    found = np.full((1, 5, 6 if end_to_end else 7 + (column is None)), 0.5, dtype=np.float32)
    if column is not None:
        found[..., column] = value
    outputs = {"output0": found if end_to_end else found.transpose(0, 2, 1), IMAGE_SIZE: np.array([[16, 16]])}
    with pytest.raises(TrbError, match=words):
        made.reference(outputs, np.ones((1, 1), dtype=np.int64))


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    path = tiny_detectors.detr(tmp_path, id2label={"0": "one"})
    with pytest.raises(TrbError, match=r"config\.json names 1 labels, output 'logits' has 4"):
        object_detection.plan(reader.read_source(path), BuildOptions(model=path))


def made(path: Path, **options: Any) -> Build:
    wheel = tiny_images.wheel(path.parent / "pillow.whl")
    return build(BuildOptions(model=path, warmup=False, device="cpu", pillow_wheel=(wheel,), **options))


def test_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = made(tiny_detectors.yolo(tmp_path / "yolo.onnx"), golden=False)
    names = {file.path for file in built.files}
    assert "yolo_preprocess/1/image_letterbox.py" in names
    config = next(f.content for f in built.files if f.path == "yolo_preprocess/config.pbtxt").decode()
    assert 'name: "image_size"' in config
    with pytest.raises(TrbError) as error:
        made(tiny_detectors.yolo(tmp_path / "b.onnx"), preprocessor=tmp_path, golden=False)
    assert error.value.code in (Code.USAGE, Code.NOT_FOUND)
    for option in ("score_threshold", "iou_threshold"):
        with pytest.raises(TrbError, match="does not apply to task image-classification"):
            made(tiny_images.folder(tmp_path / "c"), golden=False, **{option: 0.3})

"""Ultralytics' own ``predict`` beside the served endpoint: the same objects, alone and in batches.

    python ultralytics_predict.py record FOLDER      # where ultralytics is installed
    python -m conformance.ultralytics_predict compare FOLDER

Not part of ``make conformance``: torchvision, which Ultralytics asks for, has no build for the torch of
.venv-export. Its metadata alone is enough (``pip install --no-deps ultralytics torchvision``, then remove the
package and keep its dist-info): Ultralytics brings a suppression of its own. Weights are random, with batch
statistics of real activations, so that there are objects.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

SIZE = 320
MODEL, ANSWERS = "yolo11n.onnx", "answers.json"
OVERLAP, SCORE = 0.99, 2e-3
"""How near an object has to be."""


def record(folder: Path) -> None:
    """Make the images and the model, and write what ``predict`` finds."""
    stand_in = ModuleType("torchvision")
    sys.modules |= {"torchvision": stand_in, "torchvision.ops": ModuleType("torchvision.ops")}
    stand_in.ops = sys.modules["torchvision.ops"]  # type: ignore[attr-defined]
    ultralytics: Any = import_module("ultralytics")
    stand_in.ops.nms = import_module("ultralytics.utils.nms").TorchNMS.nms  # type: ignore[attr-defined]
    folder.mkdir(parents=True, exist_ok=True)
    files = _images(folder)
    model = ultralytics.YOLO("yolo11n.yaml")
    _calibrate(model.model, files[:16])
    Path(model.export(format="onnx", imgsz=SIZE, dynamic=True, simplify=False)).rename(folder / MODEL)
    exported = ultralytics.YOLO(str(folder / MODEL), task="detect")
    answers = {}
    for file in files:
        (found,) = exported.predict(str(file), rect=False, verbose=False, imgsz=SIZE, device="cpu")
        names = [found.names[int(number)] for number in found.boxes.cls]
        answers[file.name] = {
            "boxes": found.boxes.xyxy.tolist(),
            "scores": found.boxes.conf.tolist(),
            "labels": names,
        }
    (folder / ANSWERS).write_text(json.dumps(answers))


def _images(folder: Path) -> list[Path]:
    """Colours with noise, of any shape."""
    image: Any = import_module("PIL.Image")
    random = np.random.default_rng(3)
    shapes = ((320, 320), (640, 480), (480, 640), (200, 333), (100, 50), (31, 500), (1000, 700), (77, 77))
    files = []
    for number in range(100):
        width, height = shapes[number % 8] if number < 50 else map(int, random.integers(20, 700, 2))
        coarse = random.integers(0, 256, (height // 40 + 2, width // 40 + 2, 3), dtype=np.uint8)
        smooth = np.asarray(image.fromarray(coarse).resize((width, height), 3)).astype(int)
        noisy = np.clip(smooth + random.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8)
        files.append(folder / f"{number:03}.{'png' if number % 3 else 'jpg'}")
        image.fromarray(noisy).convert("L" if number % 7 == 3 else "RGB").save(files[-1])
    return files


def _calibrate(network: Any, files: list[Path]) -> None:
    torch: Any = import_module("torch")
    image: Any = import_module("PIL.Image")
    torch.manual_seed(0)
    arrays = [np.asarray(image.open(file).convert("RGB").resize((SIZE, SIZE))) for file in files]
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    network.train()
    with torch.no_grad():
        network(torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float() / 255)
    network.eval()
    for branch, spread, bias in (("cv3", 0.5, -2.6), ("cv2", 2.0, None)):
        for level in getattr(network.model[-1], branch):
            last = [part for part in level.modules() if isinstance(part, torch.nn.Conv2d)][-1]
            torch.nn.init.normal_(last.weight, std=spread / last.weight.shape[1] ** 0.5)
            if bias is not None:
                torch.nn.init.constant_(last.bias, bias)


def compare(folder: Path) -> int:
    """Serve the model and ask it; the number of images with other objects."""
    tiny: Any = import_module("tiny")
    serve: Any = import_module("triton_repo_builder.run.serve")
    client_of: Any = import_module("triton_repo_builder.run.client.grpc").GrpcClient
    answers: dict[str, Any] = json.loads((folder / ANSWERS).read_text())
    tiny.put(folder / MODEL, folder / "model_repository", name="yolo", device="cpu", instances=1)
    wrong = 0
    with serve.start(
        folder / "model_repository", serve.ServeOptions(http_port=0, grpc_port=0, metrics_port=0)
    ) as server:
        client = client_of(server.urls.grpc, 120)
        names = list(answers)
        for size in (1, 16):
            others = 0
            for at in range(0, len(names), size):
                part = names[at : at + size]
                asked = np.empty((len(part), 1), dtype=object)
                asked[:, 0] = [(folder / name).read_bytes() for name in part]
                found = client.infer("yolo", {"IMAGE": asked})
                rows = [{key: array[row] for key, array in found.items()} for row in range(len(part))]
                others += sum(not same(row, answers[name]) for row, name in zip(rows, part, strict=True))
            objects = sum(len(answer["scores"]) for answer in answers.values())
            said = f"{size} in a request: {len(names)} images, {objects:,} objects, {others} images differ"
            sys.stdout.write(f"{said}\n")
            wrong += others
        client.close()
    return wrong


def same(row: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether each object of the one is an object of the other."""
    count = int(row["count"][0])
    left = list(range(count))
    for label, score, box in zip(expected["labels"], expected["scores"], expected["boxes"], strict=True):
        near = [
            number
            for number in left
            if row["labels"][number] in (label, label.encode())
            and abs(row["scores"][number] - score) < SCORE
            and _overlap(row["boxes"][number], np.array(box)) >= OVERLAP
        ]
        if not near:
            return False
        left.remove(near[0])
    return not left


def _overlap(one: Any, other: Any) -> float:
    """Intersection over union; boxes without an area are compared by their corners."""
    common = np.prod(np.maximum(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0))
    union = np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - common
    return float(common / union) if union > 0 else float(np.abs(one - other).max() < 0.5)


if __name__ == "__main__":
    place = Path(sys.argv[2])
    sys.exit(compare(place) if sys.argv[1] == "compare" else record(place))

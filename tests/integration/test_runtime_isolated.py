"""What runs in the server runs without our package: from the built repository, in an isolated Python."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
import tiny
import tiny_images
import tiny_sounds

from triton_repo_builder.base import process, resources
from triton_repo_builder.endpoint.golden import audio, image
from triton_repo_builder.endpoint.render import vendor_pillow
from triton_repo_builder.model.read import audio_processor, image_processor, image_reference
from triton_repo_builder.repository import pbtxt

ROOT = Path(__file__).resolve().parents[2]
STUB = Path(__file__).parents[1] / "stubs" / "triton_python_backend_utils.py"
DRIVER = """
import json, runpy, sys
sys.path[:0] = [sys.argv[1]]
import numpy as np
import triton_python_backend_utils as pb_utils
model = runpy.run_path(sys.argv[2])["TritonPythonModel"]()
model.initialize({"model_config": sys.argv[3]})
text = np.array([["hello".encode()], ["the fox".encode()]], dtype=object)
response = model.execute([pb_utils.InferenceRequest([pb_utils.Tensor("TEXT", text)])])[0]
import tokenizers
print(json.dumps({
    "answer": {t.name(): t.as_numpy().tolist() for t in response.output_tensors()},
    "tokenizers": tokenizers.__file__,
    "ours": sorted(name for name in sys.modules if name.startswith("triton_repo_builder")),
}))
"""


@pytest.fixture(scope="session", params=["3.10", "3.12"])
def python(request: pytest.FixtureRequest) -> str:
    """A Python with numpy and nothing else, as in Triton's images: 3.10 in 24.10, 3.12 now."""
    version = str(request.param)
    folder = ROOT / ".cache" / "pythons" / version
    if not (folder / "ready").exists():
        process.run([needs.interpreter(version), "-m", "venv", "--clear", str(folder)], timeout=120)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "numpy==1.26.4"]
        process.run(pip, timeout=300)
        (folder / "ready").touch()
    return str(folder / "bin" / "python")


def test_the_tokenizer_model_imports_nothing_that_an_image_lacks() -> None:
    tree = ast.parse(resources.runtime("tokenizer.py").read_text(), feature_version=(3, 10))
    found = set()
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        found |= {name.split(".")[0] for name in names}
    assert found - sys.stdlib_module_names == {"numpy", "tokenizers", "triton_python_backend_utils"}


def test_the_built_tokenizer_model_needs_only_its_own_folder(tmp_path: Path, python: str) -> None:
    tiny.put(tiny.embedder(tmp_path / "bert"), tmp_path / "repo")
    model = tmp_path / "repo" / "bert_tokenizer"
    (tmp_path / "stub").mkdir()
    shutil.copyfile(STUB, tmp_path / "stub" / STUB.name)
    config = json.dumps(pbtxt.parse((model / "config.pbtxt").read_text()))
    argv = [python, "-I", "-c", DRIVER, str(tmp_path / "stub"), str(model / "1" / "model.py"), config]
    printed = json.loads(process.run(argv, cwd=tmp_path, timeout=60))
    hello, the, fox = (tiny.WORDS.index(word) for word in ("hello", "the", "fox"))
    assert printed["answer"]["trb_tokens"] == [[2, hello, 3, -1], [2, the, fox, 3]]
    assert printed["ours"] == []
    assert Path(printed["tokenizers"]).is_relative_to(model / "1" / "vendor")


IMAGES = """
import json, runpy, sys
sys.path[:0] = [sys.argv[1]]
import numpy as np
import triton_python_backend_utils as pb_utils
model = runpy.run_path(sys.argv[2])["TritonPythonModel"]()
model.initialize({"model_config": sys.argv[3]})
files = np.array([[open(name, "rb").read()] for name in sys.argv[4:]], dtype=object)
response = model.execute([pb_utils.InferenceRequest([pb_utils.Tensor("IMAGE", files)])])[0]
import PIL
print(json.dumps({
    "pixels": response.output_tensors()[0].as_numpy().tolist(),
    "pillow": PIL.__file__,
    "ours": sorted(name for name in sys.modules if name.startswith("triton_repo_builder")),
}))
"""


def test_the_built_image_model_needs_only_its_own_folder(tmp_path: Path, python: str) -> None:
    """And gives on every Python the pixels that transformers gives on this one."""
    folder = tiny_images.folder(tmp_path / "vit")
    # The release's own wheel is fetched by the build; the newer releases' is named, as a user would.
    newer = vendor_pillow.fetched("3.12")
    tiny.put(folder, tmp_path / "repo", pillow_wheel=(newer,))
    model = tmp_path / "repo" / "vit_preprocess"
    (tmp_path / "stub").mkdir()
    shutil.copyfile(STUB, tmp_path / "stub" / STUB.name)
    config = json.dumps(pbtxt.parse((model / "config.pbtxt").read_text()))
    files = sorted(Path(image.__file__).with_name("images").iterdir())
    argv = [python, "-I", "-B", "-c", IMAGES, str(tmp_path / "stub"), str(model / "1" / "model.py"), config]
    printed = json.loads(process.run([*argv, *map(str, files)], cwd=tmp_path, timeout=60))
    spec = image_processor.read(folder / "preprocessor_config.json")
    expected = image_reference.prove(spec, [path.read_bytes() for path in files])
    np.testing.assert_allclose(np.array(printed["pixels"]), np.stack(expected), rtol=0, atol=1e-5)
    assert printed["ours"] == []
    assert Path(printed["pillow"]).is_relative_to(model / "1" / "vendor")


SOUNDS = """
import json, runpy, sys
sys.path[:0] = [sys.argv[1]]
import numpy as np
import triton_python_backend_utils as pb_utils
model = runpy.run_path(sys.argv[2])["TritonPythonModel"]()
model.initialize({"model_config": sys.argv[3]})
files = np.array([[open(name, "rb").read()] for name in sys.argv[4:]], dtype=object)
response = model.execute([pb_utils.InferenceRequest([pb_utils.Tensor("AUDIO", files)])])[0]
maps = open("/proc/self/maps").read().split()
print(json.dumps({
    "samples": response.output_tensors()[0].as_numpy().tolist(),
    "libraries": sorted({word for word in maps if "libsndfile" in word}),
    "ours": sorted(name for name in sys.modules if name.startswith("triton_repo_builder")),
}))
"""


def test_the_built_audio_model_needs_only_its_own_folder(tmp_path: Path, python: str) -> None:
    folder = tiny_sounds.classifier(tmp_path / "bark")
    tiny.put(folder, tmp_path / "repo")
    model = tmp_path / "repo" / "bark_preprocess"
    (tmp_path / "stub").mkdir()
    shutil.copyfile(STUB, tmp_path / "stub" / STUB.name)
    config = json.dumps(pbtxt.parse((model / "config.pbtxt").read_text()))
    files = sorted(Path(audio.__file__).with_name("sounds").iterdir())
    argv = [python, "-I", "-B", "-c", SOUNDS, str(tmp_path / "stub"), str(model / "1" / "model.py"), config]
    printed = json.loads(process.run([*argv, *map(str, files)], cwd=tmp_path, timeout=60))
    spec = audio_processor.read(folder / "preprocessor_config.json", {})
    expected = audio_processor.prove(spec, [path.read_bytes() for path in files])
    np.testing.assert_allclose(np.array(printed["samples"]), np.stack(expected), rtol=0, atol=1e-5)
    assert printed["ours"] == []
    assert printed["libraries"] == [str(model / "1" / "vendor" / audio_processor.LIBRARY)]


IN_INIT = {"__version__", "UnidentifiedImageError", "_plugins"}
"""What PIL/__init__.py defines."""


def test_the_pillow_of_every_python_is_complete(tmp_path: Path) -> None:
    """By its files alone, as there is not every Python here: what is imported from PIL must be there."""
    tiny.put(tiny_images.folder(tmp_path / "vit"), tmp_path / "repo")
    vendor = tmp_path / "repo" / "vit_preprocess" / "1" / "vendor"
    assert {"cp310", f"cp{sys.version_info.major}{sys.version_info.minor}"} == {
        p.name for p in vendor.iterdir()
    }
    for folder in vendor.iterdir():
        package = folder / "PIL"
        waiting = ["__init__", "BmpImagePlugin", "GifImagePlugin", "Image", "ImageOps", "JpegImagePlugin"]
        waiting += ["PngImagePlugin", "WebPImagePlugin", "MpoImagePlugin"]
        seen = set(waiting)
        while waiting:
            tree = ast.parse((package / f"{waiting.pop()}.py").read_text())
            for statement in tree.body:  # what a function or a try imports may be missing
                if not isinstance(statement, ast.ImportFrom) or statement.level != 1:
                    continue
                names = [statement.module] if statement.module else [alias.name for alias in statement.names]
                for name in set(names) - IN_INIT:
                    library = list(package.glob(f"{name}.cpython-*.so"))
                    assert library or (package / f"{name}.py").is_file(), name
                    if name not in seen and (package / f"{name}.py").is_file():
                        seen.add(name)
                        waiting.append(name)
        assert len(seen) > 10


ANSWER_DRIVER = """
import json, runpy, sys
sys.path[:0] = [sys.argv[1]]
import numpy as np
import triton_python_backend_utils as pb_utils
model = runpy.run_path(sys.argv[2])["TritonPythonModel"]()
model.initialize({"model_config": sys.argv[3]})
kinds = {"b": object, "i": np.int32, "l": np.int64, "f": np.float32}
tensors = []
for name, (kind, rows) in json.loads(sys.argv[4]).items():
    array = np.array(rows, dtype=kinds[kind])
    if kind == "b":
        array = np.array([[item.encode() for item in row] for row in rows], dtype=object)
    tensors.append(pb_utils.Tensor(name, array))
response = model.execute([pb_utils.InferenceRequest(tensors)])[0]
answer = {t.name(): t.as_numpy().tolist() for t in response.output_tensors()}
print(json.dumps(answer, default=lambda item: item.decode()))
"""
# Per task: parameters, outputs (Triton type, dims), inputs (b bytes, i, l INT32 and 64, f FP32), one answer.
POSTPROCESSED: dict[str, tuple[dict[str, str], dict[str, tuple[str, list[int]]], dict[str, Any], Any]] = {
    "token_classification": (
        {"labels": '["O", "B-X"]', "aggregation": "average"},
        {"text": ("STRING", [-1]), "start": ("INT32", [-1])},
        {
            "TEXT": ("b", [["é 🗼"]]),
            "trb_spans": ("i", [[[0, 1, 0], [2, 3, 0]]]),
            "trb_scores": ("f", [[[0.9, 0.1], [0.2, 0.8]]]),
        },
        {"text": [["🗼"]], "start": [[2]]},
    ),
    "question_answering": (
        {"impossible": "false"},
        {"answer": ("STRING", [1]), "end": ("INT32", [1])},
        {
            "CONTEXT": ("b", [["é 🗼"]]),
            "trb_spans": ("i", [[[0, 0, 1, 0, 0], [0, 1, 0, 0, 1], [2, 3, 0, 2, 3]]]),
            "trb_starts": ("f", [[0, 0, 5]]),
            "trb_ends": ("f", [[0, 0, 5]]),
        },
        {"answer": [["🗼"]], "end": [[3]]},
    ),
    "zero_shot_classification": (
        {"multi_label": "false"},
        {"labels": ("STRING", [-1])},
        {"LABELS": ("b", [["a", "é"]]), "trb_logits": ("f", [[[0, 1], [0, 2]]])},
        {"labels": [["é", "a"]]},
    ),
    "fill_mask": (
        {"mask_id": "7"},
        {"tokens": ("STRING", [-1, 2])},
        {
            "trb_tokens": ("i", [[1, 7]]),
            "trb_ids": ("i", [[[1, 0]]]),
            "trb_scores": ("f", [[[0.5, 0.25]]]),
        },
        {"tokens": [[["é", "a"]]]},
    ),
    "speech_recognition": (
        {"blank": "<pad>", "delimiter": "|"},
        {"text": ("STRING", [1])},
        {"trb_ids": ("i", [[0, 1, 1, 0, 1, 2, 2, 3, 0]])},
        {"text": [["éé a"]]},
    ),
    "semantic_segmentation": (
        {"labels": '["a", "é"]'},
        {"labels": ("STRING", [-1]), "shares": ("FP32", [-1])},
        {"trb_scores": ("f", [[[[0, 0, 0, 1]], [[1, 1, 1, 0]]]]), "image_size": ("l", [[2, 4]])},
        {"labels": [["é", "a"]], "shares": [[0.75, 0.25]]},
    ),
}


@pytest.mark.parametrize("task", POSTPROCESSED)
def test_post_processing_needs_only_numpy(task: str, tmp_path: Path, python: str) -> None:
    parameters, outputs, inputs, expected = POSTPROCESSED[task]
    shutil.copyfile(resources.runtime("postprocess.py"), tmp_path / "model.py")
    for name in ("metrics.py", "spans.py"):
        shutil.copyfile(resources.runtime(name), tmp_path / name)
    shutil.copyfile(resources.runtime(f"answers/{task}.py"), tmp_path / "answer.py")
    tokens = ["<pad>", "é", "|", "a"] if task == "speech_recognition" else ["a", "é"]
    (tmp_path / "tokens.json").write_text(json.dumps(tokens), encoding="utf-8")
    (tmp_path / "stub").mkdir()
    shutil.copyfile(STUB, tmp_path / "stub" / STUB.name)
    config = {
        "max_batch_size": 4,
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        "output": [
            {"name": n, "data_type": f"TYPE_{kind}", "dims": dims} for n, (kind, dims) in outputs.items()
        ],
    }
    argv = [python, "-I", "-c", ANSWER_DRIVER, str(tmp_path / "stub"), str(tmp_path / "model.py")]
    printed = process.run([*argv, json.dumps(config), json.dumps(inputs)], cwd=tmp_path, timeout=60)
    assert json.loads(printed) == expected


def test_every_post_processing_was_run() -> None:
    assert {path.stem for path in resources.runtime("answers").glob("*.py")} == set(POSTPROCESSED)

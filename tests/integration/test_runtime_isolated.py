"""What runs in the server runs without our package: from the built repository, in an isolated Python."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from pathlib import Path

import needs
import numpy as np
import pytest
import tiny
import tiny_images

from triton_repo_builder import golden_images, image_processor, pbtxt, process, resources, vendor_pillow

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
    newer = vendor_pillow._fetched("cp312", "3.12")
    tiny.put(folder, tmp_path / "repo", pillow_wheel=(newer,))
    model = tmp_path / "repo" / "vit_preprocess"
    (tmp_path / "stub").mkdir()
    shutil.copyfile(STUB, tmp_path / "stub" / STUB.name)
    config = json.dumps(pbtxt.parse((model / "config.pbtxt").read_text()))
    files = sorted(golden_images.FOLDER.iterdir())
    argv = [python, "-I", "-B", "-c", IMAGES, str(tmp_path / "stub"), str(model / "1" / "model.py"), config]
    printed = json.loads(process.run([*argv, *map(str, files)], cwd=tmp_path, timeout=60))
    spec = image_processor.read(folder / "preprocessor_config.json")
    expected = image_processor.prove(spec, [path.read_bytes() for path in files])
    np.testing.assert_allclose(np.array(printed["pixels"]), expected, rtol=0, atol=1e-5)
    assert printed["ours"] == []
    assert Path(printed["pillow"]).is_relative_to(model / "1" / "vendor")


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
                for name in set(names) - {
                    "__version__",
                    "UnidentifiedImageError",
                    "_plugins",
                }:  # of __init__.py
                    library = list(package.glob(f"{name}.cpython-*.so"))
                    assert library or (package / f"{name}.py").is_file(), name
                    if name not in seen and (package / f"{name}.py").is_file():
                        seen.add(name)
                        waiting.append(name)
        assert len(seen) > 10

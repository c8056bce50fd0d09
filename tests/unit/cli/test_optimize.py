from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tiny
import tiny_images
from cli import call, trb
from onnx import helper, numpy_helper
from tiny_onnx import node, tensor

from triton_repo_builder.base.errors import Code
from triton_repo_builder.measure.optimize import run, speed
from triton_repo_builder.measure.optimize.accuracy import Accuracy
from triton_repo_builder.model.graph import per_row
from triton_repo_builder.model.read.signature import DIFFERENCE, RECIPE


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of 8 × 8 count, and no second is spent on each measurement."""
    monkeypatch.setattr(per_row, "SMALLEST", 16)
    monkeypatch.setattr(speed, "SECONDS", 0.0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.classifier(tmp_path / "model", labels=8)


def optimize(*arguments: object) -> Any:
    return call("optimize", *map(str, arguments))


def test_a_folder_that_build_takes_with_recipe_and_report(model: Path, tmp_path: Path) -> None:
    before = tiny.tree(model)
    out = tmp_path / "new" / "int8"
    report = json.loads(trb("optimize", str(model), "-o", str(out), "--json", "--max-drop", "0.05"))
    assert tiny.tree(model) == before
    assert report == json.loads((out / "optimize.json").read_text())
    original, int8 = report["steps"]
    assert report["passed"] and report["task"] == "text-classification"
    assert (original["step"], original["size_ratio"], original["accuracy"]["measure"]) == (
        "original",
        1,
        None,
    )
    assert 0 <= (out / "model.onnx").stat().st_size - int8["bytes"] < 200  # what it says of itself
    assert int8["accuracy"]["measure"] == "label agreement" and int8["accuracy"]["mean"] > 0.95
    assert set(int8["latency_ms"]) == {"1", "16"}
    (step,) = json.loads((out / "recipe.json").read_text())["steps"]
    assert step["step"] == "int8" and step["how"] in ("per-row", "per-channel")
    assert {"tokenizer.json", "config.json", "optimize.png"} <= {file.name for file in out.iterdir()}
    assert (out / "optimize.png").read_bytes().startswith(b"\x89PNG")
    stated = {entry.key: entry.value for entry in onnx.load(out / "model.onnx").metadata_props}
    assert json.loads(stated[RECIPE]) == [step]
    assert 0 < float(stated[DIFFERENCE]) < 0.1
    assert [path.name for path in out.parent.iterdir()] == ["int8"]
    trb("build", "--model", str(out), "--output", str(tmp_path / "repository"))
    cases = json.loads(next((tmp_path / "repository").glob("*/smoke.json")).read_text())
    assert cases["tolerance"]["alone"] > cases["tolerance"]["batched"]
    assert "8-bit steps" in cases["tolerance"]["reason"]


def test_a_large_original_is_timed_without_a_packed_copy_and_that_is_said(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "LEAN", 1000)
    done = optimize(model, "-o", tmp_path / "out", "--steps", "int8:per-row", "--max-drop", "0.5")
    assert done.returncode == 0 and "note: the original is timed without the packed copy" in done.stderr


def test_the_table_says_what_to_do_next(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed.SpeedGain, "ratio", 1.5)
    output = trb("optimize", str(model), "-o", str(tmp_path / "out"), "--steps", "int8:per-row")
    assert "int8 per-row" in output and "label agreement" in output and "256 samples" in output
    assert output.endswith(f"wrote {tmp_path / 'out'}; next: trb build --model {tmp_path / 'out'}\n")


def test_a_result_that_gains_nothing_is_called_that(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed.SpeedGain, "ratio", 1.0)
    done = optimize(model, "-o", tmp_path / "out", "--steps", "int8:per-row", "--max-drop", "0.5")
    assert done.returncode == 0
    assert "it is not smaller, and no faster" in done.stderr
    assert done.stdout.endswith(f"wrote {tmp_path / 'out'}; nothing speaks for it: keep the original\n")


@pytest.fixture
def outlier(tmp_path: Path) -> Path:
    """Two products; an activation of the second is so large that the others round to nothing."""
    chance = np.random.default_rng(3)
    first, second = (chance.normal(size=(16, 16)).astype(np.float32) for _ in range(2))
    spread = np.ones(16, np.float32)
    spread[-1], second[-1] = 5000, 1e-5
    constants = {"first": first, "spread": spread, "second": second}
    nodes = [
        node("MatMul", ["x", "first"], ["inner"]),
        node("Mul", ["inner", "spread"], ["wide"]),
        node("MatMul", ["wide", "second"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(
        nodes, "g", [tensor("x", ["batch", 16])], [tensor("y", ["batch", 16])], initializers
    )
    return tiny.save(tmp_path / "model.onnx", graph)


def test_a_recipe_is_repeated(outlier: Path, tmp_path: Path) -> None:
    model, recipe = outlier, tmp_path / "recipe.json"
    recipe.write_text('{"steps": [{"step": "int8", "how": "per-row", "excluded": ["y"]}]}')
    # A CPU without VNNI loses more: its sums of 8-bit products overflow now and then.
    loss = ("--max-drop", "0.03")
    trb("optimize", str(model), "-o", str(tmp_path / "one"), "--recipe", str(recipe), *loss)
    assert json.loads((tmp_path / "one" / "recipe.json").read_text()) == json.loads(recipe.read_text())
    again = str(tmp_path / "one" / "recipe.json")
    trb("optimize", str(model), "-o", str(tmp_path / "two"), "--recipe", again, *loss)
    one, two = ((tmp_path / name / "model.onnx").read_bytes() for name in ("one", "two"))
    assert one == two


def test_what_loses_too_much_is_reported_and_not_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Accuracy(measure="label agreement", mean=0.9)
    monkeypatch.setattr(run.accuracy, "compare", lambda *arguments: lost)
    done = optimize(model, "-o", tmp_path / "out", "--steps", "int8:per-row,fuse")
    assert done.returncode == int(Code.ACCURACY_LOST.exit) == 1
    assert "label agreement 0.90000 is below 0.995; nothing was written [accuracy-lost]" in done.stderr
    assert "int8 per-row" in done.stdout and "fuse" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
def test_sensitive_products_stay_in_float(outlier: Path, tmp_path: Path) -> None:
    done = optimize(outlier, "-o", tmp_path / "all", "--steps", "int8:per-row")
    assert "[accuracy-lost]" in done.stderr
    report = json.loads(trb("optimize", str(outlier), "-o", str(tmp_path / "out"), "--json"))
    (step,) = json.loads((tmp_path / "out" / "recipe.json").read_text())["steps"]
    assert step == {"step": "int8", "how": "per-row", "excluded": ["y"]}
    assert report["steps"][1]["accuracy"]["measure"] == "cosine"
    assert report["steps"][1]["accuracy"]["mean"] > 0.995


def test_without_time_nothing_is_searched(outlier: Path, tmp_path: Path) -> None:
    done = optimize(outlier, "-o", tmp_path / "out", "--budget", "0s")
    assert (done.returncode, "[accuracy-lost]" in done.stderr) == (1, True)


def test_images_are_quantised_statically(tmp_path: Path) -> None:
    tiny_images.folder(tmp_path / "model")
    output = trb(
        *("optimize", str(tmp_path / "model"), "-o", str(tmp_path / "out")),
        *("--steps", "int8:static", "--max-drop", "0.5"),
    )
    assert "20 samples (shipped images, also mirrored)" in output
    assert "QuantizeLinear" in {
        node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node
    }


def test_a_model_without_large_matrices_is_left_alone(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_row, "SMALLEST", 1024)
    done = optimize(model, "-o", tmp_path / "out")
    assert "no convolution and no large matrix that is constant [unsupported-model]" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["dequantised", "cast and scaled"])
def test_weights_that_are_stored_as_integers_are_quantised_like_floats(form: str, tmp_path: Path) -> None:
    integers = np.random.default_rng(2).integers(-127, 128, (32, 32)).astype(np.int8)
    constants = {"q": integers, "scales": np.full(32, 0.01, np.float32)}
    nodes = {
        "dequantised": [node("DequantizeLinear", ["q", "scales"], ["w"])],
        "cast and scaled": [
            node("Cast", ["q"], ["float"], to=onnx.TensorProto.FLOAT),
            node("Mul", ["float", "scales"], ["w"]),
        ],
    }[form]
    graph = helper.make_graph(
        [*nodes, node("MatMul", ["x", "w"], ["y"])],
        "g",
        [tensor("x", ["batch", 32])],
        [tensor("y", ["batch", 32])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    path = tiny.save(tmp_path / "model.onnx", graph)
    report = json.loads(trb("optimize", str(path), "-o", str(tmp_path / "out"), "--json"))
    # A CPU without VNNI adds products of 8 bits in 16, which overflow now and then.
    assert report["passed"] and report["steps"][1]["accuracy"]["mean"] > 0.998
    kinds = [each.op_type for each in onnx.load(tmp_path / "out" / "model.onnx").graph.node]
    assert "MatMulInteger" in kinds and not {"DequantizeLinear", "MatMul"} & {*kinds}
    assert {file.suffix for file in (tmp_path / "out").iterdir()} <= {".onnx", ".json", ".png"}


@pytest.mark.slow
def test_what_is_quantised_already_is_left_alone(model: Path, tmp_path: Path) -> None:
    int8 = tmp_path / "int8"
    trb("optimize", str(model), "-o", str(int8), "--steps", "int8:per-row", "--max-drop", "0.5")
    done = optimize(int8, "-o", tmp_path / "again")
    assert "the model is quantised already [unsupported-model]" in done.stderr


@pytest.mark.parametrize("place", ["/proc/out", "/dev/null/out"])
def test_a_place_that_cannot_be_written(place: str, model: Path) -> None:
    done = optimize(model, "-o", place)
    assert (done.returncode, "[output-not-writable]" in done.stderr) == (Code.OUTPUT_NOT_WRITABLE.exit, True)


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with tiny.small_disk(tmp_path / "disk", "16k") as mounted:
        if not mounted:  # it takes root
            monkeypatch.setattr(per_row, "quantise", full)
        done = optimize(
            model, "-o", tmp_path / "disk" / "out", "--steps", "int8:per-row", "--max-drop", "0.5"
        )
        assert (done.returncode, "[disk-full]" in done.stderr) == (Code.DISK_FULL.exit, True), done.stderr
        assert not any((tmp_path / "disk").iterdir())


def test_tensors_are_generated(tmp_path: Path) -> None:
    path = tiny.tensor_model(tmp_path / "model.onnx")
    output = trb("optimize", str(path), "-o", str(tmp_path / "out"), "--max-drop", "0.9")
    assert "32 samples (generated numbers)" in output


def test_users_own_texts(model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text('good\n\nbad film\n{"TEXT": "with a key"}\n')
    command = ("optimize", str(model), "-o", str(tmp_path / "out"), "--samples", str(texts), "--json")
    report = json.loads(trb(*command, "--max-drop", "1"))
    assert report["samples"] == {"count": 3, "about": str(texts)}


@pytest.mark.parametrize(
    "line", ['{"TEXT": 5}', '{"QUERY": "a"}', '{"TEXT": []}', '{"TEXT": "a", "LABEL": "b"}']
)
def test_samples_of_other_inputs_are_refused(line: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"good\n{{ no json is a text\n{line}\n")
    done = optimize(model, "-o", tmp_path / "out", "--samples", tmp_path / "texts.txt")
    assert (done.returncode, "does not state the inputs of this model" in done.stderr) == (2, True)


def test_a_step_that_has_nothing_left_to_do_names_the_users_file(model: Path, tmp_path: Path) -> None:
    done = optimize(model, "-o", tmp_path / "out", "--steps", "int8:per-row,int8", "--max-drop", "1")
    assert f"error: {model / 'model.onnx'}: int8: the model is quantised already" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "exit", "message"),
    [
        (("--steps", "int4"), 2, "no step is called 'int4'"),
        (("--steps", ""), 2, "there is no step to take"),
        (("--steps", "int8", "--recipe", "r.json"), 2, "leave one of them out"),
        (("--recipe", "none.json"), 4, "none.json"),
        (("--samples", "none.txt"), 4, "none.txt"),
        (("--steps", "fp16", "--device", "cpu"), 2, "fp16 is for GPUs: a CPU has no kernels for it"),
        (("--max-drop", "2"), 2, "--max-drop"),
        (("--task", "translation"), 2, "translation"),
    ],
)
def test_bad_requests_write_nothing(
    arguments: tuple[str, ...], exit: int, message: str, model: Path, tmp_path: Path
) -> None:
    done = optimize(model, "-o", tmp_path / "out", *arguments)
    assert (done.returncode, message in done.stderr, done.stdout) == (exit, True, ""), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_there_is_not_replaced(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    done = optimize(model, "-o", tmp_path / "out")
    assert (done.returncode, "[output-foreign]" in done.stderr) == (Code.OUTPUT_FOREIGN.exit, True)
    assert tiny.tree(tmp_path / "out").keys() == {"mine"}


@pytest.mark.slow
def test_zero_neurons_are_cut_out_before_the_steps_and_single_zeros_are_named(
    exported: Path, tmp_path: Path
) -> None:
    shutil.copytree(exported / "minilm_fp32", tmp_path / "model")
    model = onnx.load(tmp_path / "model" / "model.onnx")
    for constant in model.graph.initializer:
        if list(constant.dims) in ([64, 32], [32, 64]):
            values = numpy_helper.to_array(constant).copy()
            if len(values) == 64:
                values[::2] = 0
            values.reshape(-1)[::5] = 0
            constant.CopyFrom(numpy_helper.from_array(values, constant.name))
    onnx.save(model, tmp_path / "model" / "model.onnx")
    done = optimize(tmp_path / "model", "-o", tmp_path / "out", "--max-drop", "0.5")
    assert done.returncode == 0, done.stderr
    assert "note: 0 heads and 64 neurons are zero: they were cut out" in done.stderr
    assert "of the other weights are zero one by one" in done.stderr
    steps = json.loads((tmp_path / "out" / "recipe.json").read_text())["steps"]
    assert [step["step"] for step in steps] == ["prune", "int8"]
    again = optimize(tmp_path / "out", "-o", tmp_path / "twice", "--steps", "prune")
    assert "no head of attention and no neuron is zero [unsupported-model]" in again.stderr


@pytest.fixture
def convolutions(tmp_path: Path) -> Path:
    """Three convolutions; a channel between the last is so large that the others round to nothing."""
    chance = np.random.default_rng(3)
    plain, first, second = (chance.normal(size=(8, 8, 1, 1)).astype(np.float32) for _ in range(3))
    spread = np.ones((1, 8, 1, 1), np.float32)
    spread[0, -1], second[:, -1] = 5000, 1e-5
    constants = {"plain": plain, "first": first, "spread": spread, "second": second}
    nodes = [
        node("Conv", ["x", "plain"], ["usual"], name="zero"),
        node("Conv", ["usual", "first"], ["inner"], name="one"),
        node("Mul", ["inner", "spread"], ["wide"], name="widen"),
        node("Conv", ["wide", "second"], ["y"], name="two"),
    ]
    initializers = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    shape = ["batch", 8, 4, 4]
    graph = helper.make_graph(nodes, "g", [tensor("x", shape)], [tensor("y", shape)], initializers)
    return tiny.save(tmp_path / "model.onnx", graph)


@pytest.mark.slow
def test_sensitive_convolutions_stay_in_float(convolutions: Path, tmp_path: Path) -> None:
    all_of_it = optimize(convolutions, "-o", tmp_path / "all", "--steps", "int8:static")
    assert "[accuracy-lost]" in all_of_it.stderr
    trb("optimize", str(convolutions), "-o", str(tmp_path / "out"))
    (step,) = json.loads((tmp_path / "out" / "recipe.json").read_text())["steps"]
    assert step == {"step": "int8", "how": "static", "excluded": ["one", "two"]}
    again = ("--recipe", str(tmp_path / "out" / "recipe.json"))
    trb("optimize", str(convolutions), "-o", str(tmp_path / "again"), *again)
    one, two = ((tmp_path / name / "model.onnx").read_bytes() for name in ("out", "again"))
    assert one == two

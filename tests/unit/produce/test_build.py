"""Which options, files and graphs make which repository, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
import tiny_onnx as t
from onnx import helper

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan import endpoint, text
from triton_repo_builder.produce import build, limits
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.provenance import Facts


def refused(model: Path, output: Path, code: Code, message: str, **options: Any) -> TrbError:
    with pytest.raises(TrbError) as caught:
        tiny.make(model, output, **options)
    assert (caught.value.code, caught.value.message) == (code, message)
    assert caught.value.remedy
    return caught.value


def parsed(made: build.Build, name: str) -> dict[str, Any]:
    return pbtxt.parse(tiny.config(made, name))


def content(made: build.Build, path: str) -> bytes:
    file = next(file for file in made.files if file.path == path)
    return file.source.read_bytes() if file.source else file.content


def told(made: build.Build) -> tuple[str, ...]:
    """The notes but two that the small exports always have."""
    usual = ("not found beside the model: config_sentence_transformers.json", text.UNPROVEN)
    return tuple(note for note in made.notes if not note.startswith(usual))


FAMILY = "nv_inference_first_response_histogram_ms"


@pytest.mark.parametrize(
    ("options", "has"),
    [
        ({}, False),
        ({"triton_release": "25.12"}, False),
        ({"triton_release": "26.01"}, True),
        ({"triton_release": "26.08"}, True),
        ({"triton_release": "26.08", "metrics": "off"}, False),
    ],
)
def test_latency_buckets_of_the_endpoint_for_releases_that_fill_them(
    tmp_path: Path, output: Path, options: dict[str, Any], has: bool
) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, **options)
    for name in ("bert_tokenizer", "bert_model"):
        assert "model_metrics" not in parsed(made, name)
    assert ("model_metrics" in parsed(made, "bert")) == has
    if has:
        (control,) = parsed(made, "bert")["model_metrics"]["metric_control"]
        assert control["metric_identifier"]["family"] == FAMILY
        buckets = control["histogram_options"]["buckets"]
        assert buckets == sorted(buckets) and buckets[0] == 1


@pytest.mark.parametrize(
    ("options", "name", "source"),
    [
        ({}, "24.10", "embedded"),
        ({"triton_release": "auto"}, "24.10", "embedded"),
        ({"triton_release": "26.06"}, "26.06", "stated"),
        (
            {"target": releases.Target(release=releases.get("26.07"), source="image", why="it is here")},
            "26.07",
            "image",
        ),
    ],
)
def test_the_release_and_its_reason_are_recorded(
    tmp_path: Path, output: Path, options: dict[str, Any], name: str, source: str
) -> None:
    made = tiny.make(tiny.tensor_model(tmp_path / "net.onnx"), output, **options)
    served = made.entry.served
    assert (served.triton_release, served.triton_release_from) == (name, source)
    assert made.release_why


def test_an_embedder(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output)
    assert made.name == "bert"
    assert told(made) == ()
    plain = [file.path for file in made.files if "/vendor/" not in file.path]
    assert plain == [
        "bert/1/.gitkeep",
        "bert/config.pbtxt",
        "bert_model/1/model.onnx",
        "bert_model/1/weights.onnx",
        "bert_model/config.pbtxt",
        "bert_model/warmup/trb_tokens",
        "bert_tokenizer/1/answer_metrics.py",
        "bert_tokenizer/1/long_texts.py",
        "bert_tokenizer/1/metrics.py",
        "bert_tokenizer/1/model.py",
        "bert_tokenizer/1/spans.py",
        "bert_tokenizer/1/tokenizer.json",
        "bert_tokenizer/config.pbtxt",
    ]
    facts = {"pooling": "mean", "normalize": True, "padding": "ragged", "rows": "single"}
    assert made.entry.served.facts == facts
    assert made.entry.to_json()["inputs"] == [{"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}]
    assert made.entry.to_json()["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, 8]}]
    assert [source.file for source in made.entry.served.sources] == ["model.onnx", "tokenizer.json"]
    parameters = parsed(made, "bert_tokenizer")["parameters"]
    assert parameters["max_length"] == {"string_value": "24"}
    assert parameters["unknown_id"] == {"string_value": str(tiny.WORDS.index("[UNK]"))}
    assert "metrics" not in parameters


def test_metrics_off_is_a_parameter_of_the_models_that_count(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, metrics="off")
    for name in ("bert_tokenizer", "bert_model"):
        assert parsed(made, name)["parameters"]["metrics"] == {"string_value": "off"}
    assert "metrics" not in parsed(made, "bert").get("parameters", {})


def test_warm_up_is_a_text_within_the_limit(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert", ids=t.INT32)
    made = tiny.make(folder, output, max_length=6, padding="rows")
    ids = np.frombuffer(content(made, "bert_model/warmup/input_ids"), "<i4")
    assert (len(ids), ids[0], ids[-1]) == (6, 2, 3)
    inputs = parsed(made, "bert_model")["model_warmup"][0]["inputs"]
    assert inputs["input_ids"] == {"data_type": "TYPE_INT32", "dims": [6], "input_data_file": "input_ids"}


def test_a_fixed_length_is_padded_to(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert", length=16), output)
    assert parsed(made, "bert_tokenizer")["parameters"]["pad_to"] == {"string_value": "16"}
    assert parsed(made, "bert_tokenizer")["parameters"]["max_length"] == {"string_value": "16"}
    assert parsed(made, "bert_model")["input"][0]["dims"] == [16]
    assert len(content(made, "bert_model/warmup/input_ids")) == 16 * 8


def test_one_text_at_a_time(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert", batch=1, length=16)
    made = tiny.make(folder, output)
    reason = "the first axis of input 'input_ids' is fixed at 1"
    assert told(made) == (f"served without batching: {reason}",)
    assert parsed(made, "bert_model")["input"][0]["dims"] == [1, 16]
    # Triton compares outputs exactly, and ONNX Runtime infers the 1
    assert parsed(made, "bert_model")["output"][0]["dims"] == [1, 8]
    assert "max_batch_size" not in parsed(made, "bert")
    for options, name in (
        ({"batching": "on"}, "--batching on"),
        ({"max_batch_size": 8}, "--max-batch-size 8"),
        ({"preferred_batch_size": (8,)}, "--preferred-batch-size"),
        ({"max_queue_delay": 5}, "--max-queue-delay"),
    ):
        error = refused(folder, output, Code.NOT_BATCHABLE, f"cannot batch ({name}): {reason}", **options)
        assert "'input_ids'" in error.remedy
    assert tiny.make(folder, output, max_batch_size=1).notes


def test_several_texts_at_a_time_cannot_be_served(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert", batch=4, length=16)
    refused(folder, output, Code.NOT_BATCHABLE, "input 'input_ids' takes exactly 4 texts at a time")
    assert tiny.make(folder, output, task="tensor").name == "bert"


def test_a_text_that_fits_one_input_only(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    _declare(folder, "attention_mask", ["batch", 16])
    message = (
        "input 'attention_mask' takes exactly 16 tokens and 'input_ids' any number, but they are of one text"
    )
    refused(folder, output, Code.UNSUPPORTED_MODEL, message)
    _declare(folder, "input_ids", ["batch", 24])
    message = message.replace("any number", "exactly 24")
    refused(folder, output, Code.UNSUPPORTED_MODEL, message)
    # The other way round every text gets the one length that both take.
    _declare(folder, "attention_mask", ["batch", "sequence"])
    made = tiny.make(folder, output, golden=True)
    assert [entry["dims"] for entry in parsed(made, "bert_model")["input"]] == [[24], [24], [24]]
    _declare(folder, "token_type_ids", [2, "sequence"])
    refused(folder, output, Code.NOT_BATCHABLE, "input 'token_type_ids' takes exactly 2 texts at a time")


def _declare(folder: Path, name: str, shape: list[int | str]) -> None:
    """State another shape for an input or output; the nodes stay as they are."""
    model = onnx.load(folder / "model.onnx")
    value = next(v for v in (*model.graph.input, *model.graph.output) if v.name == name)
    value.CopyFrom(t.tensor(name, shape, value.type.tensor_type.elem_type))
    (folder / "model.onnx").write_bytes(model.SerializeToString())


@pytest.mark.parametrize("golden", [True, False])
def test_an_output_of_one_row_and_open_inputs(golden: bool, tmp_path: Path, output: Path) -> None:
    folder = tiny.classifier(tmp_path / "bert")
    _declare(folder, "logits", [1, 3])
    made = tiny.make(folder, output, golden=golden)
    assert told(made) == ("served without batching: the first axis of output 'logits' is fixed at 1",)
    dims = [entry["dims"] for entry in parsed(made, "bert_model")["output"]]
    assert dims == [[1, 1], [1, 1], [1, 3]]
    # Triton compares these exactly with what ONNX Runtime infers.
    file = next(file for file in made.files if file.path == "bert_model/1/model.onnx")
    (folder / "weights.onnx").hardlink_to(folder / "model.onnx")
    (folder / "served.onnx").write_bytes(file.content)
    served = onnxruntime.InferenceSession(str(folder / "served.onnx"))
    assert [value.shape for value in served.get_outputs()] == dims


def test_an_output_of_several_rows_for_one_text(tmp_path: Path, output: Path) -> None:
    folder = tiny.classifier(tmp_path / "bert")
    _declare(folder, "logits", [2, 3])
    message = "output 'logits' has exactly 2 rows, whatever the number of texts"
    refused(folder, output, Code.UNSUPPORTED_MODEL, message)
    assert tiny.make(folder, output, task="tensor").name == "bert"


# --- names -------------------------------------------------------------------------------------------


def _another_output(folder: Path, name: str) -> Path:
    """The model with its input of that name as an output; else, with a second output of its logits."""
    model = onnx.load(folder / "model.onnx")
    given = {value.name: value for value in model.graph.input}
    if name in given:
        model.graph.output.append(given[name])
    else:
        model.graph.node.append(t.node("Neg", ["logits"], [name]))
        model.graph.output.append(t.tensor(name, ["batch", 3]))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def test_a_raw_output_called_like_what_the_tokenizer_sends(tmp_path: Path, output: Path) -> None:
    folder = _another_output(tiny.classifier(tmp_path / "bert"), "attention_mask")
    made = tiny.make(folder, output, raw_output=True)
    tokenizer, model = parsed(made, "bert")["ensemble_scheduling"]["step"]
    assert tokenizer["output_map"]["attention_mask"] == "trb_attention_mask"
    assert tokenizer["output_map"]["input_ids"] == "input_ids"
    assert model["input_map"]["attention_mask"] == "trb_attention_mask"
    assert model["output_map"] == {"logits": "logits", "attention_mask": "attention_mask"}


@pytest.mark.parametrize("name", ["trb_tokens", "trb_lengths", "trb_types", "trb_places"])
def test_a_raw_output_called_like_a_tensor_of_the_front(name: str, tmp_path: Path, output: Path) -> None:
    made = tiny.make(_another_output(tiny.classifier(tmp_path / "bert"), name), output, raw_output=True)
    assert made.entry.served.facts["padding"] == "batch"
    assert f"output '{name}' is called like a tensor of the front" in told(made)[0]
    assert [entry["name"] for entry in parsed(made, "bert")["output"]] == ["logits", name]


@pytest.mark.parametrize("name", ["begin", "length", "order", "group_starts"])
def test_a_raw_output_called_like_what_the_loop_knows(name: str, tmp_path: Path, output: Path) -> None:
    made = tiny.make(_another_output(tiny.classifier(tmp_path / "bert"), name), output, raw_output=True)
    assert made.entry.served.facts["rows"] == "single"
    assert [entry["name"] for entry in parsed(made, "bert_model")["output"]] == ["logits", name]


@pytest.mark.parametrize("golden", [False, True])
def test_a_raw_output_whose_width_the_graph_does_not_state(
    golden: bool, tmp_path: Path, output: Path
) -> None:
    """ONNX Runtime infers it; in what the loop gives it must still be there."""
    folder = tiny.classifier(tmp_path / "bert")
    model = onnx.load(folder / "model.onnx")
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "width"
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    made = tiny.make(folder, output, golden=golden, raw_output=True)
    assert made.entry.served.facts["rows"] == ("groups" if golden else "single")
    assert parsed(made, "bert_model")["output"][0]["dims"] == [3]


def test_raw_strings_are_not_carried_by_a_loop(tmp_path: Path, output: Path) -> None:
    folder = _another_output(tiny.classifier(tmp_path / "bert"), "spelt")
    model = onnx.load(folder / "model.onnx")
    del model.graph.node[-1]
    model.graph.node.append(t.node("Cast", ["logits"], ["spelt"], to=t.STRING))
    model.graph.output[-1].type.tensor_type.elem_type = t.STRING
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    made = tiny.make(folder, output, golden=True, raw_output=True)
    assert made.entry.served.facts["padding"] == "batch"
    assert "output 'spelt' is of strings" in told(made)[0]


def test_a_raw_output_called_like_the_input(tmp_path: Path, output: Path) -> None:
    folder = _another_output(tiny.classifier(tmp_path / "bert"), "TEXT")
    message = "--raw-output: the model's output 'TEXT' has the name of the endpoint's input"
    refused(folder, output, Code.UNSUPPORTED_MODEL, message, raw_output=True)
    assert tiny.make(folder, output).plan.task == "text-classification"


def test_a_batch_size_of_one(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, max_batch_size=1)
    assert {parsed(made, name)["max_batch_size"] for name in ("bert", "bert_model", "bert_tokenizer")} == {1}


# --- lengths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sbert", "fixed", "wanted", "expected"),
    [
        (None, 0, None, 24),
        (None, 0, 12, 12),
        (20, 0, None, 20),
        (20, 0, 32, 32),  # the limit of sentence-transformers is no limit of the model
        (100, 0, None, 32),  # its positions are
        (20, 16, None, 16),
        (10, 16, None, 10),
        (10, 16, 16, 16),
    ],
)
def test_lengths(
    sbert: int | None, fixed: int, wanted: int | None, expected: int, tmp_path: Path, output: Path
) -> None:
    folder = tiny.embedder(tmp_path / "bert", length=fixed or "sequence")
    if sbert:
        tiny.put_json(folder / "sentence_bert_config.json", {"max_seq_length": sbert})
    made = tiny.make(folder, output, max_length=wanted)
    assert parsed(made, "bert_tokenizer")["parameters"]["max_length"] == {"string_value": str(expected)}


@pytest.mark.parametrize(
    ("sbert", "fixed", "wanted", "message"),
    [
        (None, 0, 25, "25 is more than the model's maximum of 24 (tokenizer_config.json)"),
        (None, 16, 17, "17 is more than the model's maximum of 16 (the graph)"),
        (10, 16, 17, "17 is more than the model's maximum of 16 (the graph)"),
        (20, 0, 33, "33 is more than the model's maximum of 32 (config.json)"),
        (None, 0, 2, "--max-length allows 2 tokens, and 2 of each text are special ones"),
        (None, 0, 1, "--max-length allows 1 tokens, and 2 of each text are special ones"),
    ],
)
def test_lengths_that_cannot_be(
    sbert: int | None, fixed: int, wanted: int, message: str, tmp_path: Path, output: Path
) -> None:
    folder = tiny.embedder(tmp_path / "bert", length=fixed or "sequence")
    if sbert:
        tiny.put_json(folder / "sentence_bert_config.json", {"max_seq_length": sbert})
    refused(folder, output, Code.USAGE, message, max_length=wanted)


@pytest.mark.parametrize("golden", [True, False])
def test_padding_beyond_the_positions(golden: bool, tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    tiny.put_json(folder / "sentence_bert_config.json", {"max_seq_length": 20})
    message = "33 is more than the model's maximum of 32 (config.json)"
    error = refused(folder, output, Code.USAGE, message, padding="fixed:33", golden=golden)
    assert (error.where, error.remedy) == ("--padding", "lower it")
    tiny.make(folder, output, padding="fixed:32", golden=golden)


def test_positions_without_a_table_are_no_limit(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    tiny.put_json(folder / "sentence_bert_config.json", {"max_seq_length": 20})
    tiny.put_json(folder / "config.json", {"model_type": "modernbert", "max_position_embeddings": 32})
    made = tiny.make(folder, output, max_length=100)
    assert parsed(made, "bert_tokenizer")["parameters"]["max_length"] == {"string_value": "100"}


def test_files_that_leave_no_room_for_text(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    tiny.put_json(folder / "sentence_bert_config.json", {"max_seq_length": 2})
    message = "sentence_bert_config.json allows 2 tokens, and 2 of each text are special ones"
    error = refused(folder, output, Code.TOKENIZER_INVALID, message)
    assert error.remedy == "set --max-length to 3 or more"
    tiny.make(folder, output, max_length=3)


def test_no_limit_anywhere(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    for name in ("config.json", "tokenizer_config.json"):
        tiny.put_json(folder / name, {})
    made = tiny.make(folder, output)
    assert "no file says how many tokens the model can take" in told(made)[0]
    assert parsed(made, "bert_tokenizer")["parameters"]["max_length"] == {"string_value": "0"}


# --- tokenizers --------------------------------------------------------------------------------------


def test_a_tokenizer_of_another_model(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert", rows=40)
    last = len(tiny.WORDS) - 1
    error = refused(
        folder,
        output,
        Code.TOKENIZER_MISMATCH,
        f"the tokenizer's ids go up to {last}, but its embedding table has 40 rows (0 to 39)",
    )
    assert error.where == str(folder / "tokenizer.json")


def test_an_added_token_beyond_the_table_is_refused_in_a_text(tmp_path: Path, output: Path) -> None:
    """EmbeddingGemma has a token for images, which no text reaches that does not spell it."""
    folder = tiny.embedder(tmp_path / "bert", rows=len(tiny.WORDS))
    file = folder / "tokenizer.json"
    document = json.loads(file.read_text())
    added = {"id": len(tiny.WORDS), "content": "<image>", "special": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document["added_tokens"].append(added | plain)
    file.write_text(json.dumps(document))
    made = tiny.make(folder, output, golden=True)
    rows = str(len(tiny.WORDS))
    assert parsed(made, "bert_tokenizer")["parameters"]["vocabulary"] == {"string_value": rows}
    assert any("a text that spells '<image>' is refused" in note for note in told(made))


def test_exactly_as_many_rows_as_ids(tmp_path: Path, output: Path) -> None:
    tiny.make(tiny.embedder(tmp_path / "bert", rows=len(tiny.WORDS)), output)


def test_a_text_model_without_tokenizer_is_served_as_tensors(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.text_model(tmp_path / "m.onnx"), output)
    assert (made.name, len(made.plan.models)) == ("m", 1)
    assert made.notes == (
        "no tokenizer.json beside the model: served as plain tensors (name one with --tokenizer)",
        endpoint.UNPROVEN,
    )
    one = tiny.make(tmp_path / "m.onnx", output, max_batch_size=1)
    assert endpoint.UNPROVEN not in (*one.notes, *tiny.make(tmp_path / "m.onnx", output, golden=True).notes)
    given = tiny.tokenizer(tmp_path / "elsewhere" / "mine.json")
    tiny.pooling(given.parent)
    assert tiny.make(tmp_path / "m.onnx", output, tokenizer=given).entry.served.task == "embedding"


# --- other models ------------------------------------------------------------------------------------


def test_a_tensor_model_is_the_file_itself(tmp_path: Path, output: Path) -> None:
    path = tiny.tensor_model(tmp_path / "net.onnx")
    made = tiny.make(path, output)
    assert content(made, "net/1/model.onnx") == path.read_bytes()
    assert {file.path for file in made.files} == {"net/1/model.onnx", "net/config.pbtxt"}


def test_external_data_keeps_its_name_and_place(tmp_path: Path, output: Path) -> None:
    path = tiny.tensor_model(tmp_path / "net.onnx")
    (tmp_path / "sub").mkdir()
    tiny.externalise(path, "sub/net.data")
    tiny.put(path, output)
    session = onnxruntime.InferenceSession(str(output / "net" / "1" / "model.onnx"))
    assert session.run(None, {"X": np.ones((1, 32), np.float32)})[0].shape == (1, 32)


def test_external_data_called_weights(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    tiny.externalise(folder / "model.onnx", "weights.onnx")
    made = tiny.make(folder, output)
    assert content(made, "bert_model/1/weights.onnx") == (folder / "weights.onnx").read_bytes()


def test_external_data_called_like_the_served_model(tmp_path: Path, output: Path) -> None:
    path = tiny.externalise(tiny.tensor_model(tmp_path / "net.onnx"), "model.onnx")
    refused(
        path,
        output,
        Code.UNSUPPORTED_MODEL,
        "its external data is in a file or folder called 'model.onnx', the name of the served model",
    )


@pytest.mark.parametrize(
    ("name", "role"),
    [("model.onnx", "the served model"), ("shared", "the folder of the version's own files")],
)
def test_external_data_in_a_folder_called_like_one_of_ours(
    name: str, role: str, tmp_path: Path, output: Path
) -> None:
    (tmp_path / name).mkdir()
    path = tiny.externalise(tiny.tensor_model(tmp_path / "net.onnx"), f"{name}/data")
    message = f"its external data is in a file or folder called '{name}', the name of {role}"
    refused(path, output, Code.UNSUPPORTED_MODEL, message)


def test_external_data_under_every_name_of_ours(tmp_path: Path, output: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = {"weights.onnx": "A", "weights_1.onnx": "B", "weights_2.onnx": "C", "weights_3.onnx/x": "D"}
    made_of = [tiny.numpy_helper.from_array(tiny.weights(32, 32), name) for name in weights.values()]
    inner = tiny.numpy_helper.from_array(tiny.weights(32, 32), "E")
    nodes = [t.node("Sum", ["X", *weights.values(), "E"], ["Y"])]
    shape = [32, 32]
    graph = helper.make_graph(nodes, "g", [t.tensor("X", shape)], [t.tensor("Y", shape)], [*made_of, inner])
    for location, item in zip(weights, graph.initializer, strict=False):
        file = tmp_path / location
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(item.raw_data)
        onnx.external_data_helper.set_external_data(item, location, offset=0, length=len(item.raw_data))
        item.ClearField("raw_data")
    made = tiny.make(tiny.save(path, graph, ir_version=11), output)
    assert content(made, "net/1/weights_4.onnx") == path.read_bytes()


def test_a_newer_ir_version_is_lowered(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.tensor_model(tmp_path / "net.onnx", ir_version=11), output)
    assert {file.path for file in made.files} == {
        "net/1/model.onnx",
        "net/1/weights.onnx",
        "net/config.pbtxt",
    }
    assert made.entry.served.ir_version == 10
    made = tiny.make(tmp_path / "net.onnx", output, triton_release="26.01")
    assert content(made, "net/1/model.onnx") == (tmp_path / "net.onnx").read_bytes()


def test_operator_sets_that_are_too_new(tmp_path: Path, output: Path) -> None:
    path = tiny.tensor_model(tmp_path / "net.onnx", opset=22)
    error = refused(
        path,
        output,
        Code.TOO_NEW,
        "opset 22 is too new for Triton 24.10, whose ONNX Runtime 1.19.2 takes up to 21",
    )
    older = f"export with opset 21 or older ({limits.OPSET_OPTIONS})"
    assert error.remedy == f"{older}, or target --triton-release 25.03"
    tiny.make(path, output, triton_release="25.03")
    path = tiny.tensor_model(tmp_path / "net.onnx", opset=99)
    with pytest.raises(TrbError, match="no known release can load it"):
        tiny.make(path, output)


def graph(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], **options: Any) -> Path:
    path.write_bytes(t.model(nodes, inputs, outputs, **options))
    return path


def test_a_model_without_inputs(tmp_path: Path, output: Path) -> None:
    value = helper.make_tensor("v", t.FLOAT, [2], [1.0, 2.0])
    path = graph(tmp_path / "m.onnx", [t.node("Constant", [], ["Y"], value=value)], [], [t.tensor("Y", [2])])
    refused(path, output, Code.UNSUPPORTED_MODEL, "the model has no inputs")


def test_an_output_that_is_listed_twice(tmp_path: Path, output: Path) -> None:
    both = [t.tensor("Y", ["n", 2])] * 2
    path = graph(tmp_path / "m.onnx", [t.node("Relu", ["X"], ["Y"])], [t.tensor("X", ["n", 2])], both)
    refused(path, output, Code.UNSUPPORTED_MODEL, "two outputs are called 'Y'")


@pytest.mark.parametrize(
    ("shape", "batch", "dims", "reshape"),
    [([], False, [1], None), (["n"], True, [1], {}), ([3], False, [3], None)],
)
def test_small_ranks(
    shape: list[Any], batch: bool, dims: list[int], reshape: Any, tmp_path: Path, output: Path
) -> None:
    path = graph(
        tmp_path / "m.onnx", [t.node("Neg", ["X"], ["Y"])], [t.tensor("X", shape)], [t.tensor("Y", shape)]
    )
    for golden in (False, True):
        made = tiny.make(path, output, golden=golden)
        config = parsed(made, "m")
        assert config.get("max_batch_size", 0) == (32 if batch else 0)
        assert (config["input"][0]["dims"], config["input"][0].get("reshape")) == (dims, reshape)
    case = json.loads(content(made, "m/smoke.json"))["cases"][0]
    # what a client must send: the sizes of config.pbtxt
    expected = [1, 1] if batch else dims
    assert case["inputs"][0]["shape"] == case["outputs"][0]["shape"] == expected


def test_names_of_tensors_are_taken_as_they_are(tmp_path: Path, output: Path) -> None:
    name = 'in "put":0/\\ü'
    path = graph(
        tmp_path / "m.onnx",
        [t.node("Not", [name], ["Identity:0"])],
        [t.tensor(name, ["n", 2], t.BOOL)],
        [t.tensor("Identity:0", ["n", 2], t.BOOL)],
    )
    made = tiny.make(path, output, golden=True)
    assert parsed(made, "m")["input"] == [{"name": name, "data_type": "TYPE_BOOL", "dims": [2]}]


@pytest.mark.parametrize("golden", [False, True])
def test_strings(golden: bool, tmp_path: Path, output: Path) -> None:
    shape: list[Any] = ["n", 2]
    path = graph(
        tmp_path / "m.onnx",
        [t.node("Identity", ["X"], ["Y"])],
        [t.tensor("X", shape, t.STRING)],
        [t.tensor("Y", shape, t.STRING)],
    )
    made = tiny.make(path, output, golden=golden)
    assert parsed(made, "m")["output"][0]["data_type"] == "TYPE_STRING"


def test_limits_of_a_queue_are_those_of_each_model(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.classifier(tmp_path / "c"), output, max_queue_size=8, queue_timeout=500)
    for model in ("c_tokenizer", "c_model"):
        policy = parsed(made, model)["dynamic_batching"]["default_queue_policy"]
        assert policy == {"default_timeout_microseconds": 500, "max_queue_size": 8}


def test_levels_of_requests_are_those_of_each_model(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.classifier(tmp_path / "c"), output, priority_levels=3)
    for model in ("c_tokenizer", "c_model"):
        block = parsed(made, model)["dynamic_batching"]
        assert (block["priority_levels"], block["default_priority_level"]) == (3, 3)


@pytest.mark.parametrize(("label", "licence"), [((), "apache-2.0"), ((("license", "mit"),), "mit")])
def test_the_licence_of_a_folder_is_that_of_its_card(
    tmp_path: Path, output: Path, label: tuple[tuple[str, str], ...], licence: str
) -> None:
    folder = tiny.classifier(tmp_path / "c")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    entry = tiny.make(folder, output, label=label).entry.served
    assert entry.provenance.labels == {"license": licence}
    assert Facts.of_entry("c", entry).license == licence


def test_labels_are_written_beside_the_model(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.classifier(tmp_path / "c"), output)
    assert content(made, "c_model/labels.txt") == b"label 0\nlabel 1\nlabel 2\n"
    assert parsed(made, "c_model")["output"][2]["label_filename"] == "labels.txt"


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "manifest.json"])
def test_names_are_checked_before_anything_is_read(name: str, tmp_path: Path, output: Path) -> None:
    refused(
        tmp_path / "absent.onnx",
        output,
        Code.BAD_NAME,
        f"'{name}' cannot be the name of a Triton model",
        name=name,
    )


def test_an_unknown_release(tmp_path: Path, output: Path) -> None:
    path = tiny.tensor_model(tmp_path / "net.onnx")
    refused(path, output, Code.USAGE, "unknown Triton release '99.99'", triton_release="99.99")


# --- rows that depend on each other ------------------------------------------------------------------


@pytest.mark.parametrize("batching", ["auto", "on"])
def test_a_text_model_that_reads_padding_runs_row_by_row(batching: str, tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert", mask="none")
    made = tiny.make(folder, output, batching=batching, golden=True)
    assert told(made) == ()
    facts = {"pooling": "mean", "normalize": True, "padding": "ragged", "rows": "single"}
    assert made.entry.served.facts == facts
    assert parsed(made, "bert")["max_batch_size"] == 32
    assert json.loads(content(made, "bert/smoke.json"))["cases"][0]["inputs"][0]["shape"] == [1, 1]


def test_without_golden_cases_nothing_shows_that_padding_is_not_read(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert", mask="inner")
    made = tiny.make(folder, output)
    assert made.entry.served.facts["rows"] == "single"
    assert f"row by row, unpadded: {text.UNMASKED}" in dict(made.settings.explained())["padding"].reason
    assert "max_batch_size" in parsed(made, "bert")
    # With them it has been seen.
    assert tiny.make(folder, output, golden=True).entry.served.facts["rows"] == "groups"
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, output, padding="fixed:24")
    assert caught.value.message == f"fixed:24 changes answers: {text.UNMASKED}"
    # A masked model is joined all the same, and the build says what it does not know.
    assert text.UNPROVEN in tiny.make(tiny.embedder(tmp_path / "masked"), output).notes


def test_a_tensor_model_whose_rows_mix_is_served_without_batching(tmp_path: Path, output: Path) -> None:
    path = graph(
        tmp_path / "m.onnx",
        [t.node("Softmax", ["X"], ["Y"], axis=0)],
        [t.tensor("X", ["n", 3])],
        [t.tensor("Y", ["n", 3])],
    )
    made = tiny.make(path, output, golden=True)
    assert made.notes == ("served without batching: rows of output 'Y' depend on each other",)
    assert parsed(made, "m")["input"][0]["dims"] == [-1, 3]
    message = "cannot batch (--preferred-batch-size): rows of output 'Y' depend on each other"
    refused(path, output, Code.NOT_BATCHABLE, message, golden=True, preferred_batch_size=(4,))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"task": "tensor", "max_length": 5}, "--max-length"),
        ({"task": "text-classification", "pooling": "mean"}, "--pooling"),
        ({"task": "text-classification", "normalize": True}, "--normalize"),
        ({"task": "text-classification", "aggregation": "max"}, "--aggregation"),
        ({"task": "text-classification", "handle_impossible_answer": True}, "--handle-impossible-answer"),
        ({"task": "text-classification", "top_k": 3}, "--top-k"),
        ({"task": "text-classification", "hypothesis_template": "{}"}, "--hypothesis-template"),
        ({"task": "text-classification", "multi_label": True}, "--multi-label"),
    ],
)
def test_options_that_a_task_would_ignore(
    options: dict[str, Any], field: str, tmp_path: Path, output: Path
) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.classifier(tmp_path / "bert"), output, **options)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, field)
    assert caught.value.message == f"does not apply to task {options['task']}"


def test_logits_are_no_embedding(tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.classifier(tmp_path / "bert"), output, task="embedding")
    assert caught.value.code == Code.TASK_UNCLEAR


@pytest.mark.parametrize(
    ("options", "padding"),
    [
        ({}, "ragged"),
        ({"padding": "batch"}, "batch"),
        ({"padding": "rows"}, "rows"),
        ({"padding": "fixed:12"}, "fixed:12"),
    ],
)
def test_padding(options: dict[str, Any], padding: str, tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, **options)
    assert made.entry.served.facts["padding"] == padding
    model = parsed(made, "bert_model")
    assert ("batch_input" in model) == (padding == "ragged")
    assert ("pad_together" in parsed(made, "bert_tokenizer")["parameters"]) == (padding == "batch")
    if padding == "fixed:12":
        assert model["input"][0]["dims"] == [12]
        assert parsed(made, "bert_tokenizer")["parameters"]["max_length"] == {"string_value": "12"}


def test_what_the_ragged_front_cannot_take_is_said(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert", batch=1), output)
    assert made.entry.served.facts["padding"] == "rows"
    assert told(made) == ("served without batching: the first axis of input 'input_ids' is fixed at 1",)


def test_where_the_graph_takes_no_front_the_tokenizers_batch_is_padded(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    model = onnx.load(folder / "model.onnx")
    for spec in model.graph.input:
        if spec.name == "attention_mask":
            spec.type.tensor_type.elem_type = t.FLOAT
    for node in model.graph.node:
        node.input[:] = ["whole_mask" if name == "attention_mask" else name for name in node.input]
    model.graph.node.insert(0, t.node("Cast", ["attention_mask"], ["whole_mask"], to=t.INT64))
    onnx.save(model, folder / "model.onnx")
    made = tiny.make(folder, output, golden=True)
    assert made.entry.served.facts["padding"] == "batch"
    assert told(made) == (
        "no ragged front, rows are padded to the longest of the tokenizer's batch (on a CPU measure "
        "--padding rows, too): input 'attention_mask' is float, not int32 or int64",
    )
    fixed = tiny.make(tiny.embedder(tmp_path / "fixed", length=20), output)
    assert told(fixed) == ("no ragged front, rows are padded by the tokenizer: every text has 20 tokens",)


def test_an_answer_is_never_as_long_as_somebody_elses_text(tmp_path: Path, output: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, output, raw_output=True, padding="batch")
    assert (caught.value.where, caught.value.remedy) == ("--padding", "use --padding rows")


def test_raw_output_keeps_the_models_own_outputs(tmp_path: Path, output: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), output, raw_output=True, golden=True)
    assert made.entry.served.task == "raw-output"
    # An answer per token is as long as its text: only texts of one length may share a batch.
    assert made.entry.served.facts == {"padding": "rows"}
    assert made.entry.to_json()["outputs"] == [
        {"name": "last_hidden_state", "datatype": "FP32", "shape": [-1, -1, 8]}
    ]
    assert made.notes[-1].endswith("output 'last_hidden_state' is as long as its row")
    scores = tiny.make(tiny.classifier(tmp_path / "classifier"), output, raw_output=True, golden=True)
    assert scores.entry.served.facts == {"padding": "ragged", "rows": "groups"}
    assert scores.entry.to_json()["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 3]}]
    assert all("labels.txt" not in file.path for file in scores.files)


def test_raw_output_and_pooling_contradict(tmp_path: Path, output: Path) -> None:
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.embedder(tmp_path / "bert"), output, raw_output=True, pooling="mean")
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--pooling")
